"""How much may be tried; time is a number here, no clock runs."""

from __future__ import annotations

from math import inf

import pytest

from pairtune.tune.ledger import Entry
from pairtune.tune.plan import FEW_FOLDS, FEWEST_PAIRS, MANY_FOLDS, Budget, Speed, count_folds, fit_pairs


def entry(seconds, claimed=()):
    folds = dict(enumerate(seconds, 1))
    return Entry(0, {}, dict.fromkeys(folds, 0.5), dict.fromkeys(folds, 0.4), folds, frozenset(claimed), "")


def at(now, **limits):
    return Budget(**{"seconds": None, "trainings": None, **limits}, clock=lambda: now, begun=0.0)


def test_the_last_training_always_fits_into_the_time():
    tried = [entry([10, 10, 10])]
    for now in range(30, 130, 10):
        left = at(now, seconds=120, last=3.0).left(tried)
        assert now + left * 10 + 3.0 * 10 <= 120 or left == 0
    assert at(30, seconds=120, last=3.0).left(tried) == 5


def test_jobs_make_more_trainings_in_the_same_time():
    assert at(0, seconds=112, jobs=4).left([entry([10])]) == 4 * at(0, seconds=112).left([entry([10])]) == 40


def test_before_anything_is_known_of_the_time_one_training_may_begin():
    assert at(5, seconds=60).left([entry([])]) == inf
    assert at(61, seconds=60).left([entry([])]) == 0


def test_trainings_that_somebody_is_at_count():
    assert at(0, trainings=10).left([entry([1, 1]), entry([1], claimed=[2])]) == 6


def test_nothing_is_left_out_where_there_is_time_for_all():
    assert fit_pairs(Speed(1.0, 0.001), pairs=3000, dev=300, epochs=3, seconds=600) == 0


@pytest.mark.parametrize("seconds", [300, 600, 900])
def test_fewer_pairs_make_room_for_enough_trainings(seconds):
    speed = Speed(1.0, 0.01)
    pairs = fit_pairs(speed, pairs=3000, dev=300, epochs=3, seconds=seconds)
    assert FEWEST_PAIRS <= pairs < 3000
    fold, whole = speed.seconds(pairs, 3, 300), speed.seconds(3000, 3, 300)
    assert pairs == FEWEST_PAIRS or 24 * fold + whole <= seconds


def test_more_time_means_more_pairs():
    found = [fit_pairs(Speed(1.0, 0.01), pairs=9000, dev=900, epochs=3, seconds=seconds) for seconds in (900, 1800, 2700)]
    assert found == sorted(set(found))


def test_few_trainings_are_judged_by_few_folds_and_too_few_by_none():
    assert [count_folds(trainings) for trainings in (3, 12, 100)] == [0, FEW_FOLDS, MANY_FOLDS]
