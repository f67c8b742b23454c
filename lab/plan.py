"""Which recipes belong to which table, and the runs that a table asks for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.search import SEARCH, all_candidates
from pairtune.errors import UserError
from pairtune.runs.recipe import Recipe, read_recipe
from pairtune.runs.record import Run

PRESETS = {"paper": "", "released": "released/"}  # the folder that its recipes stand in
TABLES: dict[str, tuple[str, ...]] = {
    "1": ("antique/mse", "antique/bsc", "antique/bsc-positives", "antique/bsc-random", "antique/combo"),
    "2": tuple(
        f"{task}/{row}"
        for task in ("cqa-a", "cqa-b")
        for row in ("mse", "bsc", "bsc-clusters", "bsc-random", "bsc-unshuffled", "combo", "triplet")
    ),
    "3": ("pfcc-s/mse", "pfcc-s/bsc", "pfcc-s/bsc-row-norm", "pfcc-s/bsc-no-norm", "pfcc-s/bsc-random", "pfcc-s/triplet"),
    "4": ("mrpc/mse", "mrpc/bsc", "mrpc/combo", "qqp/mse", "qqp/bsc", "qqp/combo"),
    "5": ("stsb/mse", "stsb/bsc", "stsb/combo", "stsb/mse-then-bsc", "stsb/bsc-then-mse"),
    "6": ("stsb/pearson", "mrpc/pearson-bsc"),  # the paper's section Discussion has these two in its text
}
OPEN: tuple[str, ...] = (  # what the paper leaves open, and what its conclusions need besides its tables
    "stsb/combo-mean",
    "mrpc/combo-mean",
    "cqa-b/bsc-mean",
    "pfcc-s/bsc-minmax",
    "qqp/bsc-minmax",
    "cqa-a/bsc-group-7",
    "cqa-b/bsc-group-4",
    "cqa-b/bsc-learned",
    "pfcc-s/bsc-learned",
    "stsb/bsc-learned",
    "stsb/bsc-low-tau",
    "stsb/bsc-high-tau",
    "pfcc-s/bsc-low-tau",
    "pfcc-s/bsc-high-tau",
    "cqa-a/bsc-positives",
    "cqa-a/bsc-first-original",
    "cqa-b/bsc-first-original",
)
HOW = {"train": {"fast", "report_to", "precision"}, "loss": {"mini_batch_size"}}  # how it is computed, not what


@dataclass(frozen=True)
class Job:
    """One run that a table asks for."""

    recipe: Recipe
    seed: int

    @property
    def key(self) -> str:
        """The same for runs of the same settings and seed, whatever their names."""
        return f"{settings_key(self.recipe)}-{self.seed}"

    @property
    def cost(self) -> float:
        """About how long it takes, for the order of the queue and the time that is left; the unit does not matter."""
        many = {"logarithmic": 7.0, "given": 1.0}  # negatives that are sampled come on top of the pairs
        size = EPOCH_COSTS.get(self.recipe.task, 10.0)
        return sum(
            train.epochs
            * size
            * sum(SPLIT_COSTS.get(name, 1.0) for name in train.splits.split("+"))
            * many[train.negatives]
            * max(1.0, train.candidates / 10)
            for train in (stage.train for stage in self.recipe.stages)
        )

    def folder(self, out: Path) -> Path:
        """Where the run trains: settings that differ never meet in one folder."""
        asked = self.recipe.model_dump(mode="json", exclude={"seeds"}, exclude_defaults=True)
        digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:6]
        return out / file_name(self.recipe.encoder) / f"{self.recipe.name.replace('/', '-')}-{digest}" / f"seed-{self.seed}"

    def __str__(self) -> str:
        return f"{self.recipe.name}, seed {self.seed}"


# seconds of an epoch, MiniLM, one of ten processes on an H200 (docs/experiments.md)
EPOCH_COSTS = {"antique": 11.0, "cqa-a": 71.0, "cqa-b": 11.0, "pfcc-s": 5.0, "mrpc": 17.0, "qqp": 20.0, "stsb": 28.0}
SPLIT_COSTS = {"titles": 10.0, "test2016": 0.3, "train-part2": 0.3}  # of the pairs beside train, in epochs of train; about


def file_name(encoder: str) -> str:
    """What the files of an encoder are called.

    >>> file_name("models/bert-base-uncased/")
    'bert-base-uncased'
    """
    return encoder.rstrip("/").rpartition("/")[2]


def settings_key(recipe: Recipe) -> str:
    """A short digest of what is trained: task, encoder, selection and stages; not its name, nor how it is computed.

    Settings at their defaults do not count, so that a setting that is new tomorrow leaves today's digests as they are.
    """
    how = {"stages": {"__all__": HOW}}
    what = recipe.model_dump(mode="json", exclude={"name": True, "seeds": True, **how}, exclude_defaults=True)
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]


def record_key(run: Run) -> str | None:
    """The key of the job that a record is the result of; None for a recipe that today's settings cannot say."""
    try:
        return f"{settings_key(Recipe.model_validate(run.recipe))}-{run.seed}"
    except ValueError:
        return None


def choose_recipes(what: str, preset: str = "paper", overrides: Sequence[str] = ()) -> list[Recipe]:
    """The recipes of a table (1 to 6), of the open points, of the search for the best, of a task; or one recipe.

    `all`: the tables and the open points.
    """
    if preset not in PRESETS:
        raise UserError(f"unknown preset {preset!r}; known: {', '.join(PRESETS)}")
    rows = [name for names in TABLES.values() for name in names]
    groups: dict[str, Iterable[str]] = {**TABLES, "open": OPEN, "all": [*rows, *OPEN]}
    groups |= {task: [name for name in (*rows, *OPEN) if name.startswith(f"{task}/")] for task in SEARCH}
    if what == "best":
        return [candidate.recipe(overrides) for task in SEARCH for candidate in all_candidates(task)]
    if what.startswith("best:") and what[5:] in SEARCH:
        return [candidate.recipe(overrides) for candidate in all_candidates(what[5:])]
    if what not in groups and what not in (*rows, *OPEN, *(f"{task}/best" for task in SEARCH)):
        raise UserError(
            f"there is no table {what!r}; known: {', '.join((*TABLES, 'open', 'best', 'all', *SEARCH))}, "
            f"best:TASK, or a recipe of theirs"
        )
    names = [name for name in groups.get(what, [what]) if preset == "paper" or name in rows]
    if not names:
        raise UserError(f"{what} has no row in the preset {preset}: the code of the paper has settings for tables 1 to 6")
    return [read_recipe(PRESETS[preset] + name, overrides) for name in names]


def plan_jobs(recipes: Iterable[Recipe], encoder: str, seeds: Sequence[int]) -> list[Job]:
    """A run for every recipe and seed, the longest first so that the end is not spent waiting for one; none twice."""
    jobs = [Job(recipe.model_copy(update={"encoder": encoder}), seed) for recipe in recipes for seed in seeds]
    return sorted({job.key: job for job in reversed(jobs)}.values(), key=lambda job: -job.cost)
