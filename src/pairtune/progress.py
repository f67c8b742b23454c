"""Progress that a person can read: a bar in a terminal, a line now and then in a log."""

from __future__ import annotations

import os
import sys
import time
import unicodedata
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

Item = TypeVar("Item")

QUIET_SECONDS = 2.0  # what is faster than this needs no progress
LOG_EVERY_SECONDS = 10.0


def count_processes() -> int:
    """How many processes torchrun or accelerate started together; 1 where none did."""
    said = os.environ.get("WORLD_SIZE", "1")
    return int(said) if said.isdecimal() else 1


def is_first() -> bool:
    """Whether this is the first of the processes that train together, which speaks for all; true where there is only one."""
    return count_processes() == 1 or os.environ.get("RANK", "0") == "0"


def say(message: str) -> None:
    """One line to standard error, where progress belongs: standard output stays clean for results."""
    if is_first():
        print(printable(message), file=sys.stderr, flush=True)


def printable(text: str) -> str:
    r"""The text with what would steer a terminal, or cannot be written, as escapes.

    >>> print(printable("a" + chr(27) + "[31mb"))
    a\x1b[31mb
    """
    steering = {letter for letter in set(text) - {"\n", "\t"} if unicodedata.category(letter) in ("Cc", "Cs")}
    return "".join(letter.encode("unicode_escape").decode() if letter in steering else letter for letter in text)


def describe_count(count: int, thing: str) -> str:
    """So many things, in words.

    >>> describe_count(1, "fold"), describe_count(2000, "fold")
    ('1 fold', '2,000 folds')
    """
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def describe_time(seconds: float) -> str:
    """Seconds as a person says them.

    >>> describe_time(75), describe_time(4000), describe_time(1e6)
    ('1 min 15 s', '1 h 6 min', '11 days 13 h')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, days = minutes // 60, minutes // (24 * 60)
    if days >= 2:
        return f"{days:,} days {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def track(
    items: Iterable[Item],
    what: str,
    total: int | None = None,
    *,
    quiet_seconds: float = QUIET_SECONDS,
    every_seconds: float = LOG_EVERY_SECONDS,
) -> Iterator[Item]:
    """Yield the items, showing how far along we are: in a log after the quiet seconds, and then every so many."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    if sys.stderr.isatty() and is_first():
        yield from _track_on_a_terminal(items, what, total)
    else:
        yield from _track_in_a_log(items, what, total, quiet_seconds, every_seconds)


def _track_on_a_terminal(items: Iterable[Item], what: str, total: int | None) -> Iterator[Item]:
    from rich.console import Console
    from rich.progress import track as rich_track

    yield from rich_track(items, what, total=total, console=Console(stderr=True), transient=True)


def _track_in_a_log(
    items: Iterable[Item], what: str, total: int | None, quiet_seconds: float, every_seconds: float
) -> Iterator[Item]:
    started = time.monotonic()
    next_line = started + quiet_seconds
    for done, item in enumerate(items):
        now = time.monotonic()
        if now >= next_line:
            share = f"{done:,} of {total:,}" if total else f"{done:,}"
            left = f", {(now - started) / done * (total - done):.0f} s left" if total and done else ""
            say(f"{what}: {share}{left}")
            next_line = now + every_seconds
        yield item
