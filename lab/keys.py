"""What a recipe trains, as a key that outlives names and defaults of pairtune: they are those of settings.toml."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pairtune import Recipe
from pairtune.runs.recipe import STAGE_TABLES as PARTS
from pairtune.runs.recipe import TomlTable

HERE = Path(__file__).parent
NOT_TRAINED = {"name", "seeds", "stages"}


@cache
def read_data(name: str) -> TomlTable:
    """One of the lab's data files, read once."""
    return tomllib.loads((HERE / name).read_text(encoding="utf-8"))


def frozen() -> TomlTable:
    """settings.toml: former names, defaults, and what is not trained but computed."""
    return read_data("settings.toml")


def defaults() -> TomlTable:
    """What rows are read over: the frozen defaults of all settings that pairtune still has."""
    kept = {key: value for key, value in frozen()["defaults"].items() if key in Recipe.model_fields}
    for part, model in PARTS.items():
        kept[part] = {key: value for key, value in frozen()["defaults"][part].items() if key in model.model_fields}
    return kept


def settings_key(recipe: Recipe | Mapping[str, Any]) -> str:
    """A short digest of what is trained: task, encoder, selection and stages; not its name, nor how it is computed.

    recipe: one of today, or one of a record, under the names of its time. Settings at their defaults do not count, so that a
    setting that is new tomorrow leaves today's digests as they are.
    """
    return _key_of_text(recipe.model_dump_json()) if isinstance(recipe, Recipe) else _key_of(recipe)


@cache
def _key_of_text(recipe: str) -> str:
    """A plan of everything asks for the key of each recipe a dozen times."""
    return _key_of(json.loads(recipe))


def _key_of(table: Mapping[str, Any]) -> str:
    what = dict(_told(table, ""))
    stages = [_told_of_stage(stage) for stage in table["stages"]]
    if stages != [{}]:
        what["stages"] = stages
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]


def _told_of_stage(stage: Mapping[str, Any]) -> TomlTable:
    """Its settings that are not at their defaults; `select` only where it is the stage's own."""
    told: TomlTable = {part: found for part in PARTS if (found := dict(_told(stage.get(part, {}), part)))}
    return {**told, "select": stage["select"]} if stage.get("select") else told


def todays_name(part: str, name: str) -> str:
    """What pairtune calls a setting of a record.

    >>> todays_name("train", "rate"), todays_name("train", "epochs")
    ('learning_rate', 'epochs')
    """
    return _todays_names().get((part, name), name)


@cache
def _todays_names() -> dict[tuple[str, str], str]:
    found = {}
    for today, former in frozen()["former"].items():
        part, _, name = today.rpartition(".")
        found[part, former] = name
    return found


def _told(table: Mapping[str, Any], part: str) -> Iterator[tuple[str, Any]]:
    """The settings of a table that are not at their defaults, under the names that keys are made of."""
    for name, value in table.items():
        key, default = _key_name(part, name)
        if key and value != default:
            yield key, value


@cache
def _key_name(part: str, name: str) -> tuple[str, Any]:
    """The name of a setting in keys, empty where it does not count, and its default."""
    today = todays_name(part, name)
    if today in NOT_TRAINED or today in frozen()["computed"].get(part, ()):
        return "", None
    return frozen()["former"].get(f"{part}.{today}", today), _default(part, today)


def _default(part: str, name: str) -> Any:
    """The frozen default; of a setting that is newer than the records, today's."""
    known = frozen()["defaults"].get(part, {}) if part else frozen()["defaults"]
    if name in known:
        return known[name]
    field = (PARTS[part] if part else Recipe).model_fields.get(name)
    default = None if field is None or field.is_required() else field.get_default(call_default_factory=True)
    return list(default) if isinstance(default, tuple) else default
