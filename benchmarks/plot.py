"""The scaling plots of docs/performance.md, from the figures in benchmarks/measured. Needs matplotlib."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

MEASURED = Path(__file__).parent / "measured"
IMAGES = Path(__file__).parents[1] / "docs" / "images"


def draw(name: str, xlabel: str, panels: dict[str, dict[str, list[tuple[float, float]]]]) -> None:
    """A file with a panel for each quantity, a line for each way, both axes logarithmic."""
    figure, axes = plt.subplots(1, len(panels), figsize=(4.6 * len(panels), 3.4), squeeze=False)
    for axis, (ylabel, lines) in zip(axes[0], panels.items(), strict=True):
        for label, points in lines.items():
            axis.loglog(*zip(*sorted(points), strict=True), marker="o", markersize=4, label=label)
        axis.set(xlabel=xlabel, ylabel=ylabel)
        axis.grid(which="major", alpha=0.3)
    axes[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(IMAGES / name, metadata={"Date": None})


def read(name: str) -> dict[str, Any]:
    """One file of figures."""
    return json.loads((MEASURED / name).read_text())


def plot_loss() -> None:
    """Time and memory of the loss against the pairs of a batch."""
    rows = read("loss-h200.json")["rows"]
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {"seconds": {}, "GB beyond inputs and gradients": {}}
    for row in rows:
        for quantity, key in zip(panels, ("seconds", "gigabytes"), strict=True):
            panels[quantity].setdefault(row["name"], []).append((row["pairs"], row[key]))
    draw("scaling-loss.svg", "pairs in a batch, width 768, bf16, H200", panels)


def plot_orders() -> None:
    """Time and memory of an order by examples against the pairs."""
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {"seconds": {}, "GB on the GPU": {}}
    for run in read("ordering-h200.json")["runs"]:
        for name, figures in run["figures"].items():
            found = re.match(r"order of ([\d,]+) pairs x 100 neighbors", name)
            if found:
                pairs = int(found[1].replace(",", ""))
                for key, label in (("wall", "whole"), ("search", "exact search"), ("greedy", "greedy pass")):
                    panels["seconds"].setdefault(label, []).append((pairs, figures[key]))
                panels["GB on the GPU"].setdefault("whole", []).append((pairs, figures["peak GB"]))
    draw("scaling-orders.svg", "pairs, width 384, 100 neighbors, H200", panels)


def plot_training() -> None:
    """The time of a training step against the tokens of its batch."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for key, figures in read("training-cpu.json").items():
        if key.startswith("natural_"):
            for name, label in (("host", "sentence-transformers"), ("ours", "pairtune")):
                lines.setdefault(label, []).append((figures["tokens"], figures[name]["ms"] / 1000))
    draw("scaling-training.svg", "tokens in a batch without padding, MiniLM, float32, one core", {"seconds of a step": lines})


if __name__ == "__main__":
    plt.switch_backend("svg")
    plt.rcParams["svg.hashsalt"] = "pairtune"  # the same figures give the same file
    plot_loss()
    plot_orders()
    plot_training()
