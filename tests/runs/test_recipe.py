"""Recipes: what is read, what is refused, and with which words."""

from __future__ import annotations

import typing

import pytest

from pairtune.errors import UserError
from pairtune.runs.recipe import LossSettings, OrderSettings
from pairtune.runs.toml import make_recipe, parse_override, read_recipe, shipped_recipes


def write(tmp_path, text):
    path = tmp_path / "sts.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", shipped_recipes())
def test_every_shipped_recipe_is_valid_and_knows_its_name(name):
    assert read_recipe(name).name == name


STAGED = '[[stages]]\nloss.kind = "bsc"\n[[stages]]\nloss.kind = "mse"\n'


def test_what_the_command_line_sets_holds_for_every_stage(tmp_path):
    recipe = read_recipe(write(tmp_path, STAGED), ["loss.kind=combo", "train.learning_rate=1e-4"])
    assert [(stage.loss.kind, stage.train.learning_rate) for stage in recipe.stages] == [("combo", 1e-4)] * 2


def test_stages_start_from_the_shared_tables(tmp_path):
    recipe = read_recipe(write(tmp_path, f"[train]\nepochs = 5\n{STAGED}"))
    assert [stage.loss.kind for stage in recipe.stages] == ["bsc", "mse"]
    assert [stage.train.epochs for stage in recipe.stages] == [5, 5]


def test_overrides_lie_over_the_file():
    recipe = read_recipe("own/labelled", ["loss.temperature=0.05", "encoder=mpnet", "seeds=[4,5]", "train.precision=bf16"])
    assert (recipe.stages[0].loss.temperature, recipe.encoder, recipe.seeds) == (0.05, "mpnet", (4, 5))
    assert recipe.stages[0].train.precision == "bf16"


def test_all_bad_fields_are_named_at_once(tmp_path):
    path = write(tmp_path, 'color = "red"\n[loss]\ntemperature = 0\nheat = 1\n[order]\nby = "word"\n[train]\nepochs = "many"\n')
    with pytest.raises(UserError) as refusal:
        read_recipe(path)
    lines = str(refusal.value).splitlines()
    assert len(lines) == 5
    assert f"recipe {path}: loss.temperature is 0; the softmax divides by it: give a value above 0 (0.05 is usual)" in lines
    assert f"recipe {path}: loss.heat is not a setting; known here: {', '.join(LossSettings.model_fields)}" in lines
    assert any("order.by is 'word'" in line and "'words'" in line for line in lines)
    assert any("train.epochs is 'many'" in line for line in lines)
    assert any("color is not a setting" in line for line in lines)


def test_a_setting_outside_of_its_table_is_told_where_it_belongs():
    with pytest.raises(UserError, match=r"learning_rate is not a setting; did you mean train\.learning_rate\?"):
        read_recipe("own/labelled", ["learning_rate=1e-5"])


def test_a_fault_in_a_stage_names_the_stage():
    with pytest.raises(UserError, match=r"stages\.1\.loss\.kind is 'bcs'"):
        make_recipe({"name": "x", "stages": [{}, {"loss": {"kind": "bcs"}}]})


@pytest.mark.parametrize("stages", [3, [], ["bsc"]])
def test_stages_must_be_tables(stages):
    with pytest.raises(UserError, match=r"under its own \[\[stages\]\] heading"):
        make_recipe({"name": "x", "stages": stages})


def test_a_recipe_cannot_be_changed_in_flight():
    with pytest.raises(Exception, match="frozen"):
        read_recipe("own/labelled").encoder = "other"


def test_an_unknown_name_is_told_with_those_that_are_near():
    with pytest.raises(UserError, match=r"unknown recipe 'own/labeled'; did you mean own/labelled\?; give a \.toml file"):
        read_recipe("own/labeled")
    with pytest.raises(UserError, match=r"unknown recipe 'pairs\.csv'; a file of pairs goes with --data, each with its own"):
        read_recipe("pairs.csv")


def test_a_missing_file_and_broken_toml_are_said_plainly(tmp_path):
    with pytest.raises(UserError, match="there is no such file"):
        read_recipe(str(tmp_path / "none.toml"))
    with pytest.raises(UserError, match="not valid TOML"):
        read_recipe(write(tmp_path, "task = \n"))


def test_a_recipe_of_an_editor_that_marks_its_files_is_read_and_one_in_utf_16_is_told(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('task = "stsb"\n', encoding="utf-8-sig")
    assert read_recipe(str(path)).task == "stsb"
    path.write_text('task = "stsb"\n', encoding="utf-16")
    with pytest.raises(UserError, match=r"mine\.toml: not UTF-8 \(invalid start byte at byte 0\): save it as UTF-8"):
        read_recipe(str(path))


def test_sources_that_are_no_tables_or_lack_a_name_are_told_how_they_are_written(tmp_path):
    for text in ('sources = "pairs.csv"', 'sources = ["pairs.csv"]'):
        with pytest.raises(UserError, match=r"write each source under its own \[\[sources\]\] heading, with name and data"):
            read_recipe(write(tmp_path, text))
    with pytest.raises(UserError, match=r"sources\.0\.name is missing"):
        read_recipe(write(tmp_path, '[[sources]]\ndata = "pairs.csv"'))


@pytest.mark.parametrize("text", ["loss.temperature", "=3", ""])
def test_an_override_needs_a_key_and_a_value(text):
    with pytest.raises(UserError, match="expected key=value"):
        parse_override(text)


def test_a_setting_that_was_renamed_is_refused_with_its_new_name(tmp_path):
    with pytest.raises(UserError, match=r"loss\.normalise is now called loss\.normalize"):
        read_recipe(write(tmp_path, '[loss]\nnormalise = "l2"\n'))
    with pytest.raises(UserError, match=r"sources\.0\.group is now called sources\.keep_together"):
        read_recipe(write(tmp_path, '[[sources]]\nname = "a"\ndata = "a.csv"\ngroup = "thread"\n'))
    with pytest.raises(UserError, match=r"train\.rate is now called train\.learning_rate"):
        read_recipe("own/labelled", ["train.rate=1e-5"])
    with pytest.raises(UserError, match=r"order\.by is 'neighbours'; .*'neighbors'"):
        read_recipe("own/labelled", ["order.by=neighbours"])


def test_nan_is_not_a_temperature():
    with pytest.raises(UserError, match=r"loss\.temperature is nan"):
        make_recipe({"name": "x", "loss": {"temperature": float("nan")}})


def choices(settings, field):
    return set(typing.get_args(settings.model_fields[field].annotation))


def test_the_choices_of_a_recipe_are_the_tables_of_the_code():
    from pairtune.loss import NORMALIZATIONS
    from pairtune.ordering import ORDERINGS
    from pairtune.sbert.losses import LOSSES

    assert choices(LossSettings, "kind") == set(LOSSES)
    assert choices(LossSettings, "normalize") == set(NORMALIZATIONS)
    assert choices(OrderSettings, "by") == set(ORDERINGS)


def test_a_rule_that_some_text_could_make_slow_is_refused_when_the_recipe_is_read(tmp_path):
    (tmp_path / "mine.toml").write_text("ignore = ['<[^>]+>']")
    with pytest.raises(UserError, match=r"mine\.toml: ignore: '<\[\^>\]\+>' repeats .* without end"):
        read_recipe(str(tmp_path / "mine.toml"))
    (tmp_path / "mine.toml").write_text("ignore = ['(']")
    with pytest.raises(UserError, match=r"mine\.toml: ignore: '\(' is not a regular expression"):
        read_recipe(str(tmp_path / "mine.toml"))
    (tmp_path / "mine.toml").write_text("ignore = ['<[^<>]+>']")
    assert read_recipe(str(tmp_path / "mine.toml")).ignore == ("<[^<>]+>",)
