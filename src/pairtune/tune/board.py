"""How far the queue is: a bar in a terminal, a line for every finished run in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pairtune.progress import say
from pairtune.tune.job import Job
from pairtune.tune.worker import Done

if TYPE_CHECKING:
    from typing import Self


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
