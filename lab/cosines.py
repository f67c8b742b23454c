"""The cosine of each test pair, by run, where a score is no mean over queries; and what each pair is worth to F1 and Spearman.

They stand in results/pairs/<encoder>.jsonl, compressed; the labels of a task, the same for all runs, in results/pairs/labels/.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

from lab.lines import append_line, read_entries
from pairtune.runs.evidence import Evidence, Judged

FOLDER = "pairs"
LEVELS = 32767  # of a cosine from 0 to 1, so that it is two bytes


@dataclass(frozen=True)
class Labels:
    """The labels of a task's test pairs, (N,); above `positive_above` a pair is positive."""

    values: np.ndarray
    positive_above: float


def pack(cosines: Sequence[float]) -> str:
    """Two bytes for each, compressed, as text."""
    whole = np.round(np.clip(cosines, -1, 1) * np.float64(LEVELS)).astype("<i2")
    return base64.b64encode(zlib.compress(whole.tobytes(), 9)).decode()


def unpack(text: str) -> np.ndarray:
    """The cosines again, (N,), to four digits.

    >>> unpack(pack([0.5, -1.0])).round(4).tolist()
    [0.5, -1.0]
    """
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), "<i2") / LEVELS


def append_pairs(results: Path, encoder: str, task: str, key: str, evidence: Evidence) -> None:
    """Add the cosines of a run, where all its test pairs were kept and none of them competes with others."""
    tested = evidence.test
    if tested is None or evidence.kind not in ("classification", "regression") or len(tested.left) < tested.total:
        return
    _keep_labels(results / FOLDER / "labels" / f"{task}.jsonl", tested, evidence.positive_above)
    append_line(results / FOLDER / f"{encoder}.jsonl", {"run": key, "cosines": pack(tested.after.score)})


def _keep_labels(path: Path, tested: Judged, positive_above: float) -> None:
    if not path.exists():
        append_line(path, {"task": path.stem, "labels": tested.label, "positive_above": positive_above})


def read_cosines(results: Path) -> dict[str, np.ndarray]:
    """The cosines of each run by its key, (N,); of two lines for a run the later one."""
    return {entry["run"]: unpack(entry["cosines"]) for entry in read_entries(results / FOLDER)}


def read_labels(results: Path) -> dict[str, Labels]:
    """By task."""
    found = read_entries(results / FOLDER / "labels")
    return {entry["task"]: Labels(np.array(entry["labels"]), entry["positive_above"]) for entry in found}


def pair_worths(metric: str, cosines: np.ndarray, labels: Labels, threshold: float | None) -> np.ndarray | None:
    """What each pair is worth to the score, (N,): the jackknife's pseudo-values, whose mean is nearly the score.

    To draw pairs again and take the mean of their worths is to draw them and compute the score, to first order: what is no mean
    over pairs is compared in the same way as what is one. None for other metrics than F1 and Spearman.
    """
    if len(cosines) != len(labels.values) or metric not in WITHOUT_EACH:
        return None
    without = WITHOUT_EACH[metric](cosines, labels, threshold or 0.0)  # (N,) the score without each pair, and (1,) with all
    count = len(cosines)
    return count * without[-1] - (count - 1) * without[:-1]


def _f1_without_each(cosines: np.ndarray, labels: Labels, threshold: float) -> np.ndarray:
    called, positive = cosines > threshold, labels.values > labels.positive_above
    right, marked = 2.0 * (called & positive), 1.0 * called + positive
    return np.append(right.sum() - right, right.sum()) / np.append(marked.sum() - marked, marked.sum())


def _spearman_without_each(cosines: np.ndarray, labels: Labels, _: float) -> np.ndarray:
    sides = [_ranks_without_each(side) for side in (cosines, labels.values)]
    each = np.array([np.corrcoef(one, other)[0, 1] for one, other in zip(*sides, strict=True)])
    return np.append(each, np.corrcoef(rankdata(cosines), rankdata(labels.values))[0, 1])


def _ranks_without_each(values: np.ndarray) -> np.ndarray:
    """The ranks of the others without each value, (N, N − 1): one less above it, half a one less beside it."""
    ranks = rankdata(values) - (values > values[:, None]) - 0.5 * (values == values[:, None])
    return ranks[~np.eye(len(values), dtype=bool)].reshape(len(values), -1)


WITHOUT_EACH: dict[str, Callable[[np.ndarray, Labels, float], np.ndarray]] = {
    "F1": _f1_without_each,
    "Spearman": _spearman_without_each,
}
