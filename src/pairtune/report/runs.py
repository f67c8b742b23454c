"""Several seeds of one recipe: a table for people, an object for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from pairtune.results import Run
from pairtune.select import best_index, mean_and_spread


def table_of_runs(runs: Sequence[Run]) -> Table:
    """Test scores before and after, a row for each metric and seed; the mean when there are several."""
    first = runs[0]
    best = runs[best_index([run.dev_score() for run in runs])]
    title = f"{first.name} on {first.task} ({first.encoder}, {first.pairs['train']:,} training pairs)"
    table = Table("metric (test)", "seed", "before", "after", "difference", title=title)
    for name in comparable(first):
        for run in runs:
            before, after = run.before["test"][name], run.after["test"][name]
            seed = f"{run.seed}, best on dev" if run is best and len(runs) > 1 else str(run.seed)
            table.add_row(name, seed, f"{before:.4f}", f"{after:.4f}", f"{after - before:+.4f}")
        if len(runs) > 1:
            mean, spread = mean_and_spread([run.after["test"][name] for run in runs])
            table.add_row(name, f"mean of {len(runs)}", "", f"{mean:.4f} ± {spread:.4f}", "", end_section=True)
    return table


def comparable(run: Run) -> list[str]:
    """The metrics that stand on both sides; a threshold is a setting, not a score."""
    return [name for name in run.after["test"] if name in run.before["test"] and name != "threshold"]


def summarise(runs: Sequence[Run]) -> dict[str, Any]:
    """One flat object: the main metric of every seed, their mean and spread, and the seed that is best on dev."""
    metric = runs[0].metric
    after = [run.after["test"][metric] for run in runs]
    mean, spread = mean_and_spread(after)
    best = best_index([run.dev_score() for run in runs])
    return {
        "name": runs[0].name,
        "task": runs[0].task,
        "encoder": runs[0].encoder,
        "metric": metric,
        "before": runs[0].before["test"][metric],
        "mean": mean,
        "std": spread,
        "best_on_dev": after[best],
        "seeds": [run.seed for run in runs],
        "test": after,
        "model": runs[best].model,
    }
