"""Settings that a recipe sets and nobody reads: what is set and has no effect is a mistake, or a misunderstanding."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pairtune.errors import UserError
from pairtune.runs.recipe import TABLES, Recipe, Stage, parse_override


@dataclass(frozen=True)
class Reader:
    """Who reads a setting: those stages in which the deciding setting has one of these values."""

    decided_by: str
    values: frozenset[Any]

    @classmethod
    def when(cls, decided_by: str, *values: Any) -> Reader:
        """`Reader.when("loss.kind", "bsc", "combo")`."""
        return cls(decided_by, frozenset(values))


CONTRASTS = Reader.when("loss.kind", "bsc", "combo")
NEARNESS = Reader.when("order.by", "examples", "words", "clusters", "neighbors")
VECTORS = Reader.when("order.by", "examples", "clusters", "neighbors")
# One line per setting. A setting that is not here is read always, or refused elsewhere.
READERS: dict[str, Reader] = {
    "loss.temperature": CONTRASTS,
    "loss.learn_temperature": CONTRASTS,
    "loss.temperature_learning_rate": Reader.when("loss.learn_temperature", True),
    "loss.normalize": CONTRASTS,
    "loss.reduction": CONTRASTS,
    "loss.directions": CONTRASTS,
    "loss.duplicates": CONTRASTS,
    "loss.guide": CONTRASTS,
    "loss.mix": Reader.when("loss.kind", "combo"),
    "loss.pointwise": Reader.when("loss.kind", "combo"),
    "loss.margin": Reader.when("loss.kind", "triplet"),
    "order.side": Reader.when("order.by", "examples", "words", "clusters", "neighbors", "queries"),
    "order.group": NEARNESS,
    "order.neighbors": Reader.when("order.by", "examples"),
    "order.shingle": Reader.when("order.by", "words", "neighbors"),
    "order.clusters": Reader.when("order.by", "clusters"),
    "order.encode": VECTORS,
}


def unread_settings(recipe: Recipe) -> dict[str, str]:
    """Of the settings that are not at their defaults, those that no stage which sets them reads: what to say, by name."""
    return {name: _explain(name, recipe) for name in READERS if _is_unread(name, recipe)}


def refuse_unread(recipe: Recipe, overrides: Iterable[str]) -> None:
    """Refuse what was set for this run and has no effect in it. overrides: `key.path=value`, as `--set` takes them."""
    unread = unread_settings(recipe)
    given = {".".join(path) for override in overrides for path in _paths(parse_override(override))}
    if lines := [f"--set {name}: {unread[name]}" for name in unread if name in given]:
        raise UserError("\n".join(lines))


def _is_unread(name: str, recipe: Recipe) -> bool:
    setting = [stage for stage in recipe.stages if value_of(stage, name) != default_of(name)]
    return bool(setting) and not any(value_of(stage, READERS[name].decided_by) in READERS[name].values for stage in setting)


def _explain(name: str, recipe: Recipe) -> str:
    reader = READERS[name]
    stage = next(stage for stage in recipe.stages if value_of(stage, name) != default_of(name))
    known = ", ".join(_shown(value) for value in sorted(reader.values, key=str))
    given = f"{name} is {_shown(value_of(stage, name))}, and nothing reads it"
    decided = f"{reader.decided_by} is {_shown(value_of(stage, reader.decided_by))}; it counts where that is {known}"
    return f"{given}: {decided}. Leave it out, or change {reader.decided_by}"


def value_of(stage: Stage, name: str) -> Any:
    """The value of a setting by its dotted name.

    >>> value_of(Stage(), "loss.kind")
    'combo'
    """
    table, _, field = name.partition(".")
    return getattr(getattr(stage, table), field)


def default_of(name: str) -> Any:
    """What a setting is unless told."""
    table, _, field = name.partition(".")
    return TABLES[table].model_fields[field].default


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value}"


def _paths(table: dict[str, Any]) -> list[tuple[str, ...]]:
    return [
        path
        for key, value in table.items()
        for path in ([(key, *rest) for rest in _paths(value)] if isinstance(value, dict) else [(key,)])
    ]
