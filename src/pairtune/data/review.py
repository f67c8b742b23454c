"""Labels that look wrong, as a table that a person fills in, and the pairs with what the person said."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

from pairtune.data.formats import open_table
from pairtune.data.pairs import SPLITS, PairSet, Task
from pairtune.data.splits import single_spaces
from pairtune.data.table import parse_label
from pairtune.errors import UserError

HALF = 0.5  # of the pairs of the other kind; with grades, of all pairs between a pair and the place of its label
COLUMNS = ("left", "right", "label", "why", "correct")
REMOVE = "remove"
EXTREMES = {"yes": max, "true": max, "no": min, "false": min}


def relative_ranks(values: np.ndarray) -> np.ndarray:
    """(N,) the rank of each value, from 0 for the lowest to 1 for the highest, ties sharing their mean."""
    return (rankdata(values) - 1) / max(len(values) - 1, 1)


def on_the_other_side(score: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """(N,) the share of the pairs of the other kind that a positive scores lower than, or a negative higher than.

    >>> on_the_other_side(np.array([0.1, 0.9, 0.5]), np.array([True, True, False])).tolist()
    [1.0, 0.0, 0.5]
    """
    passed = np.zeros(len(score))
    if positive.any() and not positive.all():
        for mine, sign in ((positive, -1), (~positive, 1)):
            others = np.sort(sign * score[~mine])
            passed[mine] = np.searchsorted(others, sign * score[mine], side="left") / len(others)
    return passed


def off_by_grade(score: np.ndarray, label: np.ndarray) -> np.ndarray:
    """(N,) how far the place of a pair among all scores lies from its place among all labels, both in 0 … 1."""
    return np.abs(relative_ranks(score) - relative_ranks(label))


@dataclass(frozen=True)
class Suspect:
    """A pair to look at. label: on the data's own scale, as written; empty where the data has no such pair."""

    left: str
    right: str
    label: str
    why: str


def whole_task(task: Task) -> tuple[PairSet, list[str]]:
    """The pairs of all splits, without columns of negatives, and the split of each."""
    from pairtune.data.splits import join

    parts = {name: replace(part, negatives=None) for name in SPLITS if len(part := task.split(name))}
    return reduce(join, parts.values()), [name for name, part in parts.items() for _ in range(len(part))]


def find_suspects(pairs: PairSet, left: np.ndarray, right: np.ndarray, *, graded: bool, most: int = 100) -> list[Suspect]:
    """At most so many of each sort: pairs whose labels differ, labels that the encoder contradicts, likely right answers.

    left, right: (N, n), the vectors of the texts. graded: the labels are a similarity, not right and wrong.
    """
    from pairtune.data.inspection import find_contradictions, find_rivals, pair_keys
    from pairtune.ordering.nearest import unit_rows

    torn = find_contradictions([pairs], pair_keys(pairs), pairs.grade.tolist())[:most]
    found = [
        Suspect(one.left, one.right, _shortest(one.grades[-1]), f"it has the labels {', '.join(map(_shortest, one.grades))}")
        for one in torn
    ]
    unit = [unit_rows(vectors) for vectors in (left, right)]
    found += _doubted(pairs, np.einsum("ij,ij->i", *unit), graded, most)
    rivals, _ = find_rivals(pairs, left, right, pairs.positives())
    known = dict(zip(zip(pairs.left, pairs.right, strict=True), pairs.grade.tolist(), strict=True))
    for rival in rivals[:most]:
        both = pairs.left[rival.row], pairs.right[rival.other]
        why = f"closer ({rival.similarity:.2f}) than the right text {pairs.right[rival.row]!r} ({rival.own:.2f})"
        found.append(Suspect(*both, _shortest(known[both]) if both in known else "", why))
    return list({(one.left, one.right): one for one in reversed(found)}.values())[::-1]


def _doubted(pairs: PairSet, score: np.ndarray, graded: bool, most: int) -> list[Suspect]:
    strength = off_by_grade(score, pairs.label) if graded else on_the_other_side(score, pairs.positives())
    rows = [row for row in np.argsort(-strength, kind="stable")[:most].tolist() if strength[row] > HALF]
    others = "of the scale away from its label" if graded else "of the pairs of the other kind score more like its label"
    return [
        Suspect(
            pairs.left[row],
            pairs.right[row],
            _shortest(pairs.grade[row]),
            f"cosine {score[row]:.2f}: {100 * strength[row]:.0f} % {others}",
        )
        for row in rows
    ]


def columns_to_review(suspects: Iterable[Suspect]) -> dict[str, list[str]]:
    """The table for a person, whose last column is to be filled in."""
    rows = [(one.left, one.right, one.label, one.why, "") for one in suspects]
    return {name: [row[place] for row in rows] for place, name in enumerate(COLUMNS)}


@dataclass(frozen=True)
class Reviewed:
    """The pairs after a review, as columns to write, and what was done."""

    columns: dict[str, list[Any]]
    corrected: int
    removed: int
    added: int


def apply_review(pairs: PairSet, splits: Sequence[str], path: Path) -> Reviewed:
    """The pairs with what the column `correct` says: a label on the data's own scale (yes and no are its ends), or remove.

    Empty cells change nothing. A pair that the data does not have is added. White space does not tell pairs apart.
    """
    said = _read_review(path, pairs)
    rows: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row, both in enumerate(zip(pairs.left, pairs.right, strict=True)):
        rows[single_spaces(both[0]), single_spaces(both[1])].append(row)
    grade: dict[int, float] = dict(enumerate(pairs.grade.tolist()))
    left, right, split = list(pairs.left), list(pairs.right), list(splits)
    home = {single_spaces(text): name for text, name in zip(left, split, strict=True)}
    corrected = removed = added = 0
    for (one, other), answer in said.items():
        mine = rows.get((single_spaces(one), single_spaces(other)), [])
        if answer is None:
            removed += len([grade.pop(row) for row in mine])
        elif mine:
            corrected += sum(grade[row] != answer for row in mine)
            grade |= dict.fromkeys(mine, answer)
        else:
            grade[len(left)], added = answer, added + 1
            left, right, split = [*left, one], [*right, other], [*split, home.get(single_spaces(one), "train")]
    kept = sorted(grade)
    columns: dict[str, list[Any]] = {"left": [left[row] for row in kept], "right": [right[row] for row in kept]}
    columns["label"] = [int(grade[row]) if grade[row].is_integer() else round(grade[row], 6) for row in kept]
    columns |= {"split": [split[row] for row in kept]} if len(set(splits)) > 1 else {}
    return Reviewed(columns, corrected, removed, added)


def _read_review(path: Path, pairs: PairSet) -> Mapping[tuple[str, str], float | None]:
    """What is said of each pair: a label, or None to remove it."""
    table = open_table(path)
    left, right = table.texts("left"), table.texts("right")
    low, high = float(pairs.grade.min()), float(pairs.grade.max())
    low = 0.0 if low == high else low  # without labels, all pairs are positive
    said: dict[tuple[str, str], float | None] = {}
    for record, (one, other, word) in enumerate(zip(left, right, table.column("correct"), strict=True)):
        if (text := str(word if word is not None else "").strip().lower()) == "":
            continue
        answer = None if text == REMOVE else _read_answer(text, low, high, lambda: table.where(record))  # noqa: B023 (at once)
        if said.setdefault((one, other), answer) != answer:
            raise UserError(f"{table.where(record)}: the pair was given another answer before; give one of the two")
    if not said:
        raise UserError(
            f"{path}: the column correct is empty; write the right label, or {REMOVE}, beside the pairs that should change"
        )
    return said


def _read_answer(text: str, low: float, high: float, where: Callable[[], str]) -> float:
    if text in EXTREMES:
        return EXTREMES[text](low, high)
    try:
        number = parse_label(text, where)
    except UserError:
        raise UserError(f"{where()}: correct is {text!r}, expected a label from {low:g} to {high:g}, or {REMOVE}") from None
    if not low <= number <= high:
        raise UserError(f"{where()}: correct is {number:g}, and the labels of the data lie in {low:g} to {high:g}")
    return number


def _shortest(value: float) -> str:
    return f"{value:g}"
