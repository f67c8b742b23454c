"""What a dataset says about itself, and the splits that its loader gives: from files, or from the Hugging Face hub."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pairtune.data.pairs import Kind, PairSet
from pairtune.errors import UserError
from pairtune.progress import say

METRICS_OF_KIND: dict[Kind, tuple[str, ...]] = {
    "classification": ("F1", "F1@best", "AP"),
    "ranking": ("MAP", "MRR", "P@1"),
    "regression": ("Spearman", "Pearson"),
    "retrieval": ("HP@1", "HP@5", "MRR"),
}
HubRow = Mapping[str, Any]


@dataclass(frozen=True)
class Splits:
    """What a loader reads: the splits, in file order, and what was skipped or replaced on the way."""

    train: PairSet
    dev: PairSet
    test: PairSet
    notes: tuple[str, ...] = ()
    extra: dict[str, PairSet] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskInfo:
    """One line of the table of tasks.

    metrics: printable names, the main one first. folder: the sub-folder of `PAIRTUNE_DATA` that `load` reads.
    how: where the files can be had. fetch: reads the data over a network where there are no files.
    built_in: the folder that is there on every machine, for a task that needs no download.
    """

    name: str
    kind: Kind
    metrics: tuple[str, ...]
    license: str
    citation: str
    how: str
    folder: str
    load: Callable[[Path], Splits]
    fetch: Callable[[], Splits] | None = None
    positive_above: float = 0.5
    built_in: Path | None = None

    @property
    def metric(self) -> str:
        """The main metric."""
        return self.metrics[0]


def fold(text: str) -> str:
    """The text with every run of white space made one space.

    >>> fold("  a\\tb  c ")
    'a b c'
    """
    return " ".join(text.split())


def share(key: str) -> float:
    """A number in [0, 1) that depends on the key alone: the same on every machine, in every version of Python."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") / 2**64


def in_tenth(keys: Sequence[str]) -> np.ndarray:
    """(N,) bool: the rows that make a dev set of a tenth of the distinct keys, so that no key is on both sides."""
    by_hash = sorted(set(keys), key=share)
    chosen = set(by_hash[: max(1, len(by_hash) // 10)])
    return np.array([key in chosen for key in keys], dtype=bool)


def connect(left: Sequence[str], right: Sequence[str]) -> list[str]:
    """A name for each pair: the same for pairs that share a text, directly or through others.

    >>> connect(["a", "b", "c"], ["x", "y", "x"])
    ['x', 'y', 'x']
    """
    name = {text: text for text in (*left, *right)}

    def root(text: str) -> str:
        while name[text] != text:
            name[text] = text = name[name[text]]
        return text

    for one, other in zip(left, right, strict=True):
        name[root(one)] = root(other)
    return [root(text) for text in right]


def distinct(texts: Iterable[str]) -> tuple[str, ...]:
    """The texts without repetitions, in order of first occurrence."""
    return tuple(dict.fromkeys(texts))


def hub_splits(repository: str, config: str | None, how: str) -> Mapping[str, Iterable[HubRow]]:
    """The dataset's splits by the hub's names (train, validation, test); `how` tells a user without a network what to do."""
    import datasets

    shown = f"{repository} ({config})" if config else repository
    say(f"fetching {shown} from the Hugging Face hub, once")
    try:
        return datasets.load_dataset(repository, config)
    except (OSError, ValueError, RuntimeError) as problem:
        reason = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
        raise UserError(
            f"the dataset was not found on this machine, and the hub gave no {shown}: {reason}. "
            f"Without a network, bring the files: {how}"
        ) from problem
