"""What a recipe sets and nobody reads is said, or refused; what somebody reads is not."""

from __future__ import annotations

import pytest

from pairtune.errors import UserError
from pairtune.runs.settings import READ_BY, default_of, refuse_unread, unread_settings, value_of
from pairtune.runs.toml import make_recipe, read_recipe, shipped_recipes
from pairtune.training import run
from small import assert_same_weights, small_recipe

OTHER = {  # for every setting of the table, a value that is not its default
    "loss": {
        "temperature": 0.5,
        "learn_temperature": True,
        "temperature_learning_rate": 0.5,
        "normalize": "none",
        "reduction": "mean",
        "directions": "left",
        "duplicates": "mask",
        "guide": 0.1,
        "mix": 0.9,
        "pointwise": "pearson",
        "margin": 0.9,
        "host": "AnglELoss",
    },
    "order": {
        "side": "right",
        "group": 3,
        "neighbors": 9,
        "shingle": 2,
        "clusters": 2,
        "encode": "once",
        "group_counts": "texts",
        "distance": "euclidean",
    },
    "train": {"mined": 3, "mined_margin": 0.2},
}


def test_every_setting_without_effect_is_named_and_really_has_none(tmp_path, tiny_encoder, small_task):
    """Twenty-two settings of contrasts and of orders, in a training that has neither."""
    loss = {**OTHER["loss"], "kind": "mse", "learn_temperature": False}
    plain = small_recipe(tiny_encoder, loss={"kind": "mse"}, train={"epochs": 1})
    odd = small_recipe(tiny_encoder, loss=loss, order=OTHER["order"], train={"epochs": 1, **OTHER["train"]})
    assert set(unread_settings(odd)) == set(READ_BY) - {"loss.learn_temperature"}
    run(plain, 1, out=tmp_path / "plain", task=small_task, checkpoints=False)
    record = run(odd, 1, out=tmp_path / "odd", task=small_task, checkpoints=False)
    assert_same_weights(tmp_path / "plain" / "model", tmp_path / "odd" / "model")
    said = "order.group is 3, and nothing reads it: order.by is uniform; it counts where that is clusters, examples"
    assert any(note.startswith(said) for note in record.notes)


@pytest.mark.parametrize("name", READ_BY)
def test_a_setting_that_is_read_is_not_named(name):
    table, _, field = name.partition(".")
    decided, _, by = READ_BY[name].decided_by.partition(".")
    for value in READ_BY[name].values:
        settings = {decided: {by: value}}
        settings.setdefault(table, {})[field] = OTHER[table][field]
        recipe = make_recipe({"name": "a", **settings})
        assert value_of(recipe.stages[0], name) != default_of(name) and name not in unread_settings(recipe)


def test_a_setting_that_one_stage_reads_is_not_named():
    stages = [{"loss": {"kind": "bsc"}}, {"loss": {"kind": "mse"}}]
    assert not unread_settings(make_recipe({"name": "a", "loss": {"temperature": 0.5}, "stages": stages}))
    assert unread_settings(make_recipe({"name": "a", "loss": {"temperature": 0.5}, "stages": stages[1:]}))


def test_what_was_set_for_this_run_is_refused_and_what_the_file_says_is_not():
    overrides = ["loss.kind=mse", "loss.temperature=0.5"]
    recipe = read_recipe("own/labelled", overrides)
    refuse_unread(recipe, ["loss.kind=mse"])
    with pytest.raises(UserError, match=r"--set loss.temperature: loss.temperature is 0.5, and nothing reads it: loss.kind"):
        refuse_unread(recipe, overrides)


@pytest.mark.parametrize("name", shipped_recipes())
def test_shipped_recipes_set_nothing_in_vain(name):
    assert unread_settings(read_recipe(name)) == {}
