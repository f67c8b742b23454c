"""Training, and the choice of a recipe before it: train, tune, recipes, demo."""

from __future__ import annotations

import json
import os
import shutil
import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pairtune.cli.common import (
    EncoderName,
    JsonFlag,
    app,
    choose_task,
    parse_seeds,
    say_notes,
    screen,
    set_encoder,
    stop,
)
from pairtune.cli.options import OwnData, takes_data
from pairtune.errors import UserError
from pairtune.progress import count_processes, is_first, say

if TYPE_CHECKING:
    from pairtune.data.pairs import Task
    from pairtune.runs.recipe import Recipe
    from pairtune.runs.record import Run
    from pairtune.tune.rules import Choice
    from pairtune.tune.tuner import Tuned

FEW_TEST_PAIRS = 200  # test pairs: below, the terminal points to the intervals
CALL_WIDTH = 60  # characters of a function that the demo finds
DEMO_SEARCHES = (
    "ask for a password without showing it",
    "break a long paragraph into lines",
    "put tasks in order so that each comes after what it depends on",
)


@app.command()
@takes_data
def train(
    recipe: Annotated[
        str | None,
        typer.Argument(help="A .toml file or a shipped recipe such as own/positives; default with --data: chosen for you."),
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Change a setting: loss.temperature=0.05")] = None,
    model: EncoderName = None,
    seeds: Annotated[str | None, typer.Option(help="Train once for each seed, separated by commas: 1,2,3")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; default: runs/<recipe>, with --data runs/<name of the file>.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run that was stopped.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Delete what is in the folder and start again.")] = False,
    own: OwnData = OwnData(),  # noqa: B008
    as_json: JsonFlag = False,
) -> None:
    """Train on your pairs (--data), or train a recipe, and keep the model that is best on dev."""
    from pairtune import training
    from pairtune.tune.doubt import train_surely

    overrides = set_encoder(settings, model)
    overrides += [f"seeds={parse_seeds(seeds)}"] if seeds is not None else []
    folder: Path | None = None
    try:
        with join_processes():
            task = own.read()
            chosen = choose_recipe(recipe, task, overrides, "train")
            folder = out or Path("runs") / (chosen.name.replace("/", "-") if task is None else own.name())
            if resume and not any(folder.glob("seed-*/recipe.json")):
                say(f"there is nothing to resume in {folder}: training from the beginning")
            how: Any = {"out": folder, "resume": resume, "overwrite": overwrite}
            runs = training.train(chosen, **how) if task is None else train_surely(chosen, task=task, **how)
            if is_first():
                print_runs(runs, folder, as_json)
    except KeyboardInterrupt:
        if folder is None or not folder.exists():
            raise stop("stopped before anything was done") from None
        raise stop(f"stopped; what is done is kept in {folder}: the same command with --resume goes on") from None


def join_processes() -> AbstractContextManager[None]:
    """Inside, the processes that torchrun or accelerate started are one; a single one has nothing to do, and needs no torch."""
    if count_processes() == 1:
        return nullcontext()
    from pairtune.processes import together

    return together()


@app.command()
def recipes(
    name: Annotated[str | None, typer.Argument(help="Print this recipe, such as own/positives, to start your own from.")] = None,
    settings: Annotated[bool, typer.Option("--settings", help="Print every setting, those that people change first.")] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the settings as Markdown (docs/reference/settings.md).")
    ] = False,
) -> None:
    """List the shipped recipes, print one of them, or print every setting."""
    from pairtune.runs.toml import find_recipe, shipped_recipes

    if name is not None and (settings or markdown):
        raise UserError(f"--settings are those of any recipe, not of {name}: give one of the two")
    if settings or markdown:
        from pairtune.report.reference import make_settings_page, setting_grids

        if markdown:
            print(make_settings_page(), end="")
            return
        for grid in setting_grids():
            screen.print(grid.for_terminal())
    elif name is not None:
        print(find_recipe(name).read_text(encoding="utf-8").rstrip())
    else:
        width = shutil.get_terminal_size().columns
        for name in shipped_recipes():
            print(textwrap.fill(describe_recipe(name), width, initial_indent=f"{name:<14} ", subsequent_indent=15 * " "))


def describe_recipe(name: str) -> str:
    """The first sentence of the comment that a shipped recipe begins with."""
    from pairtune.runs.toml import find_recipe

    lines = find_recipe(name).read_text(encoding="utf-8").splitlines()
    comment = " ".join(line.removeprefix("#").strip() for line in takewhile(lambda line: line.startswith("#"), lines))
    return comment.partition(". ")[0].rstrip(".") + "."


@app.command()
def demo(out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("runs/demo"), as_json: JsonFlag = False) -> None:
    """Train the default encoder to find Python functions from what they do, and show searches before and after."""
    from pairtune import training
    from pairtune.runs.toml import read_recipe

    runs = training.train(read_recipe("stdlib/demo"), seeds=(1,), out=out, resume=True)
    print_runs(runs, out, as_json)
    if as_json:
        return
    before, after = (scores["test"]["HP@1"] for scores in (runs[0].before, runs[0].after))
    show_searches(out / "model")
    print(f"HP@1 {before:.3f} → {after:.3f}")


def show_searches(model: Path, top: int = 3) -> None:
    """Three searches among the functions of the modules that were held out, by the original encoder and by the tuned one."""
    from rich.table import Table as TerminalTable

    from pairtune.data.datasets import load_task
    from pairtune.encoders.index import Index
    from pairtune.encoders.loading import load_encoder
    from pairtune.runs.evidence import shorten

    corpus = load_task("stdlib").test.corpus or ()
    encoders = {"before": load_encoder("minilm"), "after": load_encoder(str(model))}
    indexes = {name: Index.build(encoder, corpus) for name, encoder in encoders.items()}
    for query in DEMO_SEARCHES:
        table = TerminalTable("before", "after", title=f"“{query}”", title_justify="left")
        found = [indexes[name].search(encoder, query, top) for name, encoder in encoders.items()]
        for before, after in zip(*found, strict=True):
            table.add_row(*(f"{score:.2f}  {shorten(text, CALL_WIDTH)}" for score, text in (before, after)))
        screen.print(table)


def choose_recipe(name: str | None, own: Task | None, overrides: Sequence[str], what: str) -> Recipe:
    """The named recipe; for one's own pairs, the one that the rules choose, which is said with its reasons."""
    from pairtune.runs.settings import refuse_unread

    choice = make_choice(name, own, overrides, what)
    for line in choice.reasons:
        say(line)
    refuse_unread(choice.recipe, overrides)
    return choice.recipe


def make_choice(name: str | None, own: Task | None, overrides: Sequence[str], what: str) -> Choice:
    """The named recipe, without reasons; for one's own pairs, the one that the rules choose."""
    from pairtune.runs.toml import parse_override
    from pairtune.tune.rules import Choice, choose, read_own

    if own is not None and any("task" in parse_override(override) for override in overrides):
        raise UserError("--set task names a dataset, and --data gives your own pairs: give one of the two")

    if name is not None:
        recipe = read_own(name, own, overrides)
        if recipe.sources and own is not None:
            raise UserError(f"recipe {name} names its data under [[sources]]: `pairtune {what}` takes it without --data")
        return Choice(recipe, ())
    if own is None:
        raise UserError(f"nothing to {what}: name a recipe (pairtune recipes lists them), or give your own pairs with --data")
    return choose(own, overrides)


def how_to_read(model: Path) -> str:
    """What to know of a model with a prompt for each side before calling it; nothing for others."""
    path = model / "config_sentence_transformers.json"
    prompts = json.loads(path.read_text(encoding="utf-8")).get("prompts", {}) if path.exists() else {}
    known = prompts.get("query") or prompts.get("document")
    return " (left texts: encode_query, right texts: encode_document)" if known else ""


def print_runs(runs: list[Run], folder: Path, as_json: bool) -> None:
    """Before and after for every seed, their mean, and where the model is; the page that shows more is written here."""
    from pairtune.report.page import write_reports
    from pairtune.report.summary import summarize, table_of_runs
    from pairtune.runs.record import kept_run

    page = write_reports(folder, [run.seed for run in runs])
    if as_json:
        print(json.dumps({**summarize(runs), "report": os.fspath(page)}))
        return
    screen.print(table_of_runs(runs))
    if (tested := runs[0].pairs["test"]) < FEW_TEST_PAIRS:
        print(f"test has {tested} pairs only: before you believe a difference, look at its interval in the report")
    print(f"model: {folder / 'model'}{how_to_read(folder / 'model')}\nreport: {page}")
    if advice := runs[kept_run(runs)].advise():
        print(advice)


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
    model: EncoderName = None,
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
    chosen, choice = choose_tuned(recipe, task, mine, set_encoder(settings, model))
    folder = out or Path("runs") / f"{chosen.name if mine is None else own.name()}-tuned"
    try:
        found = tune_task(
            chosen,
            out=folder,
            start=choice.recipe,
            reasons=choice.reasons,
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


def choose_tuned(recipe: str | None, task: str | None, own: Task | None, overrides: Sequence[str]) -> tuple[Task, Choice]:
    """The pairs to tune for, and the recipe to start from, which may name them itself."""
    if recipe is not None and task is None and own is None:
        choice = make_choice(recipe, None, overrides, "tune")
        if choice.recipe.sources:
            from pairtune.data.sources import read_sources

            found = read_sources(choice.recipe)
            say_notes(found)
            return found, choice
    chosen = choose_task(task, own)
    return chosen, make_choice(recipe, chosen, overrides, "tune")


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
    print(f"{describe_choice(found.tuning)}\nkept: {found.run.describe_kept()}")
    model = f"{found.folder / 'model'}{how_to_read(found.folder / 'model')}"
    print("\n".join(f"{name}: {path}" for name, path in {"model": model, **places}.items()))
