"""What kind of data a task has, in figures: what the choice of a recipe and the messages look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pairtune.data.pairs import Kind, PairSet, Task

MEASURED_TEXTS = 20_000  # lengths are measured on at most so many texts, spread evenly


@dataclass(frozen=True)
class Profile:
    """The training split in figures. A left text and its pairs are one query.

    positives: the share of pairs whose label lies above the task's bound. grades: how many different labels there are.
    mixed: the share of left texts with both positive and other pairs. answered: the share with at least one positive.
    repeated_right: the share of pairs whose right text stands in another pair too.
    words, words_high: median and 95 % quantile of the words of a text; characters likewise.
    """

    kind: Kind
    pairs: int
    left: int
    right: int
    pairs_per_left: float
    positives: float
    grades: int
    mixed: float
    answered: float
    repeated_right: float
    characters: float
    characters_high: float
    words: float
    words_high: float
    dev_pairs: int
    dev_queries: int


def profile(task: Task) -> Profile:
    """The figures of a task's training split (and how much dev there is)."""
    pairs = task.train
    left, right = number_texts([str(query) for query in pairs.query]), number_texts(pairs.right)
    lefts, uses = int(left.max(initial=-1)) + 1, np.bincount(right)
    positive = pairs.positives(task.positive_above)
    has_positive, has_other = (np.bincount(left[mask], minlength=lefts) > 0 for mask in (positive, ~positive))
    characters, words = _lengths(pairs)
    return Profile(
        kind=task.kind,
        pairs=len(pairs),
        left=lefts,
        right=len(uses),
        pairs_per_left=len(pairs) / max(lefts, 1),
        positives=_mean(positive),
        grades=len(np.unique(pairs.label)),
        mixed=_mean(has_positive & has_other),
        answered=_mean(has_positive),
        repeated_right=_mean(uses[right] > 1),
        characters=_quantile(characters, 0.5),
        characters_high=_quantile(characters, 0.95),
        words=_quantile(words, 0.5),
        words_high=_quantile(words, 0.95),
        dev_pairs=len(task.dev),
        dev_queries=len(set(task.dev.query.tolist())),
    )


def describe(found: Profile) -> str:
    """A profile in one line.

    >>> task = Task("t", "retrieval", pairs := PairSet.of(["a", "b"], ["x y", "z"]), pairs, pairs, "MRR", ("MRR",))
    >>> describe(profile(task))
    'retrieval: 2 pairs, 2 left and 2 right texts, all positive; 1 word (95 %: 2); dev: 2 queries'
    """
    labels = "all positive" if found.positives == 1 else f"{found.positives:.0%} positive"
    if found.grades > 2:
        labels += f", {found.grades:,} different labels"
    several = f" ({found.pairs_per_left:.1f} pairs each)" if found.pairs_per_left > 1 else ""
    queries = "query" if found.dev_queries == 1 else "queries"
    dev = f"{found.dev_queries:,} {queries}" if found.kind in ("ranking", "retrieval") else f"{found.dev_pairs:,} pairs"
    words = f"{found.words:.0f} word{'' if round(found.words) == 1 else 's'} (95 %: {found.words_high:.0f})"
    return (
        f"{found.kind}: {found.pairs:,} pairs, {found.left:,} left{several} and {found.right:,} right texts, {labels}; "
        f"{words}; dev: {dev}"
    )


def number_texts(texts: Sequence[str]) -> np.ndarray:
    """(N,) from 0 on: the same number for the same text, in order of first occurrence.

    >>> number_texts(["b", "a", "b"]).tolist()
    [0, 1, 0]
    """
    import pyarrow as pa

    return pa.array(texts, pa.large_string()).dictionary_encode().indices.to_numpy().astype(np.int64)


def _lengths(pairs: PairSet) -> tuple[np.ndarray, np.ndarray]:
    texts = spread((*pairs.left, *pairs.right), MEASURED_TEXTS)
    return np.array([len(text) for text in texts]), np.array([len(text.split()) for text in texts])


def spread(texts: Sequence[str], at_most: int) -> list[str]:
    """At most so many of the texts, at even distances.

    >>> spread("abcdef", 3)
    ['a', 'c', 'e']
    """
    count = min(at_most, len(texts))
    return [texts[int(place)] for place in np.arange(count) * len(texts) // max(count, 1)]


def _mean(mask: np.ndarray) -> float:
    return float(mask.mean()) if len(mask) else 0.0


def _quantile(values: np.ndarray, share: float) -> float:
    return float(np.quantile(values, share)) if len(values) else 0.0
