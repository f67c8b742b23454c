"""The lab uses pairtune as its README says, and the examples in its docstrings are true."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
from pathlib import Path

import pytest

import pairtune

LAB = Path(__file__).parents[1]
MODULES = sorted(LAB.glob("*.py"))


def imports_of(path):
    """What a module takes from pairtune: public names, and modules beyond them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "pairtune":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pairtune."):
            yield node.module


def test_the_readme_names_everything_that_the_lab_takes_from_pairtune():
    readme = (LAB / "README.md").read_text(encoding="utf-8")
    _, _, beyond = readme.partition("## What it uses of pairtune")
    names = {name for path in MODULES for name in imports_of(path)}
    public = {name for name in names if "." not in name}
    assert public == set(re.findall(r"`(\w+)`", beyond.partition("Beyond")[0])) <= set(pairtune.__all__)
    rooms = re.findall(r"^\| `(pairtune\.[\w.]+)` \|", beyond, flags=re.MULTILINE)
    for name in names - public:
        assert any(f"{name}.".startswith(f"{room}.") for room in rooms), name
    assert all(any(f"{name}.".startswith(f"{room}.") for name in names) for room in rooms)


@pytest.mark.parametrize(
    "path", [path for path in MODULES if ">>>" in path.read_text(encoding="utf-8")], ids=lambda path: path.stem
)
def test_the_examples_in_the_docstrings_of_a_module_are_true(path):
    found = doctest.testmod(importlib.import_module(f"lab.{path.stem}"))
    assert found.attempted and not found.failed


def test_the_data_is_read_and_not_built_on_import():
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            calls = (
                [one for one in ast.walk(node) if isinstance(one, ast.Call)]
                if isinstance(node, ast.Assign | ast.AnnAssign)
                else []
            )
            assert not any(getattr(call.func, "id", "") == "read_data" for call in calls), (path.name, node.lineno)
