"""Deciding between variants on paired differences and their noise."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from scipy.stats import sem

from pairtune.tune.tried import choose_finalists, choose_winner, common_noise, compare, judge

FOLDS = range(1, 11)


def scores(values):
    return dict(zip(FOLDS, values, strict=False))


def test_hard_folds_do_not_hide_a_gain_that_is_the_same_on_all_of_them():
    base = scores([0.9, 0.5, 0.7, 0.3])
    found = compare({fold: score + 0.01 for fold, score in base.items()}, base)
    assert found.gain == pytest.approx(0.01) and found.error == pytest.approx(0, abs=1e-9)
    assert judge(found, 10) == "better"


def test_the_error_is_the_standard_error_of_the_differences():
    rng = np.random.default_rng(0)
    one, other = scores(rng.normal(size=6)), scores(rng.normal(size=8))
    expected = sem([one[fold] - other[fold] for fold in range(1, 7)])
    assert compare(one, other).error == pytest.approx(expected)


def test_one_fold_alone_decides_nothing_until_the_noise_is_known():
    assert compare({1: 0.1}, {1: 0.9}).error == inf
    assert judge(compare({1: 0.1}, {1: 0.9}), 10) == "open"
    assert judge(compare({1: 0.1}, {1: 0.9}, noise=0.02), 10) == "dropped"
    assert judge(compare({1: 0.9}, {1: 0.1}, noise=0.02), 10) == "open"  # a winner needs four


def test_folds_that_only_one_side_has_do_not_count():
    assert compare({1: 0.5, 2: 0.9}, {1: 0.4, 3: 0.1}).folds == 1


def test_noise_is_pooled_over_candidates_that_differ_from_the_base_by_any_amount():
    rng = np.random.default_rng(1)
    base = scores(rng.normal(size=10))
    others = [{fold: base[fold] + shift + rng.normal(scale=0.02) for fold in FOLDS} for shift in (-1, 0, 3)]
    assert common_noise(others, base) == pytest.approx(0.02, rel=0.3)
    assert common_noise([{1: 0.3}], base) is None


def test_a_challenger_that_is_not_ahead_after_four_folds_is_dropped():
    base = scores([0.5] * 4)
    level = scores([0.51, 0.49, 0.52, 0.48])
    assert judge(compare(level, base), 10) == "dropped"
    assert judge(compare(scores([0.51, 0.49, 0.54, 0.48]), base), 10) == "open"
    assert judge(compare(scores([0.51, 0.49, 0.54, 0.48]), base), 4) == "tie"


def test_of_two_that_cannot_be_told_apart_the_simpler_is_taken():
    base = scores([0.50, 0.52, 0.48, 0.51])
    much = {fold: score + gain for (fold, score), gain in zip(base.items(), (0.10, 0.12, 0.11, 0.09), strict=True)}
    same = {fold: score + gain for (fold, score), gain in zip(much.items(), (0.01, -0.01, 0.01, 0.0), strict=True)}
    assert choose_winner([base, same, much], [0, 3, 1], 4) == 2
    assert choose_winner([base, same, much], [0, 1, 3], 4) == 1


def test_two_lucky_folds_do_not_make_a_winner():
    base = scores([0.5, 0.5, 0.5, 0.5])
    assert choose_winner([base, {1: 0.9, 2: 0.9}], [0, 1], 10) == 0


def race_of(rng, effect, variants=8, folds=10, noise=0.01):
    hardness = rng.normal(scale=0.1, size=folds)
    all_scores = [scores(hardness + rng.normal(scale=noise, size=folds)) for _ in range(variants)]
    all_scores[3] = {fold: score + effect for fold, score in all_scores[3].items()}
    return choose_winner(all_scores, [0] + [1] * (variants - 1), folds)


def test_a_real_gain_is_found_and_mere_luck_seldom_wins_though_folds_differ_ten_times_as_much():
    rng = np.random.default_rng(2)
    found = [race_of(rng, effect=0.02) for _ in range(100)]
    assert np.mean([place == 3 for place in found]) > 0.95


def test_the_starting_recipe_is_averaged_with_a_winner_that_is_another_one():
    base = dict.fromkeys(range(1, 6), 0.5)
    better = {fold: 0.6 + fold / 1000 for fold in base}
    assert choose_finalists([base, better], 1, 5, 2) == [0]
    assert choose_finalists([base], 0, 5, 2) == []  # then other seeds of it are


def test_what_is_clearly_behind_the_winner_or_was_tried_on_few_folds_is_not_averaged_with_it():
    base = dict.fromkeys(range(1, 6), 0.5)
    winner = {fold: 0.6 + fold / 1000 for fold in base}
    alike, behind, few = ({fold: winner[fold] - less for fold in folds} for less, folds in ((0, base), (0.05, base), (0, (1, 2))))
    assert choose_finalists([base, winner, behind, few, alike], 1, 5, 3) == [0, 4]
    assert choose_finalists([base, winner, behind, few, alike], 1, 5, 1) == [0]
