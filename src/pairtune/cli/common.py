"""What the commands share: the app, their common options, and how scores are printed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from pairtune.errors import UserError
from pairtune.progress import count_processes, printable, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentence_transformers import SentenceTransformer

    from pairtune.data.pairs import Task
    from pairtune.encoders.prompts import AskedPrompts, Prompts

app = typer.Typer(
    help="Fine-tune sentence encoders to score pairs of texts.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
WIDE = 140  # columns of a table that goes to a file or a pipe, where no window cuts it
# names of files and folders stand in tables: [/x] is no markup there, and :x: no sign
screen = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else WIDE, markup=False, emoji=False)

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of text, for programs.")]
LeftPrompt = Annotated[
    str | None, typer.Option("--left-prompt", help="Text to put before left texts; default: the model's query prompt.")
]
RightPrompt = Annotated[
    str | None, typer.Option("--right-prompt", help="Text to put before right texts; default: the model's document prompt.")
]


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Fine-tune sentence encoders to score pairs of texts."""
    if version:
        from pairtune import __version__

        print(__version__)
        raise typer.Exit
    check_process_variables()
    if count_processes() > 1 and context.invoked_subcommand != "train":
        raise UserError(f"{count_processes()} processes were started together, and only `pairtune train` uses them: start one")
    check_started_together()
    share_cores()
    if count_processes() > 1:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # what a lost connection means is said in words
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


STARTED_TOGETHER = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun and accelerate set, all of them


def check_process_variables() -> None:
    """Refuse an environment whose numbers of processes are none."""
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        if not (said := os.environ.get(name, "0")).isdecimal():
            raise UserError(f"the variable {name} is {said!r}, expected a whole number: unset it, or start with torchrun")


def check_started_together() -> None:
    """Refuse an environment that says that several processes were started, and not how they find each other."""
    missing = [name for name in STARTED_TOGETHER if name not in os.environ]
    if count_processes() > 1 and missing:
        raise UserError(
            f"the variable WORLD_SIZE is {count_processes()}, and {' and '.join(missing)} are not there: "
            f"unset WORLD_SIZE for one process, or start several with torchrun"
        )


def share_cores() -> None:
    """Let torch's threads sleep soon when they wait for each other; before torch is imported, and unless the user has said how.

    By default they wait busily, and where other programs want the cores too, the one that is waited for cannot run.
    """
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = "1000"


EncoderName = Annotated[str | None, typer.Option("--model", help="Encoder: minilm, mpnet, a folder, or a name on the hub.")]

Dimension = Annotated[
    int | None,
    typer.Option("--dimension", help="Use only the first numbers of each embedding, this many.", min=1),
]


def set_encoder(settings: Sequence[str] | None, model: str | None) -> list[str]:
    """The settings that were given, and the encoder of --model as one more."""
    return [*(settings or ()), *([] if model is None else [f"encoder={json.dumps(model, ensure_ascii=False)}"])]


def say_notes(task: Task | None) -> None:
    """What was seen in the user's own pairs: their columns, labels and kind, and how they were split."""
    if task is not None:
        for note in task.notes:
            say(f"{task.name}: {note}")


def settle_prompts(
    model: SentenceTransformer, left: str | None = None, right: str | None = None, *, alike: bool = False
) -> Prompts:
    """The prompts that were given by hand, or the model's own, which are said."""
    from pairtune.encoders.prompts import choose_prompts, keep_prompts

    prompts = choose_prompts(model, asked_prompts(left, right), alike=alike)
    if prompts:
        keep_prompts(model, prompts)
        say(str(prompts))
    return prompts


def asked_prompts(left: str | None, right: str | None) -> AskedPrompts:
    """The prompts that were given by hand, by side; nothing if there were none."""
    refuse_broken(left_prompt=left, right_prompt=right)
    return {} if left is None and right is None else {"left": left or "", "right": right or ""}


def parse_seeds(text: str) -> list[int]:
    """Whole numbers below 2³², separated by commas, each once.

    >>> parse_seeds("1,2")
    [1, 2]
    """
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        seeds = []
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0 or max(seeds) >= 2**32:
        raise UserError(
            f"--seeds {text!r}: expected whole numbers from 0 on, separated by commas, each once and below 2**32, such as 1,2,3"
        )
    return seeds


def choose_task(name: str | None, own: Task | None) -> Task:
    """The user's own task, or the named one."""
    from pairtune.data.datasets import load_task

    if own is not None and name is not None and Path(name).is_file():
        raise UserError(f"{name} is a file: give each file an option of its own (--data A --data B), or a pattern in quotes")
    if (name is None) == (own is None):
        raise UserError("give either the name of a task (pairtune tasks lists them) or your own pairs with --data")
    return own or load_task(str(name))


def stop(message: str) -> typer.Exit:
    """What to raise when Ctrl-C has ended a command: the words are said, and the status is the one that shells give it."""
    say(f"\n{message}")
    return typer.Exit(130)


def print_texts(text: str) -> None:
    """Print what holds texts of the user's data, which must not steer the terminal."""
    print(printable(text))


def refuse_broken(**texts: str | None) -> None:
    """Refuse a text of the command line that was not UTF-8: no encoder reads it."""
    for name, text in texts.items():
        if text is not None and any("\ud800" <= letter <= "\udfff" for letter in text):
            raise UserError(f"{name} {text!r} is not valid UTF-8: give it in that encoding")


def print_scores(values: dict[str, float], as_json: bool) -> None:
    """Scores by name: a JSON object, or a line each."""
    if as_json:
        print(json.dumps({name: value if isinstance(value, int) else round(value, 6) for name, value in values.items()}))
    else:
        print("\n".join(f"{name:<10} {value:{',' if isinstance(value, int) else '.4f'}}" for name, value in values.items()))
