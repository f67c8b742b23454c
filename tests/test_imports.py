"""Imports lead somewhere: read from the source, also of what only some machines can run."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pairtune

PACKAGE = Path(pairtune.__file__).parent
ROOT = Path(__file__).parent.parent


@cache
def names_of(module: str) -> set[str]:
    """What a module binds, and the modules in it; nothing where there is no such module."""
    folder = PACKAGE.parent.joinpath(*module.split("."))
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    if not path.is_file():
        return set()
    found = {inner.stem for inner in folder.glob("*")} if folder.is_dir() else set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def test_every_name_that_product_lab_and_tests_import_is_there():
    missing = []
    for folder in ("src", "tests", "lab", "benchmarks", "examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pairtune."):
                    known = names_of(str(node.module))
                    missing += [f"{path}: {node.module}.{alias.name}" for alias in node.names if alias.name not in known]
    assert not missing, "\n".join(missing)
