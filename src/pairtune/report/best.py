"""The search for each task's best recipe, judged on dev."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pairtune.report.book import Book, Sample
from pairtune.reproduce.search import Candidate, deciding
from pairtune.tasks import TASKS


def dev_means(task: str, sample: Sample) -> tuple[float, ...]:
    """The mean over seeds of the task's metrics on dev, the main one first; the others decide between equals."""
    return tuple(
        round(sample.mean((metric, "dev")), 9) for metric in TASKS[task].metrics if metric in sample.runs[0].after["dev"]
    )


def on_common_seeds(samples: Sequence[Sample]) -> list[Sample]:
    """The runs of the seeds that all of them have: a candidate that was run more often is judged by the same luck."""
    common = set.intersection(*({run.seed for run in sample.runs} for sample in samples))
    return [Sample(tuple(run for run in sample.runs if run.seed in common)) for sample in samples] if common else list(samples)


def rank_candidates(
    task: str, book: Book, encoder: str, candidates: Sequence[Candidate] | None = None
) -> list[tuple[Candidate, Sample]]:
    """The candidates (those that decide, unless told) with all their runs, the best on dev first, those without runs last."""
    found = [(candidate, book.find(candidate.recipe(), encoder)) for candidate in candidates or deciding(task)]
    run = [pair for pair in found if len(pair[1])]
    scores = [dev_means(task, sample) for sample in on_common_seeds([sample for _, sample in run])] if run else []
    places = sorted(range(len(run)), key=scores.__getitem__, reverse=True)
    return [run[place] for place in places] + [pair for pair in found if not len(pair[1])]


def choose_best(task: str, book: Book) -> Candidate | None:
    """The candidate with the highest dev score, averaged over the encoders that went through the whole search.

    None while no encoder has.
    """
    whole = []
    for encoder in book.encoders:
        samples = [book.find(candidate.recipe(), encoder) for candidate in deciding(task)]
        if all(map(len, samples)):
            whole.append([dev_means(task, sample) for sample in on_common_seeds(samples)])
    if not whole:
        return None
    means = [tuple(row) for row in np.mean(whole, axis=0).round(9)]
    return deciding(task)[max(range(len(means)), key=means.__getitem__)]
