"""What was tried and how it went: an Optuna study, in a file or a database that several processes work on at once.

A trial is a variant, its intermediate values are the scores of its folds, each written as it ends. Nothing else is kept in
memory, so a process may die at any moment: who comes next reads the storage and goes on.
"""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pairtune.errors import UserError
from pairtune.tune.space import Levels, Space

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

STARTUP = 10  # variants before the sampler believes what it has seen
OPENINGS = 5  # attempts to open a database, a second apart
DRAWS = 20  # attempts to find a variant that was not tried before


@dataclass(frozen=True)
class Entry:
    """A variant and what is known of it.

    scores, before: the main metric on the dev of each fold, trained and as the encoder came. seconds: what each fold took.
    claimed: the folds that a living process is at. ended: how its race ended, "" while it goes on.
    """

    number: int
    levels: Levels
    scores: dict[int, float]
    before: dict[int, float]
    seconds: dict[int, float]
    claimed: frozenset[int]
    ended: str


class Ledger:
    """The variants of one search, in order of their numbers; the first one is the starting recipe and carries the plan."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._owner = (socket.gethostname(), os.getpid(), _begun(os.getpid()), uuid4().hex)

    @classmethod
    def open(cls, storage: str | Path, name: str) -> Ledger:
        """The search of this name in a journal file, or in a database, given by its URL."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        for attempt in range(1, OPENINGS + 1):
            try:
                return cls(_create(storage, name))
            except Exception as problem:
                if attempt == OPENINGS or not _may_pass(problem):
                    reason = str(problem).splitlines()[0]
                    raise UserError(
                        f"--storage {storage}: the search cannot be opened ({reason}); give a file, or a URL such as "
                        f"sqlite:///tune.db or postgresql://host/name"
                    ) from problem
                time.sleep(1)
        raise AssertionError("unreachable")

    @property
    def name(self) -> str:
        """Tells this search from others in the same storage."""
        return self._study.study_name

    def plan(self) -> dict[str, Any] | None:
        """What the first process has decided for all, once there is a first variant."""
        for trial in self._trials()[:1]:
            found: dict[str, Any] = trial.user_attrs["plan"]
            return found
        return None

    def begin(self, plan: Mapping[str, Any], space: Space) -> None:
        """Enter the starting recipe. Where two processes begin at once, the one with the lower number counts, and its plan."""
        self._study.enqueue_trial(dict(space.start), user_attrs={"plan": dict(plan), "levels": space.start})
        self._ask(space)

    @property
    def closed(self) -> bool:
        """Whether the process that trains the winner has ended the race."""
        return bool(self._study.user_attrs.get("closed", False))

    def close(self, closed: bool = True) -> None:
        """End the race for all processes, or open it again."""
        self._study.set_user_attr("closed", closed)

    def entries(self) -> list[Entry]:
        """All variants; one that two processes have entered at once counts once."""
        found: dict[frozenset[tuple[str, str]], Entry] = {}
        for trial in self._trials():
            if "levels" in trial.user_attrs:
                entry = self._read(trial)
                found.setdefault(frozenset(entry.levels.items()), entry)
        return list(found.values())

    def enter(self, levels: Levels, space: Space) -> Entry:
        """A new variant with these levels."""
        self._study.enqueue_trial(dict(levels), user_attrs={"levels": levels}, skip_if_exists=False)
        return self._ask(space)

    def draw(self, space: Space) -> Entry | None:
        """A new variant where the sampler (TPE) hopes for most; None when it finds none that was not tried."""
        import optuna

        for _ in range(DRAWS):
            known = self.entries()
            seed = len(self._trials())  # the same search draws the same variants
            self._study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP)
            entry = self._ask(space)
            if entry.levels not in [one.levels for one in known]:
                return entry
            self.end(entry, "tried before", None)
        return None

    def _ask(self, space: Space) -> Entry:
        trial = self._study.ask()
        levels: Levels = {}
        for axis in space.axes:
            if space.speaks(axis, levels):
                levels[axis.name] = trial.suggest_categorical(axis.name, space.labels(axis))
        if "levels" not in trial.user_attrs:
            trial.set_user_attr("levels", levels)
        return next(self._read(one) for one in self._trials() if one.number == trial.number)

    def claim(self, entry: Entry, fold: int) -> None:
        """Tell other processes that this one trains this fold. If two claim it at once, one result is passed over."""
        self._trial(entry).set_user_attr(f"claim {fold}", list(self._owner))

    def report(self, entry: Entry, fold: int, score: float, before: float, seconds: float) -> None:
        """The result of a fold; on the disk when this returns."""
        import optuna

        trial = self._trial(entry)
        with warnings.catch_warnings(), suppress(optuna.exceptions.UpdateFinishedTrialError):  # another process has ended it
            warnings.simplefilter("ignore")  # another process has trained it too
            trial.set_user_attr(f"fold {fold}", {"before": before, "seconds": seconds})
            trial.report(score, fold)

    def end(self, entry: Entry, why: str, gain: float | None) -> None:
        """The race of a variant is over. gain: over the starting recipe, for the sampler; None where there is no figure."""
        import optuna

        with suppress(optuna.exceptions.UpdateFinishedTrialError, ValueError):  # another process has ended it
            self._trial(entry).set_user_attr("ended", why)
            state = optuna.trial.TrialState.COMPLETE if gain is not None else optuna.trial.TrialState.FAIL
            self._study.tell(entry.number, gain, state=state)

    def importances(self) -> dict[str, float]:
        """How much of the differences each axis explains, as Optuna estimates it; empty where too little is known."""
        import optuna

        with warnings.catch_warnings(), suppress(ValueError, RuntimeError, UserWarning):
            warnings.simplefilter("error", UserWarning)  # too few variants
            return dict(optuna.importance.get_param_importances(self._study))
        return {}

    def _read(self, trial: FrozenTrial) -> Entry:
        noted, claims = (_numbered(trial.user_attrs, word) for word in ("fold", "claim"))
        scores = {fold: score for fold, score in trial.intermediate_values.items() if fold in noted}
        return Entry(
            number=trial.number,
            levels=dict(trial.user_attrs["levels"]),
            scores=scores,
            before={fold: noted[fold]["before"] for fold in scores},
            seconds={fold: noted[fold]["seconds"] for fold in scores},
            claimed=frozenset(fold for fold, owner in claims.items() if fold not in scores and self._at_work(*owner)),
            ended=str(trial.user_attrs.get("ended", "")),
        )

    def _at_work(self, host: str, process: int, begun: float, name: str) -> bool:
        """Whether who claimed a fold is still there; of other machines nothing is known, so it is taken to be."""
        here, me, _, mine = self._owner
        if host != here:
            return True
        return name == mine if process == me else _begun(process) == begun

    def _trials(self) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False)

    def _trial(self, entry: Entry) -> Any:
        from optuna.trial import Trial

        return Trial(self._study, next(one._trial_id for one in self._trials() if one.number == entry.number))


def _create(storage: str | Path, name: str) -> Study:
    import optuna
    from optuna.storages import BaseStorage, JournalStorage
    from optuna.storages.journal import JournalFileBackend

    place: str | BaseStorage = str(storage)
    if not is_url(storage):
        Path(storage).parent.mkdir(parents=True, exist_ok=True)
        place = JournalStorage(JournalFileBackend(os.fspath(storage)))
    return optuna.create_study(study_name=name, storage=place, direction="maximize", load_if_exists=True)


def _may_pass(problem: Exception) -> bool:
    """Whether it is the database that refused: another process may be making its tables."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import DBAPIError

    return isinstance(problem, (DBAPIError, StorageInternalError))


def list_searches(journal: Path) -> list[str]:
    """The names of the searches in a journal file; none where there is no file."""
    from optuna import get_all_study_names
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    return get_all_study_names(JournalStorage(JournalFileBackend(os.fspath(journal)))) if journal.exists() else []


def is_url(storage: str | Path) -> bool:
    """Whether a storage is a database, given by its URL, and not a file."""
    return "://" in str(storage)


def _begun(process: int) -> float:
    """When a process began: numbers of processes are used again. 0 where there is none."""
    import psutil

    try:
        return float(psutil.Process(process).create_time())
    except psutil.NoSuchProcess:
        return 0.0


def _numbered(attributes: Mapping[str, Any], word: str) -> dict[int, Any]:
    """What is noted for each fold under keys such as `claim 3`."""
    return {int(key.removeprefix(f"{word} ")): value for key, value in attributes.items() if key.startswith(f"{word} ")}
