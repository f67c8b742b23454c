"""How well thresholds of F1 carry over from few pairs to others: from the stored cosines of test pairs, without any training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from lab.cosines import Labels, read_cosines, read_labels
from pairtune.metrics import THRESHOLDS
from pairtune.metrics.measures import f1_at

SIZES = (60, 120, 240, 480)  # pairs that stand in for dev; all others are scored
RUNS, DRAWS = 12, 12
SIMILAR = 0.6  # where a task has grades, a pair above this is positive
SHARES = (None, 0.1)  # of positives: as the task has it, or so few


def make_thresholds(results: Path) -> str:
    """A table of mean differences to `best`, the threshold with the highest F1, in thousandths of F1, with standard errors."""
    names = [name for name in THRESHOLDS if name != "best"]
    head = ["task", "positives", "pairs to choose by", "F1 with `best`", *(f"`{name}` − `best`" for name in names)]
    rows = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    cosines = read_cosines(results)
    for task, labels in read_labels(results).items():
        runs = [found for found in cosines.values() if len(found) == len(labels.values)]
        for share in SHARES:
            for size in SIZES:
                scores = np.array([*score_draws(runs, labels, size, share, np.random.default_rng(size))])
                if len(scores):
                    rows.append(describe_row(task, share, size, dict(zip(THRESHOLDS, scores.T, strict=True))))
    return "\n".join(rows)


def describe_row(task: str, share: float | None, size: int, scores: dict[str, np.ndarray]) -> str:
    """One line of the table."""
    best = scores["best"]
    cells = [f"| {task} | {'as they are' if share is None else f'{share:.0%}'} | {size} | {best.mean():.3f}"]
    for name, found in scores.items():
        if name != "best":
            gain = 1000 * (found - best)
            cells.append(f"{gain.mean():+.1f} ± {gain.std(ddof=1) / len(gain) ** 0.5:.1f}")
    return " | ".join(cells) + " |"


def score_draws(
    runs: list[np.ndarray], labels: Labels, size: int, share: float | None, rng: np.random.Generator
) -> Iterator[list[float]]:
    """F1 on the other pairs by each of THRESHOLDS, for runs and draws; none where a task has too few pairs."""
    positive = labels.values > (labels.positive_above if len(np.unique(labels.values)) == 2 else SIMILAR)
    for place in rng.permutation(len(runs))[:RUNS]:
        for _ in range(DRAWS):
            kept = thin_positives(positive, share, rng)
            chosen, others = np.split(rng.permutation(kept), [size])
            if len(others) > size and positive[chosen].any():
                yield [score_others(how, runs[place], positive, chosen, others) for how in THRESHOLDS.values()]


def thin_positives(positive: np.ndarray, share: float | None, rng: np.random.Generator) -> np.ndarray:
    """The rows of all negatives, and of so many positives that they are this share of all."""
    rows, rest = np.flatnonzero(positive), np.flatnonzero(~positive)
    return np.concatenate([rest, rows if share is None else rng.permutation(rows)[: int(len(rest) * share / (1 - share))]])


Choose = Callable[[np.ndarray, np.ndarray], float]


def score_others(how: Choose, scores: np.ndarray, positive: np.ndarray, chosen: np.ndarray, others: np.ndarray) -> float:
    """F1 of other pairs at the threshold that the chosen ones give."""
    return f1_at(scores[others], positive[others], how(scores[chosen], positive[chosen]))
