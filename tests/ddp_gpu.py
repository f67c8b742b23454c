"""`python ddp_gpu.py WORDS…`: the command line as one of two processes that share a GPU, which NCCL refuses and gloo allows.

At the end it says how often a CUDA graph was played.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist

from pairtune.cli import main
from pairtune.fast.step import FastStep

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
    try:
        main(sys.argv[1:])
    finally:
        print(PLAYED, CountedGraph.played, flush=True)
