"""What the batches of several orders are like, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from pairtune.ordering.hardness import Inspection
from pairtune.runs.evidence import shorten

WIDEST = 90  # characters of a text in an example
SHOWN = 2  # groups of each order


def table_of_orders(found: Mapping[str, Inspection], title: str) -> Table:
    """One row per order: how hard its negatives are, and how many of them may be none."""
    columns = (
        "order",
        "mean negative",
        "hardest negative",
        "positive",
        "likely false",
        "repeats/batch",
        "groups",
        "cut",
        "alone",
    )
    table = Table(
        *columns, title=title, caption="cosines of the encoder as it is; a negative is left i against right j of a batch"
    )
    for name, one in found.items():
        similarities = (one.negative_similarity, one.top_similarity, one.positive_similarity)
        counts = (one.groups, one.groups_cut, one.alone)
        table.add_row(
            name,
            *(f"{value:.3f}" for value in similarities),
            f"{one.likely_false_negatives:.2%}",
            f"{one.repeated_texts:.2f}",
            *(f"{count:,}" for count in counts),
        )
    return table


def describe_hardest(one: Inspection, left: Sequence[str], right: Sequence[str]) -> str:
    """The groups with the most similar negatives, as readable texts."""
    lines = []
    for group in one.hardest[:SHOWN]:
        lines.append(f"group of {len(group.rows)}, mean cosine of its negatives {group.similarity:.3f}")
        lines += [f"  {shorten(left[row], WIDEST)}  |  {shorten(right[row], WIDEST)}" for row in group.rows]
    return "\n".join(lines)


def summarize_orders(found: Mapping[str, Inspection]) -> dict[str, Any]:
    """The figures of every order for programs, without the examples."""
    return {name: {key: value for key, value in asdict(one).items() if key != "hardest"} for name, one in found.items()}
