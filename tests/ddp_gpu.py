"""`python ddp_gpu.py WORDS…`: the command line as one of two processes that share a GPU, which NCCL refuses and gloo allows."""

from __future__ import annotations

import sys

import torch.distributed as dist

from pairtune.cli import main

if __name__ == "__main__":
    dist.init_process_group("gloo")
    main(sys.argv[1:])
