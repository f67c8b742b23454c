"""The report as one HTML file that needs nothing else: no network, no other file, no server."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import plotly.graph_objects as go
import plotly.io
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from pairtune.errors import UserError
from pairtune.report.plots import (
    HARDNESS,
    OWN_NEGATIVE,
    SYMBOLS,
    is_graded,
    marked_cells,
    plot_batch,
    plot_dev,
    plot_distribution,
    plot_grades,
    plot_hardness,
    plot_loss,
    plot_precision,
    plot_temperature,
    reach_of,
)
from pairtune.report.scores import score_rows, verdict
from pairtune.report.summary import Shown, describe_runs, name_run, orders_of, read_runs
from pairtune.report.wins import find_doubts, find_examples
from pairtune.runs.evidence import Snapshot
from pairtune.runs.folder import advise, write_whole

TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Plot:
    """A figure with its title and the sentence under it, as the page's script will draw it."""

    figure: go.Figure
    title: str
    says: str

    @property
    def data(self) -> Markup:
        """JSON that may stand inside a script element whatever the texts hold."""
        return Markup(str(plotly.io.to_json(self.figure, validate=False)).replace("<", "\\u003c"))


def write_report(paths: Sequence[Path], out: Path) -> Path:
    """Read the runs in these folders and write their page; with several runs it compares them."""
    if out.suffix.lower() not in (".html", ".htm"):  # it would take the place of a file of pairs, say
        raise UserError(f"{out}: the report is a page; give a name that ends in .html")
    shown = read_runs(paths)
    try:
        page = render(shown)
    except (UserError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError, AssertionError) as problem:
        raise UserError(
            f"{', '.join(map(str, paths))}: record.json and evidence.json do not go together "
            f"({type(problem).__name__}: {problem}): "
            f"if nobody has changed them, please report this (--debug shows where); else train again, with --overwrite"
        ) from problem
    try:
        write_whole(out, page)
    except OSError as problem:
        raise UserError(
            f"the report {out} could not be written ({problem.strerror or problem}): "
            f"{advise(problem) or 'give another --out'}; the run is kept, and `pairtune report` makes the page from it"
        ) from problem
    return out


def write_reports(folder: Path, seeds: Sequence[int]) -> Path:
    """A page in the folder of each seed, and with several seeds one that compares them; the one to look at first."""
    runs = [folder / f"seed-{seed}" for seed in seeds]
    pages = [write_report([run], run / "report.html") for run in runs]
    return write_report(runs, folder / "report.html") if len(runs) > 1 else pages[0]


def render(shown: Sequence[Shown]) -> str:
    """The page as text."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    rows = score_rows(shown)
    names = list(dict.fromkeys(name_run(one.folder) for one in shown))
    negatives = any(seen.negatives for one in shown for _, seen in snapshots(one))
    title = names[0] if len(names) == 1 else f"{len(shown)} runs"
    return environment.get_template("page.html").render(
        title=title,
        shown=shown,
        verdicts=[(row.label, verdict(row)) for row in rows if row.main],
        scores=rows,
        settings=describe_runs(shown),
        notes=list(dict.fromkeys(note for one in shown for note in one.run.notes)),
        sizes=[(one.label, size, size.scores[one.run.metric], best_score(one)) for one in shown for size in one.run.sizes],
        curves=curves(shown),
        separation=[(one.label, separation(one)) for one in shown if one.evidence and one.evidence.test],
        graded=all(is_graded(one.evidence) for one in shown),
        precision=precision(shown),
        hardness=hardness(shown),
        orders={one.label: orders_of(one) for one in shown},
        marks={name: (color, edge) for name, (_, color, edge) in SYMBOLS.items() if name != OWN_NEGATIVE or negatives},
        negatives=negatives,
        batches=[(one.label, batches(one)) for one in shown if snapshots(one)],
        examples=[(one.label, find_examples(one.evidence)) for one in shown],
        doubts=[(one.label, found) for one in shown if (found := find_doubts(one.evidence))],
        style=Markup((TEMPLATES / "page.css").read_text(encoding="utf-8")),
        script=Markup((TEMPLATES / "page.js").read_text(encoding="utf-8")),
        plotly=packed_plotly(),
    )


def best_score(one: Shown) -> float:
    """What the largest of the sizes scores on dev, the first of them."""
    return one.run.sizes[0].scores[one.run.metric]


def curves(shown: Sequence[Shown]) -> list[Plot]:
    """How the training went."""
    temperature = plot_temperature(shown)
    metrics = dict.fromkeys(one.run.metric for one in shown)
    ring = "After each epoch; epoch 0 is the original encoder, the ring is the epoch that was kept."
    plots = [
        Plot(plot_loss(shown), "Training loss", "Mean of the steps since the point before."),
        Plot(plot_dev(shown), f"{' or '.join(metrics)} on dev", ring),
    ]
    return plots if temperature is None else [*plots, Plot(temperature, "Temperature τ", "As it was learned, step by step.")]


def separation(one: Shown) -> list[Plot]:
    """The scores of positives and negatives, or of grades, before and after."""
    evidence = one.evidence
    assert evidence is not None and evidence.test is not None
    sides = {"Before": evidence.test.before, "After": evidence.test.after}
    if is_graded(evidence):
        says = "Each point is a test pair: its label and its cosine. Line: the mean cosine of pairs with about that label."
        return [Plot(plot_grades(evidence, side), f"{when} training", says) for when, side in sides.items()]
    reach = reach_of(evidence)
    thresholds = [side["test"].get("threshold") for side in (one.run.before, one.run.after)]
    outcomes = zip(sides, sides.values(), thresholds, strict=True)
    what = "Share of the test queries" if evidence.kind == "retrieval" else "Share of the test pairs of that kind"
    return [
        Plot(
            plot_distribution(evidence, outcome, threshold, reach),
            f"{when} training",
            f"{what}, by cosine." + (f" Dashed: the threshold chosen on dev, {threshold:.3f}." if threshold is not None else ""),
        )
        for when, outcome, threshold in outcomes
    ]


def precision(shown: Sequence[Shown]) -> list[Plot]:
    """The precision–recall curve, where there are positives; grades have none."""
    figure = plot_precision([one for one in shown if not is_graded(one.evidence)])
    searches = any(one.evidence is not None and one.evidence.kind == "retrieval" for one in shown)
    says = (
        "A query is answered with the first text that it finds, if the cosine lies above a threshold, which falls from left to "
        "right. Precision: the share of answers that are right. Recall: the share of queries that are answered rightly."
        if searches
        else "Pairs above a threshold are called positive; the threshold falls from left to right."
    )
    return [] if figure is None else [Plot(figure, "Precision against recall", says)]


def hardness(shown: Sequence[Shown]) -> list[Plot]:
    """How hard the negatives were, epoch by epoch."""
    words = {
        "hardest": (
            "Cosine of the hardest negative",
            "The right text of another pair in the batch that is most similar. Mean over positive pairs.",
        ),
        "negative": ("Cosine of all negatives", "Left text i against right text j of the same batch, the mean over i ≠ j."),
        "likely_false": (
            "Likely false negatives",
            "The share of negatives that beat the pair's own right text by over 0.05: some may be right answers.",
        ),
    }
    figures = {name: plot_hardness(shown, name) for name in HARDNESS}
    return [Plot(figure, *words[name]) for name, figure in figures.items() if figure is not None]


def snapshots(one: Shown) -> list[tuple[str, Snapshot]]:
    """The batches that were kept of a run, with their stage and epoch in words."""
    stages = one.evidence.stages if one.evidence else []
    named = "stage {stage}, epoch {epoch}" if len(stages) > 1 else "epoch {epoch}"
    return [
        (named.format(stage=number, epoch=epoch), seen)
        for number, stage in enumerate(stages, 1)
        for epoch, seen in sorted(stage.snapshots.items())
    ]


def batches(one: Shown) -> list[Plot]:
    """A batch of the first, the middle and the last epoch."""
    seen = snapshots(one)
    top = max(max(max(row) for row in batch.similarity) for _, batch in seen)
    return [Plot(plot_batch(batch, top), name[0].upper() + name[1:], count_marks(batch)) for name, batch in seen]


def count_marks(seen: Snapshot) -> str:
    """How many cells of each kind a batch has, in words."""
    return ", ".join(
        f"{len(cells)} {name}{'' if len(cells) == 1 else 's'}" for name, cells in marked_cells(seen).items() if cells
    )


@cache
def packed_plotly() -> str:
    """plotly.js, compressed: 4.8 MB of script become 2 MB of text, which every browser since 2023 can unpack."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), 9, mtime=0)).decode()
