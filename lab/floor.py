"""The floor that a best recipe has to clear: a bare loop's figures (floor.toml), or its settings trained here."""

from __future__ import annotations

from lab.book import Book, Measure
from lab.changes import ChangedRow
from lab.figures import four_digits
from lab.keys import read_data


def given_floor(task: str, metric: str, encoder: str) -> str | None:
    """The bare loop's figure, with its digits."""
    return read_data("floor.toml")[task].get(metric, {}).get(encoder)


def repeated(task: str) -> tuple[ChangedRow, ...]:
    """The loop's settings that are trained here as well, where its test had other texts."""
    return tuple(ChangedRow.of(task, line) for line in read_data("floor.toml")[task].get("again", ()))


def describe_floor(task: str, metric: Measure, book: Book, encoder: str, before: float | None, after: float | None) -> str:
    """The floor, and whether the score afterwards clears it; in brackets the loop's where ours takes its place."""
    floor = given_floor(task, metric[0], encoder)
    if repeated(task):
        return " ".join([*_trained_here(task, metric, book, encoder, before, after), f"({floor})"])
    return f"{floor} {clears(floor, after)}" if floor and after is not None else floor or "–"


def _trained_here(
    task: str, metric: Measure, book: Book, encoder: str, before: float | None, after: float | None
) -> tuple[str, ...]:
    """The highest mean of what the loop ran, and of the encoder as it comes, on today's texts, as far as there are runs.

    With them all, also whether the score afterwards is above it.
    """
    samples = [book.find(one.recipe(), encoder) for one in repeated(task)]
    means = [sample.mean(metric) for sample in samples if sample.scores(metric)]
    floor = four_digits(max([*means, before or 0.0])) if means else None
    if floor is None or after is None:
        return ()
    return (floor, clears(floor, after)) if len(means) == len(samples) else (f"≥ {floor}",)


def clears(floor: str, mean: float) -> str:
    """Whether a mean clears a floor, as far as the floor's digits tell.

    >>> clears("0.789", 0.78894), clears("0.789", 0.7901), clears("0.505", 0.5005)
    ('=', '✓', '✗')
    """
    digits = len(floor.partition(".")[2])
    if round(mean, digits) == float(floor):
        return "="
    return "✓" if mean > float(floor) else "✗"
