"""The record of a finished run, the files that records are appended to, and choosing between runs on dev."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from pairtune.errors import UserError
from pairtune.progress import say
from pairtune.runs.lock import take_lock

MetricScores = dict[str, float]
Precision = Literal["float32", "int8", "binary"]
DEV = "eval_dev_"
FEW_DEV_PAIRS = 100  # with fewer, which of two models is better on dev is often chance


class Epoch(BaseModel):
    """What one epoch did: its stage and number from 1, the mean training loss, the dev scores, τ if it is learned."""

    model_config = ConfigDict(frozen=True)

    stage: int
    epoch: int
    loss: float | None = None
    dev: MetricScores
    temperature: float | None = None


class Size(BaseModel):
    """What smaller embeddings cost: how many numbers of each are kept, at what precision, and the scores on dev."""

    model_config = ConfigDict(frozen=True)

    dimension: int
    precision: Precision
    bytes: int
    scores: MetricScores


@dataclass(frozen=True)
class Trained:
    """What a stage leaves: its epochs, the number of the one that was kept, the seconds and pairs it took.

    kept: 0 where no epoch beat what the stage began with. rows: how many pairs (or triplets) an epoch has.
    """

    epochs: list[Epoch]
    kept: int
    seconds: float
    pairs: float
    rows: int


def is_unchanged(trained: Sequence[Trained]) -> bool:
    """Whether the model is the original encoder: no epoch of any stage beat it."""
    return not any(stage.kept for stage in trained)


class Run(BaseModel):
    """One finished training: what was asked, what came out, and on what it ran.

    before, after: scores by split, of the original encoder and as it was saved. kept_epochs: one for each stage, 0 if no epoch
    beat what the stage began with. best_epoch: that of the last stage. mean_of: how many trainings the weights are averaged over.
    led_by: what the training of these epochs changes of the recipe, if another recipe or seed was better on dev.
    model: the path of the folder. sizes: the scores on dev of smaller embeddings, if they were trained.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    task: str
    encoder: str
    seed: int
    metric: str
    recipe: dict[str, Any]
    before: dict[str, MetricScores]
    after: dict[str, MetricScores]
    sizes: list[Size] = []
    epochs: list[Epoch]
    best_epoch: int
    kept_epochs: list[int] = []
    mean_of: int = 1
    led_by: str = ""
    pairs: dict[str, int]
    notes: list[str] = []
    seconds: float
    pairs_per_second: float
    device: str
    versions: dict[str, str]
    commit: str | None = None
    finished: str
    model: str

    @property
    def dev_held_out(self) -> bool:
        """Whether the pairs of dev were kept out of the training."""
        return self.recipe.get("dev") != "joined"

    def dev_score(self) -> float:
        """The main metric on dev, by which seeds are chosen."""
        return self.after["dev"][self.metric]

    @property
    def unchanged(self) -> bool:
        """Whether the model is the original encoder, because no epoch beat it on dev."""
        return bool(self.kept_epochs) and not any(self.kept_epochs)

    @property
    def kept_place(self) -> int:
        """The place among all epochs, from 1, of the one whose weights were kept; 0: the original encoder."""
        stages = [epoch.stage for epoch in self.epochs]
        kept = self.kept_epochs or [0] * (len(set(stages)) - 1) + [self.best_epoch]
        places = [stages.index(stage) + epoch for stage, epoch in zip(sorted(set(stages)), kept, strict=True) if epoch]
        return places[-1] if places else 0

    def advise(self) -> str | None:
        """What to say, and to try, where training did not help; None where it did."""
        if not self.unchanged:
            return None
        name = deciding_metric(self.before["dev"], self.metric)
        before = self.before["dev"][name]
        if before >= 1:  # the highest that any metric gives
            return (
                f"the original encoder has a {name} of {before:.3f} on dev, where no epoch can be better: it is kept "
                f"unchanged. Dev is too easy to choose by: give more or harder pairs, or more texts to search in (--corpus)"
            )
        best = max(epoch.dev[name] for epoch in self.epochs)
        few = (
            f"Dev has {self.pairs['dev']} pairs only, which can hardly tell: `pairtune tune` judges by cross-validation. "
            if self.pairs["dev"] < FEW_DEV_PAIRS
            else ""
        )
        return (
            f"no epoch beat the original encoder on dev ({name} {before:.3f} against {best:.3f}): it is kept unchanged. {few}"
            f"Try a lower train.learning_rate, more pairs, another loss.kind, or look at the pairs: are their labels right?"
        )

    def describe_kept(self) -> str:
        """Which weights of the last stage were kept, in words."""
        count = sum(epoch.stage == self.epochs[-1].stage for epoch in self.epochs)
        if self.unchanged:
            return "the original encoder, which no epoch beat on dev"
        if self.best_epoch == 0:
            return "what the stage before left, which no epoch of the last stage beat on dev"
        if self.recipe.get("select") == "average":
            kept = f"the mean of the weights after each of {count} epochs"
        else:
            kept = f"epoch {self.best_epoch} of {count}, the {'last' if self.recipe.get('select') == 'last' else 'best on dev'}"
        kept += f", of the training with {self.led_by}" if self.led_by else ""
        return kept if self.mean_of == 1 else f"the mean of the weights of {self.mean_of} trainings; of the first, {kept}"


def append_record(path: Path, run: Run) -> None:
    """Add one line that survives whatever happens next: locked, whole, and on the disk before we return.

    A record that is there already is not added again: its process died after it had been.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        take_lock(file.fileno(), wait=True)
        line = run.model_dump_json().encode()
        file.seek(0)
        if line in (written.rstrip(b"\n") for written in file):
            return
        start = file.seek(0, os.SEEK_END)
        if start:
            file.seek(start - 1)
            if file.read(1) != b"\n":  # a process died while it was writing: leave its half line, start a new one
                file.write(b"\n")
        file.write(line + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read_records(path: Path) -> list[Run]:
    """All records of a .jsonl file, or of every .jsonl file in a folder; a broken line is named and passed over."""
    if not path.exists():
        raise UserError(f"no results at {path}: train something first, or give the path of a .jsonl file")
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    return [run for file in files for run in _read_file(file)]


def _read_file(path: Path) -> Iterator[Run]:
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            yield Run.model_validate_json(line)
        except ValidationError as problem:
            say(f"{path}, line {number}: not a run record ({problem.error_count()} problems), skipped")


def best_index(dev_scores: Sequence[float]) -> int:
    """The position of the highest dev score; among equals the earliest, which was trained least.

    >>> best_index([0.7, 0.9, 0.9])
    1
    """
    return int(np.argmax(dev_scores))


TIE = 1e-6  # a step of the main metric that no dev set is large enough for


def choice_score(scores: MetricScores, metric: str) -> float:
    """What epochs and seeds are chosen by: the deciding metric and, where that is equal, the mean of the others.

    HP@1 of 18 queries has 19 values: the others still see a difference.

    >>> choice_score({"HP@1": 0.5, "HP@5": 0.7, "MRR": 0.6}, "HP@1")
    0.50000065
    """
    decides = deciding_metric(scores, metric)
    others = [value for name, value in scores.items() if name != decides and not name.endswith("threshold")]
    return scores[decides] + TIE * (sum(others) / len(others) if others else 0.0)


def deciding_metric(scores: MetricScores, metric: str) -> str:
    """The main metric; for F1 the one at the best threshold, which tells trainings apart better than that for other pairs."""
    return "F1@best" if metric == "F1" and "F1@best" in scores else metric


def kept_run(runs: Sequence[Run]) -> int:
    """The position of the seed whose model is kept: the best on dev; where dev was trained on, the first."""
    return best_index([choice_score(run.after["dev"], run.metric) for run in runs]) if runs[0].dev_held_out else 0


def mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """The mean over seeds and the sample standard deviation, 0 for a single seed."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def dotted(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting of a recipe by its dotted name; a single stage is not numbered.

    >>> dict(dotted({"ignore": [], "stages": [{"loss": {"kind": "bsc"}}]}))
    {'ignore': [], 'loss.kind': 'bsc'}
    """
    for key, value in table.items():
        if key == "stages":
            for number, stage in enumerate(value, 1):
                yield from dotted(stage, f"stages.{number}." if len(value) > 1 else "")
        elif isinstance(value, dict):
            yield from dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def dev_scores(entry: dict[str, Any]) -> MetricScores:
    """The scores on dev in an entry of the host's log, which names them so; none where it is about something else.

    >>> dev_scores({"eval_dev_MAP": 0.5, "epoch": 1.0})
    {'MAP': 0.5}
    """
    return {key.removeprefix(DEV): value for key, value in entry.items() if key.startswith(DEV)}


def read_history(log: list[dict[str, Any]], stage: int) -> list[Epoch]:
    """The epochs of a stage from the host's log: mean loss of the steps, dev scores, and τ where it is learned."""
    epochs: list[Epoch] = []
    losses: list[tuple[float, int]] = []  # the mean of so many steps
    temperature: float | None = None
    logged = 0
    for entry in log:
        if "loss" in entry:
            losses.append((entry["loss"], entry["step"] - logged))
            logged = entry["step"]
        temperature = entry.get("temperature", temperature)
        dev = dev_scores(entry)
        if dev:
            loss = sum(mean * steps for mean, steps in losses) / sum(steps for _, steps in losses) if losses else None
            epochs.append(Epoch(stage=stage, epoch=len(epochs) + 1, loss=loss, dev=dev, temperature=temperature))
            losses = []
    return epochs
