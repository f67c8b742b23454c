"""Recipes: what is read, what is refused, and with which words."""

from __future__ import annotations

import typing

import pytest

from pairtune.errors import UserError
from pairtune.recipe import LossSettings, OrderSettings, make_recipe, parse_override, read_recipe, shipped_recipes


def write(tmp_path, text):
    path = tmp_path / "sts.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", shipped_recipes())
def test_every_shipped_recipe_is_valid_and_knows_its_name(name):
    assert read_recipe(name).name == name


def test_stages_start_from_the_shared_tables():
    recipe = read_recipe("stsb/bsc-then-mse")
    assert [stage.loss.kind for stage in recipe.stages] == ["bsc", "mse"]
    assert [stage.train.epochs for stage in recipe.stages] == [5, 5]


def test_overrides_lie_over_the_file():
    recipe = read_recipe("stsb/combo", ["loss.temperature=0.05", "encoder=mpnet", "seeds=[4,5]", "train.precision=bf16"])
    assert (recipe.stages[0].loss.temperature, recipe.encoder, recipe.seeds) == (0.05, "mpnet", (4, 5))
    assert recipe.stages[0].train.precision == "bf16"


def test_all_bad_fields_are_named_at_once(tmp_path):
    path = write(tmp_path, 'colour = "red"\n[loss]\ntemperature = 0\nheat = 1\n[order]\nby = "word"\n[train]\nepochs = "many"\n')
    with pytest.raises(UserError) as refusal:
        read_recipe(path)
    lines = str(refusal.value).splitlines()
    assert len(lines) == 5
    assert f"recipe {path}: loss.temperature is 0; the softmax divides by it: give a value above 0 (0.05 is usual)" in lines
    assert f"recipe {path}: loss.heat is not a setting; known here: {', '.join(LossSettings.model_fields)}" in lines
    assert any("order.by is 'word'" in line and "'words'" in line for line in lines)
    assert any("train.epochs is 'many'" in line for line in lines)
    assert any("colour is not a setting" in line for line in lines)


def test_a_fault_in_a_stage_names_the_stage():
    with pytest.raises(UserError, match=r"stages\.1\.loss\.kind is 'bcs'"):
        make_recipe({"name": "x", "stages": [{}, {"loss": {"kind": "bcs"}}]})


@pytest.mark.parametrize("stages", [3, [], ["bsc"]])
def test_stages_must_be_tables(stages):
    with pytest.raises(UserError, match=r"under its own \[\[stages\]\] heading"):
        make_recipe({"name": "x", "stages": stages})


def test_a_recipe_cannot_be_changed_in_flight():
    with pytest.raises(Exception, match="frozen"):
        read_recipe("stsb/mse").encoder = "other"


def test_an_unknown_name_lists_the_shipped_ones():
    with pytest.raises(UserError, match=r"unknown recipe 'stsb/comb'; give a \.toml file or one of: .*stsb/combo"):
        read_recipe("stsb/comb")


def test_a_missing_file_and_broken_toml_are_said_plainly(tmp_path):
    with pytest.raises(UserError, match="there is no such file"):
        read_recipe(str(tmp_path / "none.toml"))
    with pytest.raises(UserError, match="not valid TOML"):
        read_recipe(write(tmp_path, "task = \n"))


@pytest.mark.parametrize("text", ["loss.temperature", "=3", ""])
def test_an_override_needs_a_key_and_a_value(text):
    with pytest.raises(UserError, match="expected key=value"):
        parse_override(text)


def test_nan_is_not_a_temperature():
    with pytest.raises(UserError, match=r"loss\.temperature is nan"):
        make_recipe({"name": "x", "loss": {"temperature": float("nan")}})


def choices(settings, field):
    return set(typing.get_args(settings.model_fields[field].annotation))


def test_the_choices_of_a_recipe_are_the_tables_of_the_code():
    from pairtune.loss import NORMALISATIONS
    from pairtune.ordering import ORDERINGS
    from pairtune.sbert.loss import LOSSES

    assert choices(LossSettings, "kind") == set(LOSSES)
    assert choices(LossSettings, "normalise") == set(NORMALISATIONS)
    assert choices(OrderSettings, "by") == set(ORDERINGS)
