"""A training that a queue hands out, and a process that does one after the other, and dies with the queue."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from pairtune.data.datasets import load_task
from pairtune.data.pairs import Task
from pairtune.errors import UserError
from pairtune.runs.evidence import EVIDENCE, Evidence, read_evidence
from pairtune.runs.folder import RunFolder, ask_for, write_whole
from pairtune.runs.recipe import Recipe
from pairtune.runs.record import Run

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


@dataclass(frozen=True)
class Setup:
    """What all workers of a queue have in common.

    out: where the runs train. load: the pairs of a task, by its name. threads: of each worker. keep_models: the weights of
    finished runs stay. checkpoints: after each epoch, so that an interrupted run goes on from there; without them it begins
    anew, and less is written. losses: further ones that recipes name in `loss.host`.
    """

    out: Path
    load: Callable[[str], Task] = load_task
    threads: int = 1
    keep_models: bool = False
    checkpoints: bool = True
    losses: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Done:
    """What a worker sends back: the record, or what went wrong.

    alive: whether the worker can go on; after an error that is not the user's it cannot be trusted. took: seconds, all in all.
    """

    record: Run | None = None
    problem: str = ""
    alive: bool = True
    took: float = 0.0


def work(channel: Connection, setup: Setup) -> None:
    """Train what comes through the channel until it is closed, each run with its output in its own log.txt."""
    os.environ.update(OMP_NUM_THREADS=str(setup.threads), TOKENIZERS_PARALLELISM="false", TRANSFORMERS_VERBOSITY="error")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the queue ends the workers
    threading.Thread(target=_die_with_parent, daemon=True).start()
    import torch

    from pairtune.sbert.losses import FURTHER_LOSSES

    FURTHER_LOSSES.update(setup.losses)
    torch.set_num_threads(setup.threads)
    while True:
        try:
            job: Job = channel.recv()
        except EOFError:
            return
        done = attempt(job, setup)
        channel.send(done)
        if not done.alive:
            return


def attempt(job: Job, setup: Setup) -> Done:
    """Train one job with its output in its own log.txt; what goes wrong is told, not raised."""
    folder = job.folder(setup.out)
    folder.mkdir(parents=True, exist_ok=True)
    with _output_to(folder / "log.txt"):
        begun = time.monotonic()
        try:
            return replace(train_job(job, setup), took=time.monotonic() - begun)
        except UserError as problem:
            print(problem, file=sys.stderr)
            return Done(problem=str(problem))
        except Exception as problem:
            traceback.print_exc()
            return Done(problem=f"{type(problem).__name__}: {problem} (see {folder / 'log.txt'})", alive=False)


def train_job(job: Job, setup: Setup) -> Done:
    """One run from where it was left, in its own folder; what remains there is what a report needs."""
    from pairtune.training import run

    out, path = setup.out, job.folder(setup.out)
    task, own = _task(setup.load, job.recipe.task), path / "results.jsonl"
    folder = _open_folder(job, path, task)
    before = before_path(job, task, out)
    _lend_before(before, folder)
    kept: dict[str, Any] = {"checkpoints": setup.checkpoints, "keep_model": setup.keep_models}
    record = run(job.recipe, job.seed, out=path, results=own, task=task, resume=True, **kept)
    _keep_before(before, record, read_evidence(path / EVIDENCE))
    return Done(record.model_copy(update={"model": folder.model.relative_to(out).as_posix()}))


@cache
def _task(load: Callable[[str], Task], name: str) -> Task:
    return load(name)


def _open_folder(job: Job, path: Path, task: Task) -> RunFolder:
    """The run's folder; a log alone, of a process that died at once, is no reason to refuse it."""
    folder, asked = RunFolder(path), ask_for(job.recipe, job.seed, task.fingerprint(job.recipe.extra_splits))
    if not folder.begun:
        folder.begin(asked)
    folder.check(asked, resume=True)
    return folder


def before_path(job: Job, task: Task, out: Path) -> Path:
    """Where the scores of the original encoder are kept: the same for every run of the same texts, length and dev set."""
    length = job.recipe.stages[0].train.max_seq_length
    what = (job.recipe.encoder, task.fingerprint(), job.recipe.dev_candidates)  # a task may keep its name and change its texts
    which = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:6]
    tenth = f"-tenth-{job.seed}" if job.recipe.dev == "rotating" else ""
    return out / encoder_name(job.recipe.encoder) / "before" / f"{job.recipe.task}-{length}-{which}{tenth}.json"


def _lend_before(kept: Path, folder: RunFolder) -> None:
    """Spare a run the scoring of an encoder that another run has scored."""
    from pairtune.sbert.outcomes import outcome_before

    if kept.exists() and not folder.finished and not (folder.path / "before.json").exists():
        found = json.loads(kept.read_text())
        write_whole(outcome_before(folder), json.dumps(found["outcome"]))
        write_whole(folder.path / "before.json", json.dumps(found["scores"]))


def _keep_before(path: Path, record: Run, evidence: Evidence | None) -> None:
    if evidence is not None and evidence.test is not None and not path.exists():
        kept = {"scores": record.before, "outcome": evidence.test.before.model_dump()}
        write_whole(path, json.dumps(kept), shared=True)  # another worker may be here too


@contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Standard output and error, of C code too, at the end of a file."""
    kept = [os.dup(1), os.dup(2)]
    with path.open("a", encoding="utf-8") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, old in zip((1, 2), kept, strict=True):
                os.dup2(old, number)
                os.close(old)


def _die_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
