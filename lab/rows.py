"""The rows of the paper's tables, each a recipe under lab/recipes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pairtune import Recipe, UserError, read_recipe

RECIPES = Path(__file__).parent / "recipes"


def row_names() -> list[str]:
    """All rows, such as stsb/combo; those of the released code begin with released/."""
    return sorted(path.relative_to(RECIPES).with_suffix("").as_posix() for path in RECIPES.rglob("*.toml"))


def read_row(name: str, overrides: Iterable[str] = ()) -> Recipe:
    """The recipe of a row, under its own name."""
    path = RECIPES / f"{name}.toml"
    if not path.is_file():
        raise UserError(f"there is no row {name!r}; rows stand under {RECIPES}, such as stsb/combo")
    return read_recipe(str(path), [f'name="{name}"', *overrides])
