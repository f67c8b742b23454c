"""A recipe: every setting of a training, validated, frozen, read from TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pairtune.errors import UserError

Normalisation = Literal["l2", "l2-batch", "minmax-batch", "range-batch", "none"]
Select = Literal["best", "last", "average"]
Table = dict[str, Any]


class Settings(BaseModel):
    """Frozen, and closed: a key that nobody reads is a mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class LossSettings(Settings):
    """Which loss, and its letters in the paper: temperature is τ, mix is μ, threshold is t."""

    kind: Literal["bsc", "mse", "pearson", "combo", "triplet"] = "combo"
    temperature: float = Field(0.1, gt=0)
    learn_temperature: bool = False
    temperature_rate: float = Field(1e-3, gt=0)
    normalise: Normalisation = "l2"
    threshold: float = Field(0.5, ge=0, lt=1)
    reduction: Literal["sum", "mean"] = "sum"
    directions: Literal["both", "left", "right"] = "both"
    duplicates: Literal["keep", "mask"] = "keep"
    mix: float = Field(0.5, ge=0, le=1)
    pointwise: Literal["mse", "pearson"] = "mse"
    margin: float = Field(0.5, gt=0)
    mini_batch: int = Field(0, ge=0)


class OrderSettings(Settings):
    """Which pairs share a batch: the name of the ordering, and what it needs to know.

    first: "original" leaves the first epoch as the data came, which is what the paper's released code does.
    """

    by: Literal["original", "uniform", "examples", "words", "clusters", "neighbours"] = "uniform"
    first: Literal["ordered", "original"] = "ordered"
    side: Literal["left", "right"] = "left"
    group: int = Field(8, ge=1)
    neighbours: int = Field(500, ge=1)
    shingle: int = Field(1, ge=1)
    clusters: int = Field(0, ge=0)
    encode: Literal["each-epoch", "once", "reuse"] = "each-epoch"
    drop_identical: bool = False
    skip_nearest: int = Field(0, ge=0)
    margin: float | None = Field(None, ge=-1, le=2)


class TrainSettings(Settings):
    """How long, how fast, and on what part of the data.

    pairs: at most so many of the task's training pairs, drawn by seed. file: a Parquet file to train on instead of them,
    read as it is needed (order.by = "original" keeps its order); columns: its left, right and label column.
    report_to: where the host sends the figures of the training as well, such as tensorboard. fast: no padding, each text of
    a batch once, fused losses, captured steps, where model and device allow it; the same losses as without, up to rounding and
    to what dropout draws. dropout: "first-epoch" trains the later epochs without, which is what the paper's released code does.
    labels: "graded" trains on the dataset's own grades, from 0 for the lowest to 1 for the highest, where it has more of them
    than positive and negative. blend: the share of the first weights, those before the stage, in the last. candidates: in a
    ranking, fill each query up to so many right texts with those of other queries that share most words with it, as negatives.
    """

    epochs: int = Field(5, ge=1)
    batch: int = Field(32, ge=1)
    rate: float = Field(2e-5, gt=0)
    weight_decay: float = Field(0.01, ge=0)
    warmup: float = Field(0.1, ge=0, lt=1)
    clip: float = Field(1.0, gt=0)
    epsilon: float = Field(1e-6, gt=0)
    bias_correction: bool = True
    max_length: int = Field(90, ge=4)
    precision: Literal["float32", "bf16"] = "float32"
    positives_only: bool = False
    negatives: Literal["given", "logarithmic"] = "given"
    pairs: int = Field(0, ge=0)
    file: str = ""
    columns: tuple[str, ...] = Field(("left", "right", "label"), min_length=2, max_length=3)
    report_to: tuple[str, ...] = ()
    fast: bool = True
    dropout: Literal["always", "first-epoch"] = "always"
    labels: Literal["given", "graded"] = "given"
    blend: float = Field(0.0, ge=0, lt=1)
    candidates: int = Field(0, ge=0)


class Stage(Settings):
    """One training in a sequence: its loss, its order, its schedule."""

    loss: LossSettings = LossSettings()
    order: OrderSettings = OrderSettings()
    train: TrainSettings = TrainSettings()


class Recipe(Settings):
    """What `train.run` follows. Stages are trained one after the other, each from the best epoch of the one before.

    select: "best" keeps the best epoch on dev, "last" the last one, "average" the mean of the weights after each epoch.
    dev: "rotating" puts train and dev together and holds out another tenth for each seed, so that seeds 1 to 10, with
    select = "last", are a cross-validation: for data with so little dev that a choice on it is luck. "joined" trains on dev as
    well, once a recipe is chosen: the scores on dev then say nothing, and nothing may be chosen by them. dev_candidates: as
    train.candidates, for dev: for a ranking whose dev has fewer texts to a query, or fewer bad ones, than it will meet.
    """

    name: str = Field(min_length=1, pattern=r"^[\w.+-]+(/[\w.+-]+)*$")
    task: str = "stdlib"
    encoder: str = "minilm"
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field((1,), min_length=1)
    select: Select = "best"
    dev: Literal["given", "rotating", "joined"] = "given"
    dev_candidates: int = Field(0, ge=0)
    stages: tuple[Stage, ...] = (Stage(),)


def recipe_folder() -> Path:
    """The shipped recipes: beside the package when installed, at the root of a checkout."""
    package = Path(__file__).parent
    return next(folder for folder in (package / "recipes", package.parents[1] / "recipes") if folder.is_dir())


def shipped_recipes() -> list[str]:
    """The names that `pairtune train` takes besides files, such as stsb/combo."""
    folder = recipe_folder()
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.toml"))


def read_recipe(name: str, overrides: Iterable[str] = ()) -> Recipe:
    """A recipe from a TOML file or from a shipped name, with `key.path=value` overrides laid over it."""
    path = Path(name) if name.endswith(".toml") else recipe_folder() / f"{name}.toml"
    if not path.is_file():
        if name.endswith(".toml"):
            raise UserError(f"recipe {name}: there is no such file")
        near = get_close_matches(name, shipped_recipes(), 3)
        meant = f"; did you mean {' or '.join(near)}?" if near else "; a file of pairs goes with --data" if "." in name else ""
        raise UserError(f"unknown recipe {name!r}{meant}; give a .toml file, or one that `pairtune recipes` lists")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise UserError(f"recipe {path}: not valid TOML: {problem}") from problem
    for override in overrides:
        table = lay_over(table, parse_override(override))
    table.setdefault("name", path.stem if name.endswith(".toml") else name)
    return make_recipe(table, origin=f"recipe {name}")


def make_recipe(table: Mapping[str, Any], origin: str = "recipe") -> Recipe:
    """Validate a table; `[loss]`, `[order]`, `[train]` are the defaults that every `[[stages]]` starts from."""
    shared = {key: table[key] for key in Stage.model_fields if key in table}
    rest = {key: value for key, value in table.items() if key not in shared}
    stages = rest.pop("stages", None)
    if stages is None:
        stages = [{}]
    if not isinstance(stages, list) or not stages or not all(isinstance(stage, dict) for stage in stages):
        raise UserError(f"{origin}: stages is {stages!r}; write each stage under its own [[stages]] heading")
    try:
        return Recipe.model_validate({**rest, "stages": [lay_over(shared, stage) for stage in stages]})
    except ValidationError as problem:
        raise UserError(_explain(problem, origin, staged="stages" in table)) from None


def parse_override(text: str) -> Table:
    """`loss.temperature=0.05` as a nested table; the value is TOML, or a bare word.

    >>> parse_override("loss.kind=bsc")
    {'loss': {'kind': 'bsc'}}
    """
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise UserError(f"--set {text!r}: expected key=value, for example loss.temperature=0.05")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    for part in reversed(key.strip().split(".")):
        parsed = {part: parsed}
    return parsed


def lay_over(base: Mapping[str, Any], upper: Mapping[str, Any]) -> Table:
    """The base table with the upper one's values in place of its own, table by table."""
    merged = dict(base)
    for key, value in upper.items():
        below = merged.get(key)
        merged[key] = lay_over(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


HINTS = {
    "loss.temperature": "the softmax divides by it: give a value above 0 (0.05 is usual)",
    "loss.mix": "μ weighs the two losses: give a value from 0 (pointwise only) to 1 (BSC only)",
}


def _explain(problem: ValidationError, origin: str, staged: bool) -> str:
    """All bad fields in one message, each with what was given and what was expected."""
    lines = [_explain_one(dict(error), staged) for error in problem.errors()]
    return "\n".join(f"{origin}: {line}" for line in lines)


def _explain_one(error: dict[str, Any], staged: bool) -> str:
    where = [str(part) for part in error["loc"]]
    plain = where[2:] if where[0] == "stages" and len(where) > 2 else where
    shown = ".".join(where if staged else plain)
    if error["type"] == "extra_forbidden":
        known = ", ".join(_known_keys(plain[:-1]))
        return f"{shown} is not a setting; known here: {known}"
    message = HINTS.get(".".join(plain)) or error["msg"][0].lower() + error["msg"][1:]
    return f"{shown} is {error['input']!r}; {message}"


def _known_keys(where: list[str]) -> list[str]:
    tables: dict[str, type[Settings]] = {"loss": LossSettings, "order": OrderSettings, "train": TrainSettings}
    if where and where[0] in tables:
        return list(tables[where[0]].model_fields)
    return [key for key in Recipe.model_fields if key != "stages"] + ["stages", *tables]
