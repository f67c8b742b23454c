"""`python ddp_gpu.py WORDS…`: the command line as one of two processes that share a GPU, which NCCL refuses and gloo allows.

At the end it says how often a CUDA graph was played.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist

from pairtune.cli import main
from pairtune.fast.step import FastStep
from pairtune.processes import leave_group

PLAYED = "graphs played:"


class CountedGraph(torch.cuda.CUDAGraph):
    """A graph that counts."""

    played = 0

    def replay(self):
        """Play it."""
        CountedGraph.played += 1
        super().replay()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.cuda.CUDAGraph = CountedGraph
    FastStep.several = True
    code = None
    try:
        main(sys.argv[1:])
    except SystemExit as end:
        code = end.code
    print(PLAYED, CountedGraph.played, flush=True)
    leave_group()  # whoever made it: a thread of it that outlives Python aborts the process
    sys.exit(code)
