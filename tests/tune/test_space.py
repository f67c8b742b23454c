"""The variants around a recipe."""

from __future__ import annotations

import pytest

from pairtune.runs.toml import make_recipe
from pairtune.tune.space import SPACE, Space, label

BASE = make_recipe(
    {
        "name": "base",
        "loss": {"kind": "combo", "mix": 0.2, "temperature": 0.07},
        "order": {"by": "words", "group": 4},
        "train": {"learning_rate": 3e-5, "epochs": 4, "weight_decay": 0.02},
    }
)
KINDS = sorted(SPACE)


@pytest.mark.parametrize("kind", KINDS)
def test_the_start_is_the_recipe_itself_whatever_its_levels(kind):
    space = Space.around(BASE, kind)
    assert space.recipe(space.start, name="base") == BASE
    assert space.changes(space.start) == {}


@pytest.mark.parametrize("kind", KINDS)
def test_every_level_of_the_table_is_a_recipe(kind):
    space = Space.around(BASE, kind)
    for axis in space.axes:
        for level in space.labels(axis):
            space.recipe({**space.start, axis.name: level})


@pytest.mark.parametrize("kind", KINDS)
def test_a_neighbor_differs_in_one_axis_and_none_is_there_twice(kind):
    space = Space.around(BASE, kind)
    found = list(space.neighbors(space.start))
    assert all(len(space.changes(levels)) == 1 for levels in found)
    assert len({frozenset(levels.items()) for levels in found}) == len(found)
    speaking = [axis for axis in space.axes if space.speaks(axis, space.start)]
    assert len(found) == sum(len(axis.levels) - 1 for axis in speaking)


def test_a_neighbor_keeps_the_settings_that_no_axis_names():
    space = Space.around(BASE, "ranking")
    for levels in space.neighbors(space.start):
        recipe = space.recipe(levels)
        assert recipe.stages[0].train.weight_decay == 0.02 and recipe.stages[0].order.group == 4


def test_the_mix_of_a_loss_that_is_not_mixed_makes_no_other_candidate():
    space = Space.around(BASE, "ranking")
    alone = {**space.start, "loss": "bsc"}
    assert space.settled({**alone, "mix": "0.3"}) == space.settled({**alone, "mix": "0.5"})
    assert "mix" not in space.changes({**alone, "mix": "0.3"})


def test_from_a_plain_loss_one_step_leads_to_a_mixed_one_with_the_mix_of_the_base():
    base = make_recipe({"name": "plain", "loss": {"kind": "pearson"}})
    space = Space.around(base, "ranking")
    mixed = [levels for levels in space.neighbors(space.start) if levels["loss"].startswith("combo")]
    assert mixed and all(levels["mix"] == "0.5" and set(space.changes(levels)) == {"loss"} for levels in mixed)


def test_all_stages_take_a_change():
    base = make_recipe({"name": "two", "stages": [{"loss": {"kind": "bsc"}}, {"loss": {"kind": "mse"}}]})
    space = Space.around(base, "regression")
    assert space.recipe({**space.start, "learning rate": "5e-05"}).stages[0].train.learning_rate == 5e-5
    assert space.recipe(space.start).stages[0].loss.kind == "bsc"


def test_labels_of_levels_are_distinct():
    for axes in SPACE.values():
        for axis in axes:
            assert len({label(level) for level in axis.levels}) == len(axis.levels)
