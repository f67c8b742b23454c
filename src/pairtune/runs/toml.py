"""A recipe as a TOML file that `pairtune train` reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pairtune.runs.folder import write_whole
from pairtune.runs.recipe import Recipe


def write_toml(path: Path, recipe: Recipe) -> None:
    """Every setting that is not at its default."""
    write_whole(path, to_toml(recipe))


def to_toml(recipe: Recipe) -> str:
    """The recipe as text: its own settings first, then its stages.

    >>> from pairtune.runs.recipe import make_recipe
    >>> print(to_toml(make_recipe({"name": "mine", "loss": {"kind": "bsc"}})), end="")
    name = "mine"
    <BLANKLINE>
    [loss]
    kind = "bsc"
    """
    table = recipe.model_dump(mode="json", exclude_defaults=True)
    stages = table.pop("stages", [{}])
    lines = _settings(table)
    for stage in stages:
        prefix = "" if len(stages) == 1 else "stages."
        lines += ["", "[[stages]]"] if prefix else []
        for name, settings in stage.items():
            lines += ["", f"[{prefix}{name}]", *_settings(settings)]
    return "\n".join(lines) + "\n"


def _settings(table: dict[str, Any]) -> list[str]:
    """`key = value` lines; what is None has no value in TOML and is left out."""
    return [f"{key} = {_value(value)}" for key, value in table.items() if value is not None]


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(_settings(value))}}}"
    return json.dumps(value, ensure_ascii=False)
