"""Scores of models, of other systems, of pairs: tasks, evaluate, metrics, score, search."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table as TerminalTable

from pairtune.cli.common import (
    Dimension,
    JsonFlag,
    LeftPrompt,
    RightPrompt,
    app,
    choose_task,
    print_scores,
    print_texts,
    refuse_broken,
    say_notes,
    screen,
    settle_prompts,
)
from pairtune.cli.options import OwnData, takes_data
from pairtune.errors import UserError
from pairtune.progress import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentence_transformers import SentenceTransformer

    from pairtune.data.pairs import Task
    from pairtune.runs.record import Size

SplitOption = Annotated[
    str | None,
    typer.Option("--split", help="train, dev, test, or an extra split; default: test, or all pairs of your own file."),
]
WithOpenVINO = Annotated[
    bool,
    typer.Option(
        "--openvino", help="Encode on the CPU with OpenVINO in bfloat16: about three times as fast, scores change by up to 0.002."
    ),
]


@app.command()
def tasks(as_json: JsonFlag = False) -> None:
    """List the datasets: where they were found and how many pairs they have, or how to get them."""
    from pairtune.data.datasets import TASKS, task_status

    found = {name: task_status(name) for name in TASKS}
    if as_json:
        print(
            json.dumps(
                {name: {"found": status.found, "rows": status.rows, "says": status.says} for name, status in found.items()}
            )
        )
        return
    table = TerminalTable("task", "kind", "metric", "train", "dev", "test")
    for name, status in found.items():
        rows = [f"{status.rows[split]:,}" if status.found else "–" for split in ("train", "dev", "test")]
        table.add_row(name, TASKS[name].kind, TASKS[name].metric, *rows)
    screen.print(table)
    for name, status in found.items():
        others = [f"{split} {count:,}" for split, count in status.rows.items() if split not in ("train", "dev", "test")]
        print(f"{name}: {status.says}" + (f"; also: {', '.join(others)}" if others else ""))


@app.command()
@takes_data
def evaluate(
    model: Annotated[str, typer.Argument(help="Any sentence-transformers model: alias, folder or hub name.")],
    task: Annotated[str | None, typer.Argument(help="A dataset that `pairtune tasks` lists, if there is no --data.")] = None,
    split: SplitOption = None,
    own: OwnData = OwnData(),  # noqa: B008
    left_prompt: LeftPrompt = None,
    right_prompt: RightPrompt = None,
    openvino: WithOpenVINO = False,
    dimension: Annotated[
        list[int], typer.Option(help="Use only this many numbers of each embedding; several times: a table.", min=1)
    ] = [],  # noqa: B006
    quantize: Annotated[
        bool, typer.Option("--quantize", help="Print a table of the scores with embeddings in int8 and in single bits.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Score a model on a split of a task, or on all pairs of a file."""
    chosen, split = choose_scored(task, own, split)
    from pairtune.data.pairs import ALIKE, add_prompts
    from pairtune.sbert.evaluator import evaluate_task

    encoder = load(model, openvino)
    prompted = add_prompts(chosen, settle_prompts(encoder, left_prompt, right_prompt, alike=chosen.kind in ALIKE))
    pairs = prompted.split(split)
    say_cut(encoder, [*pairs.left, *pairs.right, *(pairs.corpus or ())])
    if quantize or dimension:
        print_sizes(prompted.metric, measure_sizes(encoder, prompted, split, dimension, quantize), as_json)
        return
    print_scores(count_scored(chosen, split) | evaluate_task(encoder, prompted, [split])[split], as_json)


def measure_sizes(encoder: SentenceTransformer, task: Task, split: str, dimensions: list[int], quantize: bool) -> list[Size]:
    """The scores of smaller embeddings; those of whole ones come first."""
    from pairtune.encoders.loading import check_dimensions
    from pairtune.encoders.sizes import PRECISIONS
    from pairtune.sbert.evaluator import evaluate_sizes

    check_dimensions(encoder, dimensions, "--dimension")
    width = int(encoder.get_embedding_dimension() or 0)
    return evaluate_sizes(encoder, task, split, [width, *dimensions], PRECISIONS if quantize else PRECISIONS[:1])


def print_sizes(metric: str, sizes: list[Size], as_json: bool) -> None:
    """A line for each size."""
    if as_json:
        print(json.dumps([size.model_dump() for size in sizes]))
        return
    table = TerminalTable("dimension", "precision", "bytes", metric, "difference")
    for size in sizes:
        value = size.scores[metric]
        cells = (str(size.dimension), size.precision, f"{size.bytes:,}", f"{value:.4f}")
        table.add_row(*cells, f"{value - sizes[0].scores[metric]:+.4f}")
    screen.print(table)


@app.command()
@takes_data
def metrics(
    scores: Annotated[
        Path,
        typer.Option(
            help="The scores: one number per line in the order of the pairs (retrieval: query by query), .npy, or a TREC run."
        ),
    ],
    task: Annotated[str | None, typer.Argument(help="The dataset that was scored, if there is no --data.")] = None,
    split: SplitOption = None,
    dev_scores: Annotated[Path | None, typer.Option(help="Scores of dev, to choose the threshold of F1 on.")] = None,
    own: OwnData = OwnData(),  # noqa: B008
    as_json: JsonFlag = False,
) -> None:
    """Compute the metrics of scores that another system made, such as BM25 or a cross-encoder."""
    from pairtune.data.collections import is_run
    from pairtune.data.files import read_scores
    from pairtune.metrics import THRESHOLDS, score_split

    chosen, split = choose_scored(task, own, split)
    pairs = chosen.split(split)
    if is_run(scores):
        print_scores(count_scored(chosen, split) | score_found(scores, chosen, split), as_json)
        return
    threshold = None
    if dev_scores is not None and "F1" in chosen.metrics:
        on_dev, positive = read_scores(dev_scores, chosen.dev), chosen.dev.positives(chosen.positive_above)
        threshold = THRESHOLDS[chosen.f1_threshold](on_dev, positive)
    values = score_split(pairs.gold(chosen.positive_above), read_scores(scores, pairs), chosen.metrics, threshold=threshold)
    print_scores(count_scored(chosen, split) | values, as_json)
    if chosen.kind == "classification" and threshold is None:
        print("F1 needs a threshold from dev: give --dev-scores; F1@best is chosen on the scored set itself", file=sys.stderr)


def score_found(path: Path, task: Task, split: str) -> dict[str, float]:
    """The metrics of a TREC run on a collection, whose texts it names by their ids."""
    from pairtune.data.collections import is_collection, read_run, read_texts_by_id, score_run

    if not is_collection(Path(task.source)):
        raise UserError(f"{path} is a TREC run, which names texts by id: give the collection that it searched, --data FOLDER")
    ids = read_texts_by_id(Path(task.source), "corpus")
    return score_run(read_run(path), task.split(split), ids, task.metrics, str(path))


def choose_scored(task: str | None, own: OwnData, split: str | None) -> tuple[Task, str]:
    """What is scored: a split of a task (test unless named), or one's own pairs, whole unless a split of them is named."""
    found = own.read_whole() if split is None else own.read()
    say_notes(found)
    if found is not None and split is None and not len(found.train):
        say("all pairs are scored; --split test scores only the pairs that `pairtune train` holds out of this file")
    return choose_task(task, found), split or "test"


def count_scored(task: Task, split: str) -> dict[str, float]:
    """How many pairs and queries stand behind the scores."""
    pairs = task.split(split)
    queries = {"queries": len(set(pairs.query.tolist()))} if task.kind in ("ranking", "retrieval") else {}
    return {"pairs": len(pairs), **queries}


@app.command()
def score(
    model: Annotated[str, typer.Argument(help="Any sentence-transformers model: alias, folder or hub name.")],
    file: Annotated[Path | None, typer.Argument(help="Pairs to score: .csv, .tsv, .jsonl, .parquet and others.")] = None,
    left: Annotated[str, typer.Option(help="The left text; with a file, the name of its column.")] = "",
    right: Annotated[str, typer.Option(help="The right text; with a file, the name of its column.")] = "",
    left_prompt: LeftPrompt = None,
    right_prompt: RightPrompt = None,
    openvino: WithOpenVINO = False,
    as_json: JsonFlag = False,
) -> None:
    """Print the score of a pair of texts, or of every pair of a file, one per line."""
    from pairtune.data.own_tables import read_sides

    if file is None and not (left.strip() and right.strip()):
        raise UserError("nothing to score: give both --left TEXT and --right TEXT, or a file of pairs")
    refuse_broken(left=left, right=right)
    lefts, rights = read_sides(file, left or None, right or None) if file else ([left], [right])
    from pairtune.encoders.embedding import score_pairs

    encoder = load(model, openvino)
    prompts = settle_prompts(encoder, left_prompt, right_prompt)
    say_cut(encoder, [*lefts, *rights])
    values = [round(float(value), 6) for value in score_pairs(encoder, prompts.of_left(lefts), prompts.of_right(rights))]
    print(json.dumps({"scores": values}) if as_json else "\n".join(f"{value:.6f}" for value in values))


@app.command()
def search(
    model: Annotated[str, typer.Argument(help="Any sentence-transformers model: alias, folder or hub name.")],
    corpus: Annotated[Path, typer.Argument(help="Texts to search: one per line, or a table with --column.")],
    query: Annotated[str | None, typer.Argument(help="What to search for; without it, type queries one by one.")] = None,
    column: Annotated[
        str | None, typer.Option(help="Column of the texts, if the corpus is a table; usual names are recognized.")
    ] = None,
    top: Annotated[int, typer.Option(help="How many results to show.", min=1)] = 5,
    left_prompt: LeftPrompt = None,
    right_prompt: RightPrompt = None,
    openvino: WithOpenVINO = False,
    dimension: Dimension = None,
    as_json: JsonFlag = False,
) -> None:
    """Search a corpus for the texts nearest to a query. The index is kept beside the corpus."""
    from pairtune.data.formats import read_texts

    refuse_broken(query=query)
    if query is not None and not query.strip():
        raise UserError("the query is empty: give a text, or leave it out to type queries one by one")
    texts = read_texts(corpus, column)
    from pairtune.encoders.index import open_index  # after the texts: a mistake in them is said at once

    encoder = load(model, openvino, dimension)
    say_cut(encoder, texts)
    index = open_index(encoder, texts, beside=corpus, prompts=settle_prompts(encoder, left_prompt, right_prompt))
    for text in [query] if query is not None else ask("search: "):
        refuse_broken(query=text)
        matches = [{"score": round(value, 6), "text": found} for value, found in index.search(encoder, text, top)]
        if as_json:
            print(json.dumps({"query": text, "matches": matches}))
        else:
            print_texts("\n".join(f"{match['score']:.4f}  {match['text']}" for match in matches))


def load(model: str, openvino: bool, dimension: int | None = None) -> SentenceTransformer:
    """The encoder that scores, on OpenVINO if asked for."""
    from pairtune.encoders.loading import load_encoder

    if not openvino:
        return load_encoder(model, dimension=dimension)
    from pairtune.encoders.export import run_on_openvino

    return run_on_openvino(load_encoder(model, device="cpu", dimension=dimension))


def say_cut(encoder: SentenceTransformer, texts: Sequence[str]) -> None:
    """How many of the texts are longer than the model reads, if any is; and whether it knows their words."""
    from pairtune.encoders.embedding import describe_cut, share_unknown, warn_unknown

    for found in (describe_cut(encoder, texts), warn_unknown(share_unknown(encoder, texts))):
        if found:
            say(found)


def ask(prompt: str) -> Any:
    """Lines from the user until an empty one or the end of input."""
    while True:
        try:
            line = input(prompt if sys.stdin.isatty() else "").strip()  # in a pipe, nothing but results
        except EOFError:
            return
        if not line:
            return
        yield line
