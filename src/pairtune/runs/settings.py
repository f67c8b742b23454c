"""The settings of a recipe as its stages and sources read them: what holds for each, and what nothing would read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pairtune.errors import UserError
from pairtune.runs.recipe import STAGE_TABLES, Recipe, Source, Stage
from pairtune.runs.record import dotted
from pairtune.runs.toml import make_recipe, parse_override


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


def describe_difference(recipe: Recipe, other: Recipe) -> str:
    """In which settings of its stages the other recipe differs, in words; empty where it does not."""
    mine, theirs = (dict(dotted({"stages": one.model_dump(mode="json")["stages"]})) for one in (recipe, other))
    return ", ".join(f"{name} = {_shown(value)}" for name, value in theirs.items() if mine.get(name) != value)


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
