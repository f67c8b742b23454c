"""Test pairs that look mislabelled: the encoder as it came and the tuned model both contradict their label."""

from __future__ import annotations

import numpy as np

from pairtune.ordering.hardness import FALSE_NEGATIVE_MARGIN
from pairtune.report.wins import COUNT, Example, places
from pairtune.runs.evidence import Evidence, Judged, Outcome

HALF = 0.5  # of the pairs of the other kind; with grades, of all pairs between a pair and the place of its label


def find_doubts(evidence: Evidence | None, count: int = COUNT) -> list[Example]:
    """The clearest ones first: in a search queries with another text that may be right too, elsewhere pairs."""
    if evidence is None or evidence.test is None:
        return []
    tested = evidence.test
    if evidence.kind == "retrieval":
        return _doubtful_searches(tested, count)
    label = np.array(tested.label)
    graded = evidence.kind == "regression" and len(np.unique(label)) > 2
    positive = label > evidence.positive_above
    doubt = _off_by_grade if graded else _on_the_other_side
    strength = np.minimum(*(doubt(np.array(one.score), label if graded else positive) for one in (tested.before, tested.after)))
    rows = [row for row in np.argsort(-strength, kind="stable")[:count].tolist() if strength[row] > HALF]
    said = [f"label {tested.grade[row]:g}" if graded else "positive" if positive[row] else "negative" for row in rows]
    return [_example(tested, row, truth) for row, truth in zip(rows, said, strict=True)]


def _on_the_other_side(score: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """(N,) the share of the pairs of the other kind that a positive scores lower than, or a negative higher than.

    >>> _on_the_other_side(np.array([0.1, 0.9, 0.5]), np.array([True, True, False])).tolist()
    [1.0, 0.0, 0.5]
    """
    passed = np.zeros(len(score))
    if positive.any() and not positive.all():
        for mine, sign in ((positive, -1), (~positive, 1)):
            others = np.sort(sign * score[~mine])
            passed[mine] = np.searchsorted(others, sign * score[mine], side="left") / len(others)
    return passed


def _off_by_grade(score: np.ndarray, label: np.ndarray) -> np.ndarray:
    """(N,) how far the place of a pair among all scores lies from its place among all labels, both in 0 … 1."""
    return np.abs(places(score) - places(label))


def _doubtful_searches(tested: Judged, count: int) -> list[Example]:
    """Queries for which the same other text is closer than the right one, by over the margin, before and after."""
    before, after = tested.before, tested.after
    if before.rival is None or after.rival is None:
        return []
    ahead = np.minimum(_lead(before), _lead(after))
    rows = [row for row in np.argsort(-ahead, kind="stable").tolist() if before.rival[row] == after.rival[row]]
    found = [row for row in rows if ahead[row] > FALSE_NEGATIVE_MARGIN][:count]
    return [_example(tested, row, "right answer", after.rival[row]) for row in found]


def _lead(outcome: Outcome) -> np.ndarray:
    """(N,) by how much the best wrong text is closer than the best right one; 0 where no text is right."""
    assert outcome.rival_score is not None and outcome.rank is not None
    lead = np.array(outcome.rival_score) - np.array(outcome.score)
    return np.where(np.array(outcome.rank) > 0, lead, 0.0)


def _example(tested: Judged, row: int, truth: str, instead: str = "") -> Example:
    before, after = (f"{outcome.score[row]:.2f}" for outcome in (tested.before, tested.after))
    right = tested.after.right[row] if tested.after.right is not None else tested.right[row]
    return Example(tested.left[row], right, truth, before, after, instead)
