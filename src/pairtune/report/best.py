"""The search for each task's best recipe, judged on dev."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pairtune.recipe import Recipe
from pairtune.report.book import Book, Sample
from pairtune.reproduce.search import THIRD, Candidate, Factorial, deciding
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


def as_chosen(recipe: Recipe) -> Recipe:
    """The recipe as the search has it: one that is trained on dev too was chosen by cross-validation."""
    return recipe.model_copy(update={"dev": "rotating"}) if recipe.dev == "joined" else recipe


def choose_best(task: str, book: Book) -> Candidate | None:
    """The candidate with the highest dev score, averaged over the encoders that went through the whole last round.

    Where that has every combination of some settings: the one of the best levels, to which the encoders count too that have
    enough of them to compare all levels. None while no encoder has been through.
    """
    candidates = deciding(task)
    found = [[book.find(candidate.recipe(), encoder) for candidate in candidates] for encoder in book.encoders]
    whole = [[dev_means(task, sample) for sample in on_common_seeds(samples)] for samples in found if all(map(len, samples))]
    if not whole:
        return None
    if task in THIRD:
        return best_levels(THIRD[task], [_main_scores(task, samples) for samples in found])
    means = [tuple(row) for row in np.mean(whole, axis=0).round(9)]
    return candidates[max(range(len(means)), key=means.__getitem__)]


def _main_scores(task: str, samples: Sequence[Sample]) -> list[float | None]:
    """Of the main metric on dev, over the seeds that all those with runs have; None for one without."""
    common = iter(on_common_seeds(run)) if (run := [sample for sample in samples if len(sample)]) else iter(())
    return [dev_means(task, next(common))[0] if len(sample) else None for sample in samples]


def best_levels(design: Factorial, scores: Sequence[Sequence[float | None]]) -> Candidate:
    """The combination of the best levels: a level is judged by all the combinations that have it, not by its luckiest one.

    scores: for each encoder, one for each combination, or None. By least squares on a constant for each encoder and a term for
    each level but the first of its factor: effects that add up are found whatever an encoder lacks. One that lacks so much that
    it cannot compare all levels does not count.
    """
    terms = np.array([_terms(design, combination) for combination in design.combinations])  # (combinations, levels)
    rows, values = [], []
    for means in scores:
        mine = np.array([np.nan if mean is None else mean for mean in means])
        run = ~np.isnan(mine)
        if run.any() and np.linalg.matrix_rank(terms[run] - terms[run].mean(axis=0)) == terms.shape[1]:
            rows.append(terms[run] - terms[run].mean(axis=0))  # takes the encoder's constant out
            values.append(mine[run] - mine[run].mean())
    effects = iter(np.linalg.lstsq(np.concatenate(rows), np.concatenate(values), rcond=None)[0].round(9))
    worth = [[0.0, *(next(effects) for _ in levels[1:])] for levels in design.factors]
    return design.candidate([max(range(len(levels)), key=levels.__getitem__) for levels in worth])


def _terms(design: Factorial, combination: Sequence[int]) -> list[float]:
    """1 for each level of the combination, 0 for the others, the first level of each factor left out."""
    places = zip(design.factors, combination, strict=True)
    return [float(place == other) for levels, place in places for other in range(1, len(levels))]
