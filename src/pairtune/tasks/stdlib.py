"""stdlib: finding a function of the Python standard library from what it does. Needs no download."""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pairtune.errors import UserError
from pairtune.pairs import PairSet
from pairtune.progress import track
from pairtune.tasks.info import METRICS, Splits, TaskInfo, distinct, fold, share

SKIPPED = {"test", "tests", "idlelib", "lib2to3", "turtledemo", "ensurepip", "site-packages", "dist-packages", "distutils"}
FEWEST_WORDS = 3  # "Internal function." is nothing to search for
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Described(NamedTuple):
    """What a function does, how it is called, and the top-level module that it belongs to."""

    text: str
    call: str
    module: str


def load_stdlib(folder: Path) -> Splits:
    """Pairs (first paragraph of the docstring, `module.Class.function(arguments)`), split by top-level module.

    The sources are parsed with `ast`; nothing is imported or run. The corpus of a split is the calls of its own modules,
    so that dev and test search among functions never seen in training.
    """
    described = [item for path in track(_modules(folder), "reading the standard library") for item in _describe(folder, path)]
    if not described:
        raise UserError(f"{folder}: no sources of the standard library there; use a Python that comes with its .py files")
    split = [_split_of(item.module) for item in described]
    parts = {
        name: _pairs([item for item, of in zip(described, split, strict=True) if of == name]) for name in ("train", "dev", "test")
    }
    modules = {name: len({item.module for item, of in zip(described, split, strict=True) if of == name}) for name in parts}
    note = (
        f"{len(described):,} functions of Python {sys.version_info.major}.{sys.version_info.minor}, split by module: "
        f"{modules['train']} for train, {modules['dev']} for dev, {modules['test']} for test"
    )
    return Splits(**parts, notes=(note,))


def _split_of(module: str) -> str:
    """A tenth of the modules is test, a tenth dev: a module stays in its split in every version of Python."""
    at = share(f"pairtune:{module}")
    return "test" if at < 0.1 else "dev" if at < 0.2 else "train"


def _modules(folder: Path) -> list[Path]:
    """The public modules that a user may want to search, in order of name."""
    return [
        path
        for path in sorted(folder.rglob("*.py"))
        if not any(part in SKIPPED or part.startswith("_") for part in _names(folder, path))
    ]


def _names(folder: Path, path: Path) -> tuple[str, ...]:
    names = path.relative_to(folder).with_suffix("").parts
    return names[:-1] if names[-1] == "__init__" else names


def _describe(folder: Path, path: Path) -> Iterator[Described]:
    names = _names(folder, path)
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError:  # a template among the sources, no module
        return
    for prefix, function, method in _functions(tree.body, ".".join(names)):
        text = _first_paragraph(function)
        if len(text.split()) >= FEWEST_WORDS and f"{function.name}(" not in text:  # the answer in the question
            yield Described(text, f"{prefix}.{function.name}({_arguments(function, method)})", names[0])


def _functions(body: Sequence[ast.stmt], prefix: str, method: bool = False) -> Iterator[tuple[str, Function, bool]]:
    """The public functions and methods, with the dotted name of what they stand in."""
    for node in body:
        if isinstance(node, Function) and not node.name.startswith("_"):
            yield prefix, node, method
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from _functions(node.body, f"{prefix}.{node.name}", method=True)


def _first_paragraph(function: Function) -> str:
    return fold((ast.get_docstring(function) or "").split("\n\n")[0])


def _arguments(function: Function, method: bool) -> str:
    """As in the source, without the self or cls that no caller writes."""
    arguments = ast.unparse(function.args)
    first = function.args.args[0].arg if function.args.args else ""
    return arguments.removeprefix(first).removeprefix(", ") if method and first in ("self", "cls") else arguments


def _pairs(described: Sequence[Described]) -> PairSet:
    calls = [item.call for item in described]
    return PairSet.of([item.text for item in described], calls, corpus=distinct(calls))


INFO = TaskInfo(
    name="stdlib",
    kind="retrieval",
    metrics=METRICS["retrieval"],
    licence="Python Software Foundation License",
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
