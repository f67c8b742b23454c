"""The settings of a recipe as users give them: those that nothing would read, and the TOML that `pairtune train` reads."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairtune.errors import UserError
from pairtune.runs.folder import write_whole
from pairtune.runs.recipe import STAGE_TABLES, Recipe, Source, Stage, make_recipe, parse_override


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
BY_VECTORS = Reader.when("order.by", "examples", "clusters", "neighbors")
# One line per setting. A setting that is not here is read always, or refused elsewhere.
READ_BY: dict[str, Reader] = {
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
    "loss.host": Reader.when("loss.kind", "host"),
    "order.side": Reader.when("order.by", "examples", "words", "clusters", "neighbors", "queries"),
    "order.group": NEARNESS,
    "order.neighbors": Reader.when("order.by", "examples"),
    "order.group_counts": Reader.when("order.by", "examples"),
    "order.distance": Reader.when("order.by", "examples"),
    "order.shingle": Reader.when("order.by", "words", "neighbors"),
    "order.clusters": Reader.when("order.by", "clusters"),
    "order.encode": BY_VECTORS,
    "train.mined": Reader.when("train.negatives", "mined"),
    "train.mined_margin": Reader.when("train.negatives", "mined"),
}


USE_MINED = ("bsc", "combo")  # losses that can use negatives of every epoch


def stage_of(recipe: Recipe, stage: Stage, name: str) -> Stage:
    """A stage with what one of the sources sets for itself; negatives are mined where its loss can use them."""
    source = next((one for one in recipe.sources if one.name == name), None)
    if source is not None and (source.loss or source.order):
        stage = _lay_over(recipe, stage, source)
    if source is not None and stage.train.negatives == "mined" and stage.loss.kind not in USE_MINED:
        return stage.model_copy(update={"train": stage.train.model_copy(update={"negatives": "given"})})
    return stage


def _lay_over(recipe: Recipe, stage: Stage, source: Source) -> Stage:
    table = stage.model_dump(exclude_unset=True)
    own = {key: {**table.get(key, {}), **changes} for key, changes in (("loss", source.loss), ("order", source.order)) if changes}
    return make_recipe({"name": recipe.name, **table, **own}, origin=f"recipe {recipe.name}, source {source.name}").stages[0]


def _all_stages(recipe: Recipe) -> list[Stage]:
    """The stages as they are trained: of several sources, those of each."""
    names = [source.name for source in recipe.sources if not recipe.mix_sources] or [""]
    return [stage_of(recipe, stage, name) for stage in recipe.stages for name in names]


def unread_settings(recipe: Recipe) -> dict[str, str]:
    """Of the settings that are not at their defaults, those that no stage which sets them reads: what to say, by name."""
    return {name: _explain_unread(name, recipe) for name in READ_BY if _is_unread(name, recipe)}


def refuse_unread(recipe: Recipe, overrides: Iterable[str]) -> None:
    """Refuse what was set for this run and has no effect in it. overrides: `key.path=value`, as `--set` takes them."""
    unread = unread_settings(recipe)
    given = {".".join(path) for override in overrides for path in _paths(parse_override(override))}
    if lines := [f"--set {name}: {unread[name]}" for name in unread if name in given]:
        raise UserError("\n".join(lines))


def _is_unread(name: str, recipe: Recipe) -> bool:
    setting = [stage for stage in _all_stages(recipe) if value_of(stage, name) != default_of(name)]
    return bool(setting) and not any(value_of(stage, READ_BY[name].decided_by) in READ_BY[name].values for stage in setting)


def _explain_unread(name: str, recipe: Recipe) -> str:
    reader = READ_BY[name]
    stage = next(stage for stage in _all_stages(recipe) if value_of(stage, name) != default_of(name))
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
    return STAGE_TABLES[table].model_fields[field].default


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value}"


def _paths(table: dict[str, Any]) -> list[tuple[str, ...]]:
    return [
        path
        for key, value in table.items()
        for path in ([(key, *rest) for rest in _paths(value)] if isinstance(value, dict) else [(key,)])
    ]


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
