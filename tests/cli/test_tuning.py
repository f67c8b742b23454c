"""`pairtune tune` as a user meets it."""

from __future__ import annotations

import csv
import json

import pytest
from typer.testing import CliRunner

from pairtune.cli import app
from pairtune.errors import UserError
from small import small_pairs

runner = CliRunner()


def call(*words):
    result = runner.invoke(app, [str(word) for word in words])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def graded(tmp_path, tiny_encoder):
    """A file of graded pairs, and a recipe to start from that trains in a second."""
    pairs = small_pairs(160, 1)
    with (tmp_path / "pairs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("left", "right", "label"), *zip(pairs.left, pairs.right, pairs.label, strict=True)])
    settings = 'loss.kind = "pearson"\ntrain.epochs = 1\ntrain.max_seq_length = 16\n'
    (tmp_path / "start.toml").write_text(f"encoder = {json.dumps(tiny_encoder)}\n{settings}")
    return tmp_path / "pairs.csv", tmp_path / "start.toml"


def test_one_command_gives_a_model_two_pages_and_a_recipe_that_trains_again(tmp_path, graded):
    data, start = graded
    out = tmp_path / "tuned"
    command = ("tune", start, "--data", data, "--minutes", 0, "--trainings", 8, "--out", out)
    found = call(*command, "--json")
    said = json.loads(found.stdout)
    assert said["metric"] == "Spearman" and 4 < said["trainings"] <= 8 and (out / "model" / "modules.json").exists()
    assert "variant 0 (the starting recipe), fold 1 of 5: Spearman" in found.stderr and "7 trainings left" in found.stderr
    assert "What more time might be worth" in (out / "tuning.html").read_text()
    assert "Scores on the test set" in (out / "seed-1" / "report.html").read_text()
    again = json.loads(call("train", out / "recipe.toml", "--data", data, "--out", tmp_path / "again", "--json").stdout)
    assert again["test"] == pytest.approx(said["test"])
    with pytest.raises(UserError, match="holds a search that has ended"):
        call(*command)
    kept = call(*command, "--resume").stdout
    assert f"{said['trainings']} trainings" in kept and f"recipe: {out / 'recipe.toml'}" in kept


def test_without_a_recipe_the_search_starts_from_the_default_one(tmp_path, graded, tiny_encoder):
    data, _ = graded
    words = ("--minutes", 0, "--trainings", 1, "--set", "train.epochs=1", "--model", tiny_encoder, "--out", tmp_path / "tuned")
    found = json.loads(call("tune", "--data", data, *words, "--json").stdout)
    assert found["trainings"] == 0 and found["changes"] == {} and found["encoder"] == tiny_encoder


def test_a_search_needs_pairs_and_a_limit(graded):
    data, start = graded
    with pytest.raises(UserError, match="give either the name of a task"):
        call("tune", start)
    with pytest.raises(UserError, match="a search without a limit would not end"):
        call("tune", start, "--data", data, "--minutes", 0)
