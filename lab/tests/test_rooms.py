"""The lab uses pairtune as its README says, and the examples in its docstrings are true."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pairtune

LAB = Path(__file__).parents[1]
MODULES = sorted(LAB.glob("*.py"))
WITH_EXAMPLES = [path for path in MODULES if ">>>" in path.read_text(encoding="utf-8")]


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


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_in_the_docstrings_of_a_module_are_true(path):
    found = doctest.testmod(importlib.import_module(f"lab.{path.stem}"))
    assert found.attempted and not found.failed


def test_importing_the_lab_reads_no_data():
    names = ", ".join(f"lab.{path.stem}" for path in MODULES)
    program = f"import {names}; print(lab.keys.read_data.cache_info().misses)"
    result = subprocess.run([sys.executable, "-c", program], cwd=LAB.parent, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "0"
