"""What people install holds the product alone: no row of a table of the paper, no record, no word of the lab."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def packed_files():
    """Where each file of the wheel comes from, as the build's configuration has it."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel.keys() == {"packages", "force-include"}
    folders = [ROOT / name for name in (*wheel["packages"], *wheel["force-include"])]
    return [path for folder in folders for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]


def test_the_wheel_has_the_recipes_that_users_start_from_and_no_row_of_a_table():
    recipes = {(path.parent.name, path.name) for path in packed_files() if path.suffix == ".toml"}
    assert {folder for folder, _ in recipes} == {"own", "stdlib"}
    assert not recipes & {(path.parent.name, path.name) for path in (ROOT / "lab" / "recipes").rglob("*.toml")}


def test_the_wheel_has_no_record_and_no_word_of_the_lab():
    for path in packed_files():
        assert path.suffix != ".jsonl", path
        if path.suffix in {".py", ".html", ".toml", ".md"}:
            assert not re.search(r"\blab\b", path.read_text(encoding="utf-8")), path


TRITON_OF_TORCH = {"2.13.0": "3.7.1"}  # what the wheels of PyPI for Linux ask for; builds for CPUs alone do not say it


def test_the_constraints_have_the_triton_that_torch_asks_for():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    assert pinned["triton"] == TRITON_OF_TORCH[pinned["torch"]], "or pip cannot install them on Linux"
