"""How long a query to `pairtune serve` takes, against 100,000 texts, while others ask too.

python benchmarks/serve.py [--json]

The server is a process of its own, on the loopback; the clients run on the same cores. The queries are real docstrings and are
really encoded and searched for. The corpus is made of docstrings of the standard library, numbered so that they differ; its
vectors are random unit vectors, put where the server finds its index: an exact search takes as long whatever they say, and
encoding 100,000 texts would take half an hour here and is not what is measured.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from pairtune import load_encoder, load_task
from pairtune.encoders.index import fingerprint_model, fingerprint_texts


def write_corpus(folder: Path, left: list[str], many: int, encoder: str) -> Path:
    """The corpus and, for the encoder and its twin, an index that the server will take for its own."""
    import faiss

    texts = [f"{number} {' '.join(left[number % len(left)].split())}" for number in range(many)]
    corpus = folder / "corpus.txt"
    corpus.write_text("\n".join(texts), encoding="utf-8")
    model = load_encoder(encoder)
    key = {"texts": fingerprint_texts(texts), "model": fingerprint_model(model)}
    vectors = np.random.default_rng(0).standard_normal((many, model.get_embedding_dimension() or 0), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for name in ("corpus.txt.index", "corpus.txt.original.index"):
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors)
        (folder / name).mkdir()
        faiss.write_index(index, str(folder / name / "vectors.faiss"))
        (folder / name / "key.json").write_text(json.dumps(key))
    return corpus


def start_server(encoder: str, corpus: Path, sides: int) -> tuple[subprocess.Popen[str], int]:
    """The server and its port, once it answers."""
    command = [sys.executable, "-m", "pairtune", "serve", encoder, "--corpus", str(corpus), "--port", "0"]
    command += ["--original", encoder] if sides == 2 else []
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        assert "encoding the corpus" not in line, "the server did not take the index that was made for it"
        if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
            return process, int(found.group(1))
    raise SystemExit(f"the server did not start: {' '.join(command)}")


def ask_for(port: int, queries: list[str], seconds: float) -> list[float]:
    """Ask one query after the other on one connection; the milliseconds of each."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    waits = []
    end = time.perf_counter() + seconds
    for text in queries:
        started = time.perf_counter()
        connection.request("POST", "/api/search", json.dumps({"text": text}), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        body = answer.read()
        waits.append(1000 * (time.perf_counter() - started))
        assert answer.status == 200, body
        if time.perf_counter() > end:
            break
    return waits


def measure(port: int, queries: list[str], clients: int, seconds: float) -> dict[str, float]:
    """The latency of queries that no one has asked before, from so many clients at once."""
    found: list[list[float]] = [[] for _ in range(clients)]

    def client(number: int) -> None:
        found[number] = ask_for(port, queries[number::clients], seconds)

    started = time.perf_counter()
    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    waits = np.concatenate(found)
    p50, p95 = np.percentile(waits, [50, 95])
    return {
        "queries": len(waits),
        "p50_ms": float(p50),
        "p95_ms": float(p95),
        "per_s": len(waits) / (time.perf_counter() - started),
    }


def main() -> None:
    """Measure with one encoder and with two, for one client and for several."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each figure")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args()
    left = list(dict.fromkeys(load_task("stdlib").train.left))
    found: dict[str, dict[str, float]] = {}
    load = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before"
    print(f"{options.encoder}, {options.texts:,} texts (random unit vectors), {load}")
    print(f"{'encoders':>8} {'clients':>8} {'queries':>8} {'p50 ms':>8} {'p95 ms':>8} {'per s':>8}")
    with tempfile.TemporaryDirectory() as folder:
        corpus = write_corpus(Path(folder), left, options.texts, options.encoder)
        for sides in (1, 2):
            process, port = start_server(options.encoder, corpus, sides)
            try:
                ask_for(port, left[:20], 10)  # the first ones pay for what is set up once
                for clients in (1, options.clients):
                    row = measure(port, left[20:], clients, options.seconds)
                    found[f"{sides} encoders, {clients} clients"] = row
                    figures = f"{row['queries']:>8} {row['p50_ms']:>8.1f} {row['p95_ms']:>8.1f} {row['per_s']:>8.1f}"
                    print(f"{sides:>8} {clients:>8} {figures}", flush=True)
            finally:
                process.terminate()
                process.wait()
    if options.json:
        machine = {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "texts": options.texts,
            "encoder": options.encoder,
        }
        print(json.dumps({"machine": machine, "latency": found}))


if __name__ == "__main__":
    main()
