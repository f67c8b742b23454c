"""Commands of pairtune in processes of their own, killed at any operation on a file, or held at a step of training.

`python killing.py` loads torch once and then forks for each command that it reads, so that a process costs nothing but itself.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HELD = "held\n"
OPERATIONS = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree"}


@dataclass(frozen=True)
class Ended:
    """How a command ended: its status, −9 where it was killed, and all that it printed."""

    status: int
    said: str


class Commands:
    """Runs commands one after the other, each in a process that `python killing.py` forks."""

    def __init__(self, server: subprocess.Popen) -> None:
        self.server = server

    def run(self, words, log, kill=None, tear=False) -> Ended:
        """To its end; or killed at this operation on a file, from 1, where `tear` leaves the file of the last one half."""
        self._start(words, log, kill=kill, tear=tear)
        return self._end(log)

    @contextmanager
    def held(self, words, log, step):
        """While the command waits at the end of a step of training: its process id. Send a signal and leave, for `end`."""
        self._start(words, log, hold=step)
        process = int(self.server.stdout.readline())
        assert (said := self.server.stdout.readline()) == HELD, f"ended with {said}: {Path(log).read_text()}"
        held = Held(process)
        yield held
        held.end = self._end(log)

    def _start(self, words, log, **how) -> None:
        print(json.dumps([[str(word) for word in words], str(log), how]), file=self.server.stdin, flush=True)

    def _end(self, log) -> Ended:
        status = int(self.server.stdout.readline())
        return Ended(status, Path(log).read_text(encoding="utf-8", errors="replace"))


@dataclass
class Held:
    """A command that waits for a signal, and then how it ended."""

    process: int
    end: Ended | None = None

    def send(self, number) -> None:
        os.kill(self.process, number)


@contextmanager
def starting_commands():
    """What starts commands, while its server lives."""
    command = [sys.executable, __file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        yield Commands(server)
        server.stdin.close()


class Killer:
    """Counts what the process is about to do to files, as Python's audit tells it, and ends it without a word."""

    def __init__(self, kill: int, tear: bool) -> None:
        self.left, self.tear = kill, tear
        self.last: tuple[str, int] | None = None  # the file that is being written, and its size before

    def __call__(self, event: str, args: tuple) -> None:
        if event not in OPERATIONS or (event == "open" and not is_written(args[1])):
            return
        self.left -= 1
        if not self.left:
            self.left = 10**9  # what follows is ours
            if self.tear and self.last is not None:
                tear(*self.last)
            os.kill(os.getpid(), signal.SIGKILL)
        self.last = None
        if event == "open" and isinstance(args[0], str):
            there = "w" not in args[1] and os.path.exists(args[0])  # noqa: PTH110
            self.last = args[0], os.path.getsize(args[0]) if there else 0  # noqa: PTH202


def is_written(mode) -> bool:
    return isinstance(mode, str) and bool(set(mode) & set("wax+"))


def tear(path: str, before: int) -> None:
    """Half of what was written is lost, where the file still has that name."""
    if os.path.isfile(path) and os.path.getsize(path) > before:  # noqa: PTH113, PTH202
        os.truncate(path, (os.path.getsize(path) + before) // 2)  # noqa: PTH202


def hold_at(step: int, process: int, teller: int) -> None:
    """From now on a training waits at the end of that step, before anything is saved or evaluated, and says so."""
    from transformers import TrainerCallback
    from transformers.trainer import DEFAULT_CALLBACKS

    class Hold(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == step:
                os.write(teller, HELD.encode())
                signal.pause()

    os.write(teller, f"{process}\n".encode())
    DEFAULT_CALLBACKS.append(Hold)


def run_command(words, log, kill=None, tear=False, hold=None) -> None:
    """In the forked process: the command line, to its end or to where it is killed or held."""
    from pairtune.cli import main

    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests were started in the background
    if hold:
        hold_at(hold, os.getpid(), os.dup(1))
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(target, 1)
    os.dup2(target, 2)
    if kill:
        sys.addaudithook(Killer(kill, tear))
    try:
        main(words)
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def serve() -> None:
    import sentence_transformers  # noqa: F401
    import torch

    import pairtune.training  # noqa: F401

    torch.set_num_threads(1)  # a process with more of them cannot be forked
    for line in sys.stdin:
        words, log, how = json.loads(line)
        child = os.fork()
        if not child:
            run_command(words, log, **how)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
