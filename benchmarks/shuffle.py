"""How long a shuffle by words takes against the same engine's own `ORDER BY random()`, in one run, under one memory limit.

    python benchmarks/shuffle.py --rows 20_000_000 --memory 2GB
    python benchmarks/shuffle.py --rows 1_000_000 --engine spark

The rows are made by DuckDB itself: a question of 8 to 12 Zipf-distributed words, a third of them stop words, and 110 bytes
of payload that do not compress: 3.2 GB for 20 million. The last line is a JSON object.
`cpu` is processor time: it stays meaningful when the machine is shared.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pairtune.engines import prepare, shuffle
from pairtune.engines.shuffle import memory_bytes

STOPS = ["the", "of", "and", "to", "in", "a", "is", "that", "for", "it"]
SYNTHETIC = f"""
    SELECT r AS id,
           array_to_string(list_transform(range(8 + (hash(r) % 5)::INT), lambda j:
               CASE WHEN hash(r, j, 1) % 3 = 0 THEN {STOPS}[(hash(r, j, 2) % 10)::INT + 1]
                    ELSE 'w' || exp(hash(r, j) % 1000003 / 1000003.0 * ln(200000))::INT END), ' ') || '?' AS question,
           md5('a' || r) || ' ' || md5('b' || r) || md5('c' || r) AS answer,
           (hash(r, 'label') % 2)::FLOAT AS label
    FROM range({{rows}}) AS t(r)
"""


def main() -> None:
    """Make the rows, time everything, print a table and, if asked, the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--engine", choices=["duckdb", "spark"], default="duckdb")
    parser.add_argument("--repeat", type=int, default=1, help="rounds; of each figure the least is kept")
    parser.add_argument("--folder", help="where to put the rows (temporary; the system's own folder if not given)")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object, on the last line")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        work = Path(folder)
        run_aside(make_rows, work, given.rows, given.memory)
        measure = measure_duckdb if given.engine == "duckdb" else measure_spark
        figures = measure(work, given)
        size = (work / "rows.parquet").stat().st_size
    floor = figures["order by random()"]
    for name, figure in figures.items():
        ratio = f"{figure['wall'] / floor['wall']:5.2f}x wall {figure['cpu'] / floor['cpu']:5.2f}x cpu"
        print(f"{name:20s} {figure['wall']:8.1f} s wall {figure['cpu']:8.1f} s cpu {figure['peak_mb']:7,.0f} MB   {ratio}")
    if not given.json:
        return
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()[1]}
    print(json.dumps({**vars(given), "folder": None, "bytes": size, "machine": machine, "figures": figures}))


def make_rows(work: Path, rows: int, memory: str) -> None:
    """The synthetic rows, as one Parquet file."""
    with connected(work, memory) as database:
        database.execute(f"COPY ({SYNTHETIC.format(rows=rows)}) TO '{work}/rows.parquet'")


def measure_duckdb(work: Path, given: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Every step in a process of its own, so that its peak memory is its own."""
    source, words, out = (str(work / f"{name}.parquet") for name in ("rows", "words", "out"))
    common = {"memory": given.memory, "overwrite": True}
    steps: dict[str, tuple[Callable[..., object], tuple, dict]] = {
        "copy": (copy, (work, given.memory, ""), {}),
        "order by random()": (copy, (work, given.memory, "ORDER BY random()"), {}),
        "one shot": (shuffle, (source, out), {"column": "question", **common}),
        "prepare": (prepare, (source, words), {"column": "question", **common}),
        "reshuffle prepared": (shuffle, (source, out), {"prepared": words, **common}),
        "permutation": (shuffle, (source, out), {"prepared": words, "rows_only": True, **common}),
    }
    figures: dict[str, dict[str, float]] = {}
    for _ in range(given.repeat):
        for name, (step, arguments, options) in steps.items():
            keep_least(figures, name, run_aside(step, *arguments, **options))
    return figures


def copy(work: Path, memory: str, order: str) -> None:
    """What the engine itself does with the same file."""
    with connected(work, memory) as database:
        database.execute(f"COPY (SELECT * FROM '{work}/rows.parquet' {order}) TO '{work}/plain.parquet'")


def connected(work: Path, memory: str):
    """A DuckDB of its own, with the same limits as ours."""
    import duckdb

    return duckdb.connect(config={"memory_limit": f"{memory_bytes(memory)}B", "temp_directory": str(work / "spill")})


def run_aside(step: Callable[..., object], *arguments: object, **options: object) -> dict[str, float]:
    """Wall seconds, processor seconds and peak megabytes of one call in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(timed, (step, arguments, options))


def timed(step: Callable[..., object], arguments: tuple, options: dict) -> dict[str, float]:
    """One call, measured from inside its process; the import of the engine is not counted."""
    import duckdb  # noqa: F401

    started, before = time.perf_counter(), time.process_time()
    step(*arguments, **options)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"wall": time.perf_counter() - started, "cpu": time.process_time() - before, "peak_mb": peak}


def keep_least(figures: dict[str, dict[str, float]], name: str, figure: dict[str, float]) -> None:
    """Noise on a shared machine only ever adds."""
    known = figures.get(name, figure)
    figures[name] = {key: round(min(known[key], figure[key]), 2) for key in figure}


def measure_spark(work: Path, given: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Both in one warm session: starting the JVM costs the same whatever it does then."""
    from pyspark.sql import SparkSession

    from pairtune.engines.spark import SETTINGS

    memory = f"{memory_bytes(given.memory) // 2**20}m"
    settings = {**SETTINGS, "spark.master": "local[2]", "spark.local.dir": str(work), "spark.driver.memory": memory}
    spark = SparkSession.builder.config(map={**settings, "spark.sql.shuffle.partitions": "16"}).getOrCreate()
    source, out, plain = str(work / "rows.parquet"), str(work / "out"), str(work / "plain")

    def order_by_rand() -> None:
        spark.read.parquet(source).createOrReplaceTempView("plain")
        spark.sql("SELECT * FROM plain ORDER BY rand()").write.mode("overwrite").parquet(plain)

    def one_shot() -> None:
        shuffle(source, out, column="question", engine="spark", overwrite=True)

    figures: dict[str, dict[str, float]] = {}
    process = Path(f"/proc/{spark._jvm.java.lang.ProcessHandle.current().pid()}")
    for turn in range(given.repeat + 1):
        for name, step in {"order by random()": order_by_rand, "one shot": one_shot}.items():
            started, before = time.perf_counter(), processor_seconds(process)
            step()
            cpu, peak = processor_seconds(process) - before, int((process / "status").read_text().split("VmHWM:")[1].split()[0])
            if turn:  # the first turn warms the JVM
                keep_least(figures, name, {"wall": time.perf_counter() - started, "cpu": cpu, "peak_mb": peak / 1024})
    spark.stop()
    return figures


def processor_seconds(process: Path) -> float:
    """User and system time of another process, from Linux."""
    fields = (process / "stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
