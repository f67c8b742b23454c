"""Ctrl-C in tests that may themselves run in the background."""

from __future__ import annotations

import signal


def heed_interrupts() -> None:
    """For `preexec_fn`: in a process that was started in the background Ctrl-C is ignored, and in its children too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
