"""`python failing.py FOLDER`: pairs of processes of which one fails, and what each of them said and ended with."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from pairtune.errors import UserError
from pairtune.processes import together, wait_for_all
from ranks import shared_environment


def refuse():
    raise UserError("give a multiple of 2")


def break_down():
    raise ZeroDivisionError("a mistake of ours")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


CASES = {"first refuses": (refuse, wait_for_all), "second refuses": (wait_for_all, refuse), "both refuse": (refuse, refuse),
         "second breaks down": (wait_for_all, break_down), "second dies": (wait_for_all, die)}  # fmt: skip


def live(case: str, rank: int, log: Path, environment: dict[str, str]) -> None:
    """One process to its end, as the command line would end it."""
    os.environ.update({**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)})
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 2)
    try:
        with together():
            wait_for_all()
            CASES[case][rank]()
    except UserError as problem:
        if rank == 0:
            print(f"pairtune: {problem}", file=sys.stderr, flush=True)
        os._exit(2)
    except SystemExit as end:
        os._exit(end.code)


def main(folder: Path) -> None:
    """All cases at once."""
    children = {}
    for case in CASES:
        environment = shared_environment()
        for rank in range(2):
            if not (child := os.fork()):
                live(case, rank, folder / f"{case}.{rank}", environment)
                os._exit(0)
            children[child] = case, rank
    ended = {case: [0, 0] for case in CASES}
    for child, (case, rank) in children.items():
        ended[case][rank] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    (folder / "ended.json").write_text(json.dumps(ended))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
