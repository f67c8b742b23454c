"""Two real processes that train together."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import held
from small import small_pairs


def shared_environment(**more):
    """What torchrun tells two processes, but for their numbers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    return {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1", **more}


def kill_one_rank(rank, step, words, script=held.__file__):
    """Start two processes with torchrun, and kill one when both are at this step of training; how all of them ended."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    process = subprocess.Popen([*torchrun, script, str(step), *words], stdout=subprocess.PIPE, text=True)
    waiting = {}
    for line in process.stdout:  # which may begin with a part of what the other process says
        waiting |= {int(place): int(number) for place, number in re.findall(rf"{held.HELD} \d+ as process (\d+): (\d+)", line)}
        if len(waiting) == 2:
            os.kill(waiting[rank], signal.SIGKILL)
            break
    process.communicate()
    return sorted(waiting), process.returncode


def run_two_ranks(script, *words, logs, one_device=False):
    """Run a script as ranks 0 and 1 to their end; where one fails the other is not waited for, which waits for the first."""
    shared = shared_environment()
    said = [logs / f"rank-{rank}.log" for rank in range(2)]
    processes = []
    for rank, log in enumerate(said):
        environment = {**shared, "RANK": str(rank), "LOCAL_RANK": "0" if one_device else str(rank)}
        with log.open("w") as file:
            command = [sys.executable, str(script), *map(str, words)]
            processes.append(subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT))
    try:
        while None in (ended := [process.poll() for process in processes]) and not any(ended):
            time.sleep(0.1)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert ended == [0, 0], "\n".join(log.read_text()[-4000:] for log in said)


STEPS = 3  # of an epoch: 17 pairs are trained on, 8 at a time; the last batch has one, for two processes
FAST = ["--set", "train.epochs=1"]
PADDED = [*FAST, "--set", "train.fast=false", "--set", "loss.kind=mse", "--set", "loss.learn_temperature=false"]


def write_training(folder, encoder):
    """A training of two epochs as the command line has it."""
    path, recipe = write_pairs(folder / "pairs.jsonl", small_pairs(40, 7)), folder / "small.toml"
    recipe.write_text(settings(encoder))
    return ["train", str(recipe), "--data", str(path), "--left", "q", "--right", "a", "--label", "y"]


def write_sources(folder, encoder, mix):
    """The same of two sources, whose pairs share batches, or not."""
    recipe = folder / f"sources-{mix}.toml"
    files = [write_pairs(folder / f"source-{seed}.jsonl", small_pairs(count, seed)) for seed, count in ((7, 20), (8, 24))]
    tables = (f'[[sources]]\nname = "{file.stem}"\ndata = "{file}"\nleft = "q"\nright = "a"\nlabel = "y"\n' for file in files)
    recipe.write_text(("mix_sources = true\n" if mix else "") + settings(encoder) + "".join(tables))
    return ["train", str(recipe)]


def settings(encoder):
    return (
        f'encoder = "{encoder}"\nkeep_original = false\nselect = "last"\n[loss]\nkind = "combo"\nlearn_temperature = true\n'
        "[train]\nepochs = 2\nbatch_size = 8\nlearning_rate = 1e-4\nmax_seq_length = 16\npairs = 17\n"
    )


def write_pairs(path, pairs):
    rows = ({"q": left, "a": right, "y": float(y)} for left, right, y in zip(pairs.left, pairs.right, pairs.label, strict=True))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
