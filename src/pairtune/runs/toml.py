"""Recipes as TOML: the shipped ones and a user's own, read with overrides laid over them, and written.

What is wrong with one is told in words: every bad field with what was given and what was expected.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pairtune.errors import UserError
from pairtune.runs.folder import write_whole
from pairtune.runs.recipe import RECIPE_TABLES, STAGE_TABLES, Recipe, Source, TomlTable


def recipe_folder() -> Path:
    """The shipped recipes: beside the package when installed, at the root of a checkout."""
    package = Path(__file__).parents[1]
    return next(folder for folder in (package / "recipes", package.parents[1] / "recipes") if folder.is_dir())


def shipped_recipes() -> list[str]:
    """The names that `pairtune train` takes besides files, such as stsb/combo."""
    folder = recipe_folder()
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.toml"))


def find_recipe(name: str) -> Path:
    """The TOML file of a shipped name, or the file that was named."""
    path = Path(name) if name.endswith(".toml") else recipe_folder() / f"{name}.toml"
    if not path.is_file():
        if name.endswith(".toml"):
            raise UserError(f"recipe {name}: there is no such file")
        near = get_close_matches(name, shipped_recipes(), 3, cutoff=0.75)
        meant = (
            f"; did you mean {' or '.join(near)}?"
            if near
            else "; a file of pairs goes with --data, each with its own"
            if "." in name
            else ""
        )
        raise UserError(f"unknown recipe {name!r}{meant}; give a .toml file, or one that `pairtune recipes` lists")
    return path


def read_recipe(name: str, overrides: Iterable[str] = ()) -> Recipe:
    """A recipe from a TOML file or from a shipped name, with `key.path=value` overrides laid over it."""
    path = find_recipe(name)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # some editors begin a file with a mark
    except UnicodeDecodeError as problem:
        raise UserError(f"recipe {path}: not UTF-8 ({problem.reason} at byte {problem.start:,}): save it as UTF-8") from problem
    except (ValueError, RecursionError) as problem:  # no TOML, a number of thousands of digits, or nested too deeply
        raise UserError(f"recipe {path}: not valid TOML: {problem}") from problem
    for override in overrides:
        table = lay_over_all(table, parse_override(override))
    table.setdefault("name", path.stem if name.endswith(".toml") else name)
    return make_recipe(table, origin=f"recipe {name}")


def make_recipe(table: Mapping[str, Any], origin: str = "recipe") -> Recipe:
    """Validate a table; `[loss]`, `[order]`, `[train]` are the defaults that every `[[stages]]` starts from."""
    shared = {key: table[key] for key in STAGE_TABLES if key in table}
    rest = {key: value for key, value in table.items() if key not in shared}
    stages = rest.pop("stages", None)
    if stages is None:
        stages = [{}]
    if not isinstance(stages, list) or not stages or not all(isinstance(stage, dict) for stage in stages):
        raise UserError(f"{origin}: stages is {stages!r}; write each stage under its own [[stages]] heading")
    try:
        recipe = Recipe.model_validate({**rest, "stages": [lay_over(shared, stage) for stage in stages]})
    except ValidationError as problem:
        raise UserError(explain(problem, origin, staged="stages" in table)) from None
    if recipe.ignore:
        refuse_slow_rules(recipe, origin)
    return recipe


def refuse_slow_rules(recipe: Recipe, origin: str) -> None:
    """Refuse rules of `ignore` that some text could make slow, before any text is read."""
    from pairtune.runs.linear import write_rule

    try:
        for rule in recipe.ignore:
            write_rule(rule)
    except ValueError as problem:
        raise UserError(f"{origin}: ignore: {problem}") from problem


def parse_override(text: str) -> TomlTable:
    """`loss.temperature=0.05` as a nested table; the value is TOML, or a bare word.

    >>> parse_override("loss.kind=bsc")
    {'loss': {'kind': 'bsc'}}
    """
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise UserError(f"--set {text!r}: expected key=value, for example loss.temperature=0.05")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):  # as for a recipe's file
        parsed = value.strip()
    for part in reversed(key.strip().split(".")):
        parsed = {part: parsed}
    return parsed


def lay_over_all(table: TomlTable, upper: TomlTable) -> TomlTable:
    """The table with the upper one's values, which hold for every stage, whatever it says itself."""
    stages = table.get("stages")
    if "stages" not in upper and isinstance(stages, list) and all(isinstance(stage, dict) for stage in stages):
        shared = {key: value for key, value in upper.items() if key in STAGE_TABLES and isinstance(value, dict)}
        own = [{key: value for key, value in stage.items() if key != "select" or key not in upper} for stage in stages]
        table = {**table, "stages": [lay_over(stage, shared) for stage in own]}
    return lay_over(table, upper)


def lay_over(base: Mapping[str, Any], upper: Mapping[str, Any]) -> TomlTable:
    """The base table with the upper one's values in place of its own, table by table."""
    merged = dict(base)
    for key, value in upper.items():
        below = merged.get(key)
        merged[key] = lay_over(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def write_toml(path: Path, recipe: Recipe) -> None:
    """Every setting that is not at its default."""
    write_whole(path, to_toml(recipe))


def to_toml(recipe: Recipe) -> str:
    """The recipe as text: its own settings first, then its stages.

    >>> print(to_toml(make_recipe({"name": "mine", "loss": {"kind": "bsc"}})), end="")
    name = "mine"
    <BLANKLINE>
    [loss]
    kind = "bsc"
    """
    table = recipe.model_dump(mode="json", exclude_defaults=True)
    stages = table.pop("stages", [{}])
    sources = table.pop("sources", [])
    lines = _toml_lines(table)
    for source in sources:
        lines += ["", "[[sources]]", *_toml_lines(source)]
    for stage in stages:
        prefix = "" if len(stages) == 1 else "stages."
        lines += ["", "[[stages]]"] if prefix else []
        lines += _toml_lines({key: value for key, value in stage.items() if key not in STAGE_TABLES})
        for name, settings in ((key, value) for key, value in stage.items() if key in STAGE_TABLES):
            lines += ["", f"[{prefix}{name}]", *_toml_lines(settings)]
    return "\n".join(lines) + "\n"


def _toml_lines(table: dict[str, Any]) -> list[str]:
    """`key = value` lines; what is None has no value in TOML and is left out."""
    return [f"{key} = {_value(value)}" for key, value in table.items() if value is not None]


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(_toml_lines(value))}}}"
    return json.dumps(value, ensure_ascii=False)


HINTS = {
    "train.epochs": "an epoch is a pass over all pairs: give a whole number from 1 to 10,000 (1 to 10 are usual)",
    "loss.temperature": "the softmax divides by it: give a value above 0 (0.05 is usual)",
    "loss.mix": "μ weighs the two losses: give a value from 0 (pointwise only) to 1 (BSC only)",
    "ignore": r"write a list of regular expressions, such as ['https?://\S+']",
    "sources": "write each source under its own [[sources]] heading, with name and data",
    "train.splits": "name the task's splits with a + between them, such as train+titles (`pairtune tasks` lists them)",
}
RENAMED = {
    "loss.normalise": "loss.normalize",
    "loss.threshold": "loss.positive_above",
    "loss.mini_batch": "loss.mini_batch_size",
    "loss.temperature_rate": "loss.temperature_learning_rate",
    "order.neighbours": "order.neighbors",
    "sources.group": "sources.keep_together",
    "train.rate": "train.learning_rate",
    "train.batch": "train.batch_size",
    "train.max_length": "train.max_seq_length",
}


def explain(problem: ValidationError, origin: str, *, staged: bool = False) -> str:
    """All bad fields in one message, each with what was given and what was expected."""
    lines = [_explain_one(dict(error), staged) for error in problem.errors()]
    return "\n".join(f"{origin}: {line}" for line in lines)


def _explain_one(error: dict[str, Any], staged: bool) -> str:
    where = [str(part) for part in error["loc"]]
    plain = where[2:] if where[0] == "stages" and len(where) > 2 else where
    shown = ".".join(where if staged else plain)
    if error["type"] == "extra_forbidden":
        if new := RENAMED.get(".".join(part for part in plain if not part.isdigit())):
            return f"{shown} is now called {new}"
        known = _known_keys(plain[:-1])
        near = [".".join([*plain[:-1], key]) for key in get_close_matches(plain[-1], known, 1)] or _in_a_table(plain)
        meant = f"; did you mean {near[0]}?" if near else ""
        return f"{shown} is not a setting{meant}; known here: {', '.join(known)}"
    if error["type"] == "missing":
        return f"{shown} is missing"
    named = ".".join(part for part in plain if not part.isdigit())  # of a list, as a whole
    message = HINTS.get(named) or error["msg"][0].lower() + error["msg"][1:]
    return f"{shown} is {error['input']!r}; {message}"


def _in_a_table(plain: list[str]) -> list[str]:
    """The setting of a table that stands outside of it: learning_rate is train.learning_rate."""
    return [f"{name}.{plain[0]}" for name, table in RECIPE_TABLES.items() if len(plain) == 1 and plain[0] in table.model_fields]


def _known_keys(where: list[str]) -> list[str]:
    if where and where[0] == "sources":
        return list(Source.model_fields)
    if where and where[0] in RECIPE_TABLES:
        return list(RECIPE_TABLES[where[0]].model_fields)
    return [key for key in Recipe.model_fields if key not in ("stages", "adapter")] + ["stages", *RECIPE_TABLES]
