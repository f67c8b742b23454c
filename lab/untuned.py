"""The encoder before any training, at the length of texts that dev prefers; and how often test was looked at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import mode

from lab.book import Book, Measure
from lab.figures import four_digits
from lab.guises import base_task
from lab.keys import settings_key, todays_name
from pairtune import Run
from pairtune.data.datasets import TASKS

IN_FLOAT32 = "2026-11-18T08:15:00+00:00"  # since then scores are computed in float32 on every device


@dataclass(frozen=True)
class Untuned:
    """length: tokens of a text. score: in the metric that was asked for."""

    length: int
    score: float

    def __str__(self) -> str:
        return f"{four_digits(self.score)} ({self.length} tokens)"


def find_untuned(task: str, encoder: str, metric: Measure, book: Book) -> Untuned | None:
    """The score before training, as the records of the given dev have it; None without one."""
    by_length: Mapping[int, list[Run]] = defaultdict(list)
    for run in book.runs:
        if (run.task, run.encoder) == (task, encoder) and _plain(run) and metric[0] in run.before.get(metric[1], {}):
            by_length[_length(run)].append(run)
    if not by_length:
        return None
    by_length = {length: [run for run in runs if run.finished >= IN_FLOAT32] or runs for length, runs in by_length.items()}
    dev = {length: mode(run.before["dev"][TASKS[task].metric] for run in runs) for length, runs in by_length.items()}
    length = max(sorted(dev), key=lambda length: round(dev[length], 9))
    return Untuned(length, mode(run.before[metric[1]][metric[0]] for run in by_length[length]))  # the mode: devices differ


def _plain(run: Run) -> bool:
    """Whether dev and texts are the task's own."""
    recipe = run.recipe
    return recipe.get("dev", "given") == "given" and not recipe.get("dev_candidates") and not recipe.get("ignore")


def _length(run: Run) -> int:
    train = run.recipe["stages"][0]["train"]
    return next(value for name, value in train.items() if todays_name("train", name) == "max_seq_length")


def count_looks(task: str, encoder: str, book: Book) -> tuple[int, int]:
    """How many settings, and how many runs, have a score on test."""
    runs = [run for run in book.runs if (base_task(run.task), run.encoder) == (task, encoder) and "test" in run.after]
    return len({settings_key(run.recipe) for run in runs}), len(runs)
