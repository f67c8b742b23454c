"""pairtune's default, `tune` and variants for the default beside stock losses of sentence-transformers, on a user's own data.

python -m benchmarks.own_data [--case stsb --case cqa-b] [--encoder minilm] [--seeds 1,2] [--jobs 4] [--tune 40]
python -m benchmarks.own_data --system default --system pearson --system CoSENTLoss
python -m benchmarks.own_data --rule own/answers --system pearson-half --minutes 8
python -m benchmarks.own_data --thirds --system default --system pl.1-q-half   # cross-validation over train and dev

Needs the datasets (PAIRTUNE_DATA), for some cases texts of Debian (lab/own/packages.py, lab/own/senses.py). A run that is in
lab/results/own is not made again; `python -m lab own` shows them all. What cannot be trained is said and does not stop the rest.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer
from benchmarks.orphans import end_with_parent
from lab.own.cases import CASES, load_case
from lab.own.own_page import SHIPPED
from lab.own.own_runs import RESULTS, OwnRun, add_runs, read_own_runs
from lab.own.stock import STOCK, stock_losses, train_stock
from lab.own.thirds import THIRDS, hold_out
from lab.own.variants import VARIANTS, recipe_of

from pairtune import Run, Task, UserError
from pairtune.data.pairs import ALIKE
from pairtune.progress import say
from pairtune.tune.rules import choose

DEFAULT, TUNED = "default", "tune"


@dataclass(frozen=True)
class Training:
    """One of a case: `tune` with so many trainings of folds, a variant (the default is one) or a stock loss by its name.

    thirds: the seed is the third of train and dev that is held out.
    """

    case: str
    name: str
    encoder: str
    seed: int
    precision: str
    trainings: int = 0
    thirds: bool = False


def main(
    case: Annotated[list[str] | None, typer.Option(help="A case; all of them unless given.")] = None,
    encoder: Annotated[str, typer.Option(help="minilm or mpnet.")] = "minilm",
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas.")] = "1",
    jobs: Annotated[int, typer.Option(help="Trainings at once.")] = 1,
    precision: Annotated[str, typer.Option(help="float32 or bf16.")] = "float32",
    tune: Annotated[int, typer.Option(help="Trainings of folds that `tune` may make; 0: leave it out.")] = 0,
    system: Annotated[list[str] | None, typer.Option(help="default, stock, a stock loss or a variant.")] = None,
    rule: Annotated[str, typer.Option(help="Only cases that this recipe is chosen for, such as own/answers.")] = "",
    minutes: Annotated[float, typer.Option(help="Begin no training after so many minutes; 0: make all.")] = 0.0,
    thirds: Annotated[bool, typer.Option("--thirds", help="Hold out thirds of train and dev, in place of seeds.")] = False,
    results: Annotated[Path, typer.Option(help="Folder of the records.")] = RESULTS,
) -> None:
    """Train what has no record yet, and append it."""
    started = monotonic()
    unknown = set(case or ()) - set(CASES)
    if unknown:
        raise UserError(f"unknown case {', '.join(sorted(unknown))}; known: {', '.join(CASES)}")
    numbers = [*THIRDS] if thirds else [int(seed) for seed in seeds.split(",")]
    file = f"{encoder}-thirds" if thirds else encoder
    wanted = [*(system or (DEFAULT, "stock")), *([TUNED] if tune else [])]
    check_systems(wanted)
    asked = [
        Training(name, what, encoder, seed, precision, tune, thirds)
        for seed in numbers
        for name in case or [name for name in CASES if can_load(name)]
        if not rule or choose(load_case(name)).recipe.name == rule
        for what in systems_of(name, wanted)
    ]
    known = {(run.case, run.name, run.seed) for run in read_own_runs(file, results)}
    missing = [one for one in asked if (one.case, one.name, one.seed) not in known]
    say(f"{len(missing)} of {len(asked)} trainings to make")
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=end_with_parent) as pool:
        submitted = {pool.submit(train_one, one): one for one in missing}
        for number, done in enumerate(as_completed(submitted), start=1):
            one = submitted[done]
            if minutes and monotonic() - started > 60 * minutes:
                cancelled = sum(future.cancel() for future in submitted)  # those that have begun are finished
                if cancelled:
                    say(f"time is over: {cancelled} trainings are left for another time")
            if done.cancelled():
                continue
            if problem := done.exception():
                say(f"{number} of {len(missing)}: {one.case}, {one.name}, seed {one.seed} failed: {problem}")
                continue
            run = done.result()
            add_runs([run], file, results)
            say(f"{number} of {len(missing)}: {run.case}, {run.name}, seed {run.seed}: {run.metric} {run.after['test']:.4f}")


def can_load(case: str) -> bool:
    """Whether the data of a case is here; if not, what to do for it is said."""
    try:
        load_case(case)
    except UserError as problem:
        say(f"{case} is left out: {problem}")
        return False
    return True


def check_systems(names: Iterable[str]) -> None:
    """Refuse names that mean nothing."""
    known = {DEFAULT, TUNED, "stock", *STOCK, *VARIANTS}
    if unknown := sorted(set(names) - known):
        raise UserError(f"unknown system {', '.join(unknown)}; known: {', '.join(sorted(known))}")


def systems_of(case: str, names: Iterable[str]) -> list[str]:
    """What is trained on a case: of the stock losses those that its labels allow, of the variants those that fit its kind."""
    task = load_case(case)
    stock, default = stock_losses(task), SHIPPED[choose(task).recipe.name]
    found = [one for name in names for one in (stock if name == "stock" else [default if name == DEFAULT else name])]
    fitting = [one for one in found if (one in stock if one in STOCK else one not in VARIANTS or fits(one, task))]
    return list(dict.fromkeys(fitting))


def fits(variant: str, task: Task) -> bool:
    """Whether the loss has what it needs: labels, for all losses but batch softmax."""
    return task.kind != "retrieval" or VARIANTS[variant]["loss.kind"] == "bsc"


def train_one(asked: Training) -> OwnRun:
    """Train, and keep what the tables need."""
    whole = load_case(asked.case)
    task = hold_out(whole, asked.seed) if asked.thirds else whole
    own = asked.name not in STOCK
    before, after, epochs, seconds, plain = train_own(task, asked) if own else train_other(task, asked)
    return OwnRun(
        case=asked.case,
        dataset=CASES[asked.case].dataset,
        metric=task.metric,
        rule=choose(whole).recipe.name,
        encoder=asked.encoder,
        system="pairtune" if own else "stock",
        name=asked.name,
        seed=asked.seed,
        settings=VARIANTS.get(asked.name, {}),
        before=before,
        after=after,
        epochs=epochs,
        seconds=round(seconds, 2),
        plain=plain,
    )


Found = tuple[dict[str, float], dict[str, float], tuple[float, ...], float, dict[str, float]]


def train_own(task: Task, asked: Training) -> Found:
    """A variant, such as the default, or what `pairtune tune` finds from the default on."""
    from pairtune import load_encoder
    from pairtune.sbert.evaluator import evaluate_task
    from pairtune.training import run
    from pairtune.tune import tune

    settings = [f'encoder="{asked.encoder}"', f'train.precision="{asked.precision}"']
    recipe = recipe_of(asked.name, settings) if asked.name in VARIANTS else choose(task, settings).recipe
    plain: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        if asked.name == TUNED:
            record: Run = tune(task, out=Path(folder) / "tune", start=recipe, minutes=None, most_trainings=asked.trainings).run
        else:
            out, marked = Path(folder) / "run", recipe.mark_sides and task.kind not in ALIKE
            record = run(recipe, asked.seed, out=out, task=task, checkpoints=False, keep_model=marked)
            if marked:
                plain = main_scores(evaluate_task(load_encoder(str(out / "model")), task), task)
    epochs = tuple(epoch.dev[task.metric] for epoch in record.epochs)
    return main_scores(record.before, task), main_scores(record.after, task), epochs, record.seconds, plain


def train_other(task: Task, asked: Training) -> Found:
    """A stock loss in the host's own trainer."""
    from pairtune import load_encoder
    from pairtune.sbert.evaluator import evaluate_task

    before = evaluate_task(load_encoder(asked.encoder), task)
    found = train_stock(task, asked.name, asked.encoder, asked.seed, bf16=asked.precision == "bf16")
    return main_scores(before, task), main_scores(found["scores"], task), (), found["seconds"], {}


def main_scores(scores: dict[str, dict[str, float]], task: Task) -> dict[str, float]:
    """The main metric on dev and on test."""
    return {split: round(scores[split][task.metric], 6) for split in ("dev", "test")}


if __name__ == "__main__":
    typer.run(main)
