"""What a bug report needs to know of a machine, and whether pairtune works on it."""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pairtune.cli.common import JsonFlag, app

PACKAGES = ("torch", "transformers", "sentence-transformers", "tokenizers", "datasets", "numpy", "faiss-cpu", "duckdb", "pyspark")
NEAR = ("how do I sort a list?", "sorted(iterable) returns a new sorted list")
FAR = ("how do I sort a list?", "socket.create_connection(address) opens a TCP connection")


@app.command()
def doctor(as_json: JsonFlag = False) -> None:
    """Print versions, devices, cache, disk and the result of a short self-test, for a bug report."""
    found = dict(examine())
    print(json.dumps(found) if as_json else "\n".join(f"{name:<22} {value}" for name, value in found.items()))


def examine() -> Iterator[tuple[str, str]]:
    """Names and findings, in the order in which they matter."""
    from pairtune import __version__
    from pairtune.cache import cache_folder, reaches_hub

    yield "pairtune", __version__
    yield "python", f"{platform.python_version()} on {platform.platform()}, {os.cpu_count()} cores"
    for name in PACKAGES:
        yield name, installed(name)
    yield "device", describe_devices()
    yield "cache", describe_folder(cache_folder())
    yield "this folder", describe_folder(Path.cwd())
    yield "Hugging Face hub", "has an address here" if reaches_hub() else "cannot be reached"
    yield "self-test", self_test()


def installed(name: str) -> str:
    """The version of a package."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def describe_devices() -> str:
    """The GPUs, or that there is none."""
    import torch

    names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return ", ".join(names) or f"CPU only, {torch.get_num_threads()} threads"


def describe_folder(folder: Path) -> str:
    """Whether a folder, or the one that it would be made in, can be written, and how much room there is."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    may = "can be written" if os.access(there, os.W_OK) else "CANNOT be written"
    return f"{str(folder).replace(str(Path.home()), '~')}, {may}, {shutil.disk_usage(there).free / 1e9:.1f} GB free"


def self_test() -> str:
    """Load the default encoder and score two pairs: the figures are the same on every machine, to two digits."""
    from pairtune.encoders.embedding import score_pairs
    from pairtune.encoders.loading import load_encoder

    try:
        near, far = score_pairs(load_encoder("minilm"), *zip(NEAR, FAR, strict=True))
    except Exception as problem:  # whatever is wrong here is what the report is about
        return f"FAILED: {type(problem).__name__}: {problem}"
    return f"{'passed' if near > far else 'FAILED'}: a near pair scores {near:.2f}, a far one {far:.2f}"
