"""What was trained, on what, how, and on which machine: one column per run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pairtune.report.summary import Shown
from pairtune.runs.record import Run, dotted

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
    recipes = [{name: show(value) for name, value in dotted(one.run.recipe)} for one in shown]
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
    text = LOSS_NAMES.get(loss["kind"], loss["kind"])
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


def describe_time(seconds: float) -> str:
    """Seconds as a person says them.

    >>> describe_time(75), describe_time(4000)
    ('1 min 15 s', '1 h 6 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def describe_versions(run: Run) -> str:
    """The packages that matter, and the commit where there is one."""
    named = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    return f"{named}, commit {run.commit[:10]}" if run.commit else named


def show(value: Any) -> str:
    """The value of a setting."""
    return "–" if value is None else ", ".join(map(str, value)) if isinstance(value, list) and value else str(value)


def _lines(tables: Sequence[dict[str, str]]) -> list[Fact]:
    names = dict.fromkeys(name for table in tables for name in table)
    return [Fact(name, [table.get(name, "–") for table in tables]) for name in names]
