"""Many runs at once on one accelerator: a queue of workers that may be stopped at any moment, and goes on."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from pairtune.errors import UserError
from pairtune.runs.record import Run
from pairtune.tune.board import Board
from pairtune.tune.job import Job
from pairtune.tune.worker import Done, Setup, work

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
    """waiting: runs that nobody is at, the next one last. file: takes the record of a finished
    run. tries: how often each was begun. problems: what failed, by job."""

    waiting: list[Job]
    setup: Setup
    file: Callable[[Job, Run], None]
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
        if done.record is None:
            self.problems[job] = done.problem
        else:
            self.file(job, done.record)
        self.board.finish(job, done)


def run_jobs(
    jobs: Sequence[Job],
    *,
    workers: int,
    setup: Setup,
    file: Callable[[Job, Run], None],
    done_before: int = 0,
) -> dict[Job, str]:
    """Train the jobs, the last one first, and hand each record to `file`; what failed, with the reason.

    May be killed at any moment: what was filed stays so, a run that was interrupted goes on from its last checkpoint.
    """
    with alone_in(setup.out):
        board = Board(jobs, done_before, workers)
        queue = Queue(list(jobs)[::-1], setup, file, board)
        with board:
            queue.run(workers)
        return queue.problems


def threads_for(workers: int, jobs: int) -> int:
    """How many threads each of so many workers gets."""
    return max(1, (os.cpu_count() or 1) // max(1, min(workers, jobs)))


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
def alone_in(out: Path) -> Iterator[None]:
    """One queue per folder: two would train the same runs."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / "lock").open("w") as file:
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as problem:
                raise UserError(f"another program trains in {out}: wait for it, or give another --out") from problem
        yield
