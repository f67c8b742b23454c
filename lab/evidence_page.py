"""The evidence behind the advice on losses, orders and settings: lab/evidence.md, from the records and evidence.toml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lab.best import as_chosen
from lab.book import Book, Measure, Sample, compare
from lab.changes import Change, both_sides, sections
from lab.figures import four_digits
from lab.grids import encoders_in, say_problems, score_cell
from lab.paper import published_score
from lab.rows import read_row, row_names
from lab.searches import searches
from lab.statistics import describe_difference
from lab.untuned import find_untuned
from pairtune import Recipe
from pairtune.data.datasets import TASKS
from pairtune.report.grid import Grid
from pairtune.tune.worker import encoder_name

INTRO = """# Evidence

Made by `make results` from the records in `results/`; no figure is typed in. Scores are means over seeds with their standard
deviation, on test unless a column says otherwise; n counts seeds, or tenths of a cross-validation (`dev=rotating`). ✓ and ✗: the
95 % interval of the difference does not include 0, by the bootstrap of [the results](results.md), each comparison by itself. Of
many such comparisons one in twenty is sure by chance."""
LOSS_SAYS = """The row of a cell is `task/loss`, such as `cqa-a/combo`. Bold: of the four losses, the highest on dev. `best` was
chosen on dev by the search ([results](results.md#the-best-recipes-found-on-dev))."""
NOT_RUN = "Not run yet."
COMPARED = ("mse", "bsc", "combo", "triplet")


def make_evidence(book: Book) -> str:
    """The whole page as Markdown."""
    parts = [INTRO, "## Loss", LOSS_SAYS]
    for encoder in encoders_in(book):
        parts += [f"**{encoder_name(encoder)}**", loss_grid(book, encoder).as_markdown()]
    for section in sections():
        parts += [f"## {section['title']}", *filter(None, [section.get("text")])]
        parts += [grid.as_markdown() if grid.rows else NOT_RUN for grid in section_grids(section, book)]
    return "\n\n".join(parts) + "\n"


def section_grids(section: Mapping[str, Any], book: Book) -> Iterator[Grid]:
    """The tables of a section, each of the kind that it has something for."""
    if "rows" in section:
        yield rows_grid(section["rows"], section["show"], book)
    if "changes" in section:
        yield changes_grid(section["changes"], book)
    if "spread" in section:
        yield spread_grid(section["spread"], book)


def main_metric(task: str) -> Measure:
    """The task's own metric, on test."""
    return TASKS[task].metric, "test"


def loss_grid(book: Book, encoder: str) -> Grid:
    """Each loss on each task, beside the encoder as it comes and the best recipe."""
    rows, shown = [], []
    for task in searches():
        metric = main_metric(task)
        names = [f"{task}/{row}" for row in (*COMPARED, "best")]
        samples = [book.find(read_row(name), encoder) if name in row_names() else Sample(()) for name in names]
        cells = [f"{score_cell(one, metric)} ({len(one)})" if len(one) else "–" for one in samples]
        dev = [one.mean((metric[0], "dev")) if len(one) else 0.0 for one in samples[:-1]]
        cells[dev.index(max(dev))] = f"**{cells[dev.index(max(dev))]}**" if max(dev) else "–"
        rows.append((f"`{task}`", metric[0], str(find_untuned(task, encoder, metric, book) or "–"), *cells))
        shown += samples
    return Grid("", ("task", "metric", "as it comes", *(f"`{one}`" for one in (*COMPARED, "best"))), tuple(rows), notes_of(shown))


def rows_grid(names: Sequence[str], show: Sequence[str], book: Book) -> Grid:
    """Rows side by side with the settings that tell them apart, the paper's score and ours."""
    encoders = encoders_in(book)
    head = ("row", *(f"`{setting}`" for setting in show), "metric", "paper")
    rows, shown = [], []
    for name in names:
        recipe = read_row(name)
        metric = main_metric(recipe.task)
        samples = [book.find(recipe, encoder) for encoder in encoders]
        ours = (f"{score_cell(one, metric)} ({len(one)})" if len(one) else "–" for one in samples)
        told = (f"`{setting_of(recipe, setting)}`" for setting in show)
        rows.append((f"`{name}`", *told, metric[0], four_digits(published_score(name, metric[0])), *ours))
        shown += samples
    return Grid("", (*head, *(f"{encoder_name(one)} (n)" for one in encoders)), tuple(rows), notes_of(shown))


def setting_of(recipe: Recipe, setting: str) -> str:
    """The value of a setting in the first stage, as TOML has it.

    >>> setting_of(read_row("cqa-a/bsc-positives"), "train.positives_only")
    'true'
    """
    part, _, name = setting.partition(".")
    value = getattr(getattr(recipe.stages[0], part), name)
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def changes_grid(changes: Sequence[Change], book: Book) -> Grid:
    """One thing changed: dev and test on both sides, with each encoder that has runs of both."""
    rows, shown = [], []
    for change in changes:
        recipes = [one.recipe() for one in both_sides(change)]
        metric = main_metric(recipes[0].task)
        for encoder in encoders_in(book):
            before, after = (book.find(recipe, encoder) for recipe in recipes)
            if len(before) and len(after):
                rows.append((*_describe_change(change), metric[0], encoder_name(encoder), *_cells(before, after, metric)))
                shown += [before, after]
    head = ("row", "with", "change", "metric", "encoder", "dev", "test", "difference on test", "n")
    return Grid("", head, tuple(rows), notes_of(shown))


def _describe_change(change: Change) -> tuple[str, str, str]:
    """The row, what both sides have, and what differs; a cell of a table has no bar in it."""
    told = [f"`{change[side]}`" if change.get(side) else "as it is" for side in ("from", "to")]
    shared = f"`{change['with']}`" if change.get("with") else "–"
    return f"`{change['row']}`", shared.replace("|", "\\|"), " → ".join(told).replace("|", "\\|")


def _cells(before: Sample, after: Sample, metric: Measure) -> tuple[str, ...]:
    """Both scores on dev and on test, the difference, the seeds; no score on dev where dev was trained on."""
    dev = (four_digits(one.mean((metric[0], "dev")) if one.runs[0].dev_held_out else None) for one in (before, after))
    test = (_marked(one, metric) for one in (before, after))
    found = describe_difference(compare(after, before, metric))
    return " → ".join(dev), " → ".join(test), found, f"{len(before)}, {len(after)}"


def _marked(sample: Sample, metric: Measure) -> str:
    """The mean on test, where the records still have it: a test set may have been mended since."""
    score = four_digits(sample.mean(metric)) if sample.scores(metric) else "–"
    return f"{score}{f' {sample.problem.mark}' if sample.problem else ''}"


def spread_grid(names: Sequence[str], book: Book) -> Grid:
    """The lowest and the highest seed of each row."""
    rows, shown = [], []
    for name in names:
        recipe = read_row(name)
        metric = main_metric(recipe.task)
        for encoder in encoders_in(book):
            sample = book.find(as_chosen(recipe), encoder)
            if scores := sample.scores(metric):
                spread = f"{min(scores):.4f} to {max(scores):.4f}"
                mark = f" {sample.problem.mark}" if sample.problem else ""
                rows.append(
                    (f"`{name}`", metric[0], encoder_name(encoder), spread + mark, four_digits(max(scores) - min(scores)))
                )
                shown.append(sample)
    return Grid("", ("row", "metric", "encoder", "lowest to highest", "apart"), tuple(rows), notes_of(shown))


def notes_of(samples: Sequence[Sample]) -> tuple[str, ...]:
    """What the marks in a table mean."""
    return tuple(say_problems(samples))
