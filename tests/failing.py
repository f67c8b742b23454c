"""`python failing.py FOLDER`: pairs of processes, most of which fail; what each said, ended with, and left of its threads."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch
from torch.nn.parallel import DistributedDataParallel

from pairtune.errors import UserError
from pairtune.processes import together, wait_for_all
from ranks import shared_environment


def refuse():
    raise UserError("give a multiple of 2")


def break_down():
    raise ZeroDivisionError("a mistake of ours")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


CASES = {
    "all goes well": (wait_for_all, wait_for_all),
    "first refuses": (refuse, wait_for_all),
    "second refuses": (wait_for_all, refuse),
    "both refuse": (refuse, refuse),
    "second breaks down": (wait_for_all, break_down),
    "second dies": (wait_for_all, die),
}


class Trainer:
    """Its parts refer to each other, as the host's do: it is gone when Python collects garbage, not before."""

    def __init__(self):
        self.itself, self.model = self, DistributedDataParallel(torch.nn.Linear(2, 2))

    def train(self, counts, then):
        self.model(torch.ones(1, 2)).sum().backward()
        counts.append(count_threads())  # one has served a collective by now, and so has its name
        then()


def count_threads():
    """Those of a group of processes, by the name that torch gives them."""
    return sum(path.read_text() == "pt_gloo_runloop\n" for path in Path("/proc/self/task").glob("*/comm"))


def live(case: str, rank: int, log: Path, environment: dict[str, str]) -> None:
    """One process to its end, as the command line would end it."""
    os.environ.update({**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)})
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 2)
    counts: list[int] = []
    try:
        with together():
            Trainer().train(counts, CASES[case][rank])
        status = 0
    except UserError as problem:
        status = 2
        if rank == 0:
            print(f"pairtune: {problem}", file=sys.stderr, flush=True)
    except SystemExit as end:
        status = end.code
    log.with_suffix(log.suffix + ".threads").write_text(json.dumps([*counts, count_threads()]))
    os._exit(status)


def main(folder: Path) -> None:
    """All cases at once."""
    children = {}
    for case in CASES:
        environment = shared_environment()
        for rank in range(2):
            if not (child := os.fork()):
                live(case, rank, folder / f"{case}.{rank}", environment)
            children[child] = case, rank
    ended = {case: [0, 0] for case in CASES}
    for child, (case, rank) in children.items():
        ended[case][rank] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    (folder / "ended.json").write_text(json.dumps(ended))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
