"""`python held.py STEP WORDS…`: the command line, but after that step of training it says so and waits for a signal."""

from __future__ import annotations

import os
import signal
import sys

from transformers import TrainerCallback
from transformers.trainer import DEFAULT_CALLBACKS

from pairtune.cli import main

HELD = "held at step"


class Hold(TrainerCallback):
    """Waits at the end of one step, before anything is saved or evaluated."""

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == int(sys.argv[1]):
            line = f"{HELD} {state.global_step} as process {args.process_index}: {os.getpid()}\n"
            os.write(sys.stdout.fileno(), line.encode())  # at once: unbuffered, print writes the end of the line by itself
            signal.pause()


if __name__ == "__main__":
    DEFAULT_CALLBACKS.append(Hold)
    main(sys.argv[2:])
