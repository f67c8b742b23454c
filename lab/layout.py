"""Which columns a table has: the paper, and for each encoder the mean, the best seed on dev, the difference, the order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from statistics import mode

from lab.best import as_chosen, rank_candidates
from lab.book import Book, Metric, compare, describe_difference
from lab.floor import describe_floor
from lab.paper import PRESETS, all_rows, caption, published, published_score, tables, title
from lab.rows import read_row
from lab.search import searches
from lab.settings import settings_key
from lab.tables import BEST, base_name, check_order, make_row, metrics_of, paper_metric, recipes_of, shipped_best
from pairtune import Recipe
from pairtune.data.datasets import TASKS
from pairtune.report.grid import Grid, figure, with_spread
from pairtune.tune.job import encoder_name

MARKS = {1.0: "✓", 0.5: "(✓)", -0.5: "(✗)", -1.0: "✗"}


def grids_of(table: str, book: Book, preset: str = "paper", encoders: Sequence[str] | None = None) -> list[Grid]:
    """The grids of a table, task by task: the main metric first, then what else the paper has.

    encoders: those that stand side by side; all that have records unless they are named.
    """
    encoders = encoders or encoders_in(book)
    if table == BEST:
        rounds = [(task, name) for task, search in searches().items() for name in search.rounds]
        grids = [search_grid(task, name, book, encoder) for task, name in rounds for encoder in encoders]
        return [*filter(None, [best_grid(book, encoders)]), *grids]
    recipes = sorted(recipes_of(table, preset), key=lambda recipe: list(searches()).index(recipe.task) if table == "open" else 0)
    grids = []
    for task, some in groupby(recipes, key=lambda recipe: recipe.task):
        rows = list(some)
        main, *others = metrics_of(task)
        heading = f"{title(table)}, `{task}`" if table in tables() else f"Open points, `{task}`"
        if main != paper_metric(task):  # the paper's own kind of figure first
            main, others = others[0], [main, *others[1:]]
        notes = tuple(filter(None, (caption(task) if table in tables() else "", *describe_orders(rows, book, encoders))))
        grids.append(metric_grid(heading, rows, main, book, encoders, notes, ordered=table in tables()))
        grids += [metric_grid(f"{heading}, {metric[0]}", rows, metric, book, encoders, ordered=False) for metric in others]
    return grids


def encoders_in(book: Book) -> list[str]:
    """The encoders that have records; minilm where there are none at all."""
    return book.encoders or ["minilm"]


def metric_grid(
    heading: str,
    recipes: Sequence[Recipe],
    metric: Metric,
    book: Book,
    encoders: Sequence[str],
    notes: tuple[str, ...] = (),
    *,
    ordered: bool,
) -> Grid:
    """One metric: a row for each recipe, the encoders side by side."""
    orders = {encoder: check_order(recipes, book, encoder) for encoder in encoders} if ordered else {}
    name = metric[0] if metric[1] == "test" else f"{metric[0]} ({metric[1]})"
    head = ["row", "recipe", f"{name}, paper"]
    for encoder in encoders:
        head += [encoder_name(encoder), "best on dev", "− paper", "n", *(["order"] if ordered else [])]
    rows = [_as_it_comes(recipes, metric, book, encoders, ordered)]
    for recipe in recipes:
        made = [make_row("", recipe, metric, book.find(recipe, encoder), encoder) for encoder in encoders]
        row_name = published().get(base_name(recipe))
        cells = [row_name.row if row_name else "–", f"`{recipe.name}`", figure(made[0].paper)]
        for encoder, row in zip(encoders, made, strict=True):
            away = None if row.paper is None or row.mean is None else row.mean - row.paper
            cells += [with_spread(row.mean, row.std, row.n), figure(row.best_on_dev), figure(away, signed=True), str(row.n)]
            cells += [MARKS.get(orders[encoder].beside.get(recipe.name, 0), "–")] if ordered else []
        rows.append(tuple(cells))
    return Grid(heading, tuple(head), tuple(rows), notes)


def _as_it_comes(
    recipes: Sequence[Recipe], metric: Metric, book: Book, encoders: Sequence[str], ordered: bool
) -> tuple[str, ...]:
    """The first row: the encoder before any training, as the records have it."""
    cells = ["the encoder as it comes", "–", "–"]
    for encoder in encoders:
        runs = [run for recipe in recipes for run in book.find(recipe, encoder).runs]
        before = next((run.before[metric[1]][metric[0]] for run in runs if metric[1] in run.before), None)
        cells += [figure(before), "–", "–", "–", *(["–"] if ordered else [])]
    return tuple(cells)


def describe_orders(recipes: Sequence[Recipe], book: Book, encoders: Sequence[str]) -> list[str]:
    """In a sentence for each encoder: of the pairs of rows that the paper puts in an order, how many are in it here."""
    lines = []
    for encoder in encoders:
        order = check_order(recipes, book, encoder)
        if order.pairs:
            lines.append(
                f"Pairs of rows that the paper puts in an order and that were run with {encoder_name(encoder)}: {order.pairs}; "
                f"in that order here: {order.right}, surely: {order.sure}; surely in the other: {order.wrong}."
            )
    return lines


def search_grid(task: str, round_name: str, book: Book, encoder: str) -> Grid:
    """The candidates of a round of a task's search, the best on dev first, with test beside it."""
    metric = TASKS[task].metric
    rows = []
    for place, (candidate, sample) in enumerate(rank_candidates(task, book, encoder, searches()[task].rounds[round_name])):
        of = ((metric, split) for split in ("dev", "test"))
        scores = (figure(sample.mean(one) if sample.scores(one) else None) for one in of)
        rows.append((str(place + 1) if len(sample) else "–", f"`{candidate.name}`", *scores, str(len(sample))))
    heading = f"{round_name}, `{task}`, {encoder_name(encoder)}"
    return Grid(heading, ("place", "recipe", f"{metric}, dev", f"{metric}, test", "n"), tuple(rows))


def released_grid(book: Book) -> Grid | None:
    """The rows whose settings are others in the authors' code, beside those of the text; None before one was run."""
    encoders = encoders_in(book)
    head = ["recipe", "metric", "paper"]
    for encoder in encoders:
        head += [f"text, {encoder_name(encoder)}", f"code, {encoder_name(encoder)}", "difference"]
    rows = []
    for name in all_rows():
        text, code = read_row(name), read_row(PRESETS["released"] + name)
        metric = metrics_of(text.task)[0]
        samples = [(book.find(text, encoder), book.find(code, encoder)) for encoder in encoders]
        if settings_key(text) == settings_key(code) or not any(len(one) for _, one in samples):
            continue
        cells = [f"`{code.name}`", metric[0], figure(published_score(name, metric[0]))]
        for encoder, both in zip(encoders, samples, strict=True):
            made = [make_row("", text, metric, sample, encoder) for sample in both]
            cells += [*(with_spread(row.mean, row.std, row.n) for row in made), describe_difference(compare(*both[::-1], metric))]
        rows.append(tuple(cells))
    return Grid("The settings of the released code", tuple(head), tuple(rows)) if rows else None


def best_grid(book: Book, encoders: Sequence[str] | None = None) -> Grid | None:
    """The shipped best recipes, their scores, and whether they clear the floor; None before there are any."""
    head = ("task", "encoder", "metric", "as it comes", "dev", "test", "best on dev", "n", "floor", "paper's best")
    rows = [
        best_row(recipe, metric, book, encoder)
        for recipe in shipped_best()
        for encoder in encoders or encoders_in(book)
        for metric in dict.fromkeys([(TASKS[recipe.task].metric, "test"), paper_metric(recipe.task)])
    ]
    return Grid("The best recipe of each task", head, tuple(rows)) if rows else None


def best_row(recipe: Recipe, metric: Metric, book: Book, encoder: str) -> tuple[str, ...]:
    """The cells of a best recipe; a score of dev, which the paper has for MRPC, stands in the column of dev."""
    name, split = metric
    sample = book.find(recipe, encoder)
    row = make_row(BEST, recipe, metric, sample, encoder)
    chosen = book.find(as_chosen(recipe), encoder)
    score, dev = with_spread(row.mean, row.std, row.n), figure(chosen.mean((name, "dev")) if len(chosen) else None)
    known = [run.before[split][name] for run in sample.runs if split in run.before]
    before = mode(known) if known else None  # devices differ
    dev, test = (dev, score) if split == "test" else (score, "–")
    cleared = describe_floor(recipe.task, metric, book, encoder, before, row.mean)
    task, model = f"`{recipe.task}`", encoder_name(encoder)
    return (task, model, name, figure(before), dev, test, figure(row.best_on_dev), str(row.n), cleared, figure(row.paper))
