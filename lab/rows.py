"""The rows of the paper's tables, each a recipe under lab/recipes, read over the defaults that the records were made with."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

from lab.keys import defaults
from pairtune import Recipe, UserError
from pairtune.runs.toml import lay_over, lay_over_all, make_recipe, parse_override

RECIPES = Path(__file__).parent / "recipes"


def row_names() -> list[str]:
    """All rows, such as stsb/combo; those of the released code begin with released/."""
    return sorted(path.relative_to(RECIPES).with_suffix("").as_posix() for path in RECIPES.rglob("*.toml"))


def read_row(name: str, overrides: Iterable[str] = ()) -> Recipe:
    """The recipe of a row, under its own name, with `key.path=value` overrides laid over it."""
    path = RECIPES / f"{name}.toml"
    if not path.is_file():
        raise UserError(f"there is no row {name!r}; rows are the files of {RECIPES}, such as stsb/combo")
    table = {"name": name, **lay_over(defaults(), tomllib.loads(path.read_text(encoding="utf-8")))}
    for override in overrides:
        table = lay_over_all(table, parse_override(override))
    return make_recipe(table, origin=f"row {name}")
