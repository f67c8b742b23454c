"""Two real processes that train together."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time


def run_two_ranks(script, *words, logs):
    """Run a script as ranks 0 and 1 to their end; where one fails the other is not waited for, which waits for the first."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    said = [logs / f"rank-{rank}.log" for rank in range(2)]
    processes = []
    for rank, log in enumerate(said):
        environment = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
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
