"""stdlib: finding a function or class of the Python standard library from what it does. Needs no download."""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pairtune.data.pairs import PairSet
from pairtune.data.splits import METRICS_OF_KIND, Splits, TaskInfo, distinct, hash_to_unit, single_spaces
from pairtune.errors import UserError
from pairtune.progress import track

# tests, applications, other people's packages, and what Python 3.12 threw out
OMITTED = {
    "test",
    "tests",
    "idlelib",
    "lib2to3",
    "turtledemo",
    "ensurepip",
    "site-packages",
    "dist-packages",
    "distutils",
}
FEWEST_WORDS = 3  # "Internal function." is nothing to search for

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


class Described(NamedTuple):
    """What a function or class does, how it is called, and the top-level module that it belongs to."""

    text: str
    call: str
    module: str


@cache  # two seconds of parsing, asked for by training and again by searches
def load_stdlib(folder: Path) -> Splits:
    """Pairs (first paragraph of the docstring, `module.Class.function(arguments)`), split by top-level module.

    The sources are parsed with `ast`; nothing is imported or run. The corpus of a split is the calls of its own modules,
    so that dev and test search among functions never seen in training.
    """
    described = [item for path in track(_modules(folder), "reading the standard library") for item in _document(folder, path)]
    if not described:
        raise UserError(f"{folder}: no sources of the standard library there; use a Python that comes with its .py files")
    parts = {name: [item for item in described if _split_of(item.module) == name] for name in ("train", "dev", "test")}
    modules = ", ".join(f"{len({item.module for item in part})} for {name}" for name, part in parts.items())
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    note = f"{len(described):,} functions and classes of Python {version}, split by module: {modules}"
    return Splits(_pairs(parts["train"]), _pairs(parts["dev"]), _pairs(parts["test"]), notes=(note,))


def _split_of(module: str) -> str:
    """A tenth of the modules is test, a tenth dev: a module stays in its split in every version of Python."""
    at = hash_to_unit(f"pairtune:{module}")
    return "test" if at < 0.1 else "dev" if at < 0.2 else "train"


def _modules(folder: Path) -> list[Path]:
    """The public modules that a user may want to search, in order of name."""
    return [
        path
        for path in sorted(folder.rglob("*.py"))
        if not any(part in OMITTED or part.startswith("_") for part in _names(folder, path))
    ]


def _names(folder: Path, path: Path) -> tuple[str, ...]:
    names = path.relative_to(folder).with_suffix("").parts
    return names[:-1] if names[-1] == "__init__" else names


def _document(folder: Path, path: Path) -> Iterator[Described]:
    names = _names(folder, path)
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError:  # a template among the sources, no module
        return
    for prefix, node in _definitions(tree.body, ".".join(names)):
        text = single_spaces((ast.get_docstring(node) or "").split("\n\n")[0])
        if len(text.split()) >= FEWEST_WORDS and f"{node.name}(" not in text:  # the answer would stand in the question
            yield Described(text, f"{prefix}.{node.name}({_arguments(node)})", names[0])


def _definitions(body: Sequence[ast.stmt], prefix: str) -> Iterator[tuple[str, Definition]]:
    """The public functions, classes and methods, with the dotted name of what they stand in."""
    for node in body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            yield prefix, node
            if isinstance(node, ast.ClassDef):
                yield from _definitions(node.body, f"{prefix}.{node.name}")


def _arguments(node: Definition) -> str:
    """As a caller writes them, without self or cls; those of a class are those of its __init__."""
    if isinstance(node, ast.ClassDef):
        starts = (item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__")
        return "".join(_arguments(start) for start in starts)
    first = next((argument.arg for argument in (*node.args.posonlyargs, *node.args.args)), "")
    written = ast.unparse(node.args)
    return written.removeprefix(first).removeprefix(", /").removeprefix(", ") if first in ("self", "cls") else written


def _pairs(described: Sequence[Described]) -> PairSet:
    calls = [item.call for item in described]
    return PairSet.of([item.text for item in described], calls, corpus=distinct(calls))


INFO = TaskInfo(
    name="stdlib",
    kind="retrieval",
    metrics=METRICS_OF_KIND["retrieval"],
    license="Python Software Foundation License",
    citation="""@manual{python-library,
  title = {The {P}ython Standard Library},
  author = {{Python Software Foundation}},
  url = {https://docs.python.org/3/library/}
}""",
    how="comes with Python",
    folder="",
    load=load_stdlib,
    built_in=Path(sysconfig.get_path("stdlib")),
)
