"""Many runs at once on one accelerator: a queue of workers that may be stopped at any moment, and goes on."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from pairtune.errors import UserError
from pairtune.reproduce.plan import Job, file_name, record_key
from pairtune.reproduce.progress import Board
from pairtune.reproduce.queries import FOLDER, append_queries
from pairtune.reproduce.worker import Done, Setup, work
from pairtune.results import append_record, read_records

GRACE = 10  # seconds that idle processes have to end
TRIES = 2  # a process that is killed from outside is given another chance, once


@dataclass
class Worker:
    """A process and the channel to it; job: what it is at."""

    process: BaseProcess
    channel: Connection
    job: Job | None = None


@dataclass
class Queue:
    """waiting: runs that nobody is at, the next one last. tries: how often each was begun. problems: what failed, by job."""

    waiting: list[Job]
    setup: Setup
    results: Path
    board: Board
    workers: list[Worker] = field(default_factory=list)
    tries: dict[str, int] = field(default_factory=dict)
    problems: dict[Job, str] = field(default_factory=dict)

    def run(self, jobs: int) -> None:
        """Keep so many workers busy until nothing is left; a worker that is gone is replaced."""
        try:
            while self.waiting or any(worker.job for worker in self.workers):
                while self.waiting and len(self.workers) < jobs:
                    self.workers.append(self._start())
                for worker in list(self.workers):
                    if worker.job is None and self.waiting:
                        self._hand_out(worker)
                self._listen()
        finally:
            self._end()

    def _end(self) -> None:
        """Kill who is at something, which is then in its checkpoints; the others end by themselves when nobody speaks to them."""
        for worker in self.workers:
            if worker.job:
                worker.process.kill()
            worker.channel.close()
        latest = time.monotonic() + GRACE
        for worker in self.workers:
            worker.process.join(max(0.0, latest - time.monotonic()))
            worker.process.kill()
            worker.process.join()

    def _start(self) -> Worker:
        context = get_context("spawn")  # a forked process cannot use CUDA
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(theirs, self.setup), daemon=True)
        with _deaf():
            process.start()
        theirs.close()
        return Worker(process, ours)

    def _hand_out(self, worker: Worker) -> None:
        worker.job = self.waiting.pop()
        self.tries[worker.job.key] = self.tries.get(worker.job.key, 0) + 1
        try:
            worker.channel.send(worker.job)
        except OSError:  # it died while it was idle
            self._bury(worker)

    def _listen(self) -> None:
        """Wait for news of any worker: a finished run, a failed one, or an end."""
        busy = {worker.channel: worker for worker in self.workers if worker.job is not None}
        for channel in wait(list(busy), timeout=1.0):
            worker = busy[channel]  # type: ignore[index]
            try:
                done: Done = worker.channel.recv()
            except (EOFError, OSError):
                self._bury(worker)
                continue
            assert worker.job is not None
            self._file(worker.job, done)
            worker.job = None
            if not done.alive:
                self._bury(worker)
        self.board.refresh(sum(worker.job is not None for worker in self.workers))

    def _bury(self, worker: Worker) -> None:
        """The process is gone: what it was at is tried once more, from its last checkpoint."""
        self.workers.remove(worker)
        worker.channel.close()
        worker.process.join()
        job = worker.job
        if job is None:
            return
        if self.tries[job.key] < TRIES:
            self.waiting.append(job)
        else:
            problem = f"its process ended with status {worker.process.exitcode} (see {job.folder(self.setup.out) / 'log.txt'})"
            self._file(job, Done(problem=problem))

    def _file(self, job: Job, done: Done) -> None:
        """Into the results: the queries first, because the record says that a run is finished."""
        if done.record is None:
            self.problems[job] = done.problem
        else:
            name = f"{file_name(job.recipe.encoder)}.jsonl"
            if done.queries is not None:
                append_queries(self.results / FOLDER / name, job.key, done.record.metric, done.queries)
            append_record(self.results / name, done.record)
        self.board.finish(job, done)


def missing_jobs(jobs: Iterable[Job], results: Path) -> list[Job]:
    """The runs that have no record with scores on test: none of the same settings, encoder and seed, whatever its name."""
    records = read_records(results) if any(results.glob("*.jsonl")) else []
    done = {record_key(run) for run in records if "test" in run.after}
    return [job for job in jobs if job.key not in done]


def reproduce(
    jobs: Sequence[Job], *, workers: int, out: Path, results: Path, keep_models: bool = False, checkpoints: bool = True
) -> dict[Job, str]:
    """Train the runs that have no record with test scores in `results` yet, and append theirs; what failed, with the reason.

    May be killed at any moment: runs that are recorded stay so, one that was interrupted goes on from its last checkpoint.
    """
    if not jobs:
        raise UserError("no runs to make: give at least one seed")
    with _alone(out):
        missing = missing_jobs(jobs, results)
        board = Board(missing, len(jobs) - len(missing), workers)
        threads = max(1, (os.cpu_count() or 1) // max(1, min(workers, len(missing))))
        queue = Queue(missing[::-1], Setup(out, threads, keep_models, checkpoints), results, board)
        with board:
            queue.run(workers)
        return queue.problems


@contextmanager
def _deaf() -> Iterator[None]:
    """A process that begins here does not hear Ctrl-C, which reaches all of them; it is ours to act on."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # Python's own helper, which would let the signal through again when it begins
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """One queue per folder: two would train the same runs."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / "lock").open("w") as file:
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as problem:
                raise UserError(
                    f"another `pairtune reproduce` is at work in {out}: wait for it, or give another --out"
                ) from problem
        yield
