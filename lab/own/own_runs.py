"""Runs on cases of a user's own data: one line of JSON each, of pairtune or of a stock loss."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

RESULTS = Path(__file__).parents[1] / "results" / "own"


class OwnRun(BaseModel):
    """One training on one case, by its main metric.

    rule: the recipe that the rules choose for the case. name: a variant, or a stock loss. settings: what the variant sets.
    before, after: the metric on dev and test. epochs: the metric on dev after each.
    seconds: of the steps, without evaluation; None where they were not kept.
    Where thirds of train and dev were held out, the seed is the third, and test says nothing.
    plain: the metric of a model that was trained with marked sides when texts are read without marks, as `encode` does.
    """

    model_config = ConfigDict(frozen=True)

    case: str
    dataset: str
    metric: str
    rule: str
    encoder: str
    system: Literal["pairtune", "stock"]
    name: str
    seed: int
    settings: dict[str, str | int | float | None]
    before: dict[str, float]
    after: dict[str, float]
    epochs: tuple[float, ...] = ()
    seconds: float | None
    plain: dict[str, float] = {}

    @property
    def gain(self) -> dict[str, float]:
        """What training was worth, on dev and on test."""
        return {split: self.after[split] - self.before[split] for split in ("dev", "test")}


def read_own_runs(encoder: str, folder: Path = RESULTS) -> list[OwnRun]:
    """All runs of an encoder, none where there is no file."""
    path = folder / f"{encoder}.jsonl"
    return [OwnRun.model_validate_json(line) for line in path.read_text().splitlines()] if path.exists() else []


def add_runs(runs: Iterable[OwnRun], encoder: str, folder: Path = RESULTS) -> None:
    """Append runs to the file of their encoder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{encoder}.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(f"{run.model_dump_json()}\n" for run in runs)


def mean(values: Sequence[float]) -> float:
    """The mean of some figures."""
    return sum(values) / len(values)
