"""What is done with data before training: inspect, mine, review, shuffle, prepare."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pairtune.cli.common import (
    EncoderName,
    JsonFlag,
    LeftPrompt,
    RightPrompt,
    app,
    choose_task,
    print_texts,
    say_notes,
    screen,
    set_encoder,
    settle_prompts,
)
from pairtune.cli.learning import make_choice
from pairtune.cli.options import OwnData, takes_data
from pairtune.errors import UserError
from pairtune.progress import describe_count, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from pairtune.data.inspection import Findings, Seen
    from pairtune.data.mining import Mined, Ranker
    from pairtune.data.pairs import PairSet, Task
    from pairtune.data.review import Suspect
    from pairtune.runs.recipe import Recipe
    from pairtune.tune.rules import Choice


@app.command()
@takes_data
def inspect(
    recipe: Annotated[
        str | None,
        typer.Argument(help="A .toml file or a shipped recipe such as own/positives; default with --data: chosen for you."),
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Change a setting: order.group=4")] = None,
    model: EncoderName = None,
    pairs: Annotated[int, typer.Option(help="Encode this many training pairs; 0: all.", min=0)] = 5000,
    trial: Annotated[
        bool, typer.Option("--trial/--no-trial", help="With --data: train for a few seconds to estimate the training time.")
    ] = True,
    own: OwnData = OwnData(),  # noqa: B008
    as_json: JsonFlag = False,
) -> None:
    """Show what is in your pairs, and how hard the batches of each order are, before you train."""
    mine = own.read()
    choice = make_choice(recipe, mine, set_encoder(settings, model), "inspect")
    if choice.recipe.sources:
        inspect_sources(choice.recipe, pairs, as_json)
        return
    task = mine or choose_task(choice.recipe.task, None)
    from pairtune.data.inspection import find_oddities, inspect_recipe  # after the data: a mistake in it is said at once
    from pairtune.report.inspected import summarize_data

    found, seen = find_oddities(task), inspect_recipe(choice.recipe, task, pairs)
    seconds = estimate_seconds(task, choice.recipe) if mine and trial else None
    if as_json:
        named = {"recipe": choice.recipe.name, "encoder": choice.recipe.encoder}
        print(json.dumps({**named, **summarize_data(found, seen, seconds)}))
    else:
        show_inspected(task, choice, found, seen, seconds)


def inspect_sources(recipe: Recipe, pairs: int, as_json: bool) -> None:
    """The same for each of the sources of a recipe."""
    from pairtune.data.sources import read_sources, recipe_of

    task = read_sources(recipe)
    from pairtune.data.inspection import find_oddities, inspect_recipe
    from pairtune.report.inspected import summarize_data
    from pairtune.tune.rules import Choice

    summary = {}
    for name, source in task.sources.items():
        own = recipe_of(recipe, name)
        found, seen = find_oddities(source), inspect_recipe(own, source, pairs)
        summary[name] = summarize_data(found, seen, None)
        if not as_json:
            print_texts(f"\nsource {name}")
            show_inspected(source, Choice(own, ()), found, seen, None)
    if as_json:
        print(json.dumps({"sources": summary}))


def show_inspected(task: Task, choice: Choice, found: Findings, seen: Seen, seconds: float | None) -> None:
    """What was found in the pairs and what the encoder met, a table of the orders, and the hardest groups of the recipe's."""
    from pairtune.report.inspected import (
        describe_data,
        describe_default,
        describe_hardest,
        describe_seen,
        format_lines,
        table_of_orders,
    )

    chosen = choice.recipe
    lines = [*describe_data(task, found), *describe_seen(seen, chosen), *describe_default(chosen, choice.reasons[1:], seconds)]
    print_texts(f"{format_lines(lines)}\n")
    title = f"{chosen.name}: {len(seen.pairs):,} pairs in batches of {chosen.stages[0].train.batch_size}"
    screen.print(table_of_orders(seen.orders, title))
    grouped = {name: one for name, one in seen.orders.items() if one.hardest}  # a plain order has no groups
    for name in [name for name in (chosen.stages[0].order.by, "examples", *grouped) if name in grouped][:1]:
        print_texts(f"\nhardest groups by {name}\n{describe_hardest(grouped[name], seen.pairs.left, seen.pairs.right)}")


def estimate_seconds(task: Task, recipe: Recipe) -> float:
    """How long `train` takes on this machine, by a short training."""
    from pairtune.tune.plan import estimate_training

    with TemporaryDirectory() as scratch:
        return recipe.average_of * estimate_training(task, recipe, Path(scratch))


BM25 = "bm25"


@app.command()
@takes_data
def mine(
    model: Annotated[
        str, typer.Argument(help="What ranks the candidates: an encoder (alias, folder or hub name), bm25, or a TREC run.")
    ],
    out: Annotated[Path, typer.Argument(help="The table to write: .csv, .tsv, .jsonl or .parquet.")],
    count: Annotated[int, typer.Option(help="Negatives for each pair.", min=1)] = 3,
    skip: Annotated[int, typer.Option(help="Skip this many best candidates: they may be correct answers.", min=0)] = 0,
    ranks: Annotated[int, typer.Option(help="Look at this many candidates; 0: as many as needed.", min=0)] = 0,
    margin: Annotated[
        float, typer.Option(help="A negative scores at most (1 - this) times the right answer; below 0: no limit.")
    ] = 0.05,
    absolute_margin: Annotated[float | None, typer.Option(help="A negative scores at most the right answer minus this.")] = None,
    highest: Annotated[float | None, typer.Option(help="No negative scores above this.")] = None,
    lowest: Annotated[float | None, typer.Option(help="No negative scores below this.")] = None,
    cross_encoder: Annotated[str | None, typer.Option(help="Score the candidates again with this cross-encoder.")] = None,
    own: OwnData = OwnData(),  # noqa: B008
    left_prompt: LeftPrompt = None,
    right_prompt: RightPrompt = None,
    as_json: JsonFlag = False,
) -> None:
    """Find hard negatives for positive pairs, among their own right texts or in a corpus, and write them as columns."""
    from pairtune.data.collections import is_collection, is_run
    from pairtune.data.formats import check_target, write_table
    from pairtune.data.mining import Wanted, mine_negatives, rank_by, rank_by_words, rescore_with
    from pairtune.data.pairs import ALIKE
    from pairtune.encoders.loading import load_cross_encoder, load_encoder

    check_target(out)
    own.refuse_loss(out)
    task = own.read_all()
    say_notes(task)
    chosen = choose_task(None, task)
    wanted = Wanted(count, skip, ranks, None if margin < 0 else margin, absolute_margin, highest, lowest)
    rescore = None if cross_encoder is None else rescore_with(load_cross_encoder(cross_encoder))
    ranker: Callable[..., Ranker] = rank_by_words
    if is_run(Path(model)):
        ranker = rank_by_run(Path(model), chosen)
    elif model != BM25:
        encoder = load_encoder(model)
        ranker = rank_by(encoder, settle_prompts(encoder, left_prompt, right_prompt, alike=chosen.kind in ALIKE))
    pairs, splits = choose_mined(chosen)
    corpus = pairs.corpus if own.corpus or is_collection(Path(chosen.source)) else None
    found = mine_negatives(pairs, wanted, ranker, corpus=corpus, rescore=rescore)
    columns = columns_of(found)
    if len(set(splits)) > 1:  # training on the table keeps them
        columns["split"] = [splits[row] for row in found.rows.tolist()]
    write_table(out, columns)
    counts = {"pairs": len(found.pairs), "negatives": count, "short": found.short}
    if as_json:
        print(json.dumps({**counts, "out": str(out)}))
    else:
        short = f"; {found.short:,} pairs are left out, they have too few" if found.short else ""
        print(f"{out}: {len(found.pairs):,} pairs with {describe_count(count, 'negative')} each{short}")


def choose_mined(task: Task) -> tuple[PairSet, list[str]]:
    """The pairs that get negatives, and the split of each: all; of a collection those of train, the others being for scores."""
    from pairtune.data.collections import is_collection
    from pairtune.data.review import whole_task

    if is_collection(Path(task.source)) and len(task.train):
        return task.train, ["train"] * len(task.train)
    if task.train.negatives or task.test.negatives:
        say(f"{task.name}: its own negatives are left out: the mined ones replace them")
    return whole_task(task)


def rank_by_run(path: Path, task: Task) -> Callable[..., Ranker]:
    """A ranker by what another system found in a collection."""
    from pairtune.data.collections import TrecRanker, is_collection, read_run

    if not is_collection(Path(task.source)):
        raise UserError(f"{path} is a TREC run, which names texts by id: give the collection that it searched, --data FOLDER")
    run = read_run(path)
    return lambda queries, corpus: TrecRanker(run, Path(task.source), queries, corpus)


def columns_of(found: Mined) -> dict[str, Any]:
    """The columns that `train --data` reads, and the scores."""
    negatives = zip(*(found.pairs.negatives or ()), strict=True)
    columns: dict[str, Any] = {"left": found.pairs.left, "right": found.pairs.right}
    columns |= {f"negative_{number}": texts for number, texts in enumerate(negatives, start=1)}
    columns["right_score"] = found.score.round(6).tolist()
    scores = found.negative_score.round(6).T.tolist()
    return columns | {f"negative_{number}_score": values for number, values in enumerate(scores, start=1)}


@app.command()
@takes_data
def review(
    table: Annotated[Path, typer.Argument(help="The table of doubtful pairs (.csv): written, or with --out read back.")],
    model: Annotated[
        str, typer.Option(help="Encoder to compare labels with: alias, folder or hub name; a tuned one finds more.")
    ] = "minilm",
    out: Annotated[
        Path | None, typer.Option(help="Read the table back, and write the corrected pairs here: .csv, .tsv, .jsonl or .parquet.")
    ] = None,
    most: Annotated[int, typer.Option(help="At most this many pairs of each sort.", min=1)] = 100,
    own: OwnData = OwnData(),  # noqa: B008
    as_json: JsonFlag = False,
) -> None:
    """List pairs that look mislabelled, for you to correct in a table; with --out, apply your corrections."""
    from pairtune.data.formats import check_target, write_table
    from pairtune.data.review import REMOVE, apply_review, columns_to_review, whole_task

    check_target(out or table)
    own.refuse_loss(out or table)
    if out is not None and table.exists() and out.resolve().exists() and out.resolve().samefile(table):
        raise UserError(f"{out} holds your answers, and they would be lost: give --out another name")
    found = own.read_all()
    say_notes(found)
    task = choose_task(None, found)
    if task.train.negatives or task.test.negatives:
        raise UserError("review looks at pairs and labels, not at columns of negatives: give --no-negatives")
    pairs, splits = whole_task(task)
    if out is not None:
        done = apply_review(pairs, splits, table)
        write_table(out, done.columns)
        counts = {"pairs": len(done.columns["left"]), "corrected": done.corrected, "removed": done.removed, "added": done.added}
        print(json.dumps({**counts, "out": str(out)}) if as_json else describe_review(counts, out))
        return
    if table.exists():
        raise UserError(f"{table} is there already, and may hold your answers: --out FILE applies it; or give another name")
    columns = columns_to_review(suspect_pairs(task, pairs, model, most))
    write_table(table, columns)
    count = len(columns["left"])
    text = f"{table}: {count:,} pairs to look at. Fill in the column correct (a label, or {REMOVE}), then give --out FILE"
    print(json.dumps({"suspects": count, "out": str(table)}) if as_json else text)


def describe_review(counts: dict[str, int], out: Path) -> str:
    """What a review has changed, in a line."""
    changes = ", ".join(f"{counts[name]:,} {name}" for name in ("corrected", "removed", "added"))
    return f"{out}: {counts['pairs']:,} pairs; {changes}"


def suspect_pairs(task: Task, pairs: PairSet, model: str, most: int) -> list[Suspect]:
    """The pairs that an encoder doubts."""
    from pairtune.data.pairs import ALIKE, prompt_pairs
    from pairtune.data.review import find_suspects
    from pairtune.encoders.embedding import encode
    from pairtune.encoders.loading import load_encoder

    encoder = load_encoder(model)
    texts = prompt_pairs(pairs, settle_prompts(encoder, alike=task.kind in ALIKE))
    left, right = (encode(encoder, side, "encoding texts") for side in (texts.left, texts.right))
    return find_suspects(pairs, left, right, graded=task.kind == "regression", most=most)


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
