"""What kind of data a task has, in numbers: what the choice of a recipe and the messages look at.

The kind of a task is seen from its pairs, with the reason in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from pairtune.data.pairs import Kind, PairSet, Task
from pairtune.data.splits import METRICS_OF_KIND
from pairtune.errors import UserError
from pairtune.ordering.order import number_texts

MEASURED_TEXTS = 20_000  # lengths are measured on at most so many texts, spread evenly
KINDS: tuple[Kind, ...] = get_args(Kind)
GRADED_RANKING = ("MAP", "MRR", "nDCG@10")
SEVERAL = 3  # pairs of a left text that make a list to rank
FEW_MIXED = 0.1  # the share of left texts with right and wrong answers below which lists are no rankings


@dataclass(frozen=True)
class Profile:
    """The training split in numbers. A left text and its pairs are one query.

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
    """The numbers of a task's training split (and how much dev there is)."""
    pairs = task.train
    left, right = number_texts([str(query) for query in pairs.query])[1], number_texts(pairs.right)[1]
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


def describe_profile(found: Profile) -> str:
    """A profile in one line.

    >>> task = Task("t", "retrieval", pairs := PairSet.of(["a", "b"], ["x y", "z"]), pairs, pairs, "MRR", ("MRR",))
    >>> describe_profile(profile(task))
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


def check_kind(name: str | None) -> Kind | None:
    """One of the kinds, or none."""
    if name is not None and name not in KINDS:
        raise UserError(f"unknown kind {name!r}; known: {', '.join(KINDS)}")
    return name


def see_kind(pairs: PairSet) -> tuple[Kind, str]:
    """The kind that the labels and the left texts speak for, and the reason.

    All positive: retrieval. Labels 0 and 1: ranking, where most left texts have both, or where most have a list of at least
    3 pairs and at least a tenth has both; else classification. More labels: ranking, where most left texts have at least 3
    pairs with different labels; else regression.
    """
    labels = np.unique(pairs.label)
    if labels.tolist() == [1.0]:
        return "retrieval", "every pair is positive"
    lists, mixed, graded, total = _count_lists(pairs)
    if labels.tolist() == [0.0, 1.0]:
        both = f"{mixed:,} of {total:,} left texts have both right and wrong answers"
        if mixed > total / 2:
            return "ranking", both
        if lists > total / 2 and mixed >= FEW_MIXED * total:
            return (
                "ranking",
                f"{lists:,} of {total:,} left texts have {SEVERAL} pairs or more, {mixed:,} have right and wrong ones",
            )
        return "classification", f"labels are 0 and 1, and only {both}"
    if graded > total / 2:
        lists_of_grades = f"{graded:,} of {total:,} left texts have {SEVERAL} pairs or more with different grades"
        return "ranking", f"{lists_of_grades} (if the grades are a similarity: --kind regression)"
    return "regression", f"{len(labels):,} different labels, and only {graded:,} of {total:,} left texts have a list of grades"


def metrics_of(kind: Kind, pairs: PairSet) -> tuple[str, ...]:
    """What a task of this kind is measured by, the main metric first."""
    return GRADED_RANKING if kind == "ranking" and len(np.unique(pairs.label)) > 2 else METRICS_OF_KIND[kind]


def _count_lists(pairs: PairSet) -> tuple[int, int, int, int]:
    """Left texts with a list of pairs, with both kinds of answers, with a list of different labels; and all of them."""
    query = number_texts([str(name) for name in pairs.query])[1]
    count = np.bincount(query)
    positive = pairs.positives()
    with_positive, with_other = (np.bincount(query[mask], minlength=len(count)) > 0 for mask in (positive, ~positive))
    low, high = np.ones(len(count)), np.zeros(len(count))
    np.minimum.at(low, query, pairs.label)
    np.maximum.at(high, query, pairs.label)
    lists = count >= SEVERAL
    return int(lists.sum()), int((with_positive & with_other).sum()), int((lists & (high > low)).sum()), len(count)
