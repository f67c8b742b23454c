"""All records of results/, found by what was trained."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from lab.agenda import record_key
from lab.cosines import Labels, pair_worths, read_cosines, read_labels
from lab.guises import base_task
from lab.keys import settings_key
from lab.queries import read_queries
from lab.statistics import Difference, difference
from lab.validity import Exclusion, problem_of
from pairtune import Recipe, Run
from pairtune.runs.record import kept_run, read_records

Measure = tuple[str, str]  # the name of a metric, and the split it is taken from


@dataclass(frozen=True)
class Sample:
    """The runs of one recipe with one encoder, by seed. items: what each test query or pair is worth, (seeds, items)."""

    runs: tuple[Run, ...]
    items: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def problem(self) -> Exclusion | None:
        """Why its scores do not count; None where they do."""
        return problem_of(self.runs[0]) if self.runs else None

    def scores(self, metric: Measure) -> list[float]:
        """One per seed; none of records that are left without their scores on a split, because it was another one then."""
        return [run.after[metric[1]][metric[0]] for run in self.runs if metric[1] in run.after]

    def mean(self, metric: Measure) -> float:
        """The mean over seeds, where there are scores."""
        return float(np.mean(self.scores(metric)))

    def best_on_dev(self, metric: Measure) -> float | None:
        """The score of the seed that is best on dev, as the paper reports it; None without runs, or where dev was trained on."""
        held_out = self.runs and self.runs[0].dev_held_out
        return self.runs[kept_run(self.runs)].after.get(metric[1], {}).get(metric[0]) if held_out else None


class Book:
    """The records of a folder by recipe and encoder; of two for the same seed, the later one."""

    def __init__(self, results: Path) -> None:
        self.results = results
        runs = read_records(results) if any(results.glob("*.jsonl")) else []
        found: dict[str, dict[int, Run]] = defaultdict(dict)
        for run in runs:
            found[record_key(run).rpartition("-")[0]][run.seed] = run
        self._runs = {key: _valid_if_any(seeds) for key, seeds in found.items()}
        self.encoders = list(dict.fromkeys(run.encoder for run in sorted(runs, key=lambda run: run.encoder)))

    @cached_property
    def _queries(self) -> dict[str, np.ndarray]:
        return read_queries(self.results)

    @cached_property
    def _pairs(self) -> dict[str, np.ndarray]:
        return read_cosines(self.results)

    @cached_property
    def _labels(self) -> dict[str, Labels]:
        return read_labels(self.results)

    @property
    def runs(self) -> list[Run]:
        """All records; of two for the same settings and seed, the later one."""
        return [run for seeds in self._runs.values() for run in seeds.values()]

    def find(self, recipe: Recipe, encoder: str) -> Sample:
        """The runs of these settings, whatever their names."""
        key = settings_key(recipe.model_copy(update={"encoder": encoder}))
        runs = tuple(run for _, run in sorted(self._runs.get(key, {}).items()))
        found = [one for run in runs if (one := self._items_of(f"{key}-{run.seed}", run)) is not None]
        whole = len(found) == sum("test" in run.after for run in runs) and len({len(one) for one in found}) == 1
        return Sample(runs, np.stack(found) if whole else None)

    def _items_of(self, key: str, run: Run) -> np.ndarray | None:
        """What each test query, or pair, of a run is worth in its main metric; None where the run did not leave that."""
        test = run.after.get("test", {})
        worths = self._queries.get(key)
        if worths is None and key in self._pairs and base_task(run.task) in self._labels:
            worths = pair_worths(run.metric, self._pairs[key], self._labels[base_task(run.task)], test.get("threshold"))
        return None if worths is None else _centered(worths, test.get(run.metric))


def _centered(worths: np.ndarray, score: float | None) -> np.ndarray:
    """With the mean that the record has: cosines were rounded before, which makes ties."""
    return worths if score is None else worths + (score - worths.mean())


def _valid_if_any(seeds: dict[int, Run]) -> dict[int, Run]:
    """Without the invalid records, once some of them were made again."""
    return {seed: run for seed, run in seeds.items() if problem_of(run) is None} or seeds


def compare(one: Sample, other: Sample, metric: Measure, share: float = 0.0) -> Difference | None:
    """How much higher `one` is; None where one of them has no score, or no valid one.

    Over test items (queries, or pairs) and seeds where both rows have the same items; else over seeds alone. share: see
    `difference`.
    """
    if not one.scores(metric) or not other.scores(metric) or one.problem or other.problem:
        return None
    main = metric == (one.runs[0].metric, "test")
    if main and one.items is not None and other.items is not None and one.items.shape[1] == other.items.shape[1]:
        return difference(one.items, other.items, share)
    return difference(np.array(one.scores(metric))[:, None], np.array(other.scores(metric))[:, None], share)
