"""Showing a run and using its model elsewhere: report, serve, export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pairtune.cli.common import JsonFlag, app, print_scores
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
    host: Annotated[str, typer.Option(help="Address to listen on; any but this machine needs --token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0: any free one.")] = 8000,
    token: Annotated[str | None, typer.Option(envvar="PAIRTUNE_TOKEN", help="Token that the API and the page ask for.")] = None,
) -> None:
    """Serve a local page and a JSON API to try a model: search, score two texts, score a list."""
    from pairtune.serve import serve as serve_model

    serve_model(model, corpus=corpus, column=column, original=original, host=host, port=port, token=token)


@app.command()
def export(
    model: Annotated[str, typer.Argument(help="Any sentence-transformers model: alias, folder or hub name.")],
    out: Annotated[Path | None, typer.Argument(help="Folder to write; default: MODEL-onnx or MODEL-openvino.")] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="For ONNX Runtime.")] = False,
    openvino: Annotated[bool, typer.Option("--openvino", help="For OpenVINO.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Write a model for another runtime, and check that its embeddings are the same."""
    if onnx == openvino:
        raise UserError("say for which runtime: --onnx or --openvino, one of them")
    from pairtune.encoders.export import export_model

    folder = out or Path(f"{model.rstrip('/')}-{'onnx' if onnx else 'openvino'}")
    print_scores({"lowest cosine": export_model(model, folder, "onnx" if onnx else "openvino")}, as_json)
