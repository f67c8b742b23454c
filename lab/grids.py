"""Which columns a table has: the paper, and for each encoder the mean, the best seed on dev, the difference, the order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from lab.baselines import read_baselines
from lab.best import as_chosen, best_first
from lab.book import Book, Measure, Sample, compare
from lab.figures import four_digits, with_spread
from lab.floor import describe_floor
from lab.guises import base_task
from lab.keys import settings_key
from lab.paper import PRESETS, all_rows, caption, published, published_score, tables, title
from lab.rows import read_row
from lab.scored_rows import BEST, base_name, check_order, make_row, measures_of, paper_metric, recipes_of, shipped_best
from lab.searches import searches
from lab.statistics import describe_difference
from lab.untuned import count_looks, find_untuned
from pairtune import Recipe
from pairtune.data.datasets import TASKS
from pairtune.report.grid import Grid
from pairtune.runs.record import mean_and_spread
from pairtune.tune.worker import encoder_name

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
    for task, some in groupby(recipes, key=lambda recipe: base_task(recipe.task)):
        rows = list(some)
        main, *others = measures_of(task)
        heading = f"{title(table)}, `{task}`" if table in tables() else f"Open points, `{task}`"
        if main != paper_metric(task):  # the paper's own kind of figure first
            main, others = others[0], [main, *others[1:]]
        notes = (caption(task), *describe_orders(rows, book, encoders), describe_looks(task, book, encoders))
        grids.append(metric_grid(heading, rows, main, book, encoders, notes * (table in tables()), ordered=table in tables()))
        grids += [metric_grid(f"{heading}, {metric[0]}", rows, metric, book, encoders, ordered=False) for metric in others]
    return grids


def encoders_in(book: Book) -> list[str]:
    """The encoders that have records; minilm where there are none at all."""
    return book.encoders or ["minilm"]


def metric_grid(
    heading: str,
    recipes: Sequence[Recipe],
    metric: Measure,
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
    task = base_task(recipes[0].task)
    rows = [*_baselines(task, metric, book, encoders, ordered)]
    rows.append(_as_it_comes(task, metric, book, encoders, ordered))
    samples: list[Sample] = []
    for recipe in recipes:
        found = [book.find(recipe, encoder) for encoder in encoders]
        made = [make_row("", recipe, metric, sample, encoder) for sample, encoder in zip(found, encoders, strict=True)]
        samples += found
        row_name = published().get(base_name(recipe))
        cells = [row_name.row if row_name else "–", f"`{recipe.name}`", four_digits(made[0].paper)]
        for encoder, row, sample in zip(encoders, made, found, strict=True):
            away = None if row.paper is None or row.mean is None else row.mean - row.paper
            cells += [score_cell(sample, metric), four_digits(row.best_on_dev), four_digits(away, signed=True), str(row.n)]
            cells += [MARKS.get(orders[encoder].beside.get(recipe.name, 0), "–")] if ordered else []
        rows.append(tuple(cells))
    return Grid(heading, tuple(head), tuple(rows), (*notes, *say_problems(samples)))


def score_cell(sample: Sample, metric: Measure) -> str:
    """The mean over seeds and its spread, with a mark where the runs are not valid."""
    scores = sample.scores(metric)
    if not scores:
        return "–"
    mark = f" {sample.problem.mark}" if sample.problem else ""
    return with_spread(*mean_and_spread(scores), len(scores)) + mark


def say_problems(samples: Sequence[Sample]) -> list[str]:
    """What the marks mean that stand at some of these."""
    found = dict.fromkeys((sample.problem.mark, sample.problem.why) for sample in samples if sample.problem)
    return [f"{mark} {why}" for mark, why in found]


def _baselines(task: str, metric: Measure, book: Book, encoders: Sequence[str], ordered: bool) -> Iterator[tuple[str, ...]]:
    """What needs no encoder, the same in every column."""
    for name, scores in read_baselines(book.results).get(task, {}).items():
        cells = [four_digits(scores.get(metric[0]) if metric[1] == "test" else None), "–", "–", "–", *(["–"] if ordered else [])]
        yield (name, "–", "–", *(cells * len(encoders)))


def _as_it_comes(task: str, metric: Measure, book: Book, encoders: Sequence[str], ordered: bool) -> tuple[str, ...]:
    """The first row: the encoder before any training, at the length that dev prefers."""
    cells = ["the encoder as it comes", "–", "–"]
    for encoder in encoders:
        cells += [str(find_untuned(task, encoder, metric, book) or "–"), "–", "–", "–", *(["–"] if ordered else [])]
    return tuple(cells)


def describe_looks(task: str, book: Book, encoders: Sequence[str]) -> str:
    """How often the scores on test were seen."""
    looks = [(encoder_name(encoder), *count_looks(task, encoder, book)) for encoder in encoders]
    seen = "; ".join(f"{name} {settings} settings, {runs} runs" for name, settings, runs in looks if runs)
    return f"Test was scored for, the search for a better recipe included: {seen}." if seen else "Test was not scored yet."


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
    """The rows of a round of a task's search, the best on dev first, with test beside it."""
    metric = TASKS[task].metric
    rows, found = [], []
    for place, (row, sample) in enumerate(best_first(task, book, encoder, searches()[task].rounds[round_name])):
        of = ((metric, split) for split in ("dev", "test"))
        scores = (four_digits(sample.mean(one) if sample.scores(one) else None) for one in of)
        name = f"`{row.name}`{f' {sample.problem.mark}' if sample.problem else ''}"
        rows.append((str(place + 1) if len(sample) else "–", name, *scores, str(len(sample))))
        found.append(sample)
    heading = f"{round_name}, `{task}`, {encoder_name(encoder)}"
    return Grid(heading, ("place", "recipe", f"{metric}, dev", f"{metric}, test", "n"), tuple(rows), tuple(say_problems(found)))


def released_grid(book: Book) -> Grid | None:
    """The rows whose settings are others in the authors' code, beside those of the text; None before one was run."""
    encoders = encoders_in(book)
    head = ["recipe", "metric", "paper"]
    for encoder in encoders:
        head += [f"text, {encoder_name(encoder)}", f"code, {encoder_name(encoder)}", "difference"]
    rows: list[tuple[str, ...]] = []
    shown: list[Sample] = []
    for name in all_rows():
        text, code = read_row(name), read_row(PRESETS["released"] + name)
        metric = measures_of(text.task)[0]
        samples = [(book.find(text, encoder), book.find(code, encoder)) for encoder in encoders]
        if settings_key(text) == settings_key(code) or not any(len(one) for _, one in samples):
            continue
        cells = [f"`{code.name}`", metric[0], four_digits(published_score(name, metric[0]))]
        for both in samples:
            cells += [*(score_cell(one, metric) for one in both), describe_difference(compare(*both[::-1], metric))]
            shown += both
        rows.append(tuple(cells))
    return Grid("The settings of the released code", tuple(head), tuple(rows), tuple(say_problems(shown))) if rows else None


def best_grid(book: Book, encoders: Sequence[str] | None = None) -> Grid | None:
    """The shipped best recipes, their scores, and whether they clear the floor; None before there are any."""
    head = ("task", "encoder", "metric", "as it comes", "dev", "test", "best on dev", "n", "floor", "paper's best")
    encoders = encoders or encoders_in(book)
    rows = [
        best_row(recipe, metric, book, encoder)
        for recipe in shipped_best()
        for encoder in encoders
        for metric in dict.fromkeys([(TASKS[recipe.task].metric, "test"), paper_metric(recipe.task)])
    ]
    notes = say_problems([book.find(recipe, encoder) for recipe in shipped_best() for encoder in encoders])
    return Grid("The best recipe of each task", head, tuple(rows), tuple(notes)) if rows else None


def best_row(recipe: Recipe, metric: Measure, book: Book, encoder: str) -> tuple[str, ...]:
    """The cells of a best recipe; a score of dev, which the paper has for MRPC, stands in the column of dev."""
    name, split = metric
    sample = book.find(recipe, encoder)
    row = make_row(BEST, recipe, metric, sample, encoder)
    chosen = book.find(as_chosen(recipe), encoder)
    score, dev = score_cell(sample, metric), four_digits(chosen.mean((name, "dev")) if len(chosen) else None)
    before = find_untuned(recipe.task, encoder, metric, book)
    dev, test = (dev, score) if split == "test" else (score, "–")
    cleared = describe_floor(recipe.task, metric, book, encoder, before.score if before else None, row.mean)
    task, model = f"`{recipe.task}`", encoder_name(encoder)
    return (
        task,
        model,
        name,
        str(before or "–"),
        dev,
        test,
        four_digits(row.best_on_dev),
        str(row.n),
        cleared,
        four_digits(row.paper),
    )
