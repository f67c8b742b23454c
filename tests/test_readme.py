"""The README keeps its two commands, and the examples run; its blocks of code are executed by test_docs.py."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


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


def test_the_two_commands_of_the_readme_are_targets_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("demo", "test"):
        assert re.search(rf"^make {target} ", README, flags=re.MULTILINE), target
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_are_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) < 40


def test_the_plain_trainer_example_learns(tmp_path, tiny_encoder):
    printed = python(tmp_path, ROOT / "examples" / "plain_trainer.py", tiny_encoder, "96")
    before, after = map(float, re.search(r"HP@1 ([\d.]+) → ([\d.]+)", printed).groups())
    assert after > before - 0.02


@pytest.fixture
def own_pairs(tmp_path):
    rows = "".join(f"question {n},answer {n},{n % 2}\n" for n in range(60))
    (tmp_path / "pairs.csv").write_text(f"q,a,y\n{rows}")


def test_the_csv_example_trains_and_scores(tmp_path, own_pairs, tiny_encoder):
    printed = python(tmp_path, ROOT / "examples" / "own_csv.py", "pairs.csv", "q", "a", "y", "--encoder", tiny_encoder)
    assert "F1 on test:" in printed and "first test pair scores" in printed


def test_the_search_example_finds_functions(tmp_path, tiny_encoder):
    printed = python(tmp_path, ROOT / "examples" / "search.py", "join path components", tiny_encoder)
    assert len(printed.splitlines()) == 5


def test_the_adapter_example_trains_and_saves_little(tmp_path, own_pairs, tiny_encoder):
    printed = python(tmp_path, ROOT / "examples" / "adapter.py", "pairs.csv", "q", "a", "y", tiny_encoder)
    assert "F1 on test:" in printed
    adapter, encoder = map(float, re.search(r"has ([\d.]+) MB, its encoder (\d+) MB", printed).groups())
    assert 0 < adapter < encoder / 10


def test_the_sizes_example_scores_every_size(tmp_path, own_pairs, tiny_encoder):
    printed = python(tmp_path, ROOT / "examples" / "sizes.py", "pairs.csv", "q", "a", "y", tiny_encoder)
    assert len(re.findall(r"F1 on dev [\d.]+", printed)) == 4 * 3 and printed.endswith("(96,)\n")
