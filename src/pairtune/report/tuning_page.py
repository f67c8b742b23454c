"""The page about a search: what was tried, what mattered, what more time might be worth. Reads its record only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pairtune import __version__
from pairtune.progress import describe_count, describe_time
from pairtune.report.page import TEMPLATES, Plot, packed_plotly
from pairtune.report.plots import BLUE, ORANGE, plain_figure
from pairtune.runs.folder import write_whole
from pairtune.tune.space import describe_changes
from pairtune.tune.tried import Tried, Tuning, compare, read_tuning

PAGE = "tuning.html"
ENDS = {"dropped": "not better", "better": "clearly better", "tie": "no clear difference"}


@dataclass(frozen=True)
class Effect:
    """What a level adds to the score of the starting recipe, on average over those that have it. error: standard error."""

    axis: str
    level: str
    gain: float
    error: float | None
    variants: int


def write_tuning_page(folder: Path) -> Path:
    """The page of the search in this folder."""
    tuning = read_tuning(folder)
    recipe = folder / "recipe.toml"
    write_whole(folder / PAGE, render_tuning(tuning, recipe.read_text(encoding="utf-8") if recipe.exists() else ""))
    return folder / PAGE


def render_tuning(tuning: Tuning, recipe: str) -> str:
    """The page as text."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("tuning.html").render(
        tuning=tuning,
        choice=describe_choice(tuning),
        worth=describe_worth(tuning),
        describe=describe_changes,
        gain=format_gain,
        time=describe_time,
        mean=mean_score,
        ends=ENDS,
        effects=find_effects(tuning),
        plot=Plot(plot_gains(tuning), f"{tuning.metric}: gain over the starting recipe", "Each with its standard error."),
        recipe=recipe,
        version=__version__,
        style=Markup((TEMPLATES / "page.css").read_text(encoding="utf-8")),
        script=Markup((TEMPLATES / "page.js").read_text(encoding="utf-8")),
        plotly=packed_plotly(),
    )


def describe_choice(tuning: Tuning) -> str:
    """What was chosen and how sure that is, in two sentences."""
    winner = tuning.winner
    variants, trainings = describe_count(len(tuning.tried), "variant"), describe_count(tuning.trainings, "training")
    done = f"{variants} in {trainings}, {describe_time(tuning.seconds)}."
    if len(tuning.tried) == 1:
        return f"{done} Chosen: the starting recipe; there was no time to try another."
    if not winner.changes:
        return f"{done} Chosen: the starting recipe; no other variant was clearly better."
    gain = f"{tuning.metric} {format_gain(winner)} over the starting recipe on {winner.folds} held-out parts"
    return f"{done} Chosen: {describe_changes(winner.changes)}; {gain}."


def describe_worth(tuning: Tuning) -> list[str]:
    """What more time might be worth, as far as the search can tell."""
    challengers = tuning.tried[1:]
    lines = []
    better = [place for place, one in enumerate(challengers, 1) if one.ended == "better"]
    if challengers:
        since = len(challengers) - (better[-1] if better else 0)
        lines.append(
            f"{len(better)} of {len(challengers)} challengers were clearly better than the best before them; "
            f"the last {since} were not."
        )
    if tuning.noise:
        folds = max(one.folds for one in tuning.tried)
        lines.append(
            f"A difference on {folds} held-out parts has a standard error of about {tuning.noise / sqrt(folds):.4f}: gains below "
            f"that cannot be seen."
        )
    if (close := _closest_rival(tuning)) is not None:
        ahead = compare(close.scores, tuning.winner.scores, tuning.noise)
        lines.append(
            f"Variant {close.number} ({describe_changes(close.changes)}) was ahead of the choice by {ahead}, which is not "
            f"sure: more time could decide, and the gain would be about that size."
        )
    untried = f"{tuning.untried} of the choice's nearest neighbors were not tried"
    lines.append(f"{untried}: more time would begin there." if tuning.untried else f"{untried}: what is left is further away.")
    return lines


def _closest_rival(tuning: Tuning) -> Tried | None:
    """The variant that is furthest ahead of the choice on the same parts, if there is one."""
    leads = {place: compare(one.scores, tuning.winner.scores).gain for place, one in enumerate(tuning.tried)}
    place = max(leads, key=lambda place: leads[place])
    return tuning.tried[place] if leads[place] > 0 else None


def find_effects(tuning: Tuning) -> list[Effect]:
    """The mean effect of each level that was tried, all of them at once by least squares, weighted by folds; largest first.

    Where a level was tried only together with another, they share their effect.
    """
    tried = [one for one in tuning.tried[1:] if one.folds]
    names = list(dict.fromkeys(change for one in tried for change in one.changes.items()))
    if not names:
        return []
    has = np.array([[name in one.changes.items() for name in names] for one in tried], float)  # (variants, levels)
    weight = np.sqrt([one.folds for one in tried])[:, None]
    found, *_ = np.linalg.lstsq(has * weight, np.array([one.gain for one in tried]) * weight[:, 0], rcond=None)
    spread = np.sqrt(np.diag(np.linalg.pinv((has * weight).T @ (has * weight))))
    return sorted(
        (
            Effect(*name, float(gain), None if tuning.noise is None else float(error * tuning.noise), int(count))
            for name, gain, error, count in zip(names, found, spread, has.sum(axis=0), strict=True)
        ),
        key=lambda effect: -effect.gain,
    )


def plot_gains(tuning: Tuning) -> go.Figure:
    """The gain of each variant in the order they were tried; the chosen one in another color."""
    figure = plain_figure("variant").update_xaxes(dtick=max(1, len(tuning.tried) // 10))
    shown = [one for one in tuning.tried if one.folds]
    figure.add_scatter(
        x=[one.number for one in shown],
        y=[one.gain for one in shown],
        error_y={"array": [one.error or 0.0 for one in shown], "thickness": 1.2, "width": 3},
        mode="markers",
        marker={"color": [ORANGE if one.number == tuning.winner.number else BLUE for one in shown], "size": 8},
        text=[describe_changes(one.changes) for one in shown],
        hovertemplate="%{text}<br>%{y:+.4f}<extra></extra>",
        showlegend=False,
    )
    return figure


def format_gain(one: Tried | Effect) -> str:
    """A gain with its standard error."""
    return f"{one.gain:+.4f}" + ("" if one.error is None else f" ± {one.error:.4f}")


def mean_score(scores: Mapping[int, float]) -> float | None:
    """The mean over folds; None where there are none."""
    return sum(scores.values()) / len(scores) if scores else None
