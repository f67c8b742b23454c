"""How long a file of pairs takes to read, by Arrow and by Python's own parsers, each in a process of its own.

    python benchmarks/reading.py --rows 1_000_000

Seconds are those of the processor, all threads together: other programs on the machine do not count.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from pairtune.data import json_tables, text_tables
from pairtune.data.formats import open_table, write_table
from pairtune.data.own_tables import read_pairs


def main() -> None:
    """Both ways for each kind of file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--read", type=Path, help="read this file, and print seconds and megabytes")
    parser.add_argument("--careful", action="store_true", help="with --read: by Python")
    given = parser.parse_args()
    if given.read:
        print(*measure(given.read, given.careful))
        return
    with TemporaryDirectory() as folder:
        for ending in ("csv", "tsv", "jsonl"):
            path = Path(folder) / f"pairs.{ending}"
            write_table(path, make_pairs(given.rows))
            careful, quick = (run(path, *more) for more in (("--careful",), ()))
            size = path.stat().st_size / 1e6
            print(f"{path.name}, {given.rows:,} rows, {size:.0f} MB: table {careful[0]:.1f} s → {quick[0]:.1f} s "
                  f"({careful[0] / quick[0]:.1f} times as fast), read_pairs {careful[1]:.1f} s → {quick[1]:.1f} s, "
                  f"peak {careful[2]:.0f} → {quick[2]:.0f} MB", flush=True)  # fmt: skip


def run(path: Path, *more: str) -> list[float]:
    """Measure in a process of its own."""
    words = [sys.executable, __file__, "--read", str(path), *more]
    return [float(word) for word in subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()]


def measure(path: Path, careful: bool) -> tuple[float, float, float]:
    """Seconds for all columns of the table, seconds for the task, and the peak of the process's memory in MB."""
    if careful:
        text_tables._cut_quickly = lambda content, delimiter: None
        json_tables._read_jsonl_quickly = lambda content: None
    start = time.process_time()
    table = open_table(path)
    columns = [table.column(name) for name in table.names]
    opened = time.process_time() - start
    del table, columns
    start = time.process_time()
    read_pairs(path)
    return opened, time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def make_pairs(rows: int) -> dict[str, list]:
    """Texts of 8 and 12 words, every seventh with a comma and quotation marks, and labels."""
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(20_000)]
    left = [" ".join(draw.choices(words, k=8)) + (', "why"' if row % 7 == 0 else "") for row in range(rows)]
    right = [" ".join(draw.choices(words, k=12)) for _ in range(rows)]
    return {"question": left, "answer": right, "label": [row % 2 for row in range(rows)]}


if __name__ == "__main__":
    main()
