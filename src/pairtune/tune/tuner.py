"""Choose a recipe for one's data: race variants on held-out parts of train and dev, then train the winner.

Test is looked at once, when the winner has been trained.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from pairtune.data.pairs import Task
from pairtune.data.sources import without_test
from pairtune.errors import UserError
from pairtune.progress import describe_count, say
from pairtune.runs.folder import refuse_encoder_folder, write_whole
from pairtune.runs.lock import hold_folder
from pairtune.runs.recipe import Recipe
from pairtune.runs.record import Run
from pairtune.runs.toml import make_recipe, write_toml
from pairtune.tune.ledger import Ledger, list_searches
from pairtune.tune.plan import Budget
from pairtune.tune.race import race
from pairtune.tune.rules import choose
from pairtune.tune.space import describe_changes
from pairtune.tune.tried import TUNING, Tuning, read_tuning
from pairtune.tune.worker import encoder_name

JOURNAL = "tune.log"  # the storage, unless another is given
RECIPE = "recipe.toml"


@dataclass(frozen=True)
class Tuned:
    """What a search leaves: its record, and that of the winner's training. folder: `model/`, `recipe.toml` and both records."""

    folder: Path
    tuning: Tuning
    run: Run


def tune(
    task: Task,
    *,
    out: Path | str,
    start: Recipe | None = None,
    reasons: Sequence[str] = (),
    encoder: str | None = None,
    minutes: float | None = 30.0,
    most_trainings: int | None = None,
    jobs: int = 1,
    storage: str | Path | None = None,
    resume: bool = False,
    join: bool = False,
) -> Tuned | None:
    """Choose a recipe by cross-validation over train and dev, train the winner into `out`, then score it on test.

    start: the variant that all others have to beat; the rules' choice unless given.
    reasons: for it, to be shown. minutes: for everything; None: no limit.
    most_trainings: of folds, in all. storage: a file or a database URL that several processes share. join: only help with the
    race that another process leads; None is returned. resume: go on with a search that was stopped.
    """
    folder, begun = Path(out), time.monotonic()
    check_limits(minutes, most_trainings, jobs)
    refuse_encoder_folder(folder)
    with nullcontext() if join else hold_folder(folder):
        base, why = choose_start(task, start, reasons, encoder)
        name = name_search(task, base)
        if not join and (folder / TUNING).exists():
            return finish(task, folder, read_finished(folder, name, resume))
        if not join and (others := list_searches(folder / JOURNAL)):
            check_same_search(folder, others[0], name)
            if not resume:
                raise UserError(f"{folder} holds an unfinished search: --resume goes on with it, or give another --out")
        ledger = Ledger.open(storage or folder / JOURNAL, name)
        budget = Budget(None if minutes is None else minutes * 60, most_trainings, jobs, begun=begun)
        tuning = race(task, base, why, ledger, budget, folder, leads=not join)
        if join:
            return None
        write_whole(folder / TUNING, tuning.model_dump_json(indent=1))
        return finish(task, folder, tuning)


def check_limits(minutes: float | None, most_trainings: int | None, jobs: int) -> None:
    """Refuse what would never end or never begin."""
    if minutes is None and most_trainings is None:
        raise UserError("a search without a limit would not end: give minutes, or a number of trainings")
    for what, given in {"minutes": minutes, "trainings": most_trainings, "jobs": jobs}.items():
        if given is not None and not 0 < given < math.inf:  # nan is neither
            raise UserError(f"{what} is {given:g}: give a number above 0")


def choose_start(task: Task, start: Recipe | None, reasons: Sequence[str], encoder: str | None) -> tuple[Recipe, tuple[str, ...]]:
    """The variant that all others have to beat, and why it is the one."""
    if start is None:
        choice = choose(without_test(task))
        start, reasons = choice.recipe, choice.reasons
    why = tuple(reasons) or (f"starting from {start.name}",)
    return start.model_copy(update={"encoder": encoder or start.encoder, "dev": "given"}), why


def name_search(task: Task, base: Recipe) -> str:
    """The same for the same training pairs, dev pairs, metric and encoder: test has no part in it."""
    what = [without_test(task).fingerprint(), task.metric, base.encoder]
    return f"{task.name}-{encoder_name(base.encoder)}-{hashlib.sha256(json.dumps(what).encode()).hexdigest()[:8]}"


def check_same_search(folder: Path, found: str, asked: str) -> None:
    """Refuse a folder with a search of something else."""
    if found != asked:
        raise UserError(f"{folder} holds a search on other pairs, or with another encoder ({found}): give another --out")


def read_finished(folder: Path, name: str, resume: bool) -> Tuning:
    """A search whose winner is known; the winner's training may still be to do."""
    tuning = read_tuning(folder)
    check_same_search(folder, tuning.name, name)
    if not resume:
        raise UserError(f"{folder} holds a search that has ended: --resume keeps it, or give another --out")
    return tuning


def finish(task: Task, folder: Path, tuning: Tuning) -> Tuned:
    """Train the winner on all that is not test, and only then look at test."""
    from pairtune.training import train

    recipe, others = last_recipe(task, tuning), list[Recipe]()
    if can_average(recipe):
        finalists = [make_recipe({**one, "task": task.name, "name": "tuned"}) for one in tuning.finalists]
        others = [without_original(one, tuning) for one in finalists]
        recipe = recipe.model_copy(update={"average_of": max(1, tuning.last - len(others))})
    write_toml(folder / RECIPE, recipe)
    if tuning.trainings:
        winner = tuning.winner
        trainings, folds = describe_count(tuning.trainings, "training"), describe_count(winner.folds, "fold")
        gain = f"{winner.gain:+.4f} on {folds}" if winner.changes else "nothing else was clearly better"
        say(f"chosen after {trainings}: {describe_changes(winner.changes)} ({gain}); now training it")
    runs = train(recipe, out=folder, task=task, resume=True, average_with=others)
    return Tuned(folder, tuning, runs[0])


def can_average(recipe: Recipe) -> bool:
    """Whether dev can say if the mean of several trainings is better, and their weights have one."""
    return recipe.select == "best" and recipe.dev == "given" and (recipe.adapter is None or recipe.adapter.save == "merged")


def last_recipe(task: Task, tuning: Tuning) -> Recipe:
    """The winner as it is trained in the end: with dev among its pairs where nothing is chosen on dev any more.

    If the race could not beat the original encoder, an epoch is chosen on dev, of which epoch 0 is one.
    """
    recipe = without_original(make_recipe({**tuning.recipe, "task": task.name, "name": "tuned"}), tuning)
    found = tuning.beside_encoder
    if not found.folds:
        return recipe
    if found.gain <= 0:
        say(f"no variant was better on the held-out pairs than the original {recipe.encoder}")
        return recipe.model_copy(update={"select": "best"})
    joined = recipe.select != "best" and task.kind != "classification" and not task.sources
    return recipe.model_copy(update={"dev": "joined"}) if joined else recipe


def without_original(recipe: Recipe, tuning: Tuning) -> Recipe:
    """The recipe without the original encoder as epoch 0, where it is clearly worse on all folds together.

    Their pairs are many times those of dev, which alone may say the opposite by chance.
    """
    found = tuning.beside_encoder
    return recipe.model_copy(update={"keep_original": False}) if found.gain > found.error else recipe
