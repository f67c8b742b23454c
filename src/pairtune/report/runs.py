"""Several seeds of one recipe: a table for people, an object for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from pairtune.results import Run
from pairtune.select import kept_run, mean_and_spread


def table_of_runs(runs: Sequence[Run]) -> Table:
    """Test scores before and after, and the one on dev that recipes are chosen by; the mean when there are several seeds."""
    first = runs[0]
    best, why = runs[kept_run(runs)], "best on dev" if first.dev_held_out else "kept"
    title = f"{first.name} on {first.task} ({first.encoder}, {first.pairs['train']:,} training pairs)"
    table = Table(
        "metric (test)",
        "seed",
        "before",
        "after",
        "difference",
        "dev, after" if first.dev_held_out else "dev, trained on",
        title=title,
    )
    for name in comparable(first):
        for run in runs:
            before, after = run.before["test"][name], run.after["test"][name]
            seed = f"{run.seed}, {why}" if run is best and len(runs) > 1 else str(run.seed)
            table.add_row(name, seed, f"{before:.4f}", f"{after:.4f}", f"{after - before:+.4f}", f"{run.after['dev'][name]:.4f}")
        if len(runs) > 1:
            both = [mean_and_spread([run.after[split][name] for run in runs]) for split in ("test", "dev")]
            test, dev = (f"{mean:.4f} ± {spread:.4f}" for mean, spread in both)
            table.add_row(name, f"mean of {len(runs)}", "", test, "", dev, end_section=True)
    return table


def comparable(run: Run) -> list[str]:
    """The metrics that stand on both sides; a threshold is a setting, not a score."""
    return [name for name in run.after["test"] if name in run.before["test"] and name != "threshold"]


def summarise(runs: Sequence[Run]) -> dict[str, Any]:
    """The main metric of every seed on test and dev, the mean and spread, and the test score of the seed that is best on dev."""
    metric = runs[0].metric
    after = [run.after["test"][metric] for run in runs]
    mean, spread = mean_and_spread(after)
    dev = [run.dev_score() for run in runs]
    kept, held_out = kept_run(runs), runs[0].dev_held_out
    return {
        "name": runs[0].name,
        "task": runs[0].task,
        "encoder": runs[0].encoder,
        "metric": metric,
        "before": runs[0].before["test"][metric],
        "mean": mean,
        "std": spread,
        "best_on_dev": after[kept] if held_out else None,
        "seeds": [run.seed for run in runs],
        "test": after,
        "dev": dev,
        "dev_mean": mean_and_spread(dev)[0] if held_out else None,
        "model": runs[kept].model,
    }
