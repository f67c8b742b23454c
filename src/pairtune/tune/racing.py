"""A race from the plan to its record: one process, or several on the same ledger."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from pathlib import Path

from pairtune.data.pairs import Task
from pairtune.progress import say
from pairtune.runs.recipe import Recipe
from pairtune.tune.budget import Budget
from pairtune.tune.course import Course
from pairtune.tune.folds import make_folds
from pairtune.tune.ledger import Entry, Ledger
from pairtune.tune.plan import Plan, make_plan
from pairtune.tune.queue import Queue, threads_for
from pairtune.tune.space import Space
from pairtune.tune.tuning import Tried, Tuning
from pairtune.tune.worker import Setup, attempt

TOO_SHORT = "too little time to compare candidates: the starting recipe is trained; give more minutes"


def race(task: Task, base: Recipe, reasons: tuple[str, ...], ledger: Ledger, budget: Budget, out: Path, leads: bool) -> Tuning:
    """Race candidates until the budget is used. leads: this process ends the race for all others too."""
    with scratch_folder(out) as scratch:
        plan = agree(task, base, reasons, ledger, budget, scratch)
        space, folds = Space.around(plan.base, task.kind), make_folds(task, plan.pairs, plan.folds)
        judged = f"judged by {folds}" if plan.folds else TOO_SHORT
        notes = [*plan.notes, judged]
        for line in (*plan.reasons, *notes):
            say(line)
        total = len(task.train) + len(task.dev)
        course = Course(ledger, space, folds, replace(budget, last=total / (plan.pairs or 0.9 * total)), task.metric)
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
    known = [entry.levels for entry in entries]
    return Tuning(
        name=course.ledger.name,
        task=task.name,
        kind=task.kind,
        metric=task.metric,
        encoder=plan.base.encoder,
        reasons=list(plan.reasons),
        notes=notes,
        tried=[_describe(entry, entries, course) for entry in entries],
        before={fold: score for entry in entries for fold, score in entry.before.items()},
        chosen=chosen,
        recipe=recipe.model_dump(mode="json"),
        untried=sum(levels not in known for levels in course.space.neighbors(entries[chosen].levels)),
        importance=course.ledger.importances(),
        noise=course.noise(entries),
        seconds=time.monotonic() - budget.begun,
    )


def _describe(entry: Entry, entries: Sequence[Entry], course: Course) -> Tried:
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
