"""One process at a time: a lock that ends with the process that holds it, however that ends."""

from __future__ import annotations

import datetime
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pairtune.errors import UserError

LOCK = ".lock"
LOCKED_BYTE = 2**30  # the byte that is locked on Windows, where a locked byte cannot be read


def take_lock(descriptor: int, *, wait: bool) -> bool:
    """Whether the open file is now locked; it stays so until it is closed, or its process has died."""
    try:
        _lock(descriptor, wait)
    except OSError:
        if wait:
            raise
        return False
    return True


def _lock(descriptor: int, wait: bool) -> None:
    if sys.platform == "win32":
        import msvcrt

        os.lseek(descriptor, LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Keep others out of a folder; refuse, saying who holds it, where another process does."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+", encoding="utf-8") as file:
        if not take_lock(file.fileno(), wait=False):
            raise _held(folder)
        file.truncate(0)
        since = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
        file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}))
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def check_free(folder: Path) -> None:
    """Refuse a folder that another process holds; writes nothing."""
    try:
        with (folder / LOCK).open("r+", encoding="utf-8") as file:
            if not take_lock(file.fileno(), wait=False):
                raise _held(folder)
    except (FileNotFoundError, NotADirectoryError):
        return


def _held(folder: Path) -> UserError:
    try:
        holder = json.loads((folder / LOCK).read_text(encoding="utf-8"))
        who = f"process {holder['pid']} on {holder['host']} has been writing it since {holder['since']} UTC"
    except (OSError, ValueError, LookupError, TypeError):
        who = "another process is writing it"
    return UserError(f"{folder} is in use: {who}; wait until it is done, stop it, or give another --out")
