"""A race from the plan to its record: one process, or several on the same ledger.

`Course` says what to train next, and whose race is over. All of it follows from the ledger.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from pairtune.data.pairs import Task
from pairtune.errors import UserError
from pairtune.progress import say
from pairtune.runs.recipe import Recipe
from pairtune.runs.record import choice_score
from pairtune.tune.folds import Folds, fold_name, make_folds
from pairtune.tune.ledger import Entry, Ledger
from pairtune.tune.plan import Budget, Plan, make_plan
from pairtune.tune.queue import Queue, threads_for
from pairtune.tune.space import Space, describe_changes
from pairtune.tune.tried import ENOUGH, Comparison, Tried, Tuning, choose_finalists, choose_winner, common_noise, compare, judge
from pairtune.tune.worker import Done, Job, Setup, attempt

TOO_SHORT = "too little time to compare variants: the starting recipe is trained; give more minutes"
Work = tuple[Entry, int]  # a variant and the number of a fold


def race(task: Task, base: Recipe, reasons: tuple[str, ...], ledger: Ledger, budget: Budget, out: Path, leads: bool) -> Tuning:
    """Race variants until the budget is used. leads: this process ends the race for all others too."""
    with scratch_folder(out) as scratch:
        plan = agree(task, base, reasons, ledger, budget, scratch)
        space, folds = Space.around(plan.base, task.kind), make_folds(task, plan.pairs, plan.folds)
        judged = f"judged by {folds}" if plan.folds else TOO_SHORT
        notes = [*plan.notes, judged]
        for line in (*plan.reasons, *notes):
            say(line)
        total = len(task.train) + len(task.dev)
        course = Course(ledger, space, folds, replace(budget, last=plan.last * total / (plan.pairs or 0.9 * total)), task.metric)
        if leads:
            ledger.close(False)
        if plan.folds:
            run_course(course, Setup(scratch, folds, threads_for(budget.jobs, budget.jobs), checkpoints=False), budget.jobs)
        if leads:
            ledger.close()
    return describe_race(task, course, plan, notes, budget)


def agree(task: Task, base: Recipe, reasons: tuple[str, ...], ledger: Ledger, budget: Budget, scratch: Path) -> Plan:
    """The plan of the process that came first, which may be this one."""
    if ledger.plan() is None:
        mine = make_plan(task, base, reasons, budget, scratch)
        if ledger.plan() is None:  # others may have been faster
            ledger.begin(mine.model_dump(mode="json"), Space.around(base, task.kind))
    return Plan.model_validate(ledger.plan())


def run_course(course: Course, setup: Setup, jobs: int) -> None:
    """Train what the course hands out: here, or with several jobs in as many processes."""
    if jobs > 1:
        Queue(course.next_job, setup, course.settle).run(jobs)
        return
    while (job := course.next_job()) is not None:
        done = attempt(job, setup)
        if done.record is not None:
            shutil.rmtree(job.folder(setup.out))
        course.settle(job, done)


@contextmanager
def scratch_folder(out: Path) -> Iterator[Path]:
    """Where the folds of this process train; those of processes that are gone are removed."""
    trials = out / "trials"
    for old in trials.glob(f"{socket.gethostname()}-*"):
        if not _exists(int(old.name.rpartition("-")[2])):
            shutil.rmtree(old, ignore_errors=True)
    mine = trials / f"{socket.gethostname()}-{os.getpid()}"
    mine.mkdir(parents=True, exist_ok=True)
    try:
        yield mine
    finally:
        shutil.rmtree(mine, ignore_errors=True)
        if trials.exists() and not any(trials.iterdir()):
            trials.rmdir()


def _exists(process: int) -> bool:
    import psutil

    return bool(psutil.pid_exists(process))


def describe_race(task: Task, course: Course, plan: Plan, notes: list[str], budget: Budget) -> Tuning:
    """The record of the race as the ledger has it now."""
    entries = course.review()
    chosen = course.best(entries)
    recipe = course.space.recipe(entries[chosen].levels)
    finalists = choose_finalists([entry.scores for entry in entries], chosen, len(course.folds.numbers), plan.last - 1)
    known = [entry.levels for entry in entries]
    return Tuning(
        name=course.ledger.name,
        task=task.name,
        kind=task.kind,
        metric=task.metric,
        encoder=plan.base.encoder,
        reasons=list(plan.reasons),
        notes=notes,
        tried=[_as_tried(entry, entries, course) for entry in entries],
        before={fold: score for entry in entries for fold, score in entry.before.items()},
        chosen=chosen,
        finalists=[course.space.recipe(entries[place].levels).model_dump(mode="json") for place in finalists],
        last=plan.last,
        recipe=recipe.model_dump(mode="json"),
        untried=sum(levels not in known for levels in course.space.neighbors(entries[chosen].levels)),
        importance=course.ledger.importances(),
        noise=course.noise(entries),
        seconds=time.monotonic() - budget.begun,
    )


def _as_tried(entry: Entry, entries: Sequence[Entry], course: Course) -> Tried:
    found = course.gain(entry, entries)
    return Tried(
        number=entry.number,
        levels=entry.levels,
        changes=course.space.changes(entry.levels),
        scores=entry.scores,
        seconds=sum(entry.seconds.values()),
        folds=found.folds,
        gain=found.gain,
        error=None if found.error == inf else found.error,
        ended=entry.ended or "not finished",
    )


@dataclass
class Course:
    """Hands out folds to train and takes their results; several processes may each have one on the same ledger."""

    ledger: Ledger
    space: Space
    folds: Folds
    budget: Budget
    metric: str

    def next_job(self) -> Job | None:
        """The next fold to train, claimed; None when there is nothing to do (for now) or nothing left to do it with."""
        entries = self.review()
        left = self.budget.left(entries)
        if left < 1 or self.ledger.closed:
            return None
        work = self._open_work(entries) or self._new_work(entries, left)
        if work is None:
            return None
        entry, fold = work
        self.ledger.claim(entry, fold)
        return self.job(entry, fold)

    def job(self, entry: Entry, fold: int) -> Job:
        """The training of a variant on a fold.

        Its score is that of a trained epoch, also where that is worse than the original encoder: the folds together say if it is.
        """
        recipe = self.space.recipe(entry.levels, name=f"variant-{entry.number}")
        settings = {"task": fold_name(fold), "dev": "given", "dev_candidates": 0, "keep_original": False}
        return Job(recipe.model_copy(update=settings), fold)

    def settle(self, job: Job, done: Done) -> None:
        """Note what became of a fold."""
        number = int(job.recipe.name.removeprefix("variant-"))
        entry = next(one for one in self.ledger.entries() if one.number == number)
        if done.record is not None:
            metric = self.metric
            scores = (choice_score(done.record.after["dev"], metric), choice_score(done.record.before["dev"], metric))
            self.ledger.report(entry, job.seed, *scores, done.took)
        elif number == self.ledger.entries()[0].number:
            raise UserError(f"the starting recipe cannot be trained: {done.problem}")
        else:
            self.ledger.end(entry, f"failed: {done.problem.splitlines()[0]}", None)
        self._say(entry, job.seed, done)

    def review(self) -> list[Entry]:
        """All variants, after those have been ended that are clearly behind the best, or through all folds."""
        entries = self.ledger.entries()
        for entry in entries[1:]:
            if not entry.ended and entry.scores and not entry.claimed:
                found = self.against_best(entry, entries)
                verdict = judge(found, len(self.folds.numbers))
                if verdict in ("dropped", "tie") or len(entry.scores) == len(self.folds.numbers):
                    self.ledger.end(entry, verdict, self.gain(entry, entries).gain)
        return self.ledger.entries()

    def against_best(self, entry: Entry, entries: Sequence[Entry]) -> Comparison:
        """A variant beside the best of the others."""
        others = [one for one in entries if one.number != entry.number]
        return compare(entry.scores, others[self.best(others)].scores, self.noise(entries))

    def best(self, entries: Sequence[Entry]) -> int:
        """The place of the variant that would be taken now."""
        changes = [len(self.space.changes(entry.levels)) for entry in entries]
        return choose_winner([entry.scores for entry in entries], changes, len(self.folds.numbers))

    def gain(self, entry: Entry, entries: Sequence[Entry]) -> Comparison:
        """A variant beside the starting recipe."""
        return compare(entry.scores, entries[0].scores, self.noise(entries))

    def noise(self, entries: Sequence[Entry]) -> float | None:
        """How much differences vary from fold to fold."""
        return common_noise([one.scores for one in entries[1:]], entries[0].scores)

    def _open_work(self, entries: Sequence[Entry]) -> Work | None:
        """A fold of a variant that is in the race: first of the starting recipe, which all are compared with."""
        base, best = entries[0], entries[self.best(entries)]
        if len(base.scores) + len(base.claimed) < min(ENOUGH, len(self.folds.numbers)):
            return base, self._free_folds(base)[0]
        for entry in entries[1:]:
            free = self._free_folds(entry)
            if entry.ended or entry.claimed or not free:
                continue
            needed = [one for one in (base, best) if free[0] in self._free_folds(one) and not one.ended]
            return (needed or [entry])[0], free[0]
        return None

    def _new_work(self, entries: Sequence[Entry], left: float) -> Work | None:
        """The first fold of a new variant, if it can still win: a neighbor of the best, then one that the sampler draws."""
        if left < min(ENOUGH, len(self.folds.numbers)):
            return None
        known = [entry.levels for entry in entries]
        best = entries[self.best(entries)]
        fresh = next((levels for levels in self.space.neighbors(best.levels) if levels not in known), None)
        entry = self.ledger.enter(fresh, self.space) if fresh is not None else self.ledger.draw(self.space)
        return None if entry is None else (entry, self.folds.numbers[0])

    def _free_folds(self, entry: Entry) -> list[int]:
        return [fold for fold in self.folds.numbers if fold not in entry.scores and fold not in entry.claimed]

    def _say(self, entry: Entry, fold: int, done: Done) -> None:
        """One line for each fold: what came out, how it compares, what is best so far, what is left."""
        entries = self.ledger.entries()
        now = next(one for one in entries if one.number == entry.number)
        what = describe_changes(self.space.changes(entry.levels))
        if done.record is None:
            say(f"variant {entry.number} ({what}) failed: {done.problem.splitlines()[0]}")
            return
        place = f"{self.folds.numbers.index(fold) + 1} of {len(self.folds.numbers)}"
        line = f"variant {entry.number} ({what}), fold {place}: {self.metric} {now.scores[fold]:.4f}"
        if now.number != entries[0].number and (found := self.against_best(now, entries)).folds:
            line += f"; against the best {found}"
        best = entries[self.best(entries)]
        line += f"; best so far: {describe_changes(self.space.changes(best.levels))}"
        left = self.budget.describe_left(entries)
        say(f"{line}; {left}" if left else line)
