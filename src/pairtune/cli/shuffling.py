"""Parquet files of any size: shuffle, prepare."""

from __future__ import annotations

from typing import Annotated

import typer

from pairtune.cli.common import app


@app.command()
def shuffle(
    source: Annotated[str, typer.Argument(metavar="IN", help="Parquet: a file, a folder or a glob.")],
    target: Annotated[str, typer.Argument(metavar="OUT", help="The ordered file (a folder of parts with Spark).")],
    by: Annotated[str, typer.Option(help="words, clusters, neighbors or random.")] = "words",
    column: Annotated[str | None, typer.Option(help="Column to group rows by.")] = None,
    group_size: Annotated[int, typer.Option(help="Rows in a group.")] = 8,
    shingle: Annotated[int, typer.Option(help="How many words two rows must share.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the order.")] = 0,
    engine: Annotated[str, typer.Option(help="duckdb (in this process) or spark (on a cluster).")] = "duckdb",
    memory: Annotated[str | None, typer.Option(help="Memory limit, such as 2GB; the rest goes to disk.")] = None,
    master: Annotated[str | None, typer.Option(help="Where Spark runs: local[2], spark://host:7077, yarn.")] = None,
    prepared: Annotated[str | None, typer.Option(help="The file that `pairtune prepare` made from IN.")] = None,
    rows_only: Annotated[bool, typer.Option("--rows-only", help="Write only the row numbers.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT.")] = False,
) -> None:
    """Order the rows of Parquet files of any size, so that similar rows stand together (Algorithm 2)."""
    from pairtune.engines import shuffle as shuffle_files

    shuffle_files(
        source,
        target,
        by=by,  # type: ignore[arg-type]  # checked there, with a message
        column=column,
        group_size=group_size,
        shingle=shingle,
        seed=seed,
        engine=engine,  # type: ignore[arg-type]
        memory=memory,
        master=master,
        prepared=prepared,
        rows_only=rows_only,
        overwrite=overwrite,
    )
    print(target)


@app.command()
def prepare(
    source: Annotated[str, typer.Argument(metavar="IN", help="Parquet: a file, a folder or a glob.")],
    target: Annotated[str, typer.Argument(metavar="OUT", help="The prepared file, for `pairtune shuffle --prepared`.")],
    column: Annotated[str, typer.Option(help="Column to group rows by.")],
    by: Annotated[str, typer.Option(help="words, clusters or neighbors.")] = "words",
    clusters: Annotated[int, typer.Option(help="Number of clusters; 0: √(number of rows).")] = 0,
    neighbors: Annotated[int, typer.Option(help="Number of neighbors.")] = 8,
    seed: Annotated[int, typer.Option(help="Seed of the clustering.")] = 0,
    memory: Annotated[str | None, typer.Option(help="Memory limit, such as 2GB.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT.")] = False,
) -> None:
    """Find the words of each row once, so that shuffles for every epoch are faster."""
    from pairtune.engines import prepare as prepare_files

    options = {"clusters": clusters, "neighbors": neighbors, "seed": seed, "memory": memory, "overwrite": overwrite}
    prepare_files(source, target, by=by, column=column, **options)  # type: ignore[arg-type]
    print(target)
