"""A command on a terminal of 100 columns."""

from __future__ import annotations

import os
import pty
import subprocess


def in_a_terminal(command: list[str], **environment: str) -> str:
    """What a command shows on a terminal of 100 columns."""
    ours, theirs = pty.openpty()
    clean = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR", "CI")}
    variables = {**clean, "TERM": "xterm-256color", "COLUMNS": "100", **environment}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=variables, close_fds=True)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert process.wait() == 0, shown
    return shown.decode()
