"""The README is executed: its Python as it stands, its commands on a small file."""

from __future__ import annotations

import contextlib
import csv
import io
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pairtune.cli import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def python(tmp_path, path, *words):
    """What a script prints, run as a program of its own, but without another start of torch."""
    printed, said = io.StringIO(), sys.argv
    sys.argv = [str(path), *map(str, words)]
    try:
        with contextlib.chdir(tmp_path), contextlib.redirect_stdout(printed):
            runpy.run_path(str(path), run_name="__main__")
    finally:
        sys.argv = said
    return printed.getvalue()


def test_the_python_of_the_readme_runs(tmp_path, tiny_encoder):
    assert blocks("python")
    for number, block in enumerate(blocks("python")):
        path = tmp_path / f"block{number}.py"
        path.write_text(block.replace('"minilm"', repr(tiny_encoder)), encoding="utf-8")
        python(tmp_path, path)


def test_the_commands_of_the_readme_run_in_the_order_they_are_shown(tmp_path, tiny_encoder):
    with (tmp_path / "pairs.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["question", "answer", "score"])
        for number in range(50):
            table.writerow([f"how do I cook dish {number}", f"heat dish {number} for an hour", 1])
            table.writerow([f"how do I cook dish {number}", f"train {number} leaves at noon", 0])
    (tmp_path / "answers.txt").write_text("put it in hot water\nleave the train\n")
    commands = [line for block in blocks("bash") for line in block.splitlines() if line.startswith("pairtune ")]
    assert len(commands) >= 4
    for command in commands:
        words = shlex.split(command)[1:]
        quick = ["--model", tiny_encoder, "--set", "train.epochs=1"] if words[0] == "train" else []
        with contextlib.chdir(tmp_path):
            result = CliRunner().invoke(app, [*words, *quick], catch_exceptions=False)
        assert result.exit_code == 0 and result.stdout, result.stderr


def test_every_page_that_the_readme_links_to_is_there():
    for target in re.findall(r"\]\(((?!http)[^)#]+)\)", README):
        assert (ROOT / target).exists(), target


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_are_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) < 40


def test_the_plain_trainer_example_learns(tmp_path, tiny_encoder):
    printed = python(tmp_path, ROOT / "examples" / "plain_trainer.py", tiny_encoder, "96")
    before, after = map(float, re.search(r"HP@1 ([\d.]+) → ([\d.]+)", printed).groups())
    assert after > before - 0.02


def test_the_csv_example_trains_and_scores(tmp_path, tiny_encoder):
    rows = "".join(f"question {n},answer {n},{n % 2}\n" for n in range(60))
    (tmp_path / "pairs.csv").write_text(f"q,a,y\n{rows}")
    printed = python(tmp_path, ROOT / "examples" / "own_csv.py", "pairs.csv", "q", "a", "y", "--encoder", tiny_encoder)
    assert "F1 on test:" in printed and "first test pair scores" in printed


def test_the_search_example_finds_functions(tmp_path, tiny_encoder):
    printed = python(tmp_path, ROOT / "examples" / "search.py", "join path components", tiny_encoder)
    assert len(printed.splitlines()) == 5
