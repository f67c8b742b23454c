"""Workers of a benchmark whose parent is killed end, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORKERS = """
import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from benchmarks.orphans import end_with_parent


def work():
    print("at work", flush=True)
    time.sleep(20)
    print("still at work", flush=True)
    os._exit(0)


if __name__ == "__main__":
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=end_with_parent) as pool:
        pool.submit(work).result()
"""


def test_workers_end_when_the_process_that_started_them_is_killed(tmp_path):
    script = tmp_path / "workers.py"
    script.write_text(WORKERS)
    where = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=where
    ) as parent:
        assert parent.stdout is not None and parent.stdout.readline() == "at work\n"
        parent.kill()
        assert parent.stdout.read() == ""  # to its end: nobody holds it any more
