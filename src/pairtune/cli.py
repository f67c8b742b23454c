"""The command line: parses, calls, prints."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from pairtune.errors import UserError

if TYPE_CHECKING:
    from pairtune.pairs import Task
    from pairtune.results import Run

app = typer.Typer(
    help="Fine-tune sentence encoders to score pairs of texts.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
screen = Console()

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one flat JSON object instead of a table.")]
DataFile = Annotated[Path | None, typer.Option("--data", help="Your own pairs: .csv, .tsv, .jsonl or .parquet.")]
LeftColumn = Annotated[str, typer.Option("--left", help="With --data: the column of the left text.")]
RightColumn = Annotated[str, typer.Option("--right", help="With --data: the column of the right text.")]
LabelColumn = Annotated[str | None, typer.Option("--label", help="With --data: the column of the label; none: all are positive.")]
Split = Annotated[str, typer.Option(help="train, dev, test, or an extra split of the task.")]


@app.callback(invoke_without_command=True)
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Fine-tune sentence encoders to score pairs of texts."""
    if version:
        from pairtune import __version__

        print(__version__)
        raise typer.Exit
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


def main() -> NoReturn:
    """Run the command line: a user's mistake ends in one message, not in a traceback."""
    try:
        app()
    except UserError as problem:
        if "--debug" in sys.argv:
            raise
        print(f"pairtune: {problem}", file=sys.stderr)
        sys.exit(2)
    sys.exit(0)


@app.command()
def tasks(as_json: JsonFlag = False) -> None:
    """List the tasks: found where, rows per split, or how to get them."""
    from pairtune.tasks import TASKS, task_status

    found = {name: task_status(name) for name in TASKS}
    if as_json:
        print(
            json.dumps(
                {name: {"found": status.found, "rows": status.rows, "says": status.says} for name, status in found.items()}
            )
        )
        return
    table = Table("task", "kind", "metric", "train", "dev", "test", "status")
    for name, status in found.items():
        rows = [f"{status.rows[split]:,}" if status.found else "–" for split in ("train", "dev", "test")]
        table.add_row(name, TASKS[name].kind, TASKS[name].metric, *rows, status.says)
    screen.print(table)


@app.command()
def train(
    recipe: Annotated[str | None, typer.Argument(help="A .toml file, or a shipped recipe such as stsb/combo.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: loss.temperature=0.05")] = None,
    model: Annotated[str | None, typer.Option(help="Encoder: minilm, mpnet, a folder, or a name on the hub.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds, separated by commas: 1,2,3,4,5")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; default runs/<recipe>.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Throw away what is in the folder.")] = False,
    data: DataFile = None,
    left: LeftColumn = "left",
    right: RightColumn = "right",
    label: LabelColumn = None,
    as_json: JsonFlag = False,
) -> None:
    """Train a recipe, one run per seed, and keep the model that is best on dev."""
    from pairtune.recipe import read_recipe
    from pairtune.train import run_seeds

    task = read_own_data(data, left, right, label)
    if recipe is None and task is None:
        raise UserError("nothing to train: name a recipe (pairtune recipes lists them), or give your own pairs with --data")
    overrides = [*(settings or ()), *([f'encoder="{model}"'] if model else ()), *([f"seeds=[{seeds}]"] if seeds else ())]
    chosen = read_recipe(recipe or default_recipe(task), overrides)
    folder = out or Path("runs") / (chosen.name.replace("/", "-") if data is None else data.stem)
    try:
        runs = run_seeds(chosen, chosen.seeds, out=folder, task=task, resume=resume, overwrite=overwrite)
    except KeyboardInterrupt:
        print(f"\nstopped; what is done is kept in {folder}: the same command with --resume goes on", file=sys.stderr)
        raise typer.Exit(130) from None
    print_runs(runs, folder, as_json)


@app.command()
def recipes() -> None:
    """List the shipped recipes."""
    from pairtune.recipe import shipped_recipes

    print("\n".join(shipped_recipes()))


@app.command()
def evaluate(
    model: Annotated[str, typer.Argument(help="Any sentence-transformers model: alias, folder or hub name.")],
    task: Annotated[str | None, typer.Argument(help="A task, unless --data is given.")] = None,
    split: Split = "test",
    data: DataFile = None,
    left: LeftColumn = "left",
    right: RightColumn = "right",
    label: LabelColumn = None,
    as_json: JsonFlag = False,
) -> None:
    """Score a model on a split of a task."""
    chosen = choose_task(task, read_own_data(data, left, right, label))
    from pairtune.sbert.encoder import load_encoder
    from pairtune.sbert.evaluator import evaluate_task

    print_scores(evaluate_task(load_encoder(model), chosen, [split])[split], as_json)


@app.command()
def metrics(
    task: Annotated[str, typer.Argument(help="The task whose split was scored.")],
    scores: Annotated[
        Path, typer.Option(help="One number per line in the split's order (in a search: query by query), or .npy.")
    ],
    split: Split = "test",
    dev_scores: Annotated[Path | None, typer.Option(help="Scores of the dev split: the threshold of F1 is chosen there.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Score any system's numbers, so that BM25 or a cross-encoder stands on the same footing."""
    from pairtune.metrics import best_threshold, score_split
    from pairtune.tasks.scores import read_scores

    chosen = choose_task(task, None)
    pairs = chosen.split(split)
    threshold = None
    if dev_scores is not None and "F1" in chosen.metrics:
        threshold = best_threshold(read_scores(dev_scores, chosen.dev), chosen.dev.positives(chosen.threshold))
    values = score_split(pairs, read_scores(scores, pairs), chosen.metrics, positive_above=chosen.threshold, threshold=threshold)
    print_scores(values, as_json)
    if "F1" in chosen.metrics and threshold is None:
        print("F1 needs a threshold from dev: give --dev-scores; F1@best is chosen on the scored set itself", file=sys.stderr)


@app.command()
def score(
    model: Annotated[str, typer.Argument(help="Any sentence-transformers model: alias, folder or hub name.")],
    file: Annotated[Path | None, typer.Argument(help="Pairs to score: .csv, .tsv, .jsonl or .parquet.")] = None,
    left: Annotated[str, typer.Option(help="The left text; with a file, its column.")] = "left",
    right: Annotated[str, typer.Option(help="The right text; with a file, its column.")] = "right",
    as_json: JsonFlag = False,
) -> None:
    """Print the score of a pair of texts, or of every pair of a file, one per line."""
    from pairtune.sbert.encoder import load_encoder
    from pairtune.sbert.evaluator import score_pairs
    from pairtune.tasks.table import read_pairs

    lefts, rights = read_pairs(file, left, right) if file else ([left], [right])
    values = [round(float(value), 6) for value in score_pairs(load_encoder(model), lefts, rights)]
    print(json.dumps({"scores": values}) if as_json else "\n".join(f"{value:.6f}" for value in values))


@app.command()
def search(
    model: Annotated[str, typer.Argument(help="Any sentence-transformers model: alias, folder or hub name.")],
    corpus: Annotated[Path, typer.Argument(help="Texts to search: one per line, or a table with --column.")],
    query: Annotated[str | None, typer.Argument(help="What to look for; none: ask at a prompt.")] = None,
    column: Annotated[str, typer.Option(help="The column of the texts, where the corpus is a table.")] = "text",
    top: Annotated[int, typer.Option(help="How many to show.")] = 5,
    as_json: JsonFlag = False,
) -> None:
    """Find the nearest texts of a corpus; the index is kept beside it."""
    from pairtune.sbert.encoder import load_encoder
    from pairtune.sbert.search import open_index
    from pairtune.tasks.table import read_texts

    texts = read_texts(corpus, column)
    encoder = load_encoder(model)
    index = open_index(encoder, texts, beside=corpus)
    for text in [query] if query is not None else ask("search: "):
        matches = [{"score": round(value, 6), "text": found} for value, found in index.search(encoder, text, top)]
        if as_json:
            print(json.dumps({"query": text, "matches": matches}))
        else:
            print("\n".join(f"{match['score']:.4f}  {match['text']}" for match in matches))


@app.command()
def serve(
    model: Annotated[str, typer.Argument(help="Any sentence-transformers model: alias, folder or hub name.")],
    corpus: Annotated[Path | None, typer.Option(help="Texts to search: one per line, or a table with --column.")] = None,
    column: Annotated[str, typer.Option(help="The column of the texts, where the corpus is a table.")] = "text",
    original: Annotated[str | None, typer.Option(help="The encoder to show beside it; none: what it was tuned from.")] = None,
    host: Annotated[str, typer.Option(help="Where to listen; anything but this machine needs --token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Which port; 0 takes any that is free.")] = 8000,
    token: Annotated[str | None, typer.Option(envvar="PAIRTUNE_TOKEN", help="What the API and the page ask for.")] = None,
) -> None:
    """Open a local page, and a JSON API, to try a model: search, score two texts, score a list."""
    from pairtune.serve import serve as serve_model

    serve_model(model, corpus=corpus, column=column, original=original, host=host, port=port, token=token)


@app.command()
def export(
    model: Annotated[str, typer.Argument(help="Any sentence-transformers model: alias, folder or hub name.")],
    out: Annotated[Path, typer.Argument(help="The folder to write.")],
    onnx: Annotated[bool, typer.Option("--onnx", help="For ONNX Runtime.")] = False,
    openvino: Annotated[bool, typer.Option("--openvino", help="For OpenVINO.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Write a model for another runtime, and check that it encodes as before."""
    if onnx == openvino:
        raise UserError("say for which runtime: --onnx or --openvino, one of them")
    from pairtune.sbert.export import export_model

    print_scores({"lowest cosine": export_model(model, out, "onnx" if onnx else "openvino")}, as_json)


@app.command()
def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, such as runs/demo; several are compared.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The page; default RUN/report.html, for several runs report.html here.")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Write one page, which needs no network, that shows what training has done; several runs are compared."""
    from pairtune.report.page import write_report

    page = write_report(runs, out or (runs[0] if len(runs) == 1 else Path()) / "report.html")
    print(page)
    if show:
        typer.launch(page.resolve().as_uri())


@app.command()
def inspect(
    recipe: Annotated[str, typer.Argument(help="A .toml file, or a shipped recipe such as cqa-a/bsc.")],
    settings: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: order.group=4")] = None,
    pairs: Annotated[int, typer.Option(help="Look at that many training pairs, 0 for all.")] = 5000,
    as_json: JsonFlag = False,
) -> None:
    """Show what the batches of each order are like, before training anything."""
    from pairtune.inspection import inspect_recipe
    from pairtune.recipe import read_recipe
    from pairtune.report.batches import describe_hardest, summarise_orders, table_of_orders

    chosen = read_recipe(recipe, settings or ())
    material, found = inspect_recipe(chosen, choose_task(chosen.task, None), pairs)
    if as_json:
        print(json.dumps(summarise_orders(found)))
        return
    screen.print(table_of_orders(found, f"{chosen.name}: {len(material):,} pairs in batches of {chosen.stages[0].train.batch}"))
    for name, one in found.items():
        if one.hardest:  # a plain order has no groups
            print(f"\nhardest groups by {name}\n{describe_hardest(one, material.left, material.right)}")


@app.command()
def shuffle(
    source: Annotated[str, typer.Argument(metavar="IN", help="Parquet: a file, a folder or a glob.")],
    target: Annotated[str, typer.Argument(metavar="OUT", help="The ordered file (a folder of parts with Spark).")],
    by: Annotated[str, typer.Option(help="words, clusters, neighbours or random.")] = "words",
    column: Annotated[str | None, typer.Option(help="The column that holds what rows may share.")] = None,
    group_size: Annotated[int, typer.Option(help="How many rows that share something stand together.")] = 8,
    shingle: Annotated[int, typer.Option(help="How many words two rows must share.")] = 1,
    seed: Annotated[int, typer.Option(help="Another seed, another order.")] = 0,
    engine: Annotated[str, typer.Option(help="duckdb, in this process; or spark, on a cluster.")] = "duckdb",
    memory: Annotated[str | None, typer.Option(help="What the engine may hold in memory: 2GB; the rest goes to disk.")] = None,
    master: Annotated[str | None, typer.Option(help="Where Spark runs: local[2], spark://host:7077, yarn.")] = None,
    prepared: Annotated[str | None, typer.Option(help="The file that `pairtune prepare` made from IN.")] = None,
    rows_only: Annotated[bool, typer.Option("--rows-only", help="Write the row numbers only.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT.")] = False,
) -> None:
    """Order the rows of Parquet files so that hard negatives stand together (Algorithm 2), at any size."""
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
    column: Annotated[str, typer.Option(help="The column that holds what rows may share.")],
    by: Annotated[str, typer.Option(help="words, clusters or neighbours.")] = "words",
    memory: Annotated[str | None, typer.Option(help="What the engine may hold in memory: 2GB.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT.")] = False,
) -> None:
    """Do once what a shuffle needs for every epoch: find the words of each row."""
    from pairtune.engines import prepare as prepare_files

    prepare_files(source, target, by=by, column=column, memory=memory, overwrite=overwrite)  # type: ignore[arg-type]
    print(target)


@app.command()
def demo(out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("runs/demo"), as_json: JsonFlag = False) -> None:
    """Train the default encoder to find a function from what it does, and show the difference."""
    from pairtune.demo import show_searches
    from pairtune.recipe import read_recipe
    from pairtune.train import run_seeds

    runs = run_seeds(read_recipe("stdlib/demo"), (1,), out=out, resume=True)
    print_runs(runs, out, as_json)
    if as_json:
        return
    before, after = (scores["test"]["HP@1"] for scores in (runs[0].before, runs[0].after))
    show_searches(out / "model", screen)
    print(f"HP@1 {before:.3f} → {after:.3f}")


def read_own_data(data: Path | None, left: str, right: str, label: str | None) -> Task | None:
    """The user's own pairs as a task, where there are any."""
    from pairtune.tasks.table import read_table

    return None if data is None else read_table(data, left, right, label)


def default_recipe(task: Task | None) -> str:
    """Pairs that are all positive are contrasted with each other; labels are learned too where there are any."""
    positives_only = task is not None and bool((task.train.label == 1).all())
    return "own/positives" if positives_only else "own/labelled"


def choose_task(name: str | None, own: Task | None) -> Task:
    """The user's own task, or the named one."""
    from pairtune.tasks import load_task

    if (name is None) == (own is None):
        raise UserError("give either the name of a task (pairtune tasks lists them) or your own pairs with --data")
    return own or load_task(str(name))


def ask(prompt: str) -> Any:
    """Lines from the user until an empty one or the end of input."""
    while True:
        try:
            line = input(prompt).strip()
        except EOFError:
            return
        if not line:
            return
        yield line


def print_scores(values: dict[str, float], as_json: bool) -> None:
    """Figures by name: a JSON object, or a line each."""
    if as_json:
        print(json.dumps({name: round(value, 6) for name, value in values.items()}))
    else:
        print("\n".join(f"{name:<10} {value:.4f}" for name, value in values.items()))


def print_runs(runs: list[Run], folder: Path, as_json: bool) -> None:
    """Before and after for every seed, their mean, and where the model is; the page that shows more is written here."""
    from pairtune.report.page import write_reports
    from pairtune.report.runs import summarise, table_of_runs

    page = write_reports(folder, [run.seed for run in runs])
    if as_json:
        print(json.dumps({**summarise(runs), "report": os.fspath(page)}))
        return
    screen.print(table_of_runs(runs))
    print(f"model: {folder / 'model'}\nreport: {page}")
