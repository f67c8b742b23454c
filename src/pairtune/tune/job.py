"""One training that a queue hands to a worker: its recipe, its seed, its place on disk."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from pairtune.runs.recipe import Recipe

COMPUTED = {"train": {"fast", "report_to", "precision"}, "loss": {"mini_batch_size"}}  # how a run is computed, not what it is


@dataclass(frozen=True)
class Job:
    """A run to make. cost: about how long it takes, in any unit, for the time that is left."""

    recipe: Recipe
    seed: int
    cost: float = 1.0

    @property
    def key(self) -> str:
        """The same for runs of the same settings and seed, whatever their names."""
        return f"{settings_key(self.recipe)}-{self.seed}"

    def folder(self, out: Path) -> Path:
        """Where the run trains: settings that differ never meet in one folder."""
        asked = self.recipe.model_dump(mode="json", exclude={"seeds"}, exclude_defaults=True)
        digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:6]
        return out / encoder_name(self.recipe.encoder) / f"{self.recipe.name.replace('/', '-')}-{digest}" / f"seed-{self.seed}"

    def __str__(self) -> str:
        return f"{self.recipe.name}, seed {self.seed}"

    def __hash__(self) -> int:
        return hash(self.key)  # a recipe has tables in it, which have no hash


def encoder_name(encoder: str) -> str:
    """What the files of an encoder are called.

    >>> encoder_name("models/bert-base-uncased/")
    'bert-base-uncased'
    """
    return encoder.rstrip("/").rpartition("/")[2]


def settings_key(recipe: Recipe) -> str:
    """A short digest of what is trained: task, encoder, selection and stages; not its name, nor how it is computed."""
    computed = {"stages": {"__all__": COMPUTED}}
    what = recipe.model_dump(mode="json", exclude={"name": True, "seeds": True, **computed}, exclude_defaults=True)
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]
