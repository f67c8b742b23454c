"""A second look where a small dev keeps the original encoder: parts of train and dev, held out in turn, say if training helps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from pairtune.data.pairs import Task
from pairtune.progress import count_processes, say
from pairtune.runs.folder import ask_for, write_whole
from pairtune.runs.recipe import Recipe
from pairtune.runs.record import FEW_DEV_PAIRS, Run, kept_run
from pairtune.tune.folds import fold_name, make_folds
from pairtune.tune.queue import threads_for
from pairtune.tune.tried import Comparison, compare
from pairtune.tune.worker import Job, Setup, attempt

ANSWER = "folds.json"  # in the folder of the runs: for which pairs and settings folds were for training
FOLDS, MOST_TRAINED = 5, 2000  # pairs that a fold trains on


def train_surely(recipe: Recipe, *, out: Path, task: Task, resume: bool = False, overwrite: bool = False) -> list[Run]:
    """`train`; where few dev pairs keep the original encoder, folds are asked: training is kept if it is clearly better there."""
    from pairtune.training import train

    trained = recipe.model_copy(update={"keep_original": False})
    asked = json.dumps(ask_for(trained, 0, task.fingerprint(trained.extra_splits)), sort_keys=True)
    if resume and (out / ANSWER).exists() and (out / ANSWER).read_text(encoding="utf-8") == asked:
        first = holds_first(out)
        return train(trained, out=out, task=task, resume=not first, overwrite=first)
    runs = train(recipe, out=out, task=task, resume=resume, overwrite=overwrite)
    if not in_doubt(recipe, task, runs):
        return runs
    say(f"{runs[0].pairs['dev']} dev pairs keep the original encoder, which may be chance: asking parts of train and dev in turn")
    found = ask_folds(trained, task)
    if not found.gain > found.error:
        say(f"training is not clearly better there ({found}): the original encoder is kept")
        return runs
    say(f"training is clearly better there ({found}): it is done again, and the original encoder is no candidate")
    write_whole(out / ANSWER, asked)
    return train(trained, out=out, task=task, overwrite=True)


def holds_first(out: Path) -> bool:
    """Whether a run in the folder is still that of the first training: the process died before the second one took its place."""
    asked = [json.loads(path.read_text(encoding="utf-8")) for path in out.glob("seed-*/recipe.json")]
    return any(one["recipe"].get("keep_original", True) for one in asked)


def in_doubt(recipe: Recipe, task: Task, runs: Sequence[Run]) -> bool:
    """Whether the original encoder was kept by so few dev pairs that folds should be asked."""
    kept = runs[kept_run(runs)]
    chosen_on_dev = recipe.keep_original and recipe.select == "best" and recipe.dev == "given"
    can_be_beaten = kept.before["dev"][kept.metric] < 1
    by_few = kept.unchanged and kept.pairs["dev"] < FEW_DEV_PAIRS
    return chosen_on_dev and can_be_beaten and by_few and not task.sources and count_processes() == 1


def ask_folds(recipe: Recipe, task: Task) -> Comparison:
    """Training beside the original encoder, on parts of train and dev that are held out in turn. Nothing where one fails."""
    folds = make_folds(task, MOST_TRAINED if len(task.train) > MOST_TRAINED else 0, FOLDS)
    if not folds.tenths:
        say("most pairs share texts with each other: there are no parts to ask")
        return Comparison(0, 0.0, float("inf"))
    after, before = dict[int, float](), dict[int, float]()
    with TemporaryDirectory() as scratch:
        setup = Setup(Path(scratch), folds, threads_for(1, 1), checkpoints=False)
        for number in folds.numbers:
            asked = recipe.model_copy(update={"task": fold_name(number), "dev_candidates": 0, "average_of": 1})
            done = attempt(Job(asked, number), setup)
            if done.record is None:
                say(f"a part could not be trained on: {done.problem.splitlines()[0]}")
                return Comparison(0, 0.0, float("inf"))
            before[number], after[number] = (one["dev"][task.metric] for one in (done.record.before, done.record.after))
            say(f"part {len(after)} of {len(folds.numbers)}: {task.metric} {before[number]:.4f} → {after[number]:.4f}")
    return compare(after, before)
