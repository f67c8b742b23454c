"""The runs that a report shows, from their folders alone: what was trained, on what, how, and several seeds side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table as TerminalTable

from pairtune.errors import UserError
from pairtune.progress import describe_time
from pairtune.runs.evidence import EVIDENCE, Evidence, Hardness, Step, read_evidence
from pairtune.runs.folder import RunFolder
from pairtune.runs.record import Run, dotted, kept_run, mean_and_spread


@dataclass(frozen=True)
class Shown:
    """One run on the page. label: what it is called there, unlike every other one."""

    label: str
    folder: Path
    run: Run
    evidence: Evidence | None


def read_runs(paths: Sequence[Path]) -> list[Shown]:
    """The finished runs in these folders: of one seed, or of a recipe with its seed-* folders."""
    folders = list(dict.fromkeys(folder for path in paths for folder in find_folders(path)))
    labels = name_runs(folders)
    return [Shown(labels[folder], folder, RunFolder(folder).record(), read_evidence(folder / EVIDENCE)) for folder in folders]


def find_folders(path: Path) -> list[Path]:
    """The folders of single seeds; those that are not finished yet are passed over where others are."""
    if (path / "recipe.json").exists() or (path / "record.json").exists():
        found = [path]
    else:
        found = sorted(path.glob("seed-*"), key=lambda folder: (len(folder.name), folder.name))
    finished = [folder for folder in found if RunFolder(folder).finished]
    if found and not finished:
        raise UserError(f"{path} is not finished: its report can be made when it is (pairtune train … --resume goes on)")
    if not finished:
        raise UserError(f"{path} is not the folder of a run: give one that `pairtune train` made, such as runs/demo")
    return finished


def name_run(folder: Path) -> str:
    """The name of the folder that a run's seeds stand in: of runs/faq/seed-1, faq."""
    whole = folder.resolve()
    return whole.parent.name if whole.name.startswith("seed-") else whole.name


def name_runs(folders: Sequence[Path]) -> dict[Path, str]:
    """Short names that tell the runs apart: of the recipe's folder, with the seed where there are several, else the path."""
    whole = [folder.resolve() for folder in folders]
    names = [name_run(folder) for folder in folders]
    several = Counter(names)
    longer = [
        f"{name}, {path.name.replace('-', ' ')}" if several[name] > 1 else name for name, path in zip(names, whole, strict=True)
    ]
    unique = Counter(longer)
    return {folder: name if unique[name] == 1 else str(folder) for folder, name in zip(folders, longer, strict=True)}


def table_of_runs(runs: Sequence[Run]) -> TerminalTable:
    """Test scores before and after, and the one on dev that recipes are chosen by; the mean when there are several seeds."""
    first = runs[0]
    best, why = runs[kept_run(runs)], "best on dev" if first.dev_held_out else "kept"
    title = f"{first.name} on {first.task} ({first.encoder}, {first.pairs['train']:,} training pairs)"
    table = TerminalTable(
        "metric (test)",
        "seed",
        "before",
        "after",
        "difference",
        "dev, before",
        "dev, after" if first.dev_held_out else "dev, trained on",
        title=title,
    )
    for name in comparable(first):
        for run in runs:
            before, after = run.before["test"][name], run.after["test"][name]
            seed = f"{run.seed}, {why}" if run is best and len(runs) > 1 else str(run.seed)
            dev = [f"{scores['dev'][name]:.4f}" for scores in (run.before, run.after)]
            table.add_row(name, seed, f"{before:.4f}", f"{after:.4f}", f"{after - before:+.4f}", *dev)
        if len(runs) > 1:
            both = [mean_and_spread([run.after[split][name] for run in runs]) for split in ("test", "dev")]
            on_test, on_dev = (f"{mean:.4f} ± {spread:.4f}" for mean, spread in both)
            table.add_row(name, f"mean of {len(runs)}", "", on_test, "", "", on_dev, end_section=True)
    return table


def comparable(run: Run) -> list[str]:
    """The metrics that stand on both sides; a threshold, also that of a source, is a setting and not a score."""
    shared = (name for name in run.after["test"] if name in run.before["test"])
    return [name for name in shared if name.split(" ")[-1] != "threshold"]


def summarize(runs: Sequence[Run]) -> dict[str, Any]:
    """The main metric of every seed on test and dev, mean and spread, the test score of the seed that is kept, and all scores.

    test_of_kept: of the seed that is best on dev; None where dev was trained on and no seed could be chosen by it.
    """
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
        "test_of_kept": after[kept] if held_out else None,
        "seeds": [run.seed for run in runs],
        "test": after,
        "dev": dev,
        "dev_before": runs[0].before["dev"][metric],
        "dev_mean": mean_and_spread(dev)[0] if held_out else None,
        "kept": runs[kept].describe_kept(),
        "model": runs[kept].model,
        "scores": {str(run.seed): {"before": run.before, "after": run.after} for run in runs},
    }


LOSS_NAMES = {
    "bsc": "batch softmax",
    "combo": "batch softmax",
    "mse": "mean squared error",
    "pearson": "Pearson correlation",
    "cosent": "CoSENT",
}
OWN = ("command", "training time", "finished", "model")  # every run has its own


@dataclass(frozen=True)
class Fact:
    """One line of the table; values: one per run."""

    name: str
    values: list[str]

    @property
    def differs(self) -> bool:
        """Whether the runs are not alike in this, where they might have been."""
        return len(set(self.values)) > 1 and self.name not in OWN


@dataclass(frozen=True)
class RunFacts:
    """facts: what a reader wants to know first. recipe: every setting."""

    facts: list[Fact]
    recipe: list[Fact]


def describe_runs(shown: Sequence[Shown]) -> RunFacts:
    """The facts and the whole recipes of the runs, side by side."""
    facts = [dict(list_facts(one)) for one in shown]
    recipes = [{name: write_value(value) for name, value in dotted(one.run.recipe)} for one in shown]
    return RunFacts(_lines(facts), _lines(recipes))


def list_facts(one: Shown) -> Iterator[tuple[str, str]]:
    """Name and value of what a reader wants to know first."""
    run = one.run
    yield "command", one.evidence.command if one.evidence else "not recorded"
    yield "recipe", f"{run.name}, seed {run.seed}"
    yield "task", run.task
    yield "pairs", ", ".join(f"{count:,} {split}" for split, count in run.pairs.items())
    yield "encoder", run.encoder
    yield "loss", "; then ".join(describe_loss(stage["loss"]) for stage in run.recipe["stages"])
    yield "order of batches", "; then ".join(describe_order(stage["order"]) for stage in run.recipe["stages"])
    yield "schedule", "; then ".join(describe_schedule(stage["train"]) for stage in run.recipe["stages"])
    yield "kept", run.describe_kept()
    yield "training time", f"{describe_time(run.seconds)}, {run.pairs_per_second:,.0f} pairs/s on {run.device}"
    yield "finished", run.finished.replace("T", " ").replace("+00:00", " UTC")
    yield "versions", describe_versions(run)
    yield "model", run.model


def describe_loss(loss: dict[str, Any]) -> str:
    """The loss in words."""
    text = loss["host"] if loss["kind"] == "host" else LOSS_NAMES.get(loss["kind"], loss["kind"])
    if loss["kind"] in ("bsc", "combo"):
        learned = " at first, learned" if loss["learn_temperature"] else ""
        text += f", τ {loss['temperature']:g}{learned}, {loss['normalize']} normalization"
    if loss["kind"] == "combo":
        text += f", with {loss['pointwise']} (μ {loss['mix']:g})"
    return text + (f", margin {loss['margin']:g}" if loss["kind"] == "triplet" else "")


def describe_order(order: dict[str, Any]) -> str:
    """The order in words."""
    if order["by"] in ("original", "uniform"):
        return str(order["by"])
    return f"{order['by']}, by {order['side']} texts, groups of {order['group']}"


def describe_schedule(train: dict[str, Any]) -> str:
    """Epochs, batch and rate in words."""
    limit = f", at most {train['pairs']:,} pairs" if train["pairs"] else ""
    return f"{train['epochs']} epochs, batches of {train['batch_size']}, learning rate {train['learning_rate']:g}{limit}"


def describe_versions(run: Run) -> str:
    """The packages that matter, and the commit where there is one."""
    named = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    return f"{named}, commit {run.commit[:10]}" if run.commit else named


def write_value(value: Any) -> str:
    """The value of a setting."""
    return "–" if value is None else ", ".join(map(str, value)) if isinstance(value, list) and value else str(value)


def _lines(tables: Sequence[dict[str, str]]) -> list[Fact]:
    names = dict.fromkeys(name for table in tables for name in table)
    return [Fact(name, [table.get(name, "–") for table in tables]) for name in names]


def orders_of(one: Shown) -> str:
    """The orders of the stages that were watched, each once."""
    return ", ".join(dict.fromkeys(stage.order for stage in (one.evidence.stages if one.evidence else ()) if stage.order))


def steps_of(one: Shown, value: Callable[[Step], float | None]) -> Iterator[tuple[float, float]]:
    """(epoch, value) of the logged steps; the epochs of the stages are counted through."""
    done = 0
    for number, stage in enumerate(one.evidence.stages if one.evidence else (), 1):
        for step in stage.steps:
            found = value(step)
            if found is not None:
                yield done + step.epoch, found
        done += sum(epoch.stage == number for epoch in one.run.epochs)


def hardness_of(one: Shown) -> Iterator[tuple[int, Hardness]]:
    """(epoch, how hard its negatives were); the epochs of the stages are counted through."""
    done = 0
    for number, stage in enumerate(one.evidence.stages if one.evidence else (), 1):
        for epoch, found in sorted(stage.hardness.items()):
            yield done + epoch, found
        done += sum(one_epoch.stage == number for one_epoch in one.run.epochs)
