"""The splits of a dataset and what it says about itself; what is held out where it gives no dev or test."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pairtune.cache import reaches_hub
from pairtune.data.pairs import Kind, PairSet, Task
from pairtune.errors import UserError
from pairtune.ordering.order import number_texts
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


def single_spaces(text: str) -> str:
    """The text with every run of white space made one space.

    >>> single_spaces("  a\\tb  c ")
    'a b c'
    """
    if text.isprintable() and "  " not in text and text[:1] != " " != text[-1:]:  # other white space than blanks is not printable
        return text
    return " ".join(text.split())


def hash_to_unit(key: str) -> float:
    """A number in [0, 1) that depends on the key alone: the same on every machine, in every version of Python."""
    return float(hash_each([key])[0])


def hash_each(keys: Iterable[str]) -> np.ndarray:
    """The `hash_to_unit` of each key, (N,)."""
    return np.frombuffer(b"".join([hashlib.sha256(key.encode()).digest()[:8] for key in keys]), ">u8") / 2**64


def in_tenth(keys: Sequence[str]) -> np.ndarray:
    """(N,) bool: the rows that make a dev set of a tenth of the distinct keys, so that no key is on both sides."""
    by_hash = sorted(set(keys), key=hash_to_unit)
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
    import huggingface_hub

    shown = f"{repository} ({config})" if config else repository
    say(f"fetching {shown} from the Hugging Face hub, once")
    offline, constants = datasets.config.HF_HUB_OFFLINE, huggingface_hub.constants
    try:
        if not reaches_hub():  # what was fetched before is still found, and nothing is asked for six times
            datasets.config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
        return datasets.load_dataset(repository, config)
    except (OSError, ValueError, RuntimeError) as problem:
        reason = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
        raise UserError(
            f"the dataset was not found on this machine, and the hub gave no {shown}: {reason}. "
            f"Without a network, bring the files: {how}"
        ) from problem
    finally:
        datasets.config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = offline


PARTS = 10
FEWEST_LEFT = 10  # distinct left texts: one for dev, one for test
FEW_LEFT = 1000  # below this, chance could leave dev with half of what it should have, or without a positive pair
FEWEST_ALIKE = 3  # keys of one sort, of which dev and test get one each


def rotate_dev(task: Task, seed: int) -> Task:
    """The task with train and dev put together, of which the tenth number `seed` (from 1, then from 1 again) is dev.

    In a ranking a query is never on both sides; elsewhere no text is.
    """
    both = join(task.train, task.dev)
    keys = list(map(str, both.query)) if task.kind == "ranking" else connect(both.left, both.right)
    part = (seed - 1) % PARTS
    held_out = number_parts(keys) == part
    train, dev = both.take(~held_out), both.take(held_out)
    alike = task.kind != "retrieval" and len(np.unique(dev.label)) == 1  # nothing to tell apart
    if not len(dev) or not len(train) or alike:
        found = f"has {len(dev)} pairs, all labelled {dev.label[0]:g}" if alike else f"has {len(dev)} pairs"
        raise UserError(
            f'task {task.name}: dev = "rotating": tenth {part + 1} of {len(both)} pairs, which fall into {len(set(keys))} '
            f'sets that share no text or query, {found}: take another seed, or dev = "given"'
        )
    note = f"dev: tenth {part + 1} of train and dev together, {len(dev)} of {len(both)} pairs; each seed takes another tenth"
    others = (said for said in task.notes if not said.startswith("dev:"))
    return replace(task, train=train, dev=dev, notes=(*others, note))


def join_dev(task: Task) -> Task:
    """The task with the pairs of dev among those of train, for a recipe that is already chosen."""
    if task.kind == "classification":
        raise UserError(
            f'task {task.name}: dev = "joined" would train on the pairs that choose the threshold of F1: set dev = "given"'
        )
    note = f"dev: its {len(task.dev)} pairs are in the training set too, so scores on dev say nothing about new pairs"
    others = (said for said in task.notes if not said.startswith("dev:"))
    return replace(task, train=join(task.train, task.dev), notes=(*others, note))


def join(first: PairSet, second: PairSet) -> PairSet:
    """The pairs of both, the first ones first; either both have negatives, equally many, or none has."""
    if (first.negatives is None) != (second.negatives is None):
        raise UserError("only one of two splits has columns of negatives: give them to both, or to none")
    return PairSet.of(
        first.left + second.left,
        first.right + second.right,
        np.concatenate([first.label, second.label]),
        query=np.concatenate([first.query, second.query]),
        grade=np.concatenate([first.grade, second.grade]),
        corpus=distinct((*(first.corpus or ()), *(second.corpus or ()))) or None,
        negatives=None if first.negatives is None or second.negatives is None else first.negatives + second.negatives,
    )


def number_parts(keys: Sequence[str]) -> np.ndarray:
    """(N,) from 0 to 9: keys in an order that they alone decide, cut into parts of about equally many pairs."""
    begins: dict[str, int] = {}
    begin = 0
    for name, size in sorted(Counter(keys).items(), key=lambda item: hash_to_unit(item[0])):
        begins[name] = begin
        begin += size
    return np.array([begins[name] * PARTS // len(keys) for name in keys])


def split_by_left(left: Sequence[str], seed: int, origin: str = "the data") -> np.ndarray:
    """(N,) 0, 1 or 2: train, dev or test, by a hash of the seed and the left text (white space folded).

    From 1,000 distinct left texts on, each falls where its own hash says; fewer are cut by the order of their hashes,
    so that dev and test each get a tenth for sure.
    """
    return split_by_key([single_spaces(text) for text in left], seed, origin)


def split_by_key(
    keys: Sequence[str], seed: int, origin: str, what: str = "left texts", positive: np.ndarray | None = None
) -> np.ndarray:
    """`split_by_left` by names that need no folding. what: they are, in words.

    positive: (N,) bool, which pairs are: of few names dev and test get a tenth of those with a positive pair, and of the others.
    """
    names, row = number_texts(keys)
    at = hash_each(f"{seed}\n{key}" for key in names)
    if len(at) < FEWEST_LEFT:
        raise UserError(
            f"{origin}: {len(at)} different {what}, by which train, dev and test are split: give at least {FEWEST_LEFT}, "
            f"{'or swap left and right' if what == 'left texts' else 'or give splits of your own (--train, --dev, --test)'}"
        )
    if len(at) >= FEW_LEFT:
        return np.digitize(at, (0.8, 0.9))[row]
    sort = np.zeros(len(at), bool)
    if positive is not None:
        np.logical_or.at(sort, row, positive)
    which = np.zeros(len(at), np.int64)
    for alike in (np.flatnonzero(sort), np.flatnonzero(~sort)):
        falling = alike[np.argsort(-at[alike])]  # the highest hashes are test and the next dev, as with many names
        held_out = max(1, round(len(alike) / 10)) if len(alike) >= FEWEST_ALIKE else 0
        which[falling[:held_out]], which[falling[held_out : 2 * held_out]] = 2, 1
    return which[row]
