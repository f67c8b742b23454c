"""Progress that a person can read."""

from __future__ import annotations

import re
import subprocess
import sys

from pairtune.progress import say
from terminals import in_a_terminal

COUNTING = """
from pairtune.progress import track
for _ in track(range(10), "counting", quiet_seconds=0, every_seconds=0): pass
"""


def test_progress_is_a_bar_in_a_terminal_and_lines_in_a_log():
    shown = in_a_terminal([sys.executable, "-c", COUNTING])
    assert "━" in shown and "counting" in shown
    logged = subprocess.run([sys.executable, "-c", COUNTING], capture_output=True, text=True, check=True)
    assert logged.stdout == "" and "\x1b" not in logged.stderr and "\r" not in logged.stderr
    assert re.fullmatch(r"counting: 0 of 10\n(counting: \d of 10, \d+ s left\n){9}", logged.stderr)


def test_what_is_said_does_not_steer_the_terminal(capsys):
    say("a \x1b[31mred\x07 name\r, in two\nlines")
    assert capsys.readouterr().err == "a \\x1b[31mred\\x07 name\\r, in two\nlines\n"
