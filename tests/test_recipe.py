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


def test_what_the_command_line_sets_holds_for_every_stage():
    recipe = read_recipe("stsb/mse-then-bsc", ["loss.kind=combo", "train.rate=1e-4"])
    assert [(stage.loss.kind, stage.train.rate) for stage in recipe.stages] == [("combo", 1e-4)] * 2


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


def test_an_unknown_name_is_told_with_those_that_are_near():
    with pytest.raises(UserError, match=r"unknown recipe 'stsb/comb'; did you mean stsb/combo or .*\?; give a \.toml file"):
        read_recipe("stsb/comb")
    with pytest.raises(UserError, match=r"unknown recipe 'pairs\.csv'; a file of pairs goes with --data"):
        read_recipe("pairs.csv")


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


def settings_of(name):
    """Every setting of every stage, by a dotted name."""
    stages = read_recipe(name).model_dump()["stages"]
    return {
        (number, f"{table}.{key}"): value
        for number, stage in enumerate(stages)
        for table, keys in stage.items()
        for key, value in keys.items()
    }


def changed(name, base):
    ours, theirs = settings_of(name), settings_of(base)
    assert ours.keys() == theirs.keys()
    return {key for (_, key), value in ours.items() if value != theirs[_, key]}


RELEASED = {
    "order.first",
    "train.dropout",
    "loss.reduction",
    "loss.threshold",
    "order.group",
    "order.neighbours",
    "train.max_length",
}


@pytest.mark.parametrize("name", [name for name in shipped_recipes() if name.startswith("released/")])
def test_the_released_code_differs_from_the_text_where_the_design_says_so(name):
    task, row = name.split("/")[1:]
    assert changed(name, f"{task}/{row}") <= RELEASED
    for stage in read_recipe(name).stages:
        contrasts = stage.loss.kind in ("bsc", "combo")
        assert stage.loss.reduction == ("mean" if contrasts else "sum")
        assert stage.train.max_length == {"stsb": 124, "cqa-a": 100, "qqp": 80, "cqa-b": 70}.get(task, 90)
        if stage.order.by == "examples":
            assert (stage.order.group, stage.order.neighbours) == ({"mrpc": 3, "cqa-b": 4}.get(task, 7), 200)
        if stage.loss.kind == "combo":  # y ≥ 0.5, and no label lies between the two
            assert 0.499 < stage.loss.threshold < 0.5


@pytest.mark.parametrize(
    ("ending", "setting"),
    [
        ("-mean", {"loss.reduction"}),
        ("-minmax", {"loss.normalise"}),
        ("-group-7", {"order.group"}),
        ("-group-4", {"order.group"}),
        ("-low-tau", {"loss.temperature"}),
        ("-high-tau", {"loss.temperature"}),
        ("-learned", {"loss.learn_temperature", "loss.temperature_rate"}),
        ("-positives", {"train.positives_only"}),
        ("-first-original", {"order.first"}),
    ],
)
def test_a_variant_differs_from_its_row_in_one_thing(ending, setting):
    names = [name for name in shipped_recipes() if name.endswith(ending) and not name.startswith(("own/", "released/"))]
    assert names
    for name in names:
        assert changed(name, name.removesuffix(ending)) == setting


PAPER = {  # section 4: epochs, batch, rate, τ, normalisation, group, μ, bias correction
    "antique": (5, 50, 2e-5, 0.1, "l2", 8, 0.9, False),
    "cqa-a": (5, 30, 2e-5, 0.055, "l2", 8, 0.1, True),
    "cqa-b": (7, 30, 3e-5, 0.07, "l2", 5, 0.9, True),
    "mrpc": (6, 30, 2e-5, 0.1, "l2", 4, 0.1, False),
    "qqp": (6, 50, 2e-5, 1.2, "range-batch", 8, 0.1, False),
    "stsb": (5, 30, 2e-5, 0.1, "l2", 8, 0.1, False),
}


@pytest.mark.parametrize("task", PAPER)
def test_the_combo_rows_have_the_settings_of_the_papers_section_4(task):
    (stage,) = read_recipe(f"{task}/combo").stages
    loss, order, train = stage.loss, stage.order, stage.train
    found = (
        train.epochs,
        train.batch,
        train.rate,
        loss.temperature,
        loss.normalise,
        order.group,
        loss.mix,
        train.bias_correction,
    )
    assert found == PAPER[task]
    assert (order.by, train.max_length, train.warmup, train.clip, train.weight_decay) == ("examples", 90, 0.1, 1.0, 0.01)
    assert loss.threshold == (0.6 if task == "stsb" else 0.5)


def choices(settings, field):
    return set(typing.get_args(settings.model_fields[field].annotation))


def test_the_choices_of_a_recipe_are_the_tables_of_the_code():
    from pairtune.loss import NORMALISATIONS
    from pairtune.ordering import ORDERINGS
    from pairtune.sbert.loss import LOSSES

    assert choices(LossSettings, "kind") == set(LOSSES)
    assert choices(LossSettings, "normalise") == set(NORMALISATIONS)
    assert choices(OrderSettings, "by") == set(ORDERINGS)
