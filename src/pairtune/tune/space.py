"""What variants differ in: for each kind of data, the settings that vary and their levels, in one table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pairtune.data.pairs import Kind
from pairtune.runs.recipe import Recipe
from pairtune.runs.toml import lay_over, make_recipe

Levels = dict[str, str]  # axis → the label of its level


@dataclass(frozen=True)
class Axis:
    """One thing that variants differ in.

    fields: the settings of a stage that it sets together. levels: their values, the most promising first.
    only: the axis says nothing unless `loss.kind` is one of these.
    """

    name: str
    fields: tuple[str, ...]
    levels: tuple[tuple[Any, ...], ...]
    only: tuple[str, ...] = ()


def _axis(name: str, field: str, *levels: Any, only: tuple[str, ...] = ()) -> Axis:
    return Axis(name, (field,), tuple((level,) for level in levels), only)


def _losses(*kinds: str) -> Axis:
    """Losses such as `bsc` or `combo+pearson`: batch softmax and a pointwise part."""
    split = [(*kind.split("+", 1), "mse")[:2] for kind in kinds]  # outside combo `pointwise` says nothing: its default
    return Axis("loss", ("loss.kind", "loss.pointwise"), tuple(split))


CONTRASTIVE = ("bsc", "combo")
RATE = _axis("learning rate", "train.learning_rate", 5e-5, 1e-4, 2e-5)
TEMPERATURE = _axis("temperature", "loss.temperature", 0.05, 0.1, 0.02, only=CONTRASTIVE)
GUIDE = _axis("guide", "loss.guide", None, 0.0, only=CONTRASTIVE)
# The levels that did best on dev, in the runs that the rules come from, stand first. `mse` is the second loss: it is the most
# different one, better where a task is not similarity and worse elsewhere, so that trying it is worth most.
SPACE: dict[Kind, tuple[Axis, ...]] = {
    "classification": (
        _losses("combo+pearson+cosent", "mse", "pearson", "combo+cosent", "combo+pearson", "cosent"),
        RATE,
        _axis("order", "order.by", "uniform", "queries", "examples"),
        _axis("epochs", "train.epochs", 5, 3, 2),
        _axis("batch size", "train.batch_size", 32, 16, 64),
        _axis("mix", "loss.mix", 0.1, 0.3, only=("combo",)),
        TEMPERATURE,
        GUIDE,
    ),
    "ranking": (
        _losses("combo+pearson+listwise", "mse", "combo+pearson", "pearson", "combo+pearson+cosent"),
        RATE,
        _axis("epochs", "train.epochs", 3, 5, 2),
        _axis("order", "order.by", "uniform", "queries", "examples"),
        _axis("batch size", "train.batch_size", 32, 16, 64),
        _axis("mix", "loss.mix", 0.1, 0.3, only=("combo",)),
        TEMPERATURE,
        GUIDE,
    ),
    "regression": (
        _losses("combo+pearson", "mse", "pearson", "cosent", "combo+cosent"),
        RATE,
        _axis("epochs", "train.epochs", 5, 3, 8),
        _axis("batch size", "train.batch_size", 32, 16, 64),
        _axis("mix", "loss.mix", 0.1, 0.3, only=("combo",)),
        _axis("order", "order.by", "examples", "uniform"),
        TEMPERATURE,
    ),
    "retrieval": (
        _axis("temperature", "loss.temperature", 0.03, 0.02, 0.05),
        _axis("negatives", "train.negatives", "mined", "given"),
        _axis("order", "order.by", "examples", "uniform"),
        RATE,
        _axis("batch size", "train.batch_size", 32, 64, 128),
        _axis("epochs", "train.epochs", 3, 6, 2),
        GUIDE,
    ),
}


SHARED = (  # what several sources have in common: each may have a loss and an order of its own
    RATE,
    _axis("epochs", "train.epochs", 3, 5, 2),
    _axis("batch size", "train.batch_size", 32, 16, 64),
    TEMPERATURE,
)


@dataclass(frozen=True)
class Space:
    """The variants around the recipe that a search starts from; its own levels are always among those of an axis."""

    base: Recipe
    axes: tuple[Axis, ...]

    @classmethod
    def around(cls, base: Recipe, kind: Kind) -> Space:
        """The table's axes for this kind of data, or those that several sources share, with the recipe's own levels."""
        axes = SHARED if base.sources else SPACE[kind]
        if base.stages[-1].train.negatives != "mined":  # the data may have its own
            axes = tuple(axis for axis in axes if axis.name != "negatives")
        return cls(base, tuple(_with_level(axis, _level_of(base, axis)) for axis in axes))

    @property
    def start(self) -> Levels:
        """The levels of the recipe itself."""
        return self.settled({axis.name: label(_level_of(self.base, axis)) for axis in self.axes})

    def labels(self, axis: Axis) -> list[str]:
        """What the levels of an axis are called."""
        return [label(level) for level in axis.levels]

    def recipe(self, levels: Mapping[str, str], name: str = "tuned") -> Recipe:
        """The recipe with these levels; what they leave open is as in the base."""
        table = self.base.model_dump(mode="json")
        changed = self.changes(levels)
        for axis in self.axes:
            if axis.name in changed:
                values = axis.levels[self.labels(axis).index(changed[axis.name])]
                settings = _nested(dict(zip(axis.fields, values, strict=True)))
                table["stages"] = [lay_over(stage, settings) for stage in table["stages"]]
        return make_recipe({**table, "name": name})

    def settled(self, levels: Mapping[str, str]) -> Levels:
        """The levels without those of axes that say nothing here, such as the mix of a loss that is not mixed."""
        kind = self._loss_kind(levels)
        return {axis.name: levels[axis.name] for axis in self.axes if axis.name in levels and _speaks(axis, kind)}

    def changes(self, levels: Mapping[str, str]) -> Levels:
        """In what a variant differs from the base: the fewer, the simpler it is."""
        return {name: level for name, level in self.settled(levels).items() if level != self._level_in_base(name)}

    def neighbors(self, levels: Mapping[str, str]) -> Iterator[Levels]:
        """All variants that differ from this one in one axis: the first other level of each axis, then the second ones."""
        here = self.settled(levels)
        most = max(len(axis.levels) for axis in self.axes)
        for place in range(most):
            for axis in self.axes:
                others = [one for one in self.labels(axis) if one != here.get(axis.name)]
                if axis.name in here and place < len(others):
                    yield self.settled(self._complete({**here, axis.name: others[place]}))

    def speaks(self, axis: Axis, levels: Mapping[str, str]) -> bool:
        """Whether an axis says something, given the levels of those before it or of all."""
        return _speaks(axis, self._loss_kind(levels))

    def _complete(self, levels: Levels) -> Levels:
        """With the base's level where a change of the loss makes another axis speak."""
        return {axis.name: levels.get(axis.name, self._level_in_base(axis.name)) for axis in self.axes}

    def _level_in_base(self, name: str) -> str:
        return label(_level_of(self.base, next(axis for axis in self.axes if axis.name == name)))

    def _loss_kind(self, levels: Mapping[str, str]) -> str:
        given = levels.get("loss")
        return given.partition("+")[0] if given else self.base.stages[-1].loss.kind


def label(level: tuple[Any, ...]) -> str:
    """What a level is called.

    >>> label(("combo", "pearson")), label(("mse", "mse")), label((5e-05,)), label((None,))
    ('combo+pearson', 'mse', '5e-05', 'none')
    """
    if len(level) > 1:
        return "+".join(level) if level[0] == "combo" else str(level[0])
    return f"{level[0]:g}" if isinstance(level[0], float) else "none" if level[0] is None else str(level[0])


def describe_changes(changes: Mapping[str, str]) -> str:
    """In what a variant differs, in words.

    >>> describe_changes({"learning rate": "5e-05", "order": "examples"}), describe_changes({})
    ('learning rate 5e-05, order examples', 'the starting recipe')
    """
    return ", ".join(f"{name} {level}" for name, level in changes.items()) or "the starting recipe"


def _speaks(axis: Axis, kind: str) -> bool:
    return not axis.only or kind in axis.only


def _with_level(axis: Axis, level: tuple[Any, ...]) -> Axis:
    known = label(level) in map(label, axis.levels)
    return axis if known else Axis(axis.name, axis.fields, (level, *axis.levels), axis.only)


def _level_of(recipe: Recipe, axis: Axis) -> tuple[Any, ...]:
    stage: Any = recipe.stages[-1]
    tables = [field.split(".") for field in axis.fields]
    return tuple(getattr(getattr(stage, table), name) for table, name in tables)


def _nested(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for field, value in values.items():
        table, name = field.split(".")
        found.setdefault(table, {})[name] = value
    return found
