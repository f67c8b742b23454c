"""Many runs at once on one accelerator: a queue of workers that may be stopped at any moment, and goes on.

`Board` says how far it is: a bar in a terminal, a line for every finished run in a log.
"""

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
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pairtune.progress import say
from pairtune.runs.lock import hold_folder
from pairtune.runs.record import Run
from pairtune.tune.worker import Done, Job, Setup, work

if TYPE_CHECKING:
    from typing import Self

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
    """next_job: the next run to make, None where there is none for now. settle: takes what became of a run, record or problem.

    until: when to stop, by the monotonic clock. again: runs whose process died. tries: how often each was begun.
    """

    next_job: Callable[[], Job | None]
    setup: Setup
    settle: Callable[[Job, Done], None]
    refresh: Callable[[int], None] = lambda busy: None
    until: float = float("inf")
    again: list[Job] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    tries: dict[str, int] = field(default_factory=dict)

    def run(self, jobs: int) -> None:
        """Keep so many workers busy until nothing is left, or the time is over; a worker that is gone is replaced."""
        try:
            while time.monotonic() < self.until and self._keep_busy(jobs):
                self._listen()
        finally:
            self._end()

    def _keep_busy(self, jobs: int) -> bool:
        """Hand out runs while somebody is free; whether anybody is at work."""
        while sum(worker.job is not None for worker in self.workers) < jobs:
            job = self.again.pop() if self.again else self.next_job()
            if job is None:
                break
            idle = [worker for worker in self.workers if worker.job is None]
            if not idle:
                idle = [self._start()]
                self.workers += idle
            self._hand_out(idle[0], job)
        return any(worker.job for worker in self.workers)

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

    def _hand_out(self, worker: Worker, job: Job) -> None:
        worker.job = job
        self.tries[job.key] = self.tries.get(job.key, 0) + 1
        try:
            worker.channel.send(job)
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
            job, worker.job = worker.job, None
            self.settle(job, done)
            if not done.alive:
                self._bury(worker)
        self.refresh(sum(worker.job is not None for worker in self.workers))

    def _bury(self, worker: Worker) -> None:
        """The process is gone: what it was at is tried once more, from its last checkpoint."""
        self.workers.remove(worker)
        worker.channel.close()
        worker.process.join()
        job = worker.job
        if job is None:
            return
        if self.tries[job.key] < TRIES:
            self.again.append(job)
        else:
            problem = f"its process ended with status {worker.process.exitcode} (see {job.folder(self.setup.out) / 'log.txt'})"
            self.settle(job, Done(problem=problem))


def run_jobs(
    jobs: Sequence[Job],
    *,
    workers: int,
    setup: Setup,
    file: Callable[[Job, Run], None],
    done_before: int = 0,
    seconds: float | None = None,
) -> dict[Job, str]:
    """Train the jobs, in their order, and hand each record to `file`; what failed, with the reason.

    seconds: then it stops; runs that are not finished go on from their last checkpoint next time.

    May be killed at any moment: what was filed stays so, a run that was interrupted goes on from its last checkpoint.
    """
    with hold_folder(setup.out):
        board, waiting = Board(jobs, done_before, workers), iter(jobs)
        problems: dict[Job, str] = {}

        def settle(job: Job, done: Done) -> None:
            if done.record is None:
                problems[job] = done.problem
            else:
                file(job, done.record)
            board.finish(job, done)

        with board:
            until = float("inf") if seconds is None else time.monotonic() + seconds
            Queue(lambda: next(waiting, None), setup, settle, board.refresh, until).run(workers)
        return problems


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


class Board:
    """Counts what is done and foretells what is left, by the cost of the runs that are still to come."""

    def __init__(self, jobs: Sequence[Job], done_before: int, workers: int) -> None:
        self.total, self.done, self.failed = len(jobs), 0, 0
        self.left = sum(job.cost for job in jobs)
        self.spent = 0.0
        self.started = time.monotonic()
        self._bar: Any = None
        self._line: Any = None
        found = f", {done_before} are recorded already" if done_before else ""
        say(f"{len(jobs)} runs to make{found}; {min(workers, len(jobs))} at once")

    def __enter__(self) -> Self:
        if sys.stderr.isatty() and self.total:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._line = self._bar.add_task("starting", total=self.total)
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def finish(self, job: Job, done: Done) -> None:
        """A run is over: say how it went and how long the rest will take."""
        self.done += 1
        self.failed += done.record is None
        self.spent += job.cost
        self.left -= job.cost
        if done.record is None:
            outcome = f"failed: {done.problem.splitlines()[0]}"
        else:
            outcome = f"{done.record.metric} {done.record.after['test'][done.record.metric]:.4f} in {done.record.seconds:.0f} s"
        line = f"{self.done} of {self.total}: {job}: {outcome}; {self.time_left()}"
        if self._bar is None:
            say(line)
        else:
            self._bar.console.print(line, highlight=False)

    def refresh(self, busy: int) -> None:
        """Once a second: how many are at work."""
        if self._bar is not None:
            failed = f", {self.failed} failed" if self.failed else ""
            self._bar.update(self._line, completed=self.done, description=f"{busy} at work{failed}, {self.time_left()}")

    def time_left(self) -> str:
        """What is left at the pace so far.

        >>> Board((), 0, 1).time_left()
        'nothing left'
        """
        if self.done == self.total:
            return "nothing left"
        if not self.spent:
            return "time left not known yet"
        seconds = (time.monotonic() - self.started) * self.left / self.spent
        return f"about {seconds:.0f} s left" if seconds < 120 else f"about {seconds / 60:.0f} min left"
