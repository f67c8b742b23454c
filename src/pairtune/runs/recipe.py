"""A recipe: every setting of a training, validated and frozen. `runs.toml` reads and writes it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
)

Normalization = Literal["l2", "l2-batch", "minmax-batch", "range-batch", "none"]
Select = Literal["best", "last", "average"]
TomlTable = dict[str, Any]


class Settings(BaseModel):
    """Frozen, and closed: a key that nobody reads is a mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class LossSettings(Settings):
    """Which loss, and its letters in the paper."""

    kind: Literal["bsc", "mse", "pearson", "cosent", "combo", "triplet", "host"] = Field(
        "combo",
        description="the loss. `bsc`: batch softmax; `mse`: squared error between cosine and label; `pearson`: 1 − correlation "
        "of cosines and labels; `cosent`: a pair with a higher label should have a higher cosine; `combo`: `bsc` plus "
        "`pointwise`; `triplet`: the positive must be closer than the negative by `margin`; `host`: the one that `host` names",
    )
    temperature: float = Field(
        0.1, gt=0, description="τ: BSC divides similarities by it; lower: the hardest negatives count more"
    )
    learn_temperature: bool = Field(False, description="learn τ too, starting from `temperature`")
    temperature_learning_rate: float = Field(1e-3, gt=0, description="learning rate of a learned τ")
    normalize: Normalization = Field(
        "l2",
        description="how BSC normalizes embeddings. `l2`: each to length 1; `…-batch`: each dimension over the batch",
    )
    positive_above: float = Field(0.5, ge=0, lt=1, description="a pair is positive if its label is above this (t in the paper)")
    reduction: Literal["sum", "mean"] = Field("sum", description="add or average the two directions of BSC")
    directions: Literal["both", "left", "right"] = Field(
        "both", description="of BSC. `left`: each left text must find its right text; `right`: the other way round"
    )
    duplicates: Literal["keep", "mask"] = Field(
        "keep", description="`mask`: two texts that are a positive pair in the batch are never used as negatives of each other"
    )
    mix: float = Field(0.5, ge=0, le=1, description="weight of BSC in `combo` (μ): μ·BSC + (1 − μ)·pointwise")
    pointwise: Literal["mse", "pearson", "cosent", "pearson+cosent", "pearson+listwise"] = Field(
        "mse",
        description="the second part of `combo`. `listwise`: a softmax over the right texts of each left text; keep them in one "
        "batch by `order.by = queries`",
    )
    guide: float | None = Field(
        None,
        ge=-1,
        le=2,
        description="ignore an in-batch negative that the original encoder finds closer than the positive, by more than this "
        "margin (a likely false negative)",
    )
    margin: float = Field(0.5, gt=0, description="margin of the `triplet` loss")
    mini_batch_size: int = Field(
        0,
        ge=0,
        description="encode this many texts at a time, and again in the backward pass; large batches then need less memory. "
        "0: all at once, or as many as fit",
    )
    host: str = Field(
        "", description="for `host`: a loss of sentence-transformers with its own settings, to compare with, such as `AnglELoss`"
    )


class OrderSettings(Settings):
    """Which pairs share a batch: the name of the ordering, and what it needs to know."""

    by: Literal["original", "uniform", "queries", "examples", "words", "clusters", "neighbors"] = Field(
        "uniform",
        description="which pairs share a batch. `original`: file order; `uniform`: random; `queries`: all pairs of a text "
        "together; `examples`: similar texts, by the encoder; `words`: texts that share words; `clusters`: texts of a cluster; "
        "`neighbors`: texts that share a near text",
    )
    first: Literal["ordered", "original"] = Field(
        "ordered", description="`original`: the first epoch keeps the file order, as in the paper's released code"
    )
    side: Literal["left", "right"] = Field("left", description="compare pairs by their left or their right texts")
    group: int = Field(
        8, ge=1, description="pairs in a group of similar pairs, the first one included; for `neighbors` also how many near texts"
    )
    neighbors: int = Field(500, ge=1, description="for `examples`: how many nearest pairs to consider")
    shingle: int = Field(1, ge=1, description="for `words` and `neighbors`: how many words, or near texts, pairs must share")
    clusters: int = Field(0, ge=0, description="for `clusters`: how many; 0: √(number of distinct texts)")
    encode: Literal["each-epoch", "once", "reuse"] = Field(
        "each-epoch",
        description="when to encode the texts for the order. `each-epoch`: before every epoch; `once`: before the first; "
        "`reuse`: before the first, then take the embeddings of the training steps",
    )
    drop_identical: bool = Field(False, description="no text twice in a group")
    skip_nearest: int = Field(
        0, ge=0, description="ignore this many nearest texts: they may be correct answers (false negatives)"
    )
    margin: float | None = Field(
        None,
        ge=-1,
        le=2,
        description="ignore texts that are closer than the pair's own other text by more than this (false negatives)",
    )
    group_counts: Literal["pairs", "texts"] = Field(
        "pairs",
        description="for `examples`: what `group` counts. `texts`: distinct texts, each with all its pairs, as in the paper's "
        "released code",
    )
    distance: Literal["cosine", "euclidean"] = Field(
        "cosine", description="for `examples`: how to find near texts; `euclidean`: as in the paper's released code"
    )


class TrainSettings(Settings):
    """How long, how fast, and on what part of the data."""

    epochs: int = Field(5, ge=1, le=10_000, description="passes over the training pairs")
    batch_size: int = Field(32, ge=1, le=2**20, description="pairs in a batch, of all processes together")
    learning_rate: float = Field(2e-5, gt=0, description="peak learning rate; decays linearly to 0")
    weight_decay: float = Field(0.01, ge=0, description="weight decay of AdamW")
    warmup: float = Field(0.1, ge=0, lt=1, description="share of the steps in which the learning rate rises linearly")
    clip: float = Field(1.0, gt=0, description="largest norm of the gradient")
    epsilon: float = Field(1e-6, gt=0, description="ε of AdamW")
    bias_correction: bool = Field(True, description="bias correction of AdamW; the paper has none on most tasks")
    optimizer: Literal["adamw", "adamw-8bit"] = Field(
        "adamw", description="`adamw-8bit`: the optimizer's state in a quarter of the memory (needs bitsandbytes or torchao)"
    )
    gradient_checkpointing: bool = Field(
        False, description="compute each layer again in the backward pass: less memory, slower, and with padding"
    )
    max_seq_length: int = Field(
        0, ge=0, description="longest text in tokens; longer texts are cut; 0: the encoder's own limit, at most 512"
    )
    precision: Literal["float32", "bf16"] = Field(
        "float32", description="precision of the encoder's computation; weights stay float32"
    )
    positives_only: bool = Field(False, description="train on positive pairs only")
    negatives: Literal["given", "mined", "logarithmic"] = Field(
        "given",
        description="`mined`: find hard negatives with the current model before every epoch, among the right texts or the corpus"
        "; `logarithmic`: negatives are the texts at ranks 101, 102, 104, 108 … of a search, as the paper does for PFCC-S. "
        "Positives are repeated to match",
    )
    mined: int = Field(1, ge=1, le=100, description="for `negatives = mined`: how many for each pair")
    mined_margin: float = Field(
        0.05,
        ge=0,
        lt=1,
        description="for `negatives = mined`: a negative's cosine is at most (1 − this) × that of the right answer; closer texts "
        "may be false negatives",
    )
    pairs: int = Field(0, ge=0, description="use only this many training pairs, chosen at random; 0 means all")
    splits: str = Field(
        "train",
        pattern=r"^[\w.-]+(\+[\w.-]+)*$",
        description="splits to train on, such as `train+titles` (`pairtune tasks` lists the extra ones). Pairs of extra splits "
        "whose left text is in dev or test are left out",
    )
    file: str = Field(
        "", description="train on this Parquet file instead, read in pieces (with `order.by = original`: in file order)"
    )
    columns: tuple[str, ...] = Field(
        ("left", "right", "label"),
        min_length=2,
        max_length=3,
        description="columns of `train.file`: left, right, and the label if there is one",
    )
    report_to: tuple[str, ...] = Field((), description="other loggers, such as tensorboard")
    fast: bool = Field(
        True, description="fast training step: no padding, repeated texts encoded once, fused loss; the same mathematics"
    )
    dropout: Literal["always", "first-epoch"] = Field(
        "always", description="`first-epoch`: no dropout after the first epoch, as in the paper's released code"
    )
    labels: Literal["given", "graded"] = Field(
        "given", description="`graded`: train on the grades of a dataset instead of 0 and 1, where it has grades"
    )
    dimensions: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (),
        description="train embeddings that can be cut (Matryoshka): the loss is the sum over these dimensions, such as "
        "`[384, 256, 128, 64]`; name the full width too",
    )
    blend: float = Field(0.0, ge=0, lt=1, description="mix this share of the weights before training into the weights after it")
    candidates: int = Field(
        0,
        ge=0,
        description="ranking: fill each query up to this many texts, with similar texts of other queries as negatives; 0: do not",
    )


class AdapterSettings(Settings):
    """A few new parameters to train in place of the encoder's own."""

    kind: Literal["lora"] = Field(
        "lora",
        description="`lora`: train small matrices beside the encoder's layers and freeze the rest: less memory. Needs a higher "
        "`train.learning_rate` (about ten times), and `pip install 'pairtune[adapters]'`",
    )
    rank: int = Field(16, ge=1, le=4096, description="rank of the matrices; higher: more is learned, with more memory")
    alpha: int = Field(32, ge=1, description="the matrices are scaled by `alpha` / `rank`")
    targets: tuple[str, ...] = Field(
        (), description="names of the layers that get matrices, such as `query`; default: all linear layers"
    )
    save: Literal["merged", "adapter"] = Field(
        "merged",
        description="`merged`: the tuned model is an ordinary one; `adapter`: only the matrices are saved, a few megabytes. To "
        "load them you need the original encoder and peft",
    )


class Stage(Settings):
    """One training in a sequence: its loss, its order, its schedule."""

    loss: LossSettings = LossSettings()
    order: OrderSettings = OrderSettings()
    train: TrainSettings = TrainSettings()
    select: Select | None = Field(None, description="which epoch this stage keeps; default: as the recipe says")

    @model_serializer(mode="wrap")
    def _write(self, write: SerializerFunctionWrapHandler) -> TomlTable:
        """Without `select` where the recipe's holds: as stages have always been written."""
        return {key: value for key, value in write(self).items() if value is not None}


class Source(Settings):
    """One of several datasets that are trained on together. The names are those of the options of `pairtune train`."""

    name: str = Field(pattern=r"^[\w+-][\w.+-]*$", description="name in scores and messages")
    data: tuple[str, ...] = Field(min_length=1, description="files of pairs to train on; dev and test are split from them")
    dev: tuple[str, ...] = Field((), description="files for dev")
    test: tuple[str, ...] = Field((), description="files for test")
    left: str | None = Field(None, description="column of the left text")
    right: str | None = Field(None, description="column of the right text")
    label: str | Literal[False] | None = Field(None, description="column of the label; `false`: the pairs have none")
    negatives: tuple[str, ...] | None = Field(None, description="columns of negatives; `[]`: none")
    keep_together: str | None = Field(
        None, description="column of names, such as threads; pairs with the same name stay in one split"
    )
    split_column: str | None = Field(None, description="column that says train, dev or test")
    grades: dict[str, float | Literal["out"]] = Field({}, description="what a label is worth; `out`: its pairs are left out")
    skip_empty: bool = Field(False, description="leave out pairs that lack a text or their label")
    hub_split: dict[Literal["train", "dev", "test"], str] = Field({}, description="which split of a dataset is which")
    corpus: tuple[str, ...] = Field((), description="files of texts to search the right answers in")
    kind: str | None = Field(None, description="classification, ranking, regression or retrieval")
    prompts: dict[Literal["left", "right"], str] = Field({}, description="instead of the recipe's prompts")
    loss: dict[str, Any] = Field({}, description="settings of `[loss]` that are different for this source")
    order: dict[str, Any] = Field({}, description="settings of `[order]` that are different for this source")

    @field_validator("data", "dev", "test", "corpus", "negatives", mode="before")
    @classmethod
    def _list_one(cls, value: Any) -> Any:
        """One name is a list of one."""
        return [value] if isinstance(value, str) else value


class Recipe(Settings):
    """All settings of a training. Stages are trained one after the other; each starts from the epoch that the last one kept.

    dev = "rotating" with select = "last" and seeds 1 to 10 is a cross-validation: use it when dev is too small to choose on.
    dev = "joined" trains on dev too: its scores then say nothing, so choose the recipe before.
    """

    name: str = Field(
        min_length=1,
        pattern=r"^[\w+-][\w.+-]*(/[\w+-][\w.+-]*)*$",
        description="name in records and reports; default: the name of the file",
    )
    task: str = Field("stdlib", description="the dataset (`pairtune tasks` lists them); `--data` replaces it by your own")
    encoder: str = Field(
        "minilm", min_length=1, description="the model to train: `minilm`, `mpnet`, a folder, or a name on the hub"
    )
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**32)], ...] = Field(
        (1,), min_length=1, description="one training for each seed; the best on dev is kept"
    )
    average_of: int = Field(
        1,
        ge=1,
        le=20,
        description="train this many times, each with another seed, and average the weights; a training that makes the average "
        "worse on dev is left out",
    )
    select: Select = Field(
        "best", description="keep the best epoch on dev, the last epoch, or the average of the weights of all epochs"
    )
    keep_original: bool = Field(
        True,
        description="with `select = best`: if no epoch is better on dev, keep the original encoder (epoch 0)",
    )
    dev: Literal["given", "rotating", "joined"] = Field(
        "given",
        description="`given`: dev as it is; `rotating`: cross-validation, each seed holds out another tenth of train and dev; "
        "`joined`: train on dev too",
    )
    dev_candidates: int = Field(0, ge=0, description="like `train.candidates`, for dev: use it when dev is easier than real use")
    prompts: dict[Literal["left", "right"], str] = Field(
        {}, description="text to put before each left and each right text; default: the encoder's own prompts"
    )
    mark_sides: bool = Field(
        False,
        description="ranking and search: begin left texts with `question: ` and right texts with `answer: `, so that the encoder "
        "can tell them apart; for an encoder without prompts of its own. The tuned model then has `encode_query` for left texts "
        "and `encode_document` for right ones",
    )
    mark_share: float = Field(
        1.0,
        gt=0,
        le=1,
        description="with `mark_sides`: mark the training pairs of this share of the left texts. Below 1 the tuned model also "
        "learns texts without marks, for plain `encode`",
    )
    ignore: tuple[str, ...] = Field(
        (),
        description="regular expressions; the tuned model does not see what they match, such as links",
    )
    sources: tuple[Source, ...] = Field((), description="several datasets, each under its own `[[sources]]` heading")
    share: Literal["size", "equal"] = Field(
        "size", description="with sources: batches of each by its size, or equally many of each until one is used up"
    )
    mix_sources: bool = Field(False, description="with sources: a batch may have pairs of several")
    adapter: AdapterSettings | None = None
    stages: tuple[Stage, ...] = (Stage(),)

    @property
    def extra_splits(self) -> list[str]:
        """The splits beside train that its stages train on."""
        return sorted({name for stage in self.stages for name in stage.train.splits.split("+")} - {"train"})

    @property
    def dimensions(self) -> list[int]:
        """All sizes that its embeddings are cut to, the largest first."""
        return sorted({size for stage in self.stages for size in stage.train.dimensions}, reverse=True)

    @property
    def selects(self) -> tuple[Select, ...]:
        """Which epoch each stage keeps."""
        return tuple(stage.select or self.select for stage in self.stages)


STAGE_TABLES: dict[str, type[Settings]] = {"loss": LossSettings, "order": OrderSettings, "train": TrainSettings}  # of every stage
RECIPE_TABLES: dict[str, type[Settings]] = {**STAGE_TABLES, "adapter": AdapterSettings}
