"""The command line: parses, calls, prints."""

from __future__ import annotations

import sys
from typing import NoReturn

from pairtune.cli import learning, scoring, sharing, shuffling
from pairtune.cli.common import app
from pairtune.errors import UserError

__all__ = ["app", "learning", "main", "scoring", "sharing", "shuffling"]


def main() -> NoReturn:
    """Run the command line: a user's mistake ends in one message, not in a traceback."""
    try:
        app()
    except UserError as problem:
        if "--debug" in sys.argv:
            raise
        print(f"pairtune: {problem}", file=sys.stderr)
        sys.exit(2)
    sys.exit(0)
