"""The command line: parses, calls, prints."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import NoReturn

from pairtune.cli import learning, preparing, scoring, sharing
from pairtune.cli.common import app
from pairtune.cli.options import refuse_renamed, refuse_unquoted
from pairtune.errors import UserError
from pairtune.progress import say

__all__ = ["app", "learning", "main", "preparing", "scoring", "sharing"]


def main(words: Sequence[str] | None = None) -> NoReturn:
    """Run the command line, or these words of one: a user's mistake ends in one message, not in a traceback."""
    words = sys.argv[1:] if words is None else words
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that is not UTF-8 gets escapes for what it cannot show
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        refuse_unquoted(words)
        refuse_renamed(words)
        app(words)
    except UserError as problem:
        if "--debug" in words:
            raise
        say(f"pairtune: {problem}")
        sys.exit(2)
    except RecursionError:
        if "--debug" in words:
            raise
        say("pairtune: a file is nested too deeply to be read: give rows of plain values")
        sys.exit(2)
    except OSError as problem:  # a full disk, a folder that may not be written, a path that is too long
        if "--debug" in words or problem.errno is None:
            raise
        where = f": {problem.filename}" if problem.filename else ""
        say(f"pairtune: {problem.strerror}{where}; what was finished before is kept")
        sys.exit(2)
    sys.exit(0)
