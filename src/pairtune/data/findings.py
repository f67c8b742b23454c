"""What is odd in a user's pairs, from their texts and labels alone: repetitions, contradictions, leaks between splits."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pairtune.data.info import fold
from pairtune.data.pairs import PairSet, Task

APART = 0.1  # of the scale: labels of the same pair that differ by less are not said to contradict
FEW_GRADES = 12  # so many different labels are counted one by one


@dataclass(frozen=True)
class Contradiction:
    """A pair that occurs with labels over a tenth of the scale apart; grades: on the data's own scale, the lowest first."""

    left: str
    right: str
    grades: tuple[float, ...]


@dataclass(frozen=True)
class Leak:
    """What a split shares with train: the same pairs, in either direction, and the shares of its left and right texts."""

    split: str
    pairs: int
    left: float
    right: float


@dataclass(frozen=True)
class Findings:
    """repeated: pairs that occur again. identical: pairs of a text with itself. empty: texts of white space.

    grades: how often each label occurs, on the data's own scale, where they are few. lowest, highest: of the labels.
    """

    pairs: int
    repeated: int
    identical: int
    empty: int
    contradictions: tuple[Contradiction, ...]
    leaks: tuple[Leak, ...]
    lowest: float
    highest: float
    grades: dict[float, int]


def find_oddities(task: Task) -> Findings:
    """Look at all splits. Texts are the same if only their case or white space differs."""
    splits = {"train": task.train, "dev": task.dev, "test": task.test}
    keys = {name: pair_keys(pairs) for name, pairs in splits.items()}
    everything = [key for found in keys.values() for key in found]
    grades = [float(grade) for pairs in splits.values() for grade in pairs.grade]
    counted = Counter(grades)
    return Findings(
        pairs=len(everything),
        repeated=len(everything) - len(set(everything)),
        identical=sum(left == right for left, right in everything),
        empty=sum((not left) + (not right) for left, right in everything),
        contradictions=find_contradictions(splits.values(), everything, grades),
        leaks=tuple(find_leak(name, splits, keys) for name in ("dev", "test")),
        lowest=min(grades, default=0.0),
        highest=max(grades, default=0.0),
        grades=dict(sorted(counted.items())) if len(counted) <= FEW_GRADES else {},
    )


def pair_keys(pairs: PairSet) -> list[tuple[str, str]]:
    """The same for pairs of the same two texts, whichever is left.

    >>> pair_keys(PairSet.of(["B  a", "x"], ["c", "b A"]))
    [('b a', 'c'), ('b a', 'x')]
    """
    plain = ((fold(left).casefold(), fold(right).casefold()) for left, right in zip(pairs.left, pairs.right, strict=True))
    return [(min(both), max(both)) for both in plain]


def find_contradictions(
    splits: Iterable[PairSet], keys: Sequence[tuple[str, str]], grades: Sequence[float]
) -> tuple[Contradiction, ...]:
    """The pairs that occur with labels over a tenth of the scale apart, the widest apart first. keys, grades: of all splits."""
    texts = [both for pairs in splits for both in zip(pairs.left, pairs.right, strict=True)]
    rows: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row, key in enumerate(keys):
        rows[key].append(row)
    least = APART * (max(grades, default=0.0) - min(grades, default=0.0))
    repeated = [mine for mine in rows.values() if len(mine) > 1]
    found = [Contradiction(*texts[mine[0]], tuple(sorted({grades[row] for row in mine}))) for mine in repeated]
    torn = [one for one in found if one.grades[-1] - one.grades[0] > least]
    return tuple(sorted(torn, key=lambda one: one.grades[0] - one.grades[-1]))


def find_leak(name: str, splits: dict[str, PairSet], keys: dict[str, list[tuple[str, str]]]) -> Leak:
    """What a split shares with train."""
    trained = set(keys["train"])
    train, held_out = splits["train"], splits[name]
    return Leak(
        name,
        sum(key in trained for key in keys[name]),
        _share_within(held_out.left, train.left),
        _share_within(held_out.right, train.right),
    )


def _share_within(texts: Sequence[str], others: Sequence[str]) -> float:
    known = {fold(text).casefold() for text in others}
    mine = {fold(text).casefold() for text in texts}
    return len(mine & known) / max(1, len(mine))
