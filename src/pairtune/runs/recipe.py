"""A recipe: every setting of a training, validated, frozen, read from TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pairtune.errors import UserError

Normalization = Literal["l2", "l2-batch", "minmax-batch", "range-batch", "none"]
Select = Literal["best", "last", "average"]
Table = dict[str, Any]


class Settings(BaseModel):
    """Frozen, and closed: a key that nobody reads is a mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class LossSettings(Settings):
    """Which loss, and its letters in the paper."""

    kind: Literal["bsc", "mse", "pearson", "cosent", "combo", "triplet"] = Field(
        "combo",
        description="`bsc`: batch softmax; `mse`: squared error of the cosine; `pearson`: 1 − its correlation with the labels; "
        "`cosent`: a pair with a lower label should have a lower cosine; `combo`: `bsc` plus one of the three before it; "
        "`triplet`: a positive nearer than a negative, by `margin`",
    )
    temperature: float = Field(0.1, gt=0, description="τ, which BSC divides similarities by: smaller looks at the hardest only")
    learn_temperature: bool = Field(False, description="train τ as well, from `temperature` on")
    temperature_learning_rate: float = Field(1e-3, gt=0, description="the learning rate of a learned τ")
    normalize: Normalization = Field(
        "l2",
        description="of BSC's embeddings: `l2` to unit length; the others but `none` work on each dimension over the batch",
    )
    positive_above: float = Field(0.5, ge=0, lt=1, description="t: a pair counts as positive if its label is above it")
    reduction: Literal["sum", "mean"] = Field("sum", description="of BSC's two directions")
    directions: Literal["both", "left", "right"] = Field(
        "both", description="of BSC; `left`: each left text finds its right one; `right`: the other way round"
    )
    duplicates: Literal["keep", "mask"] = Field(
        "keep", description="`mask`: two texts that are a positive pair somewhere in the batch are not negatives elsewhere in it"
    )
    mix: float = Field(0.5, ge=0, le=1, description="μ of combo: μ·BSC + (1 − μ)·pointwise")
    pointwise: Literal["mse", "pearson", "cosent", "pearson+cosent"] = Field("mse", description="the other part of combo")
    guide: float | None = Field(
        None,
        ge=-1,
        le=2,
        description="BSC ignores an in-batch negative that the original encoder finds closer than the positive, by more than "
        "this margin: it may be a correct answer (false negative)",
    )
    margin: float = Field(0.5, gt=0, description="of triplets")
    mini_batch_size: int = Field(
        0,
        ge=0,
        description="texts that are encoded at a time, and again in the backward pass: large batches in little memory; 0: all",
    )


class OrderSettings(Settings):
    """Which pairs share a batch: the name of the ordering, and what it needs to know."""

    by: Literal["original", "uniform", "queries", "examples", "words", "clusters", "neighbors"] = Field(
        "uniform",
        description="as the data came, at random, all pairs of a text together, or near by vectors, by words, by clusters, "
        "by nearest texts",
    )
    first: Literal["ordered", "original"] = Field(
        "ordered", description="`original` leaves the first epoch as the data came, which is what the paper's released code does"
    )
    side: Literal["left", "right"] = Field("left", description="near by which texts")
    group: int = Field(
        8, ge=1, description="pairs to a group, the anchor among them; in `neighbors` also how many near texts count"
    )
    neighbors: int = Field(500, ge=1, description="of `examples`: how many nearest pairs are looked at")
    shingle: int = Field(1, ge=1, description="of `words` and `neighbors`: how many words, or near texts, pairs have to share")
    clusters: int = Field(0, ge=0, description="how many; 0: the root of the number of distinct texts")
    encode: Literal["each-epoch", "once", "reuse"] = Field(
        "each-epoch", description="where vectors come from; `reuse` keeps those of the training steps"
    )
    drop_identical: bool = Field(False, description="no text twice in a group: in `examples` on both sides, elsewhere on `side`")
    skip_nearest: int = Field(0, ge=0, description="so many nearest texts are no neighbors: they may be right answers")
    margin: float | None = Field(
        None,
        ge=-1,
        le=2,
        description="texts that are more similar than the pair's own other text, by over this, are no neighbors",
    )


class TrainSettings(Settings):
    """How long, how fast, and on what part of the data."""

    epochs: int = Field(5, ge=1, description="how often all pairs are seen")
    batch_size: int = Field(32, ge=1, description="pairs to a step")
    learning_rate: float = Field(2e-5, gt=0, description="the highest learning rate; it falls to 0 in a line")
    weight_decay: float = Field(0.01, ge=0, description="of AdamW")
    warmup: float = Field(0.1, ge=0, lt=1, description="the share of the steps in which the rate rises")
    clip: float = Field(1.0, gt=0, description="the gradient's norm is at most this")
    epsilon: float = Field(1e-6, gt=0, description="of AdamW")
    bias_correction: bool = Field(True, description="of AdamW; BERT's own optimizer, and the paper's on most tasks, has none")
    max_seq_length: int = Field(
        90, ge=0, description="most tokens of a text; longer texts are cut; 0: the encoder's own limit, at most 512"
    )
    precision: Literal["float32", "bf16"] = Field("float32", description="of the encoder's computations; its weights are float32")
    positives_only: bool = Field(False, description="leave out the pairs that do not count as positive")
    negatives: Literal["given", "logarithmic"] = Field(
        "given",
        description="`logarithmic` takes the positives alone, repeated, and as many negatives: for each left text those at ranks "
        "100 + 1, 2, 4, 8 …, as the paper does for PFCC-S",
    )
    pairs: int = Field(
        0, ge=0, description="train on so many pairs, drawn by seed after all else that adds or leaves out some; 0: all"
    )
    splits: str = Field(
        "train",
        pattern=r"^[\w.-]+(\+[\w.-]+)*$",
        description="the task's splits that are trained on, with a + between them: `train+titles`. Extra ones (`pairtune tasks` "
        "says which there are) go in without the pairs whose left text is in dev or test",
    )
    file: str = Field(
        "", description="a Parquet file to train on instead, read as it is needed (`order.by = original`: in its order)"
    )
    columns: tuple[str, ...] = Field(
        ("left", "right", "label"),
        min_length=2,
        max_length=3,
        description="of that file: left, right, and the label if it has one",
    )
    report_to: tuple[str, ...] = Field((), description="where the figures of the training go as well, such as tensorboard")
    fast: bool = Field(
        True, description="no padding, each text of a batch once, fused losses, captured steps, where model and device allow it"
    )
    dropout: Literal["always", "first-epoch"] = Field(
        "always", description="`first-epoch` trains later epochs without, which is what the paper's released code does"
    )
    labels: Literal["given", "graded"] = Field(
        "given", description="`graded`: the dataset's own grades, from 0 to 1, where it has more than positive and negative"
    )
    blend: float = Field(0.0, ge=0, lt=1, description="the share of the weights before the stage in those after it")
    candidates: int = Field(
        0,
        ge=0,
        description="in a ranking, fill each query up to so many texts, with those of others that share most words, as negatives",
    )


class Stage(Settings):
    """One training in a sequence: its loss, its order, its schedule."""

    loss: LossSettings = LossSettings()
    order: OrderSettings = OrderSettings()
    train: TrainSettings = TrainSettings()


class Recipe(Settings):
    """What `train.run` follows. Stages are trained one after the other, each from the epoch of the one before that was kept.

    dev = "rotating" makes seeds 1 to 10, with select = "last", a cross-validation, for data with so little dev that a choice on
    it is luck. With "joined", once a recipe is chosen, the scores on dev say nothing, and nothing may be chosen by them.
    """

    name: str = Field(
        min_length=1, pattern=r"^[\w.+-]+(/[\w.+-]+)*$", description="in records and reports; the file's, unless given"
    )
    task: str = Field("stdlib", description="the data: one that `pairtune tasks` lists; with `--data` your own")
    encoder: str = Field("minilm", description="what is trained: `minilm`, `mpnet`, a folder, or a name on the hub")
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field((1,), min_length=1, description="a run for each")
    select: Select = Field(
        "best", description="of each stage keep the best epoch on dev, the last, or the mean of the weights after each"
    )
    keep_original: bool = Field(
        True,
        description="with `select = best`: keep the encoder as it came (in a later stage, the stage before) if no epoch beats it",
    )
    dev: Literal["given", "rotating", "joined"] = Field(
        "given", description="`rotating` holds out another tenth of train and dev for each seed; `joined` trains on dev as well"
    )
    dev_candidates: int = Field(0, ge=0, description="as `train.candidates`, for dev, where it is easier than what will be met")
    prompts: dict[Literal["left", "right"], str] = Field(
        {}, description="what stands before each left and each right text; without, the prompts of the encoder's own config"
    )
    ignore: tuple[str, ...] = Field(
        (),
        description="regular expressions (Oniguruma's); what they match, such as links, the tuned model's tokenizer leaves out",
    )
    stages: tuple[Stage, ...] = (Stage(),)

    @property
    def extra_splits(self) -> list[str]:
        """The splits beside train that its stages train on."""
        return sorted({name for stage in self.stages for name in stage.train.splits.split("+")} - {"train"})


TABLES: dict[str, type[Settings]] = {"loss": LossSettings, "order": OrderSettings, "train": TrainSettings}


def recipe_folder() -> Path:
    """The shipped recipes: beside the package when installed, at the root of a checkout."""
    package = Path(__file__).parents[1]
    return next(folder for folder in (package / "recipes", package.parents[1] / "recipes") if folder.is_dir())


def shipped_recipes() -> list[str]:
    """The names that `pairtune train` takes besides files, such as stsb/combo."""
    folder = recipe_folder()
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.toml"))


def find_recipe(name: str) -> Path:
    """The TOML file of a shipped name, or the file that was named."""
    path = Path(name) if name.endswith(".toml") else recipe_folder() / f"{name}.toml"
    if not path.is_file():
        if name.endswith(".toml"):
            raise UserError(f"recipe {name}: there is no such file")
        near = get_close_matches(name, shipped_recipes(), 3, cutoff=0.75)
        meant = f"; did you mean {' or '.join(near)}?" if near else "; a file of pairs goes with --data" if "." in name else ""
        raise UserError(f"unknown recipe {name!r}{meant}; give a .toml file, or one that `pairtune recipes` lists")
    return path


def read_recipe(name: str, overrides: Iterable[str] = ()) -> Recipe:
    """A recipe from a TOML file or from a shipped name, with `key.path=value` overrides laid over it."""
    path = find_recipe(name)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise UserError(f"recipe {path}: not valid TOML: {problem}") from problem
    for override in overrides:
        table = lay_over_all(table, parse_override(override))
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
        raise UserError(explain(problem, origin, staged="stages" in table)) from None


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


def lay_over_all(table: Table, upper: Table) -> Table:
    """The table with the upper one's values, which hold for every stage, whatever it says itself."""
    stages = table.get("stages")
    if "stages" not in upper and isinstance(stages, list) and all(isinstance(stage, dict) for stage in stages):
        shared = {key: value for key, value in upper.items() if key in Stage.model_fields and isinstance(value, dict)}
        table = {**table, "stages": [lay_over(stage, shared) for stage in stages]}
    return lay_over(table, upper)


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
    "ignore": r"write a list of regular expressions, such as ['https?://\S+']",
    "train.splits": "name the task's splits with a + between them, such as train+titles (`pairtune tasks` lists them)",
}


RENAMED = {
    "loss.normalise": "loss.normalize",
    "loss.threshold": "loss.positive_above",
    "loss.mini_batch": "loss.mini_batch_size",
    "loss.temperature_rate": "loss.temperature_learning_rate",
    "order.neighbours": "order.neighbors",
    "train.rate": "train.learning_rate",
    "train.batch": "train.batch_size",
    "train.max_length": "train.max_seq_length",
}


def explain(problem: ValidationError, origin: str, *, staged: bool = False) -> str:
    """All bad fields in one message, each with what was given and what was expected."""
    lines = [_explain_one(dict(error), staged) for error in problem.errors()]
    return "\n".join(f"{origin}: {line}" for line in lines)


def _explain_one(error: dict[str, Any], staged: bool) -> str:
    where = [str(part) for part in error["loc"]]
    plain = where[2:] if where[0] == "stages" and len(where) > 2 else where
    shown = ".".join(where if staged else plain)
    if error["type"] == "extra_forbidden":
        if ".".join(plain) in RENAMED:
            return f"{shown} is now called {RENAMED['.'.join(plain)]}"
        known = ", ".join(_known_keys(plain[:-1]))
        return f"{shown} is not a setting; known here: {known}"
    message = HINTS.get(".".join(plain)) or error["msg"][0].lower() + error["msg"][1:]
    return f"{shown} is {error['input']!r}; {message}"


def _known_keys(where: list[str]) -> list[str]:
    if where and where[0] in TABLES:
        return list(TABLES[where[0]].model_fields)
    return [key for key in Recipe.model_fields if key != "stages"] + ["stages", *TABLES]
