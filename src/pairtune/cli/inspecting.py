"""A look at the data before training: inspect."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from pairtune.cli.common import JsonFlag, app, choose_task, screen
from pairtune.cli.learning import make_choice
from pairtune.cli.options import OwnData, takes_data

if TYPE_CHECKING:
    from pairtune.data.pairs import Task
    from pairtune.runs.recipe import Recipe


@app.command()
@takes_data
def inspect(
    recipe: Annotated[
        str | None,
        typer.Argument(help="A .toml file or a shipped recipe such as own/positives; default with --data: chosen for you."),
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Change a setting: order.group=4")] = None,
    pairs: Annotated[int, typer.Option(help="Encode this many training pairs; 0: all.")] = 5000,
    trial: Annotated[
        bool, typer.Option("--trial/--no-trial", help="With --data: train for a few seconds to estimate the training time.")
    ] = True,
    own: OwnData = OwnData(),  # noqa: B008
    as_json: JsonFlag = False,
) -> None:
    """Show what is in your pairs, and how hard the batches of each order are, before you train."""
    mine = own.read()
    choice = make_choice(recipe, mine, settings or (), "inspect")
    from pairtune.data.findings import find_oddities  # after the data: a mistake in it is said at once
    from pairtune.data.inspection import inspect_recipe
    from pairtune.report.inspected import (
        describe_data,
        describe_default,
        describe_hardest,
        describe_seen,
        format_lines,
        summarize_data,
        table_of_orders,
    )

    chosen = choice.recipe
    task = mine or choose_task(chosen.task, None)
    found, seen = find_oddities(task), inspect_recipe(chosen, task, pairs)
    seconds = estimate_seconds(task, chosen) if mine and trial else None
    if as_json:
        print(json.dumps(summarize_data(found, seen, seconds)))
        return
    lines = [*describe_data(task, found), *describe_seen(seen, chosen), *describe_default(chosen, choice.reasons[1:], seconds)]
    print(f"{format_lines(lines)}\n")
    title = f"{chosen.name}: {len(seen.pairs):,} pairs in batches of {chosen.stages[0].train.batch_size}"
    screen.print(table_of_orders(seen.orders, title))
    for name, one in seen.orders.items():
        if one.hardest:  # a plain order has no groups
            print(f"\nhardest groups by {name}\n{describe_hardest(one, seen.pairs.left, seen.pairs.right)}")


def estimate_seconds(task: Task, recipe: Recipe) -> float:
    """How long a training takes on this machine, by a short one."""
    from pairtune.tune.plan import estimate_training

    with TemporaryDirectory() as scratch:
        return estimate_training(task, recipe, Path(scratch))
