"""What a stage trains on: the task's pairs, with what the recipe adds to them or leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from pairtune.data.negatives import check_filling, fill_queries, given_triplets, logarithmic_negatives, triplets
from pairtune.data.pairs import PairSet, Task
from pairtune.data.splits import join
from pairtune.errors import UserError
from pairtune.runs.recipe import Stage
from pairtune.runs.settings import USE_MINED

USE_NEGATIVES = ("bsc", "combo", "triplet", "host")  # losses that can

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict
    from sentence_transformers import SentenceTransformer


def training_dataset(model: SentenceTransformer, task: Task, stage: Stage, seed: int) -> Dataset:
    """The pairs (or triplets) that a stage trains on, as the host's dataset: texts first, then the label."""
    from datasets import Dataset

    if stage.train.file:
        return dataset_of_file(stage)
    pairs = training_pairs(model, task, stage, np.random.default_rng([seed, 1]))
    if stage.loss.kind == "triplet":
        choose = given_triplets if pairs.negatives else triplets
        anchors, positives, negatives = choose(pairs, stage.loss.positive_above, np.random.default_rng([seed, 2]))
        return Dataset.from_dict({"anchor": anchors, "positive": positives, "negative": negatives})
    if stage.loss.kind == "pearson" and len(np.unique(pairs.label)) < 2:
        raise UserError(
            f"task {task.name}: all training labels are {pairs.label[0]:g}; the Pearson loss needs labels that differ"
        )
    columns = list(zip(*(pairs.negatives or ()), strict=True))
    if stage.train.negatives == "mined":  # the columns' place is held; before each epoch they are filled
        columns = [pairs.right[number:] + pairs.right[:number] for number in range(1, stage.train.mined + 1)]
    further = {f"negative_{number}": column for number, column in enumerate(columns, start=1)}
    return Dataset.from_dict({"left": pairs.left, "right": pairs.right, **further, "label": pairs.label})


def count_rows(dataset: Dataset | DatasetDict) -> int:
    """How many there are, in all datasets together."""
    return sum(map(len, dataset.values())) if isinstance(dataset, dict) else len(dataset)


def texts_of(dataset: Dataset | DatasetDict) -> list[str]:
    """All texts of a dataset, or of several, column by column."""
    if isinstance(dataset, dict):
        return [text for one in dataset.values() for text in texts_of(one)]
    return [text for name in dataset.column_names if name != "label" for text in dataset[name]]


def dataset_of_file(stage: Stage) -> Dataset:
    """The rows of `train.file`, mapped into memory as they are needed: a file larger than memory trains like any other."""
    import pyarrow as pa
    from datasets import Dataset

    path, names = stage.train.file, stage.train.columns
    train = stage.train
    given = {train.negatives, train.labels} == {"given"} and train.splits == "train"
    changed = train.positives_only or train.pairs or train.candidates or not given
    if stage.loss.kind == "triplet" or changed:
        raise UserError(
            f"train.file {path} is trained on as it stands: no triplets, positives_only, negatives (unless 'given'), candidates, "
            "labels, splits or pairs with it"
        )
    try:
        check_file(path, names)
    except (OSError, pa.ArrowException) as problem:
        raise UserError(f"train.file {path} cannot be read as Parquet: {problem}") from problem
    dataset = Dataset.from_parquet(path, columns=list(names))
    return dataset.select_columns(list(names)).rename_columns(dict(zip(names, ("left", "right", "label"), strict=False)))


def check_file(path: str, names: Sequence[str]) -> None:
    """Refuse a Parquet file whose columns are not two of texts and one of labels, whole and each there once."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    from pyarrow import types

    schema = pq.read_schema(path)
    if missing := [name for name in names if name not in schema.names]:
        raise UserError(
            f"train.file {path} has no column {', '.join(missing)}; it has: {', '.join(schema.names)}; set train.columns"
        )
    if twice := [name for name in names if [*names].count(name) > 1 or schema.names.count(name) > 1]:
        raise UserError(f"train.file {path}: column {twice[0]} is named twice, in the file or in train.columns: name each once")
    for name, role in zip(names, ("text", "text", "label"), strict=False):
        kind = schema.field(name).type
        kind = kind.value_type if types.is_dictionary(kind) else kind
        text = types.is_string(kind) or types.is_large_string(kind)
        number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
        if not (text if role == "text" else number):
            raise UserError(f"train.file {path}: column {name} holds {kind}, and should be the {role}: set train.columns")
    row = 0
    for batch in pq.ParquetFile(path).iter_batches(columns=list(names)):  # the file may be larger than memory
        for name in names:
            if (place := pc.index(pc.is_null(batch[name], nan_is_null=True), True).as_py()) >= 0:
                raise UserError(f"train.file {path}: row {row + place + 1} has no {name}: leave the row out")
        if len(names) == 3:
            low, high = pc.min_max(batch[names[2]].cast("float64")).as_py().values()
            if not 0 <= low <= high <= 1:
                raise UserError(f"train.file {path}: labels lie in {low} to {high}; labels here lie in 0 to 1, rescale them")
        row += len(batch)
    if not row:
        raise UserError(f"train.file {path} has no rows: give one that has")


def check_negatives(task: Task, stage: Stage) -> None:
    """Refuse explicit negatives where they would be ignored: by losses of single pairs, and by settings that make others."""
    if stage.train.negatives == "mined" and stage.loss.kind not in USE_MINED:
        raise UserError(f'train.negatives = "mined": loss.kind = "{stage.loss.kind}" cannot use them: take bsc or combo')
    if task.train.negatives is None:
        return
    own = f"task {task.name} has {len(task.train.negatives[0])} negatives for each pair, and"
    if stage.loss.kind not in USE_NEGATIVES:
        raise UserError(
            f'{own} loss.kind = "{stage.loss.kind}" cannot use them: '
            f"take {' or '.join(USE_NEGATIVES)}, or leave the columns out (--no-negatives)"
        )
    made = {"train.candidates": stage.train.candidates, "train.negatives": stage.train.negatives != "given"}
    if others := [name for name, asked in made.items() if asked]:
        raise UserError(f"{own} {others[0]} makes negatives of its own: leave out the setting, or the columns")


def check_candidates(task: Task, stage: Stage) -> None:
    """Refuse a `train.candidates` that cannot be had, or that another setting takes back."""
    train = stage.train
    if not train.candidates:
        return
    if train.splits != "train":
        raise UserError(
            f'train.candidates = {train.candidates} fills the queries of train, and train.splits = "{train.splits}" trains on '
            f"others: set one of the two"
        )
    against = {"positives_only = true": train.positives_only, 'negatives = "logarithmic"': train.negatives == "logarithmic"}
    if others := [name for name, given in against.items() if given]:
        raise UserError(
            f"train.candidates = {train.candidates} adds negatives to the given ones, and train.{others[0]} keeps only the "
            f"positives of them: set one of the two"
        )
    check_filling(task, task.train, train.candidates, "train.candidates")


def take_splits(task: Task, names: str) -> PairSet:
    """The pairs of these splits, in their order.

    Of extra ones without those whose left text dev or test has as well, and those that are there already.
    """
    setting, known = f'train.splits = "{names}"', ", ".join(["train", *task.extra])
    held_out = {*task.dev.left, *task.test.left}
    taken: dict[str, PairSet] = {}
    for name in names.split("+"):
        if name in ("dev", "test"):
            instead = ': dev = "joined" is there for it' if name == "dev" else ""
            raise UserError(f"{setting}: {name} is for evaluation{instead}; to train on, there is: {known}")
        if name in taken:
            raise UserError(f"{setting}: {name} is named twice; name each split once")
        if name != "train" and name not in task.extra:
            raise UserError(f"{setting}: task {task.name} has no split {name!r}; to train on, there is: {known}")
        pairs = task.split(name)
        if name != "train":
            there = {pair for other in taken.values() for pair in zip(other.left, other.right, strict=True)}
            fresh = [
                left not in held_out and (left, right) not in there for left, right in zip(pairs.left, pairs.right, strict=True)
            ]
            pairs = pairs.take(fresh)
        if not len(pairs):
            raise UserError(
                f"{setting}: every pair of {name} is in train already, or its left text is in dev or test: leave it out"
            )
        taken[name] = pairs
    return reduce(join, taken.values())


def note_splits(task: Task, stages: Sequence[Stage]) -> list[str]:
    """For each choice of splits other than train alone, how many pairs it gives, and how many stayed out."""
    notes = []
    for names in dict.fromkeys(stage.train.splits for stage in stages if stage.train.splits != "train"):
        count = len(take_splits(task, names))
        left_out = sum(len(task.split(name)) for name in names.split("+")) - count
        notes.append(
            f"train: {names}, {count:,} pairs; {left_out:,} left out, as they are in train or their left text is in dev or test"
        )
    return notes


def training_pairs(model: SentenceTransformer, task: Task, stage: Stage, rng: np.random.Generator) -> PairSet:
    """The task's training pairs, with what the recipe adds to them or leaves out."""
    pairs = take_splits(task, stage.train.splits)
    if stage.train.candidates:
        pairs = fill_queries(pairs, stage.train.candidates)
    if stage.train.labels == "graded":
        pairs = graded(pairs)
    if stage.train.negatives == "logarithmic":
        pairs = add_negatives(model, pairs, rng)
    if stage.train.positives_only:
        pairs = pairs.take(pairs.positives(stage.loss.positive_above))
    if 0 < stage.train.pairs < len(pairs):
        pairs = pairs.take(np.sort(rng.choice(len(pairs), stage.train.pairs, replace=False)))
    if not len(pairs):
        raise UserError(
            f"task {task.name}: no training pair has a label above {stage.loss.positive_above:g}; lower loss.positive_above"
        )
    return pairs


def graded(pairs: PairSet) -> PairSet:
    """The pairs with the dataset's own grades as labels, from 0 for the lowest to 1 for the highest."""
    low, high = pairs.grade.min(), pairs.grade.max()
    return replace(pairs, label=(pairs.grade - low) / (high - low)) if high > low else pairs


def add_negatives(model: SentenceTransformer, pairs: PairSet, rng: np.random.Generator) -> PairSet:
    """Negatives for data that has none, by the paper's 100 + 2^k scheme, with the model as it is now."""
    from pairtune.encoders.embedding import encode

    corpus = pairs.corpus or tuple(dict.fromkeys(pairs.right))
    left = encode(model, pairs.left, "encoding for negatives")
    return logarithmic_negatives(pairs, left, corpus, encode(model, corpus, "encoding for negatives"), rng)
