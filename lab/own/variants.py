"""Variants for the default on one's own data, by name: data, in variants.toml."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pairtune import Recipe
from pairtune.runs.toml import lay_over, make_recipe, parse_override

Overrides = dict[str, str | int | float | None]

COMMON: Overrides = {  # what all variants have unless they say otherwise
    "train.epochs": 3,
    "train.batch_size": 32,
    "train.learning_rate": 5e-5,
    "train.max_seq_length": 0,
}
VARIANTS: dict[str, Overrides] = {
    name: {**COMMON, **table} for name, table in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")).items()
}


def recipe_of(name: str, others: Iterable[str] = ()) -> Recipe:
    """The recipe of a variant, with `key=value` settings that say how it is computed."""
    table: dict[str, Any] = {"name": f"variant/{name}"}
    for setting in (*(f"{key}={json.dumps(value)}" for key, value in VARIANTS[name].items()), *others):
        table = lay_over(table, parse_override(setting))
    return make_recipe(table)
