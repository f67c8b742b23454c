"""A user's own data: any table of pairs, made a task."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pairtune.data.columns import READERS, Columns, read_columns
from pairtune.data.files import read_lines
from pairtune.data.info import METRICS, distinct, fold, share
from pairtune.data.labels import Scaled, rescale
from pairtune.data.pairs import Kind, PairSet, Task
from pairtune.errors import UserError

SPLITS = ("train", "dev", "test")
FEWEST_LEFT = 10  # distinct left texts: one for dev, one for test
FEW_LEFT = 100  # below this, chance could leave dev or test next to empty


def read_table(
    path: Path | str, left: str, right: str, label: str | None = None, *, seed: int = 0, kind: Kind | None = None
) -> Task:
    """A task from a .csv, .tsv, .jsonl or .parquet file; left, right and label name its columns.

    The split is 80/10/10 by left text: no left text is in two splits, and pairs added later move none of the others.
    Labels are laid on [0, 1] (see `labels.rescale`). Without labels, or with only positive ones, the task is retrieval;
    with 0 and 1, ranking where most left texts have both, else classification; with more values, regression.
    """
    if left == right:
        raise UserError(f"left and right are both column {left!r}; a pair needs two columns")
    columns = read_columns(Path(path), [left, right, *([label] if label else [])])
    pairs, notes = _labelled(columns, left, right, label)
    kind = kind or _kind_of(pairs)
    if kind in ("classification", "regression") and len(np.unique(pairs.label)) < 2:
        raise UserError(f"{path}: a {kind} task needs labels of both kinds, and here all pairs are positive")
    which = split_by_left(pairs.left, seed, str(path))
    parts = {name: _part(pairs.take(which == place), kind) for place, name in enumerate(SPLITS)}
    for name, part in parts.items():
        _check(part, kind, f"{path}: the {name} split ({len(part)} pairs)")
    notes = (*notes, f"split by left text: {', '.join(f'{len(part):,} {name}' for name, part in parts.items())}")
    metrics = METRICS[kind]
    return Task(
        name=Path(path).stem,
        kind=kind,
        train=parts["train"],
        dev=parts["dev"],
        test=parts["test"],
        metric=metrics[0],
        metrics=metrics,
        notes=notes,
        source=str(path),
    )


def read_pairs(path: Path | str, left: str, right: str) -> tuple[list[str], list[str]]:
    """The two columns of a file of pairs, in file order, not split."""
    columns = read_columns(Path(path), [left, right])
    return columns.texts(left), columns.texts(right)


def read_texts(path: Path | str, column: str) -> list[str]:
    """A corpus: a column of a table, or the lines of any other text file that are not blank."""
    path = Path(path)
    if path.suffix.lower() in READERS:
        return read_columns(path, [column]).texts(column)
    texts = [text.strip() for _, text in read_lines(path)]
    if not texts:
        raise UserError(f"{path}: the file is empty; expected one text per line")
    return texts


def split_by_left(left: Sequence[str], seed: int, origin: str = "the data") -> np.ndarray:
    """(N,) 0, 1 or 2: train, dev or test, by a hash of the seed and the left text (white space folded).

    From 100 distinct left texts on, each falls where its own hash says; fewer are cut by the order of their hashes,
    so that dev and test each get a tenth for sure.
    """
    at = {key: share(f"{seed}\n{key}") for key in {fold(text) for text in left}}
    if len(at) < FEWEST_LEFT:
        raise UserError(
            f"{origin}: {len(at)} different left texts, and the split into train, dev and test is by left text: "
            f"give at least {FEWEST_LEFT}, or swap left and right"
        )
    if len(at) < FEW_LEFT:
        held_out = len(at) // 10  # the highest hashes are test and the next dev, as with many texts
        at = {key: 1 - (place + 0.5) / (10 * held_out) for place, key in enumerate(sorted(at, key=at.__getitem__, reverse=True))}
    return np.array([0 if at[key] < 0.8 else 1 if at[key] < 0.9 else 2 for key in map(fold, left)])


def _labelled(columns: Columns, left: str, right: str, label: str | None) -> tuple[PairSet, tuple[str, ...]]:
    """All pairs with their labels, and what there is to say about these."""
    lefts, rights = columns.texts(left), columns.texts(right)
    query = [fold(text) for text in lefts]
    if label is None:
        return PairSet.of(lefts, rights, query=query), ("no label column was named: every pair is positive",)
    grades = columns.numbers(label)
    if len(set(grades)) == 1:
        if grades[0] <= 0:
            raise UserError(f"{columns.path}: every label is {grades[0]:g}: without a positive pair nothing can be learned")
        return PairSet.of(lefts, rights, query=query), (f"every label is {grades[0]:g}: every pair is positive",)
    scaled = rescale(grades, columns.where)
    pairs = PairSet.of(lefts, rights, scaled.label, query=query, grade=scaled.grade)
    return pairs, (*_remarks(scaled), *_repetitions(pairs))


def _remarks(scaled: Scaled) -> tuple[str, ...]:
    none = "" if (scaled.label > 0.5).any() else "no label lies above 0.5: no pair counts as positive"
    return tuple(filter(None, (scaled.note, none)))


def _repetitions(pairs: PairSet) -> tuple[str, ...]:
    """How many pairs occur again, and how many of those contradict themselves."""
    labels: dict[tuple[str, str], list[float]] = defaultdict(list)
    for left, right, label in zip(pairs.left, pairs.right, pairs.label.tolist(), strict=True):
        labels[left, right].append(label)
    repeated = [found for found in labels.values() if len(found) > 1]
    torn = sum(len(set(found)) > 1 for found in repeated)
    return (f"{len(repeated):,} pairs occur more than once, {torn:,} of them with different labels",) if repeated else ()


def _kind_of(pairs: PairSet) -> Kind:
    values = set(np.unique(pairs.label).tolist())
    if values == {1.0}:
        return "retrieval"
    if values != {0.0, 1.0}:
        return "regression"
    seen: dict[str, set[bool]] = defaultdict(set)
    for query, positive in zip(pairs.query, pairs.positives(), strict=True):
        seen[query].add(bool(positive))
    return "ranking" if sum(len(both) == 2 for both in seen.values()) > len(seen) / 2 else "classification"


def _part(pairs: PairSet, kind: Kind) -> PairSet:
    if kind != "retrieval":
        return pairs
    return PairSet.of(pairs.left, pairs.right, pairs.label, query=pairs.query, grade=pairs.grade, corpus=distinct(pairs.right))


def _check(pairs: PairSet, kind: Kind, which: str) -> None:
    """Every split must be worth a metric."""
    if kind == "regression" and len(np.unique(pairs.label)) < 2:
        raise UserError(f"{which} has one label only: give more pairs (or, in Python, read_table another seed)")
    positive = pairs.positives()
    if kind != "regression" and not positive.any():
        raise UserError(f"{which} has no positive pair: give more pairs (or, in Python, read_table another seed)")
    if kind == "classification" and positive.all():
        raise UserError(f"{which} has no negative pair: give more pairs (or, in Python, read_table another seed)")
