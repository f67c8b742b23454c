"""The rules that choose a recipe for one's own data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pairtune.data.pairs import PairSet, Task
from pairtune.runs.settings import unread_settings
from pairtune.runs.toml import shipped_recipes
from pairtune.tune.rules import MANY_PAIRS, RULES, choose

METRICS = {"retrieval": "HP@1", "regression": "Spearman", "ranking": "MAP", "classification": "F1"}


def task_of(kind, pairs):
    return Task("mine", kind, pairs, pairs, pairs, METRICS[kind], (METRICS[kind],))


def pairs_of(labels, per_left=1):
    labels = np.asarray(labels, np.float32)
    return PairSet.of(
        [f"left {row // per_left}" for row in range(len(labels))], [f"right {row}" for row in range(len(labels))], labels
    )


@pytest.mark.parametrize(
    ("kind", "pairs", "recipe"),
    [
        ("retrieval", pairs_of([1] * 12), "own/positives"),
        ("regression", pairs_of([0, 0.2, 0.4, 1] * 3), "own/grades"),
        ("regression", pairs_of([0, 0.2, 0.4, 1] * 3, per_left=4), "own/grades"),
        ("ranking", pairs_of([0, 0, 1] * 4, per_left=3), "own/answers"),
        ("classification", pairs_of([0, 1] * 6, per_left=4), "own/answers"),
        ("classification", pairs_of([0, 1] * 6), "own/labelled"),
    ],
)
def test_each_kind_of_data_has_its_recipe_and_hears_why(kind, pairs, recipe):
    choice = choose(task_of(kind, pairs))
    assert choice.recipe.name == recipe
    assert len(choice.reasons) == 3
    assert choice.reasons[0].startswith(f"data: {kind}: 12 pairs")
    assert recipe in choice.reasons[1]
    assert "epoch 0 is the original encoder" in choice.reasons[2]


def test_what_a_user_sets_is_laid_over_the_choice_and_is_in_the_reasons():
    choice = choose(task_of("retrieval", pairs_of([1] * 12)), ["train.epochs=7", "loss.temperature=0.05"])
    assert choice.recipe.stages[0].loss.temperature == 0.05
    assert "7 epochs" in choice.reasons[2]


def test_a_choice_for_pairs_with_negatives_sets_nothing_that_is_not_read():
    pairs = replace(pairs_of([1] * 12), negatives=[("a wrong text",)] * 12)
    recipe = choose(task_of("retrieval", pairs)).recipe
    assert recipe.stages[0].train.negatives == "given" and not unread_settings(recipe)


def test_very_many_pairs_are_seen_once():
    choice = choose(task_of("retrieval", pairs_of([1] * (MANY_PAIRS + 1))))
    assert choice.recipe.stages[0].train.epochs == 1
    assert "1 epoch," in choice.reasons[2]


def test_every_recipe_that_the_rules_name_is_shipped_and_keeps_the_best_epoch():
    assert {rule.recipe for rule in RULES} <= set(shipped_recipes())
    assert {choose(task_of("retrieval", pairs_of([1] * 12))).recipe.select} == {"best"}


@pytest.mark.parametrize("fast", ["bf16", "float32"])
def test_it_is_computed_as_the_device_is_fast_unless_a_user_says_otherwise(monkeypatch, fast):
    monkeypatch.setattr("pairtune.tune.rules.fast_precision", lambda: fast)
    mine = task_of("retrieval", pairs_of([1] * 12))
    assert choose(mine).recipe.stages[0].train.precision == fast
    assert f"in {fast};" in choose(mine).reasons[2]
    assert choose(mine, ["train.precision=float32"]).recipe.stages[0].train.precision == "float32"
