"""Choosing a recipe for one's own pairs: tune."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pairtune.cli.common import JsonFlag, app, choose_task, say_notes, screen, stop
from pairtune.cli.learning import make_choice
from pairtune.cli.options import OwnData, takes_data

if TYPE_CHECKING:
    from pairtune.tune.tuner import Tuned


@app.command()
@takes_data
def tune(
    recipe: Annotated[
        str | None, typer.Argument(help="Start from this recipe (a .toml file or a shipped one) instead of the default one.")
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Start with this setting: train.max_seq_length=64")] = None,
    minutes: Annotated[
        float, typer.Option(help="Time for the search and the last training; 0: no limit (give --trainings).")
    ] = 30,
    trainings: Annotated[int | None, typer.Option(help="Stop the search after this many trainings.")] = None,
    jobs: Annotated[int, typer.Option(help="Trainings at the same time, on one GPU or CPU.")] = 1,
    model: Annotated[str | None, typer.Option(help="Encoder: minilm, mpnet, a folder, or a name on the hub.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the search; default: runs/<name of the data>-tuned.")] = None,
    storage: Annotated[
        str | None, typer.Option(help="File or database URL that several machines share; default: a file in the folder.")
    ] = None,
    join: Annotated[bool, typer.Option("--join", help="Help the search of another process with the same --storage.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a search that was stopped.")] = False,
    task: Annotated[str | None, typer.Option(help="A dataset that `pairtune tasks` lists, instead of --data.")] = None,
    own: OwnData = OwnData(),  # noqa: B008
    as_json: JsonFlag = False,
) -> None:
    """Search for better settings for your pairs by cross-validation, then train the best. Test is scored once, at the end."""
    from pairtune.tune.tuner import tune as tune_task

    mine = own.read()
    say_notes(mine)
    chosen = choose_task(task, mine)
    folder = out or Path("runs") / f"{chosen.name if mine is None else own.name()}-tuned"
    choice = make_choice(recipe, chosen, settings or (), "tune")
    try:
        found = tune_task(
            chosen,
            out=folder,
            start=choice.recipe,
            reasons=choice.reasons,
            encoder=model,
            minutes=minutes or None,
            most_trainings=trainings,
            jobs=jobs,
            storage=storage,
            join=join,
            resume=resume,
        )
    except KeyboardInterrupt:
        raise stop(f"stopped; what was tried is kept in {storage or folder}: the same command with --resume goes on") from None
    if found is not None:
        print_tuned(found, as_json)


def print_tuned(found: Tuned, as_json: bool) -> None:
    """What was chosen, its scores on test before and after, and where everything is."""
    from pairtune.report.page import write_reports
    from pairtune.report.summary import summarize, table_of_runs
    from pairtune.report.tuning_page import describe_choice, write_tuning_page

    report = write_reports(found.folder, [found.run.seed])
    page = write_tuning_page(found.folder)
    places = {"recipe": found.folder / "recipe.toml", "report": report, "search": page}
    if as_json:
        chosen = {"changes": found.tuning.winner.changes, "trainings": found.tuning.trainings}
        print(json.dumps({**summarize([found.run]), **chosen, **{name: os.fspath(path) for name, path in places.items()}}))
        return
    screen.print(table_of_runs([found.run]))
    print(describe_choice(found.tuning))
    print("\n".join(f"{name}: {path}" for name, path in {"model": found.folder / "model", **places}.items()))
