"""Single test pairs worth reading: what the training has mended most, what it still gets wrong, what looks mislabelled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pairtune.data.review import HALF, off_by_grade, on_the_other_side, relative_ranks
from pairtune.ordering.hardness import FALSE_NEGATIVE_MARGIN
from pairtune.runs.evidence import Evidence, Judged, Outcome

COUNT = 6


@dataclass(frozen=True)
class Example:
    """Two texts of the test set, with what the labels say of them, and what the model said before and says now.

    instead: in a ranking, the wrong text that stands highest now.
    """

    left: str
    right: str
    truth: str
    before: str
    after: str
    instead: str = ""


@dataclass(frozen=True)
class Examples:
    """wins: the errors that have shrunk most, the largest first. mistakes: the largest errors that are left.

    Each test pair, or query, is one of the two at most: a win where its error has at least halved.
    """

    wins: list[Example]
    mistakes: list[Example]


def find_examples(evidence: Evidence | None, count: int = COUNT) -> Examples | None:
    """The wins and mistakes of a run: by query where it ranks or searches, else by pair. None where no scores were kept."""
    if evidence is None or evidence.test is None:
        return None
    tested = evidence.test
    if evidence.kind == "retrieval":
        return _of_queries(_searched(tested, tested.before), _searched(tested, tested.after), count)
    if evidence.kind == "ranking":
        return _of_queries(_ranked(evidence, tested.before), _ranked(evidence, tested.after), count)
    return _of_pairs(evidence, tested, count)


@dataclass(frozen=True)
class BestAnswer:
    """The place of the first right answer to a query, from 1, and the best wrong one."""

    left: str
    right: str
    rank: int
    rival: str


def _searched(tested: Judged, outcome: Outcome) -> dict[int, BestAnswer]:
    assert outcome.rank is not None and outcome.right is not None and outcome.rival is not None
    columns = zip(tested.query, tested.left, outcome.right, outcome.rank, outcome.rival, strict=True)
    return {query: BestAnswer(left, right, rank, rival) for query, left, right, rank, rival in columns if rank}


def _ranked(evidence: Evidence, outcome: Outcome) -> dict[int, BestAnswer]:
    """The same from the scores of the candidates; among equals a wrong one counts as before the right one."""
    tested = evidence.test
    assert tested is not None
    rows: dict[int, list[int]] = {}
    for row, query in enumerate(tested.query):
        rows.setdefault(query, []).append(row)
    answers = {}
    for query, mine in rows.items():
        right = [row for row in mine if tested.label[row] > evidence.positive_above]
        wrong = [row for row in mine if tested.label[row] <= evidence.positive_above]
        if right and wrong:
            best = max(right, key=lambda row: outcome.score[row])
            rival = max(wrong, key=lambda row: outcome.score[row])
            rank = 1 + sum(outcome.score[row] >= outcome.score[best] for row in wrong)
            answers[query] = BestAnswer(tested.left[best], tested.right[best], rank, tested.right[rival])
    return answers


def _of_queries(before: dict[int, BestAnswer], after: dict[int, BestAnswer], count: int) -> Examples:
    """An error is the logarithm of a rank: from 8 to 1 is more than from 108 to 101."""
    both = [query for query in after if query in before]
    then, now = (np.log([answers[query].rank for query in both]) for answers in (before, after))
    wins, worst = ([both[place] for place in places] for places in _tell_apart(then, now, count))

    def example(query: int) -> Example:
        new, old = after[query], before[query]
        instead = new.rival if new.rank > 1 else ""
        return Example(new.left, new.right, "right answer", f"rank {old.rank:,}", f"rank {new.rank:,}", instead)

    return Examples([example(query) for query in wins], [example(query) for query in worst])


def _tell_apart(then: np.ndarray, now: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The places of the wins, largest gain first, and of the mistakes, largest error first. then, now: (N,), errors ≥ 0."""
    gain = then - now
    won = (gain > 0) & (gain >= now)
    wins, worst = (np.argsort(-strength, kind="stable") for strength in (gain, now))
    return wins[won[wins]][:count], worst[((now > 0) & ~won)[worst]][:count]


def _of_pairs(evidence: Evidence, tested: Judged, count: int) -> Examples:
    """An error is the distance between a pair's place among all scores and where its label would have it, both in 0 … 1.

    Places, not scores: a training may move all cosines without putting any pair before another.
    """
    label = np.array(tested.label)
    target = relative_ranks(label) if len(np.unique(label)) > 2 else (label > evidence.positive_above).astype(float)
    then, now = (np.abs(relative_ranks(np.array(outcome.score)) - target) for outcome in (tested.before, tested.after))
    wins, worst = _tell_apart(then, now, count)

    def example(row: int) -> Example:
        positive = tested.label[row] > evidence.positive_above
        graded = f"label {tested.grade[row]:g}" if len(np.unique(label)) > 2 else "positive" if positive else "negative"
        scores = (f"{outcome.score[row]:.2f}" for outcome in (tested.before, tested.after))
        return Example(tested.left[row], tested.right[row], graded, *scores)

    return Examples([example(row) for row in wins], [example(row) for row in worst])


def find_doubts(evidence: Evidence | None, count: int = COUNT) -> list[Example]:
    """Test pairs whose label both the original encoder and the tuned model contradict.

    The clearest ones first: in a search queries with another text that may be right too, elsewhere pairs.
    """
    if evidence is None or evidence.test is None:
        return []
    tested = evidence.test
    if evidence.kind == "retrieval":
        return _doubtful_searches(tested, count)
    label = np.array(tested.label)
    graded = evidence.kind == "regression" and len(np.unique(label)) > 2
    positive = label > evidence.positive_above
    doubt = off_by_grade if graded else on_the_other_side
    strength = np.minimum(*(doubt(np.array(one.score), label if graded else positive) for one in (tested.before, tested.after)))
    rows = [row for row in np.argsort(-strength, kind="stable")[:count].tolist() if strength[row] > HALF]
    said = [f"label {tested.grade[row]:g}" if graded else "positive" if positive[row] else "negative" for row in rows]
    return [_doubt(tested, row, truth) for row, truth in zip(rows, said, strict=True)]


def _doubtful_searches(tested: Judged, count: int) -> list[Example]:
    """Queries for which the same other text is closer than the right one, by over the margin, before and after."""
    before, after = tested.before, tested.after
    if before.rival is None or after.rival is None:
        return []
    ahead = np.minimum(_lead(before), _lead(after))
    rows = [row for row in np.argsort(-ahead, kind="stable").tolist() if before.rival[row] == after.rival[row]]
    found = [row for row in rows if ahead[row] > FALSE_NEGATIVE_MARGIN][:count]
    return [_doubt(tested, row, "right answer", after.rival[row]) for row in found]


def _lead(outcome: Outcome) -> np.ndarray:
    """(N,) by how much the best wrong text is closer than the best right one; 0 where no text is right."""
    assert outcome.rival_score is not None and outcome.rank is not None
    lead = np.array(outcome.rival_score) - np.array(outcome.score)
    return np.where(np.array(outcome.rank) > 0, lead, 0.0)


def _doubt(tested: Judged, row: int, truth: str, instead: str = "") -> Example:
    before, after = (f"{outcome.score[row]:.2f}" for outcome in (tested.before, tested.after))
    right = tested.after.right[row] if tested.after.right is not None else tested.right[row]
    return Example(tested.left[row], right, truth, before, after, instead)
