"""A batch as a picture: every left text against every right one."""

from __future__ import annotations

import html
import textwrap

import numpy as np
import plotly.graph_objects as go

from pairtune.report.plots import GREY, RED, plain_figure
from pairtune.runs.evidence import Snapshot

SHADES = [[0, "#f7fbff"], [0.35, "#c6dbef"], [0.6, "#6baed6"], [0.8, "#2171b5"], [1, "#08306b"]]
LINE = 56  # characters of a line in a hover label


def plot_batch(seen: Snapshot, top: float) -> go.Figure:
    """The cosines of a batch, left texts down, right texts across; hovering over a cell shows its two texts.

    top: the cosine that is darkest, the same for all batches that are compared; 0 and less is palest.
    """
    count = len(seen.left)
    figure = plain_figure("", height=400)
    figure.add_heatmap(
        z=seen.similarity,
        x=list(range(count)),
        y=list(range(count)),
        zmin=0,
        zmax=top,
        colorscale=SHADES,
        hovertemplate="<b>cosine %{z:.3f}</b><br><i>left</i>  %{y}<br><i>right</i>  %{x}<extra></extra>",
        colorbar={"orientation": "h", "thickness": 8, "y": -0.01, "yanchor": "top", "outlinewidth": 0, "nticks": 6},
        name="",
    )
    for start, end in group_spans(seen.group):
        corner = {"x0": start - 0.5, "y0": start - 0.5, "x1": end + 0.5, "y1": end + 0.5}
        figure.add_shape(type="rect", **corner, line={"color": GREY, "width": 1.5}, fillcolor="rgba(0,0,0,0)")
    for name, cells in marked_cells(seen).items():
        _mark(figure, cells, name, 320 / max(count, 1))
    # the hover label takes an axis value's text from its tick, so each text is on the page once, not once per cell
    ticks = {"tickmode": "array", "tickvals": list(range(count)), "showticklabels": False, "showgrid": False}
    figure.update_xaxes(**ticks, ticktext=[wrap(text) for text in seen.right], constrain="domain")
    figure.update_yaxes(
        **ticks, ticktext=[wrap(text) for text in seen.left], autorange="reversed", scaleanchor="x", constrain="domain"
    )
    return figure.update_layout(showlegend=False, margin={"l": 4, "r": 4, "t": 4, "b": 30})


MARKS = {  # symbol, color and edge of each kind of mark; the page's legend shows the same
    "positive pair": ("circle", "#ffffff", "#20242b"),
    "labelled negative": ("x", "#20242b", "#ffffff"),
    "likely false negative": ("diamond", RED, "#ffffff"),
}


def marked_cells(seen: Snapshot) -> dict[str, list[tuple[int, int]]]:
    """The cells (i, j) of each kind of mark."""
    return {
        "positive pair": [(i, i) for i, positive in enumerate(seen.positive) if positive],
        "labelled negative": [(i, i) for i, positive in enumerate(seen.positive) if not positive],
        "likely false negative": seen.suspects,
    }


def group_spans(group: list[int]) -> list[tuple[int, int]]:
    """The first and the last place of every group of two and more.

    >>> group_spans([4, 4, 5, 6, 6, 6])
    [(0, 1), (3, 5)]
    """
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    ends = np.append(starts[1:], len(group)) - 1
    return [(int(start), int(end)) for start, end in zip(starts, ends, strict=True) if end > start]


def wrap(text: str) -> str:
    """A text in lines for a hover label, where nothing of it is taken for mark-up."""
    return "<br>".join(html.escape(line, quote=False) for line in textwrap.wrap(text, LINE)) or "(empty)"


def _mark(figure: go.Figure, cells: list[tuple[int, int]], name: str, side: float) -> None:
    """Marks in the middle of cells `side` pixels wide; they let the hovering through to the cell beneath."""
    if cells:
        symbol, color, edge = MARKS[name]
        figure.add_scatter(
            x=[j for _, j in cells],
            y=[i for i, _ in cells],
            mode="markers",
            name=name,
            hoverinfo="skip",
            marker={"symbol": symbol, "size": min(max(side * 0.42, 3), 8), "color": color, "line": {"color": edge, "width": 1}},
        )
