"""The command line of the lab: reproduce, tables, evidence, baselines, own."""

from __future__ import annotations

import json
import os
import sys
from itertools import product
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from pairtune import UserError
from pairtune.cli.common import parse_seeds, screen, share_cores, stop

app = typer.Typer(
    help="The paper's tables: train their rows, and show them beside the published figures.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
RESULTS = Path(__file__).parent / "results"
Results = Annotated[Path, typer.Option(help="Folder of the records.", show_default="lab/results")]
Preset = Annotated[str, typer.Option(help="Settings of the paper's text (paper) or of its code (released).")]


@app.command()
def reproduce(
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE",
            help="1 to 5, discussion, open, comparators, evidence, best (best:TASK), all, a task, a row; everything.",
        ),
    ],
    model: Annotated[
        str, typer.Option(help="Encoder: minilm, mpnet, a folder, or a name on the hub; for everything several, with commas.")
    ] = "minilm",
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas.")] = "1,2,3,4,5",
    jobs: Annotated[int, typer.Option(help="Runs at once; 0: one for every two cores.")] = 0,
    preset: Preset = "paper",
    settings: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: train.precision=bf16")] = None,
    out: Annotated[Path, typer.Option(help="Where the runs train.")] = Path("runs/lab"),
    results: Results = RESULTS,
    known: Annotated[
        Path | None, typer.Option(help="Another folder of records: what it has is not made again, and it stays as it is.")
    ] = None,
    since: Annotated[str, typer.Option(help="Make again what was finished before this date: 2026-11-18, 2026-11-18T08:15.")] = "",
    keep_models: Annotated[bool, typer.Option("--keep-models", help="Keep the weights of every run.")] = False,
    checkpoints: Annotated[
        bool, typer.Option(help="After each epoch, so that a stopped run goes on from there; without, less is written.")
    ] = True,
    minutes: Annotated[float, typer.Option(help="Stop after so many minutes; 0: when all is done.", min=0)] = 0.0,
    only_list: Annotated[
        bool, typer.Option("--list", help="Print the runs that have no record with test scores yet, and stop.")
    ] = False,
) -> None:
    """Train every row of a table with every seed, many at once. What has a record with test scores is not trained again."""
    from lab.agenda import plan
    from lab.running import missing_jobs, parse_since
    from lab.running import reproduce as train_missing

    share_cores()
    asked = plan(table, preset, settings or (), model, parse_seeds(seeds))
    folders, begin = [results, *([known] if known else [])], parse_since(since)
    missing = missing_jobs(asked, *folders, since=begin)
    if only_list:
        print("\n".join(map(str, missing)))
        return
    workers = jobs if jobs > 0 else max(1, (os.cpu_count() or 1) // 2)
    try:
        problems = train_missing(
            missing,
            filed=len(asked) - len(missing),
            workers=workers,
            out=out,
            results=results,
            keep_models=keep_models,
            checkpoints=checkpoints,
            minutes=minutes,
        )
    except KeyboardInterrupt:
        raise stop("stopped; what is recorded stays, and the same command goes on") from None
    left = missing_jobs(asked, *folders, since=begin)
    print(f"{len(asked) - len(left)} of {len(asked)} runs are in {' and '.join(map(str, folders))}")
    if problems:
        raise UserError("\n".join(["these runs failed:", *(f"{job}: {problem}" for job, problem in problems.items())]))


@app.command()
def augment(
    model: Annotated[str, typer.Option(help="Encoder that the cross-encoder starts from.")] = "mpnet",
    seeds: Annotated[str, typer.Option(help="Seeds; the pairs are labelled by the last one.")] = "1",
    tasks: Annotated[str, typer.Option(help="Tasks, separated by commas.", show_default="all but pfcc-s")] = "",
    out: Annotated[Path, typer.Option(help="Where the runs train: their pairs are in its folder silver.")] = Path("runs/lab"),
    results: Results = RESULTS,
) -> None:
    """Augmented SBERT: train a cross-encoder on each task, file its score, and label new pairs for `reproduce comparators`."""
    from lab.augmented import AUGMENTED
    from lab.augmented import augment as train_and_label
    from lab.running import SILVER

    for seed, task in product(parse_seeds(seeds), tasks.split(",") if tasks else AUGMENTED):
        train_and_label(task, seed, encoder=model, silver=out / SILVER, results=results)


@app.command()
def tables(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="1 to 5, discussion, open or best; all: the paper's.")] = "all",
    preset: Preset = "paper",
    results: Results = RESULTS,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of rows, for programs.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print lab/results.md: everything, with verdicts.")] = False,
) -> None:
    """Show the paper's tables beside ours, from the records alone."""
    from lab.book import Book
    from lab.grids import encoders_in, grids_of
    from lab.paper import tables as paper_tables
    from lab.results_page import make_page
    from lab.scored_rows import rows_as_json, rows_of

    book = Book(results)
    if not book.encoders:
        print(f"no records in {results}: the paper's figures alone", file=sys.stderr)
    chosen = list(paper_tables()) if table == "all" else [table]
    if markdown:
        print(make_page(book), end="")
    elif as_json:
        print(json.dumps(rows_as_json([row for name in chosen for row in rows_of(name, book, preset)])))
    else:
        for name, encoder in product(chosen, encoders_in(book)):  # side by side they are too wide for a terminal
            for grid in grids_of(name, book, preset, [encoder]):
                screen.print(grid.for_terminal())


@app.command()
def evidence(results: Results = RESULTS) -> None:
    """Print lab/evidence.md: losses, orders and settings compared, from the records alone."""
    from lab.book import Book
    from lab.evidence_page import make_evidence

    print(make_evidence(Book(results)), end="")


@app.command()
def thresholds(results: Results = RESULTS) -> None:
    """Print how well thresholds of F1 that few pairs give carry over to others, from the stored cosines of test pairs."""
    from lab.thresholds import make_thresholds

    print(make_thresholds(results))


@app.command()
def baselines(results: Results = RESULTS) -> None:
    """Score what needs no encoder, the order of the file and BM25, on the datasets, for the tables."""
    from lab.baselines import FILE, compute_baselines, write_baselines

    write_baselines(results, compute_baselines())
    print(results / FILE)


@app.command()
def own(
    table: Annotated[str, typer.Option(help="Print the table of this encoder alone: minilm.")] = "",
) -> None:
    """Print lab/own.md: the default for a user's own data beside stock losses, and its rules without the case at hand."""
    from lab.own.own_page import make_page, own_table
    from lab.own.own_runs import read_own_runs

    print(own_table(table, read_own_runs(table)) if table else make_page().rstrip())


def main() -> NoReturn:
    """Run the command line: a user's mistake ends in one message, not in a traceback."""
    try:
        app(prog_name="python -m lab")
    except UserError as problem:
        print(f"lab: {problem}", file=sys.stderr)
        sys.exit(2)
    sys.exit(0)
