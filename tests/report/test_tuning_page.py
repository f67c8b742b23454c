"""The page about a search."""

from __future__ import annotations

import numpy as np
import pytest

from pairtune.report.tuning_page import describe_choice, describe_worth, find_effects, render_tuning
from pairtune.tune.tried import Tried, Tuning


def tried(number, changes, gain, folds=5, ended="dropped"):
    scores = dict.fromkeys(range(1, folds + 1), 0.7 + gain)
    return Tried(
        number=number,
        levels=changes,
        changes=changes,
        scores=scores,
        seconds=12.0,
        folds=folds,
        gain=gain,
        error=0.004,
        ended=ended,
    )


def make_tuning(variants, chosen=0, **others):
    values = {
        "name": "mine-minilm",
        "task": "<b>mine</b>",
        "kind": "ranking",
        "metric": "MAP",
        "encoder": "minilm",
        "reasons": ["because of the pairs"],
        "notes": [],
        "tried": variants,
        "before": {1: 0.6, 2: 0.5},
        "chosen": chosen,
        "recipe": {},
        "untried": 4,
        "importance": {"order": 0.75, "mix": 0.25},
        "noise": 0.01,
        "seconds": 100.0,
    }
    return Tuning(**{**values, **others})


BASE = tried(0, {}, 0.0)
RATE, ORDER = {"learning rate": "5e-05"}, {"order": "examples"}


def test_effects_of_settings_that_were_tried_together_are_told_apart():
    variants = [BASE, tried(1, RATE, 0.03), tried(2, ORDER, -0.01), tried(3, {**RATE, **ORDER}, 0.02)]
    effects = {(one.axis, one.level): one for one in find_effects(make_tuning(variants))}
    assert effects["learning rate", "5e-05"].gain == pytest.approx(0.03)
    assert effects["order", "examples"].gain == pytest.approx(-0.01)
    assert [one.variants for one in effects.values()] == [2, 2]


def test_the_error_of_an_effect_that_one_candidate_has_is_that_of_its_mean():
    [effect] = find_effects(make_tuning([BASE, tried(1, RATE, 0.03, folds=4)]))
    assert effect.error == pytest.approx(0.01 / np.sqrt(4))


def test_the_choice_says_how_sure_it_is():
    better = [BASE, tried(1, RATE, 0.03, ended="better")]
    assert "Chosen: learning rate 5e-05; MAP +0.0300 ± 0.0040" in describe_choice(make_tuning(better, chosen=1))
    assert describe_choice(make_tuning([BASE])).startswith("1 variant in 5 trainings, 1 min 40 s. ")
    assert describe_choice(make_tuning([tried(0, {}, 0.0, folds=1)])).startswith("1 variant in 1 training, ")
    assert "no other variant was clearly better" in describe_choice(make_tuning(better))


def test_more_time_is_said_to_be_worth_what_is_open():
    open_end = make_tuning([BASE, tried(1, RATE, 0.003, ended="tie"), tried(2, ORDER, -0.02)])
    said = " ".join(describe_worth(open_end))
    assert "Variant 1 (learning rate 5e-05) was ahead of the choice by +0.0030 ± 0.0026 on 5 folds, which is not sure" in said
    assert "0 of 2 challengers" in said and "4 of the choice's nearest neighbors were not tried" in said
    settled = make_tuning([BASE, tried(1, RATE, 0.03, ended="better")], chosen=1, untried=0)
    assert "what is left is further away" in " ".join(describe_worth(settled))


def test_the_page_shows_every_candidate_and_escapes_names():
    failed = tried(3, {"mix": "0.3"}, 0.0, folds=0, ended="failed: x")
    variants = [BASE, tried(1, RATE, 0.03, ended="better"), tried(2, ORDER, -0.01), failed]
    page = render_tuning(make_tuning(variants, chosen=1), 'name = "tuned"')
    assert "<b>mine</b>" not in page and "&lt;b&gt;mine&lt;/b&gt;" in page
    assert page.count('<td class="text">not better</td>') == 1 and ">chosen</td>" in page and "failed: x" in page
    assert "order 75 %" in page and "because of the pairs" in page


def test_a_search_with_no_time_for_challengers_has_a_page():
    page = render_tuning(make_tuning([BASE], noise=None, importance={}), "")
    assert "No other variant was tried" in page
