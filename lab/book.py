"""All records of results/, found by what was trained, and how two rows compare."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from pathlib import Path

import numpy as np
from scipy import stats

from lab.plan import record_key
from lab.queries import read_queries
from lab.settings import settings_key
from pairtune import Recipe
from pairtune.report.grid import figure
from pairtune.runs.record import Run, kept_run, read_records

RESAMPLES = 2000
INSIDE = 0.95
Metric = tuple[str, str]  # its name, and the split it is taken from


@dataclass(frozen=True)
class Sample:
    """The runs of one recipe with one encoder, by seed. queries: per-query scores of those that left them, (seeds, Q)."""

    runs: tuple[Run, ...]
    queries: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.runs)

    def scores(self, metric: Metric) -> list[float]:
        """One per seed; none of records that are left without their scores on a split, because it was another one then."""
        return [run.after[metric[1]][metric[0]] for run in self.runs if metric[1] in run.after]

    def mean(self, metric: Metric) -> float:
        """The mean over seeds, where there are scores."""
        return float(np.mean(self.scores(metric)))

    def best_on_dev(self, metric: Metric) -> float | None:
        """The score of the seed that is best on dev, as the paper reports it; None without runs, or where dev was trained on."""
        held_out = self.runs and self.runs[0].dev_held_out
        return self.runs[kept_run(self.runs)].after.get(metric[1], {}).get(metric[0]) if held_out else None


@dataclass(frozen=True)
class Difference:
    """How much higher one row is than another, and the 95 % interval of that; the interval is infinite for single runs."""

    mean: float
    low: float
    high: float
    relative: float

    @property
    def sign(self) -> int:
        """1 surely higher, -1 surely lower, 0 within the noise."""
        return int(self.low > 0) - int(self.high < 0)


class Book:
    """The records of a folder by recipe and encoder; of two for the same seed, the later one."""

    def __init__(self, results: Path) -> None:
        self.results = results
        runs = read_records(results) if any(results.glob("*.jsonl")) else []
        self._runs: dict[str, dict[int, Run]] = defaultdict(dict)
        for run in runs:
            self._runs[record_key(run).rpartition("-")[0]][run.seed] = run
        self.encoders = list(dict.fromkeys(run.encoder for run in sorted(runs, key=lambda run: run.encoder)))

    @cached_property
    def _queries(self) -> dict[str, np.ndarray]:
        return read_queries(self.results)

    @property
    def runs(self) -> list[Run]:
        """All records; of two for the same settings and seed, the later one."""
        return [run for seeds in self._runs.values() for run in seeds.values()]

    def find(self, recipe: Recipe, encoder: str) -> Sample:
        """The runs of these settings, whatever their names."""
        key = settings_key(recipe.model_copy(update={"encoder": encoder}))
        runs = tuple(run for _, run in sorted(self._runs.get(key, {}).items()))
        found = [scores for run in runs if (scores := self._queries.get(f"{key}-{run.seed}")) is not None]
        alike = len({len(scores) for scores in found}) == 1
        return Sample(runs, np.stack(found) if alike else None)


def compare(one: Sample, other: Sample, metric: Metric) -> Difference | None:
    """How much higher `one` is; None where one of them has no score.

    With scores per query of both, queries (the same for both) and seeds are drawn again and again; else the interval is
    Welch's, over seeds alone.
    """
    if not one.scores(metric) or not other.scores(metric):
        return None
    mean = one.mean(metric) - other.mean(metric)
    relative = mean / other.mean(metric) if other.mean(metric) else 0.0
    main = metric == (one.runs[0].metric, "test")
    if main and one.queries is not None and other.queries is not None and one.queries.shape[1] == other.queries.shape[1]:
        low, high = _bootstrap(one.queries, other.queries)
    else:
        low, high = _welch(one.scores(metric), other.scores(metric))
    return Difference(mean, mean + low, mean + high, relative)


def _bootstrap(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """How far the difference of the means may be off, (seeds, Q) each: the 95 % of deviations in the middle.

    A few seeds drawn again vary less than seeds do, by (n − 1)/n, and are stretched; a single one says nothing about them.
    """
    if min(len(one), len(other)) < 2:
        return -np.inf, np.inf
    rng = np.random.default_rng(0)
    queries = one.shape[1]
    drawn = rng.multinomial(queries, np.full(queries, 1 / queries), size=RESAMPLES) / queries  # (RESAMPLES, Q)
    sides = []
    for side in (one, other):
        count = len(side)
        seeds = rng.multinomial(count, np.full(count, 1 / count), size=RESAMPLES) / count
        seeds = 1 / count + (seeds - 1 / count) * np.sqrt(count / (count - 1))
        sides.append(((seeds @ side) * drawn).sum(axis=1))
    moved = sides[0] - sides[1] - (one.mean() - other.mean())
    low, high = np.quantile(moved, [(1 - INSIDE) / 2, (1 + INSIDE) / 2])
    return float(low), float(high)


def _welch(one: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    if min(len(one), len(other)) < 2:
        return -np.inf, np.inf
    parts = [np.var(side, ddof=1) / len(side) for side in (one, other)]
    error = float(np.sqrt(sum(parts)))
    if error == 0:
        return 0.0, 0.0
    freedom = sum(parts) ** 2 / sum(part**2 / (len(side) - 1) for part, side in zip(parts, (one, other), strict=True))
    reach = float(stats.t.ppf((1 + INSIDE) / 2, freedom)) * error
    return -reach, reach


def describe_difference(difference: Difference | None) -> str:
    """A difference and its interval, with a mark where it is sure.

    >>> describe_difference(Difference(0.02, 0.01, 0.03, 0.05))
    '+0.0200 (+0.0100 to +0.0300) ✓'
    """
    if difference is None:
        return "–"
    mark = {1: " ✓", -1: " ✗", 0: ""}[difference.sign]
    if not isfinite(difference.high):
        return f"{figure(difference.mean, signed=True)} (one run only)"
    return f"{figure(difference.mean, signed=True)} ({difference.low:+.4f} to {difference.high:+.4f}){mark}"
