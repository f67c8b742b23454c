"""The systems that the paper compares with, as tables: each beside the encoder as it comes and the paper's own losses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lab.augmented import read_cross_encoders
from lab.book import Book, Measure, Sample, compare
from lab.comparators import systems
from lab.figures import with_spread
from lab.grids import encoders_in, say_problems, score_cell
from lab.rows import read_row, row_names
from lab.scored_rows import measures_of
from lab.searches import searches
from lab.statistics import describe_difference
from lab.untuned import find_untuned
from pairtune import Recipe
from pairtune.report.grid import Grid
from pairtune.runs.record import mean_and_spread
from pairtune.tune.worker import encoder_name

SAYS = """Same data, encoder, epochs, batch, rate and seeds as the paper's MSE row; each loss has the settings it ships with,
and random batches. *Difference*: less the task's reference, `combo`, on PFCC-S `bsc`; ✓ surely above it, ✗ surely below it.
N-pair: the ranking loss in both directions. A mined negative is the nearest text, by MiniLM as it comes, that is 5 % farther than
the positive. SupCon has all positives of a text in the numerator, NT-Xent also the texts of the same side in the denominator,
both with τ 0.05. SimCSE sees the training texts without labels, one epoch. Augmented SBERT: a cross-encoder from MPNet's
weights, trained on the gold pairs, labels for each left text the three nearest right texts, and squared error trains on both; the
cross-encoder's own score is the last row. Systems without runs yet are left out."""


def comparator_grids(book: Book) -> list[Grid]:
    """A table for each task that has runs of them."""
    grids = [comparator_grid(task, book) for task in searches()]
    return [grid for grid in grids if grid.rows]


def comparator_grid(task: str, book: Book) -> Grid:
    """The systems of a task, by its main metric; no rows before one of them was run."""
    metric, encoders = measures_of(task)[0], encoders_in(book)
    reference = read_row(f"{task}/{'combo' if f'{task}/combo' in row_names() else 'bsc'}")
    found = {title: [book.find(recipe, encoder) for encoder in encoders] for title, recipe in listed(task)}
    run = {title: samples for title, samples in found.items() if any(one.scores(metric) for one in samples)}
    rival = any(title in run for title, recipe in listed(task) if recipe.name not in row_names())
    against = [book.find(reference, encoder) for encoder in encoders]
    rows = [(title, *_cells(samples, against, metric)) for title, samples in run.items()]
    head = [cell for encoder in encoders for cell in (encoder_name(encoder), "difference", "n")]
    before = [str(find_untuned(task, encoder, metric, book) or "–") for encoder in encoders]
    first = ("the encoder as it comes", *(cell for score in before for cell in (score, "–", "–")))
    everything = (first, *rows, *_ceiling(task, metric, book, encoders)) if rival else ()
    notes = tuple(say_problems([one for samples in run.values() for one in samples]))
    return Grid(f"`{task}`, {metric[0]}", ("system", *head), everything, notes)


def listed(task: str) -> Iterator[tuple[str, Recipe]]:
    """What stands in the table of a task: its systems, then the paper's own losses."""
    yield from ((system.title, system.recipe()) for system in systems() if system.task == task)
    for title, name in (("BSC", "bsc"), ("Combo BSC + MSE", "combo")):
        if f"{task}/{name}" in row_names():
            yield f"{title} (`{task}/{name}`)", read_row(f"{task}/{name}")


def _cells(samples: Sequence[Sample], against: Sequence[Sample], metric: Measure) -> Iterator[str]:
    for sample, reference in zip(samples, against, strict=True):
        same = sample.runs == reference.runs
        yield score_cell(sample, metric)
        yield "–" if same else describe_difference(compare(sample, reference, metric))
        yield str(len(sample.scores(metric)))


def _ceiling(task: str, metric: Measure, book: Book, encoders: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The cross-encoder by its own score, in the column of the encoder that it began as."""
    cells: list[str] = []
    for encoder in encoders:
        entries = read_cross_encoders(book.results, encoder_name(encoder))
        scores = [entry["test"][metric[0]] for entry in entries if entry["task"] == task]
        cells += [with_spread(*mean_and_spread(scores), len(scores)), "–", str(len(scores))] if scores else ["–"] * 3
    if set(cells) != {"–"}:
        yield ("cross-encoder", *cells)
