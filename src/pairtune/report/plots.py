"""The plots of a report, as plotly figures. Colors are those of Okabe and Ito, which color-blind readers can tell apart."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Callable, Sequence

import numpy as np
import plotly.graph_objects as go

from pairtune.report.summary import Shown, hardness_of, orders_of, steps_of
from pairtune.runs.evidence import Evidence, Hardness, Outcome, Snapshot

BLUE, ORANGE, GREEN, PINK, SKY, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8A8F98"
SERIES = (BLUE, RED, GREEN, PINK, ORANGE, SKY)
DASHES = ("solid", "dot", "dash", "dashdot")  # after six runs the colors come again, with another dash
MOST_POINTS = 300
MOST_DOTS = 1000  # points of a plot
MOST_MEANS = 11  # different labels that each have a mean of their own: a scale from 0 to 10
BINS = 40


def line_style(place: int) -> dict[str, object]:
    """The color and dash of the run at this place."""
    return {"color": SERIES[place % len(SERIES)], "dash": DASHES[place // len(SERIES) % len(DASHES)], "width": 2}


def plain_figure(x: str, height: int = 270) -> go.Figure:
    """An empty figure in our dress; the page's style sheet colors text and lines, for light, dark and print."""
    axis = {"showline": False, "zeroline": False, "automargin": True, "gridcolor": "#d8dbe0", "ticks": ""}
    figure = go.Figure()
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 44, "r": 10, "t": 8, "b": 40},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 13},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        hoverlabel={"bgcolor": "#20242b", "bordercolor": "#20242b", "font": {"color": "#ffffff", "size": 13}, "align": "left"},
        xaxis={**axis, "title": {"text": x, "standoff": 6, "font": {"size": 13}}},
        yaxis=axis,
        dragmode=False,
    )
    return figure


def epoch_axis(figure: go.Figure, last: int) -> go.Figure:
    """Whole epochs on the x axis."""
    return figure.update_xaxes(range=[-0.1, last + 0.1], dtick=max(1, last // 8))


def count_epochs(shown: Sequence[Shown]) -> int:
    """The epochs of the longest run, all stages together."""
    return max(len(one.run.epochs) for one in shown)


def plot_loss(shown: Sequence[Shown]) -> go.Figure:
    """Training loss as it was logged; the mean of each epoch for a run that left no more."""
    figure = plain_figure("epoch")
    for place, one in enumerate(shown):
        steps = list(steps_of(one, lambda step: step.loss))
        if not steps:
            steps = [(float(at), epoch.loss) for at, epoch in enumerate(one.run.epochs, 1) if epoch.loss is not None]
        _add_line(figure, steps, one.label, place)
    return epoch_axis(figure, count_epochs(shown)).update_layout(showlegend=len(shown) > 1)


def plot_dev(shown: Sequence[Shown]) -> go.Figure:
    """The main metric on dev after each epoch, from the original encoder; a ring marks the epoch that was kept."""
    figure = plain_figure("epoch")
    for place, one in enumerate(shown):
        run = one.run
        start = run.before["dev"].get(run.metric)
        points = [(0.0, start)] if start is not None else []
        points += [(float(at), epoch.dev[run.metric]) for at, epoch in enumerate(run.epochs, 1)]
        _add_line(figure, points, one.label, place, mode="lines+markers")
        if run.recipe.get("select") == "average":
            continue  # no epoch has the weights that were kept
        kept = run.kept_place
        ring = {"size": 15, "symbol": "circle-open", "color": line_style(place)["color"], "line": {"width": 2.5}}
        figure.add_scatter(
            x=[kept],
            y=[run.epochs[kept - 1].dev[run.metric] if kept else start],
            mode="markers",
            marker=ring,
            name="kept",
            showlegend=False,
            hoverinfo="skip",
            cliponaxis=False,
        )
    return epoch_axis(figure, count_epochs(shown)).update_layout(showlegend=len(shown) > 1)


def plot_temperature(shown: Sequence[Shown]) -> go.Figure | None:
    """The path of τ in the runs that learn it; None where none does."""
    figure = plain_figure("epoch")
    for place, one in enumerate(shown):
        path = list(steps_of(one, lambda step: step.temperature))
        if not path:
            path = [(float(at), epoch.temperature) for at, epoch in enumerate(one.run.epochs, 1) if epoch.temperature is not None]
        if path:
            _add_line(figure, path, one.label, place)
    return epoch_axis(figure, count_epochs(shown)).update_layout(showlegend=len(shown) > 1) if figure.data else None


HARDNESS: dict[str, Callable[[Hardness], float]] = {
    "hardest": lambda found: found.hardest,
    "negative": lambda found: found.negative,
    "likely_false": lambda found: found.likely_false,
}


def plot_hardness(shown: Sequence[Shown], name: str) -> go.Figure | None:
    """One figure of the negatives, epoch by epoch, for each run; None where no run has it."""
    value = HARDNESS[name]
    figure = plain_figure("epoch")
    for place, one in enumerate(shown):
        points = [(float(at), value(found)) for at, found in hardness_of(one)]
        if points:
            _add_line(figure, points, f"{one.label} ({orders_of(one)})", place, mode="lines+markers")
    figure.update_layout(showlegend=len(shown) > 1)
    if name == "likely_false":
        figure.update_yaxes(tickformat=".1%", rangemode="tozero")
    return epoch_axis(figure, count_epochs(shown)).update_xaxes(range=[0.9, count_epochs(shown) + 0.1]) if figure.data else None


def plot_distribution(evidence: Evidence, outcome: Outcome, threshold: float | None, reach: tuple[float, float]) -> go.Figure:
    """How the scores of positives and negatives are spread; the threshold, where one was chosen on dev, as a line."""
    figure = plain_figure("cosine", height=250)
    names = ("right answer", "best wrong answer") if outcome.rank is not None else ("positive", "negative")
    edges = np.linspace(*reach, BINS + 1)
    for values, name, color in zip(split_scores(evidence, outcome), names, (BLUE, ORANGE), strict=True):
        shares = np.histogram(values, edges)[0] / max(len(values), 1)
        figure.add_scatter(
            x=np.round(np.repeat(edges, 2), 4),
            y=np.round(np.concatenate([[0], np.repeat(shares, 2), [0]]), 5),
            name=f"{name} ({len(values):,})",
            mode="lines",
            line={"color": color, "width": 1.8, "dash": "solid" if color == BLUE else "dot"},
            fill="tozeroy",
            fillcolor=f"rgba{(*bytes.fromhex(color[1:]), 0.22)}",
            hovertemplate="cosine %{x:.2f}: %{y:.1%}",
        )
    if threshold is not None:
        figure.add_vline(x=threshold, line={"color": GREY, "width": 2, "dash": "dash"})
        label = {"text": f" {threshold:.2f}", "showarrow": False, "xanchor": "left", "yanchor": "top"}
        figure.add_annotation(x=threshold, y=1, yref="paper", **label)
    return figure.update_yaxes(tickformat=".0%", rangemode="tozero").update_xaxes(range=reach)


def is_graded(evidence: Evidence | None) -> bool:
    """Whether the test pairs have grades, which are no matter of positive and negative."""
    return (
        evidence is not None and evidence.test is not None and evidence.kind == "regression" and len({*evidence.test.label}) > 2
    )


def plot_grades(evidence: Evidence, outcome: Outcome) -> go.Figure:
    """The label of each test pair against its cosine, thinned where there are many; and the mean cosine along the labels."""
    assert evidence.test is not None
    grade, scores = np.array(evidence.test.grade), np.array(outcome.score)
    figure = plain_figure("label", height=250).update_yaxes(title={"text": "cosine", "standoff": 6, "font": {"size": 13}})
    some = slice(None, None, -(-len(grade) // MOST_DOTS))
    points = {"x": np.round(grade[some], 4), "y": np.round(scores[some], 4)}
    hover = "label %{x}: cosine %{y:.2f}"
    figure.add_scatter(
        **points, name="pair", mode="markers", marker={"color": BLUE, "size": 5, "opacity": 0.35}, hovertemplate=hover
    )
    step = np.ptp(grade) / (MOST_MEANS - 1)
    near = grade if len({*grade}) <= MOST_MEANS else grade.min() + np.round((grade - grade.min()) / step) * step
    means = [(at, scores[near == at].mean()) for at in np.unique(near)]
    x, y = np.round(np.transpose(means), 4)
    line = {"color": ORANGE, "width": 2.2}
    return figure.add_scatter(x=x, y=y, name="mean", mode="lines+markers", line=line, hovertemplate=hover)


def reach_of(evidence: Evidence) -> tuple[float, float]:
    """The lowest and the highest score of either model: the two histograms share their axis."""
    assert evidence.test is not None
    sides = [values for outcome in (evidence.test.before, evidence.test.after) for values in split_scores(evidence, outcome)]
    values = np.concatenate(sides)
    return float(np.floor(values.min() * 20) / 20), float(np.ceil(values.max() * 20) / 20)


def split_scores(evidence: Evidence, outcome: Outcome) -> tuple[np.ndarray, np.ndarray]:
    """The scores of positives and of negatives; in a search, of each query's best right and best wrong text."""
    assert evidence.test is not None
    scores = np.array(outcome.score)
    if outcome.rank is not None:
        found = np.array(outcome.rank) > 0
        return scores[found], np.array(outcome.rival_score)[[bool(text) for text in outcome.rival or ()]]
    positive = np.array(evidence.test.label) > evidence.positive_above
    return scores[positive], scores[~positive]


def plot_precision(shown: Sequence[Shown]) -> go.Figure | None:
    """Precision against recall as the threshold falls, before (dotted) and after."""
    figure = plain_figure("recall", height=250 if len(shown) == 1 else 340)
    for place, one in enumerate(shown):
        if one.evidence is None or one.evidence.test is None:
            continue
        for outcome, when in ((one.evidence.test.before, "before"), (one.evidence.test.after, "after")):
            points = precision_curve(one.evidence, outcome)
            name = when if len(shown) == 1 else f"{one.label}, {when}"
            style = line_style(place)
            if when == "before":
                style |= {"dash": "dot", "width": 1.8} | ({"color": GREY} if len(shown) == 1 else {})
            if points:
                _add_line(figure, points, name, place, line=style)
    return figure.update_xaxes(range=[0, 1.01]).update_yaxes(range=[0, 1.03]) if figure.data else None


def precision_curve(evidence: Evidence, outcome: Outcome) -> list[tuple[float, float]]:
    """(recall, precision) at every threshold, thinned; in a search, of answering with the first text only above the threshold."""
    assert evidence.test is not None
    if outcome.rank is not None and outcome.rival_score is not None:
        scores = np.maximum(outcome.score, outcome.rival_score)
        right, wanted = np.array(outcome.rank) == 1, len(outcome.rank)
    else:
        scores, right = np.array(outcome.score), np.array(evidence.test.label) > evidence.positive_above
        wanted = int(right.sum())
    if not right.any():
        return []
    falling = np.argsort(-scores, kind="stable")
    last_of_equals = np.append(np.diff(scores[falling]) != 0, True)  # no threshold lies between two equal scores
    found = np.cumsum(right[falling])
    points = np.column_stack([found / wanted, found / np.arange(1, len(found) + 1)])[last_of_equals]
    thinned = points[:: -(-len(points) // MOST_POINTS)]
    return [(float(recall), float(precision)) for recall, precision in np.round([*thinned, points[-1]], 4)]


def _add_line(
    figure: go.Figure,
    points: Sequence[tuple[float, float]],
    name: str,
    place: int,
    mode: str = "lines",
    line: dict[str, object] | None = None,
) -> None:
    x, y = zip(*points, strict=True) if points else ((), ())
    figure.add_scatter(
        x=list(x),
        y=list(y),
        name=name,
        mode=mode if len(points) > 1 else "markers",
        line=line or line_style(place),
        marker={"size": 6},
        hovertemplate="%{x:.3~g}: %{y:.4~g}",
    )


SHADES = [[0, "#f7fbff"], [0.35, "#c6dbef"], [0.6, "#6baed6"], [0.8, "#2171b5"], [1, "#08306b"]]
LINE = 56  # characters of a line in a hover label


def plot_batch(seen: Snapshot, top: float) -> go.Figure:
    """The cosines of a batch, left texts down, right texts and then negatives across; hovering over a cell shows its two texts.

    top: the cosine that is darkest, the same for all batches that are compared; 0 and less is palest.
    """
    count, across = len(seen.left), len(seen.right) + len(seen.negatives)
    figure = plain_figure("", height=400 if across == count else 260)
    figure.add_heatmap(
        z=seen.similarity,
        x=list(range(across)),
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
    if seen.negatives:
        edge = {"x0": count - 0.5, "x1": count - 0.5, "y0": -0.5, "y1": count - 0.5}
        figure.add_shape(type="line", **edge, line={"color": ORANGE, "width": 2})
    for name, cells in marked_cells(seen).items():
        _mark(figure, cells, name, 320 / max(across, 1))
    # the hover label takes an axis value's text from its tick, so each text is on the page once, not once per cell
    ticks = {"tickmode": "array", "tickvals": list(range(across)), "showticklabels": False, "showgrid": False}
    figure.update_xaxes(**ticks, ticktext=[wrap(text) for text in (*seen.right, *seen.negatives)], constrain="domain")
    figure.update_yaxes(
        **ticks, ticktext=[wrap(text) for text in seen.left], autorange="reversed", scaleanchor="x", constrain="domain"
    )
    return figure.update_layout(showlegend=False, margin={"l": 4, "r": 4, "t": 4, "b": 30})


OWN_NEGATIVE = "own negative"  # one that the data, or mining, gave to this pair
SYMBOLS = {  # symbol, color and edge of each kind of mark; the page's legend shows the same
    "positive pair": ("circle", "#ffffff", "#20242b"),
    "labelled negative": ("x", "#20242b", "#ffffff"),
    "likely false negative": ("diamond", RED, "#ffffff"),
    OWN_NEGATIVE: ("square", ORANGE, "#ffffff"),
}


def marked_cells(seen: Snapshot) -> dict[str, list[tuple[int, int]]]:
    """The cells (i, j) of each kind of mark."""
    return {
        "positive pair": [(i, i) for i, positive in enumerate(seen.positive) if positive],
        "labelled negative": [(i, i) for i, positive in enumerate(seen.positive) if not positive],
        "likely false negative": seen.suspects,
        OWN_NEGATIVE: [(place % len(seen.left), len(seen.right) + place) for place in range(len(seen.negatives))],
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
        symbol, color, edge = SYMBOLS[name]
        figure.add_scatter(
            x=[j for _, j in cells],
            y=[i for i, _ in cells],
            mode="markers",
            name=name,
            hoverinfo="skip",
            marker={"symbol": symbol, "size": min(max(side * 0.42, 3), 8), "color": color, "line": {"color": edge, "width": 1}},
        )
