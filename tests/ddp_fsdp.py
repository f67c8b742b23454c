"""`python ddp_fsdp.py STEP COMMANDS`: one of two processes whose weights are spread by FSDP, without a GPU or on a shared one.

COMMANDS is a file of command lines, run one after the other; at STEP of a training it is held, as by held.py.

accelerate uses FSDP on GPUs only, and takes processes on CPUs for DDP. torch does not mind, so accelerate is told that these
are GPUs where it asks whether FSDP can be used.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist
from accelerate.state import DistributedType, PartialState
from transformers.trainer import DEFAULT_CALLBACKS

from held import Hold
from pairtune.cli import main
from pairtune.processes import leave_group

plain = PartialState.__init__


def begin(self, *given, **more):
    """As on GPUs."""
    plain(self, *given, **more)
    if self.distributed_type == DistributedType.MULTI_CPU:
        self.distributed_type = DistributedType.MULTI_GPU


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    PartialState.__init__ = begin
    DEFAULT_CALLBACKS.append(Hold)
    for words in json.loads(Path(sys.argv[2]).read_text()):
        with suppress(SystemExit):
            main(words)
    leave_group()  # whoever made it: a thread of it that outlives Python aborts the process
