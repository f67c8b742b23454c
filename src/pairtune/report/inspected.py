"""What was found before training in a user's pairs and in the batches of several orders, in words and for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table as TerminalTable

from pairtune.data.inspection import Findings
from pairtune.data.pairs import Task
from pairtune.data.profile import describe_profile, profile
from pairtune.ordering.hardness import OrderHardness
from pairtune.progress import describe_time
from pairtune.report.summary import describe_loss, describe_order, describe_schedule
from pairtune.runs.evidence import shorten
from pairtune.runs.recipe import Recipe

if TYPE_CHECKING:
    from pairtune.data.inspection import Seen

SHOWN = 5  # examples of each kind
GROUPS_SHOWN = 2  # of each order
WIDTH = 90  # characters of a text in an example
Lines = list[tuple[str, str]]  # heading, text


def table_of_orders(found: Mapping[str, OrderHardness], title: str) -> TerminalTable:
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
    table = TerminalTable(
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


def describe_hardest(one: OrderHardness, left: Sequence[str], right: Sequence[str]) -> str:
    """The groups with the most similar negatives, as readable texts."""
    lines = []
    for group in one.hardest[:GROUPS_SHOWN]:
        lines.append(f"group of {len(group.rows)}, mean cosine of its negatives {group.similarity:.3f}")
        lines += [f"  {shorten(left[row], WIDTH)}  |  {shorten(right[row], WIDTH)}" for row in group.rows]
    return "\n".join(lines)


def summarize_orders(found: Mapping[str, OrderHardness]) -> dict[str, Any]:
    """The numbers of every order for programs, without the examples."""
    return {name: {key: value for key, value in asdict(one).items() if key != "hardest"} for name, one in found.items()}


def describe_data(task: Task, found: Findings) -> Lines:
    """What the texts and labels alone say."""
    return [
        ("pairs", describe_profile(profile(task))),
        *(("read as", note) for note in task.notes),
        ("labels", _describe_labels(found)),
        ("repeated", f"{found.repeated:,} of {found.pairs:,} pairs repeat another one (case, white space and direction ignored)"),
        *_describe_oddities(found),
        *(
            (
                f"{leak.split} and train",
                f"{leak.pairs:,} pairs of {leak.split} are in train too{_warn(leak.pairs)}; so are {leak.left:.1%} of its left "
                f"texts and {leak.right:.1%} of its right texts",
            )
            for leak in found.leaks
        ),
    ]


def describe_seen(seen: Seen, recipe: Recipe) -> Lines:
    """What the encoder says."""
    from pairtune.encoders.embedding import warn_unknown  # which needs torch

    lengths, pairs = seen.lengths, seen.pairs
    cut = f"{lengths.cut:.1%} of the texts are longer than {lengths.limit} tokens and are cut"
    advice = "; raise train.max_seq_length if their ends matter" if lengths.cut > 0.05 else ""
    lines = [
        ("lengths", f"{lengths.median:.0f} tokens (95 %: {lengths.high:.0f}, longest {lengths.longest:,}); {cut}{advice}"),
        *([("words", unknown)] if (unknown := warn_unknown(lengths.unknown)) else []),
        (
            "false negatives",
            f"for {seen.anchors_with_rivals:.1%} of the positive pairs {recipe.encoder} finds a right text of another pair "
            f"closer than their own: some of these may be right answers too",
        ),
    ]
    lines += [
        (
            "",
            f"{shorten(pairs.left[one.row], WIDTH)}  |  its own ({one.own:.2f}): {shorten(pairs.right[one.row], WIDTH)}  |  "
            f"closer ({one.similarity:.2f}): {shorten(pairs.right[one.other], WIDTH)}",
        )
        for one in seen.rivals[:SHOWN]
    ]
    return lines


def describe_default(recipe: Recipe, reasons: Sequence[str], seconds: float | None) -> Lines:
    """What would be trained, why, and how long that would take here."""
    stages = recipe.model_dump(mode="json")["stages"]
    parts = [(describe_loss(one["loss"]), describe_order(one["order"]), describe_schedule(one["train"])) for one in stages]
    said = "; then ".join(f"{loss}; batches: {order}; {schedule}" for loss, order, schedule in parts)
    time = [] if seconds is None else [("time", f"about {describe_time(seconds)} to train here (by a short trial)")]
    return [("recipe", f"{recipe.name}: {said}"), *(("why", reason) for reason in reasons), *time]


def summarize_data(found: Findings, seen: Seen, seconds: float | None) -> dict[str, Any]:
    """The numbers for programs."""
    texts = seen.pairs
    return {
        "data": asdict(found),
        "lengths": asdict(seen.lengths),
        "anchors_with_rivals": seen.anchors_with_rivals,
        "rivals": [
            {"left": texts.left[one.row], "own": texts.right[one.row], "closer": texts.right[one.other]}
            for one in seen.rivals[:SHOWN]
        ],
        "orders": summarize_orders(seen.orders),
        "seconds": seconds,
    }


def format_lines(lines: Lines) -> str:
    """One line each, the headings in a column; the same heading is not said twice in a row.

    >>> print(format_lines([("pairs", "two"), ("why", "a"), ("why", "b")]))
    pairs  two
    why    a
           b
    """
    width = max(len(heading) for heading, _ in lines)
    before, shown = None, []
    for heading, text in lines:
        shown.append(f"{'' if heading == before else heading:<{width}}  {text}")
        before = heading
    return "\n".join(shown)


def _describe_labels(found: Findings) -> str:
    if found.lowest == found.highest:
        return "all the same: every pair is positive"
    if not found.grades:
        return f"from {found.lowest:g} to {found.highest:g}, many different ones"
    return ", ".join(f"{grade:g}: {count:,} ({count / found.pairs:.0%})" for grade, count in found.grades.items())


def _describe_oddities(found: Findings) -> Lines:
    lines = []
    if found.contradictions:
        lines.append(("contradictions", f"{len(found.contradictions):,} pairs occur with labels that contradict each other"))
        lines += [
            ("", f"{_listed(one.grades)}: {shorten(one.left, WIDTH)}  |  {shorten(one.right, WIDTH)}")
            for one in found.contradictions[:SHOWN]
        ]
    if found.identical:
        lines.append(("identical", f"{found.identical:,} pairs are a text and itself: there is nothing to learn from them"))
    if found.empty:
        lines.append(("empty", f"{found.empty:,} texts are empty or white space"))
    return lines


def _listed(grades: Sequence[float]) -> str:
    return " and ".join(f"{grade:g}" for grade in grades)


def _warn(pairs: int) -> str:
    return " (take them out of train: they are too easy)" if pairs else ""
