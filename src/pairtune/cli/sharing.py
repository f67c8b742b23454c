"""Showing a run, using its model elsewhere, and what a bug report needs: report, serve, export, doctor."""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import typer

from pairtune.cli.common import Dimension, JsonFlag, LeftPrompt, RightPrompt, app, asked_prompts, print_scores
from pairtune.errors import UserError


@app.command()
def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, such as runs/demo; several are compared.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The page to write; default: RUN/report.html, for several runs ./report.html.")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Write a page that shows what training did. It needs no network. Several runs are compared."""
    from pairtune.report.page import write_report

    page = write_report(runs, out or (runs[0] if len(runs) == 1 else Path()) / "report.html")
    print(page)
    if show:
        typer.launch(page.resolve().as_uri())


@app.command()
def serve(
    model: Annotated[str, typer.Argument(help="Any sentence-transformers model: alias, folder or hub name.")],
    corpus: Annotated[Path | None, typer.Option(help="Texts to search: one per line, or a table with --column.")] = None,
    column: Annotated[
        str | None, typer.Option(help="Column of the texts, if the corpus is a table; usual names are recognized.")
    ] = None,
    original: Annotated[str | None, typer.Option(help="Encoder to compare with; default: the one it was tuned from.")] = None,
    left_prompt: LeftPrompt = None,
    right_prompt: RightPrompt = None,
    dimension: Dimension = None,
    host: Annotated[str, typer.Option(help="Address to listen on; one that others can reach needs --token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0: any free one.")] = 8000,
    token: Annotated[str | None, typer.Option(envvar="PAIRTUNE_TOKEN", help="Token that the API and the page ask for.")] = None,
) -> None:
    """Serve a local page and a JSON API to try a model: search, score two texts, score a list."""
    from pairtune.serve import serve as serve_model

    if column is not None and corpus is None:
        raise UserError(f"--column {column} is a column of --corpus, and there is none: give both or neither")
    prompts = asked_prompts(left_prompt, right_prompt)
    own: Any = {"corpus": corpus, "column": column, "original": original, "dimension": dimension, "prompts": prompts}
    serve_model(model, **own, host=host, port=port, token=token)


@app.command()
def export(
    model: Annotated[str, typer.Argument(help="Any sentence-transformers model: alias, folder or hub name.")],
    out: Annotated[Path | None, typer.Argument(help="Folder to write; default: MODEL-onnx, MODEL-256, and so on.")] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="For ONNX Runtime: one graph, onnx/model.onnx.")] = False,
    openvino: Annotated[bool, typer.Option("--openvino", help="For OpenVINO.")] = False,
    dimension: Dimension = None,
    as_json: JsonFlag = False,
) -> None:
    """Write a model for another runtime, or with smaller embeddings, and check that its embeddings are the same."""
    if (onnx and openvino) or not (onnx or openvino or dimension):
        raise UserError("nothing to export: give --onnx or --openvino (one of them), or --dimension")
    from pairtune.encoders.export import Runtime, export_model

    runtime: Runtime = "onnx" if onnx else "openvino" if openvino else "torch"
    folder = out or Path("-".join(str(part) for part in (model.rstrip("/"), dimension, runtime) if part not in (None, "torch")))
    print_scores({"lowest cosine": export_model(model, folder, runtime, dimension)}, as_json)


DIAGNOSED = (
    "torch",
    "transformers",
    "sentence-transformers",
    "tokenizers",
    "datasets",
    "numpy",
    "faiss-cpu",
    "duckdb",
    "pyspark",
)
NEAR = ("how do I sort a list?", "sorted(iterable) returns a new sorted list")
UNRELATED = ("how do I sort a list?", "socket.create_connection(address) opens a TCP connection")


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
    for name in DIAGNOSED:
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
    """The GPUs, or that there is none; in which precision they are fast."""
    import torch

    from pairtune.encoders.loading import fast_precision

    names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    device = ", ".join(names) or f"CPU only, {torch.get_num_threads()} threads"
    return f"{device}; one's own data is trained in {fast_precision()}"


def describe_folder(folder: Path) -> str:
    """Whether a folder, or the one that it would be made in, can be written, and how much room there is."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    may = "can be written" if there.is_dir() and os.access(there, os.W_OK) else "CANNOT be written"
    return f"{shorten_home(folder)}, {may}, {shutil.disk_usage(there).free / 1e9:.1f} GB free"


def shorten_home(folder: Path) -> str:
    """The path with ~ for the user's home, where the system knows one: for a user without a name there is none."""
    home = os.path.expanduser("~")  # noqa: PTH111  (Path.home raises)
    return str(folder).replace(home, "~") if home != "~" else str(folder)


def self_test() -> str:
    """Load the default encoder and score two pairs: the scores are the same on every machine, to two digits."""
    from pairtune.encoders.embedding import score_pairs
    from pairtune.encoders.loading import load_encoder

    try:
        near, far = score_pairs(load_encoder("minilm"), *zip(NEAR, UNRELATED, strict=True))
    except Exception as problem:  # whatever is wrong here is what the report is about
        return f"FAILED: {type(problem).__name__}: {problem}"
    return f"{'passed' if near > far else 'FAILED'}: a near pair scores {near:.2f}, a far one {far:.2f}"
