"""What a pair is: two texts, how well they go together, and the query they belong to."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

from pairtune.errors import UserError

if TYPE_CHECKING:
    from pairtune.encoders.prompts import Prompts
    from pairtune.metrics import Gold

T = TypeVar("T")
Kind = Literal["classification", "ranking", "regression", "retrieval"]
MEAN = "mean"  # the main metric of several sources: the mean of theirs, which chooses the epoch
SPLITS = ("train", "dev", "test")  # of every task; some have more
ALIKE = ("classification", "regression")  # kinds whose two texts are of one sort, as a rule


@dataclass(frozen=True, eq=False)
class PairSet:
    """N pairs of texts, in file order.

    left, right: N texts each. label: (N,) float32 in [0, 1], how well the two go together.
    query: (N,) strings; in a ranking, pairs of the same query compete with each other.
    grade: (N,) float32, the label on the dataset's own scale (1–4, 0–5), for graded metrics.
    corpus: in retrieval, every right text that a left text is searched in; otherwise None.
    negatives: for each pair, the same number of texts that do not go with its left text; None without such texts.
    """

    left: tuple[str, ...]
    right: tuple[str, ...]
    label: np.ndarray
    query: np.ndarray
    grade: np.ndarray
    corpus: tuple[str, ...] | None = None
    negatives: tuple[tuple[str, ...], ...] | None = None

    @classmethod
    def of(
        cls,
        left: Sequence[str],
        right: Sequence[str],
        label: Sequence[float] | np.ndarray | None = None,
        *,
        query: Sequence[str] | np.ndarray | None = None,
        grade: Sequence[float] | np.ndarray | None = None,
        corpus: Sequence[str] | None = None,
        negatives: Sequence[Sequence[str]] | None = None,
    ) -> PairSet:
        """Pairs from columns: no label means that all are positive, no query that the left text is the query."""
        labels = np.ones(len(left), np.float32) if label is None else np.asarray(label, np.float32)
        grades = labels if grade is None else np.asarray(grade, np.float32)
        queries = np.asarray(left if query is None else query, dtype=object)
        candidates = None if corpus is None else tuple(corpus)
        others = None if negatives is None else tuple(map(tuple, negatives))
        return cls(tuple(left), tuple(right), labels, queries, grades, candidates, others)

    def __post_init__(self) -> None:
        columns: dict[str, Sized] = {"right": self.right, "label": self.label, "query": self.query, "grade": self.grade}
        if self.negatives is not None:
            columns["negatives"] = self.negatives
        for name, column in columns.items():
            if len(column) != len(self.left):
                raise UserError(f"{len(self.left)} left texts but {len(column)} values of {name}: give one per pair")
        if not np.isfinite(self.label).all():
            row = int(np.flatnonzero(~np.isfinite(self.label))[0])
            raise UserError(f"the label of pair {row} is {self.label[row]}: give a number from 0 to 1")
        if len(self.label) and (self.label.min() < 0 or self.label.max() > 1):
            row = int(np.flatnonzero((self.label < 0) | (self.label > 1))[0])
            raise UserError(f"the label of pair {row} is {self.label[row]:g}: labels here lie in 0 to 1, rescale them")

    def __len__(self) -> int:
        return len(self.left)

    def take(self, rows: Sequence[int] | np.ndarray) -> PairSet:
        """The pairs at these rows, in this order; the corpus stays whole.

        >>> PairSet.of(["a", "b"], ["x", "y"]).take([1]).left
        ('b',)
        """
        rows = np.asarray(rows)
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.int64)
        places = rows.tolist()
        return replace(
            self,
            left=tuple(self.left[i] for i in places),
            right=tuple(self.right[i] for i in places),
            negatives=None if self.negatives is None else tuple(self.negatives[i] for i in places),
            label=self.label[rows],
            query=self.query[rows],
            grade=self.grade[rows],
        )

    def gold(self, positive_above: float = 0.5) -> Gold:
        """What the metrics need to know of the pairs."""
        from pairtune.metrics import Gold

        return Gold(self.label, self.query, self.grade, positive_above, self.right, self.corpus)

    def positives(self, above: float = 0.5) -> np.ndarray:
        """(N,) bool: the label lies strictly above this."""
        return self.label > above


@dataclass(frozen=True, eq=False)
class Task:
    """A dataset with its split, how it is scored, and where it came from.

    metric: the main metric's printable name; metrics: all that are reported, the main one among them.
    positive_above: labels strictly above it are positive. notes: what was skipped or replaced, and why.
    f1_threshold: how the threshold of F1 is chosen on dev. `steady`: the mean over resamples of dev, which is better on other
    pairs; `best`: the one with the highest F1 on dev.
    sources: the tasks that are trained on together, if there are several.
    """

    name: str
    kind: Kind
    train: PairSet
    dev: PairSet
    test: PairSet
    metric: str
    metrics: tuple[str, ...]
    positive_above: float = 0.5
    notes: tuple[str, ...] = ()
    license: str = ""
    citation: str = ""
    source: str = ""
    extra: dict[str, PairSet] = field(default_factory=dict)
    sources: dict[str, Task] = field(default_factory=dict)
    f1_threshold: Literal["steady", "best"] = "steady"

    def fingerprint(self, others: Sequence[str] = ()) -> str:
        """The same for the same pairs, labels, grades, queries and split: its name, how many pairs, and a hash of them.

        others: extra splits that count as well.
        """
        if self.sources:
            return "; ".join(task.fingerprint() for task in self.sources.values())
        digest = hashlib.sha256()
        splits = (self.train, self.dev, self.test, *(self.extra[name] for name in others if name in self.extra))
        for pairs in splits:
            negatives = zip(*(pairs.negatives or ()), strict=True)
            for column in (pairs.left, pairs.right, pairs.query.tolist(), pairs.corpus or (), *negatives):
                whole = "\0".join(text.replace("\1", "\1\1").replace("\0", "\1\2") for text in column)
                digest.update(whole.encode("utf-8", "surrogatepass") + b"\1")
            digest.update(pairs.label.tobytes() + pairs.grade.tobytes())
        return f"{self.name}, {sum(map(len, splits)):,} pairs, {digest.hexdigest()[:12]}"

    def split(self, name: str) -> PairSet:
        """The split called train, dev, test, or one of the task's extra ones (such as test2016)."""
        splits = {"train": self.train, "dev": self.dev, "test": self.test, **self.extra}
        if name not in splits:
            raise UserError(f"task {self.name} has no split {name!r}; known: {', '.join(splits)}")
        return splits[name]


def add_prompts(task: Task, prompts: Prompts) -> Task:
    """The task with the prompts before its texts; queries keep their names."""
    if not prompts:
        return task
    extra = {name: prompt_pairs(pairs, prompts) for name, pairs in task.extra.items()}
    train, dev, test = (prompt_pairs(pairs, prompts) for pairs in (task.train, task.dev, task.test))
    return replace(task, train=train, dev=dev, test=test, extra=extra, notes=(*task.notes, f"prompts: {prompts}"))


def leave_some_plain(marked: Task, plain: Task, share: float, rng: np.random.Generator) -> Task:
    """The marked task, whose training pairs are marked for this share of the left texts only: the encoder learns to do without.

    All pairs of a left text are read in one way, so that they still compete on equal terms.
    """
    lefts = list(dict.fromkeys(plain.train.left))
    kept = dict(zip(lefts, (rng.random(len(lefts)) < share).tolist(), strict=True))
    chosen = [kept[left] for left in plain.train.left]

    def pick(before: Sequence[T], after: Sequence[T]) -> tuple[T, ...]:
        return tuple(new if mark else old for mark, old, new in zip(chosen, before, after, strict=True))

    negatives = None
    if plain.train.negatives is not None and marked.train.negatives is not None:
        negatives = pick(plain.train.negatives, marked.train.negatives)
    left, right = pick(plain.train.left, marked.train.left), pick(plain.train.right, marked.train.right)
    return replace(marked, train=replace(marked.train, left=left, right=right, negatives=negatives))


def prompt_pairs(pairs: PairSet, prompts: Prompts) -> PairSet:
    """The pairs with the prompts before their texts."""
    return replace(
        pairs,
        left=prompts.of_left(pairs.left),
        right=prompts.of_right(pairs.right),
        corpus=None if pairs.corpus is None else prompts.of_right(pairs.corpus),
        negatives=None if pairs.negatives is None else tuple(prompts.of_right(texts) for texts in pairs.negatives),
    )
