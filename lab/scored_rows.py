"""The paper's tables beside ours, from results/ and the published figures alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lab.agenda import choose_rows
from lab.book import Book, Measure, Sample, compare
from lab.guises import base_task
from lab.paper import PRESETS, best_published, open_rows, published, published_score, tables
from lab.rows import read_row, row_names
from lab.searches import searches
from pairtune import Recipe, UserError
from pairtune.runs.record import mean_and_spread
from pairtune.tune.worker import encoder_name

LAB_ENCODERS = ("minilm", "mpnet")
BEST = "best"


@dataclass(frozen=True)
class ScoredRow:
    """A row of a table in one metric with one encoder: the paper's score, ours over n seeds, and the best seed's on dev.

    primary: the metric that the task's rows are ordered by in the paper. For MRPC this is F1@best, a score of dev at the
    threshold that is best there; the task's own F1 is of test, and the paper has none. paper: of a best recipe, the task's
    highest. valid: whether the runs show what the recipe says (validity.toml).
    """

    table: str
    row: str
    task: str
    model: str
    metric: str
    primary: bool
    paper: float | None
    mean: float | None
    std: float | None
    n: int
    best_on_dev: float | None
    valid: bool


def table_names() -> list[str]:
    """What `python -m lab tables` takes."""
    return [*tables(), "open", BEST]


def rows_of(table: str, book: Book, preset: str = "paper") -> list[ScoredRow]:
    """All rows of a table, those that were not run yet too, encoder by encoder."""
    encoders = dict.fromkeys([*LAB_ENCODERS, *book.encoders])
    return [
        make_row(table, recipe, metric, book.find(recipe, encoder), encoder)
        for recipe in recipes_of(table, preset)
        for encoder in encoders
        for metric in measures_of(recipe.task)
    ]


def recipes_of(table: str, preset: str = "paper") -> list[Recipe]:
    """The recipes of a table, in the paper's order; of the best, the shipped ones before those of the search."""
    if table == BEST:
        return [*shipped_best(), *(row.recipe() for search in searches().values() for row in search.changed_rows)]
    if table not in table_names():
        raise UserError(f"there is no table {table!r}; known: {', '.join(table_names())}")
    names = open_rows() if table == "open" else choose_rows(table, preset)
    return [read_row(name) for name in names]


def shipped_best() -> list[Recipe]:
    """The best recipe of each task that has one."""
    known = set(row_names())
    return [read_row(f"{task}/{BEST}") for task in searches() if f"{task}/{BEST}" in known]


def measures_of(task: str) -> list[Measure]:
    """The metrics that a table shows, the main one first. MRPC's published figure is one of dev."""
    task = base_task(task)
    if task == "mrpc":
        return [("F1", "test"), ("F1@best", "dev")]
    names = next(one.scores for name, one in published().items() if name.startswith(f"{task}/"))
    return [(name, "test") for name in names]


def paper_metric(task: str) -> Measure:
    """The metric by which the paper's rows are ordered."""
    return ("F1@best", "dev") if base_task(task) == "mrpc" else measures_of(task)[0]


def make_row(table: str, recipe: Recipe, metric: Measure, sample: Sample, encoder: str) -> ScoredRow:
    """One row; without runs, its scores are None."""
    scores = sample.scores(metric)
    mean, spread = mean_and_spread(scores) if scores else (None, None)
    name, task = base_name(recipe), base_task(recipe.task)
    return ScoredRow(
        table=table,
        row=published()[name].row if name in published() else name,
        task=task,
        model=encoder_name(encoder),
        metric=metric[0],
        primary=metric == paper_metric(task),
        paper=best_published(task, metric[0]) if name == f"{task}/{BEST}" else published_score(name, metric[0]),
        mean=mean,
        std=spread,
        n=len(scores),
        best_on_dev=sample.best_on_dev(metric),
        valid=sample.problem is None,
    )


def base_name(recipe: Recipe) -> str:
    """The recipe's name without its preset."""
    return recipe.name.removeprefix(PRESETS["released"])


def rows_as_json(rows: Sequence[ScoredRow]) -> list[dict[str, Any]]:
    """Plain objects, one per row."""
    return [asdict(row) for row in rows]


@dataclass(frozen=True)
class OrderCheck:
    """How the rows of one task stand to each other, against the paper.

    beside: for each recipe that is not the paper's lowest, 1 to -1: surely above the next one below in the paper, above,
    below, surely below (1, 0.5, -0.5, -1). pairs, right, sure, wrong: of all pairs of rows that the paper orders, how many
    were run, are in its order, surely so, and surely in the other order.
    """

    beside: dict[str, float]
    pairs: int
    right: int
    sure: int
    wrong: int


def check_order(recipes: Sequence[Recipe], book: Book, encoder: str) -> OrderCheck:
    """Whether the paper's order of these rows, of one task, holds with an encoder."""
    metric = paper_metric(recipes[0].task)
    papers = {recipe.name: published_score(base_name(recipe), metric[0]) or 0.0 for recipe in recipes}
    falling = sorted(recipes, key=lambda recipe: -papers[recipe.name])
    samples = {recipe.name: book.find(recipe, encoder) for recipe in recipes}
    beside, found = {}, []
    for place, upper in enumerate(falling):
        for below, lower in enumerate(falling[place + 1 :]):
            difference = compare(samples[upper.name], samples[lower.name], metric)
            if difference is None or papers[upper.name] == papers[lower.name]:
                continue
            found.append(difference)
            if below == 0:
                beside[upper.name] = difference.sign or (0.5 if difference.mean > 0 else -0.5)
    return OrderCheck(
        beside,
        len(found),
        sum(one.mean > 0 for one in found),
        sum(one.sign > 0 for one in found),
        sum(one.sign < 0 for one in found),
    )
