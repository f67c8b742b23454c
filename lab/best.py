"""The search for each task's best recipe, judged on dev."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lab.book import Book, Sample
from lab.changes import ChangedRow, Factorial
from lab.searches import deciding_encoders, searches
from pairtune import Recipe
from pairtune.data.datasets import TASKS
from pairtune.data.splits import PARTS


def dev_means(task: str, sample: Sample) -> tuple[float, ...]:
    """The mean over seeds of the task's metrics on dev, the main one first; the others decide between equals."""
    return tuple(
        round(sample.mean((metric, "dev")), 9) for metric in TASKS[task].metrics if metric in sample.runs[0].after["dev"]
    )


def on_common_seeds(samples: Sequence[Sample]) -> list[Sample]:
    """The runs of the seeds that all of them have: a row that was run more often is judged by the same luck.

    One that has no seed in common with those that were run more often is left without runs: another tenth is another dev.
    """
    seeds = [{run.seed for run in sample.runs} for sample in samples]
    common: set[int] = set()
    for mine in sorted(seeds, key=len, reverse=True):
        common = common & mine or common or mine
    return [
        Sample(tuple(run for run in sample.runs if common <= mine and run.seed in common))
        for sample, mine in zip(samples, seeds, strict=True)
    ]


def best_first(task: str, book: Book, encoder: str, rows: Sequence[ChangedRow]) -> list[tuple[ChangedRow, Sample]]:
    """The rows with all their runs, the best on dev first; those that cannot be compared, or have no runs, last."""
    found = [(row, book.find(row.recipe(), encoder)) for row in rows]
    judged = on_common_seeds([sample for _, sample in found])
    scores = [dev_means(task, sample) if len(sample) else () for sample in judged]
    places = sorted(range(len(found)), key=lambda place: (scores[place], len(found[place][1])), reverse=True)
    return [found[place] for place in places]


def as_chosen(recipe: Recipe) -> Recipe:
    """The recipe as the search has it: one that is trained on dev too was chosen by cross-validation."""
    return recipe.model_copy(update={"dev": "rotating"}) if recipe.dev == "joined" else recipe


def choose_best(task: str, book: Book) -> ChangedRow | None:
    """The row with the highest dev score, averaged over the encoders that went through the whole round.

    Where every combination of some settings was run: the one of the best levels. None while no encoder has been through.
    """
    if design := deciding(task, book):
        return best_levels(design, _level_scores(task, design, book))
    rows = searches()[task].second or searches()[task].first
    found = [on_common_seeds([book.find(one.recipe(), encoder) for one in rows]) for encoder in book.encoders]
    whole = [[dev_means(task, sample) for sample in samples] for samples in found if all(map(len, samples))]
    if not whole:
        return None
    means = [tuple(row) for row in np.mean(whole, axis=0).round(9)]
    return rows[max(range(len(means)), key=means.__getitem__)]


def deciding(task: str, book: Book) -> Factorial | None:
    """The last step of combinations that one of the encoders that decide has all of, and each other one half of.

    That half has to compare all levels. None before there is such a step: earlier rounds decide.
    """
    for design in reversed(searches()[task].combined):
        scores = _level_scores(task, design, book)
        if any(None not in means for means in scores) and all(_compares_all(design, means) for means in scores):
            return design
    return None


def _level_scores(task: str, design: Factorial, book: Book) -> list[list[float | None]]:
    """For each encoder that decides, the main metric of each combination on dev, or None where a tenth of it is missing."""
    return [
        [_whole_score(task, book.find(row.recipe(), encoder)) for row in design.changed_rows] for encoder in deciding_encoders()
    ]


def _whole_score(task: str, sample: Sample) -> float | None:
    runs = tuple(run for run in sample.runs if 1 <= run.seed <= PARTS)
    return dev_means(task, Sample(runs))[0] if len(runs) == PARTS else None


def best_levels(design: Factorial, scores: Sequence[Sequence[float | None]]) -> ChangedRow:
    """The combination of the best levels: a level is judged by all the combinations that have it, not by its luckiest one.

    scores: for each encoder, one for each combination, or None. By least squares on a constant for each encoder and a term for
    each level but the first of its factor: effects that add up are found whatever an encoder lacks.
    """
    rows, values = [], []
    for means in scores:
        terms = _terms(design, means)
        mine = np.array([mean for mean in means if mean is not None])
        rows.append(terms - terms.mean(axis=0))  # takes the encoder's constant out
        values.append(mine - mine.mean())
    effects = iter(np.linalg.lstsq(np.concatenate(rows), np.concatenate(values), rcond=None)[0].round(9))
    worth = [[0.0, *(next(effects) for _ in levels[1:])] for levels in design.factors]
    return design.changed_row([max(range(len(levels)), key=levels.__getitem__) for levels in worth])


def _compares_all(design: Factorial, means: Sequence[float | None]) -> bool:
    """Whether an encoder has half of the combinations, and with them an effect of every level."""
    terms = _terms(design, means)
    half = 2 * len(terms) >= len(design.combinations)
    return half and bool(np.linalg.matrix_rank(terms - terms.mean(axis=0)) == terms.shape[1])


def _terms(design: Factorial, means: Sequence[float | None]) -> np.ndarray:
    """A row for each combination with a score: 1 for its levels, 0 for others, the first level of each factor left out."""
    return np.array(
        [
            [
                float(place == other)
                for levels, place in zip(design.factors, combination, strict=True)
                for other in range(1, len(levels))
            ]
            for combination, mean in zip(design.combinations, means, strict=True)
            if mean is not None
        ]
    )
