"""Processes that train together, as torchrun and accelerate start them: what they share, and how an error of one ends all."""

from __future__ import annotations

import gc
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # imported inside a group, its functions have it as a default, and it never ends
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]  # documented there, not listed

from pairtune.errors import UserError
from pairtune.progress import count_processes, is_first, printable, say

Thing = TypeVar("Thing")

PATIENCE = timedelta(days=7)  # the others wait while the first one evaluates; that one has died is found out in other ways
SOON = timedelta(seconds=10)
LISTEN_SECONDS = 0.2
FAILED, SAID = "failed", "said"


def process_place() -> tuple[int, int]:
    """The number of this process, and of how many."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_available() and dist.is_initialized() else (0, 1)


def world_size() -> int:
    """How many processes train together; 1 when nothing was started by torchrun or accelerate."""
    return process_place()[1]


def spreads_weights() -> bool:
    """Whether accelerate was told to train with FSDP: no process has all weights."""
    return os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"


def gather_everywhere(mine: Thing) -> list[Thing]:
    """What each process holds, in their order, on every process."""
    if world_size() == 1:
        return [mine]
    everyone: list[Any] = [None] * world_size()
    dist.all_gather_object(everyone, mine)
    return everyone


def share_from_first(make: Callable[[], Thing]) -> Thing:
    """What the first process makes, on every process: two machines may round a sum differently, and must not disagree."""
    rank, world = process_place()
    box: list[Any] = [make() if rank == 0 else None]
    if world > 1:
        dist.broadcast_object_list(box)
    return box[0]


def wait_for_all() -> None:
    """Go on when every process has come here."""
    gather_everywhere(None)


def check_same(what: str, mine: str) -> None:
    """Refuse to go on where the processes have not the same. mine: a fingerprint of it."""
    found = gather_everywhere(mine)
    if len(set(found)) > 1:
        other = next(place for place, theirs in enumerate(found) if theirs != found[0])
        raise UserError(
            f"{what} of process {other} differ from those of process 0: give every machine the same files, "
            f"and the same versions of pairtune, torch and transformers"
        )


def join_group() -> None:
    """Make the processes that were started together one group, each with its own GPU where there are any."""
    if dist.is_initialized():
        return
    warnings.filterwarnings("ignore", message="`broadcast_buffers` is deprecated")  # between accelerate and torch
    backend, local = "gloo", int(os.environ.get("LOCAL_RANK", "0"))
    if torch.cuda.is_available():
        if local >= torch.cuda.device_count():
            raise UserError(
                f"process {local + 1} of this machine has no GPU: there are {torch.cuda.device_count()}. "
                f"Start one process for each GPU (--nproc_per_node)"
            )
        torch.cuda.set_device(local)
        backend = "cuda:nccl,cpu:gloo"
    dist.init_process_group(backend, timeout=PATIENCE)


_alarm: Alarm | None = None


@contextmanager
def together() -> Iterator[None]:
    """Inside, the processes that were started together are one group, and an error of one ends all of them with its message.

    Afterwards the group and its threads are gone. In a single process, or inside another such block, it does nothing.
    """
    global _alarm
    if count_processes() == 1 or _alarm is not None:
        yield
        return
    mine = not dist.is_initialized()
    join_group()
    alarm = _alarm = Alarm()
    try:
        yield
        alarm.end()
        wait_for_all()
    except Exception as problem:
        alarm.ring(problem)
        if not is_first():
            raise SystemExit(1) from None  # the first process has said why
        raise in_words(problem) from problem
    finally:
        _alarm = None
        alarm.stop()
        if mine:
            leave_group(sys.exception())


def leave_group(problem: BaseException | None = None) -> None:
    """End the group and its threads. problem: the exception that is on its way, whose frames hold what trains in the group.

    gloo's threads let go of the tensors of a collective a little after it is done, and need Python for that. A thread that
    does so while Python ends aborts the process. Only a group that nobody holds any more waits for its threads.
    """
    failed = problem is not None
    while problem is not None:
        traceback.clear_frames(problem.__traceback__)
        problem = problem.__context__
    gc.collect()  # the parts of a trainer refer to each other
    if not (failed and torch.cuda.is_available()):  # NCCL would wait for what the others never finish
        dist.destroy_process_group()


class Alarm:
    """Tells the other processes that this one has failed, and ends this one when another has.

    A collective call waits for every process. One that has failed never comes, so each process listens in a thread.
    """

    def __init__(self) -> None:
        self.rank, self._store = dist.get_rank(), open_store()
        self._lock, self._over, self._quiet = threading.Lock(), False, threading.Event()
        self._thread = threading.Thread(target=self._listen, args=(open_store(),), daemon=True)
        self._thread.start()

    def ring(self, problem: Exception) -> None:
        """Tell the others; where this is not the first process, let the first one say it, or say it where that is not there."""
        if not self._take_over():
            self._thread.join()  # it ends this process
        mine = f"process {self.rank}: {describe_problem(problem)}"
        try:
            first = self._store.compare_set(FAILED, "", mine).decode()
            if self.rank == 0:
                self._store.set(SAID, "yes")
                if first.partition(": ")[2] != describe_problem(problem):
                    say(f"pairtune: {first}")
            elif not first.startswith("process 0:"):
                with suppress(dist.DistNetworkError):  # the first held the store, and has said it and left
                    self._store.wait([SAID], SOON)
        except dist.DistError:
            if self.rank:
                print(printable(f"pairtune: {mine}"), file=sys.stderr, flush=True)

    def end(self) -> None:
        """All went well: whatever happens to the others from now on does not end this process."""
        self._take_over()
        self.stop()

    def stop(self) -> None:
        """Stop listening, and wait for the thread: one that is in torch's store while Python ends aborts the process."""
        self._quiet.set()
        self._thread.join()

    def _take_over(self) -> bool:
        """Whether it is the caller, the first to ask, that ends this process; nothing else does from now on."""
        with self._lock:
            before, self._over = self._over, True
        return not before

    def _listen(self, store: Store) -> None:
        message = ""
        try:
            while not store.check([FAILED]):
                if self._quiet.wait(LISTEN_SECONDS):
                    return
            message = store.get(FAILED).decode()
        except dist.DistError:  # the process that holds the store is gone
            pass
        if self._take_over():
            self._leave(store, message)

    def _leave(self, store: Store, message: str) -> None:
        """End this process, which waits for one that never comes."""
        with suppress(dist.DistError):
            if self.rank == 0 and message:
                sys.stderr.write(SHOW_CURSOR if sys.stderr.isatty() else "")
                say(f"pairtune: {message}")
                store.set(SAID, "yes")
            elif message:
                store.wait([SAID], SOON)
        os._exit(1)


SHOW_CURSOR = "\x1b[?25h"  # which a progress bar has hidden
LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Connection refused")


def open_store() -> Store:
    """Where the processes find each other: torchrun's store, or the first process's. Each wait blocks its own connection."""
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(*place, is_master=False, wait_for_workers=False, timeout=SOON)
    return PrefixStore(f"pairtune/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def describe_problem(problem: Exception) -> str:
    """What a user can mend in words, anything else with the lines of code that it came from."""
    told = in_words(problem)
    return str(told) if isinstance(told, UserError) else "".join(traceback.format_exception(told))


def in_words(problem: Exception) -> Exception:
    """The problem, or, where it only says that a connection is lost, that another process has ended."""
    if not any(sign in str(problem) for sign in LOST):
        return problem
    return UserError(
        "another process of this training has ended without a message: it was killed, or had no memory left. "
        "What was saved is kept: start all processes again with --resume"
    )
