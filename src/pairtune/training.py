"""The story in one function: task, order, encode, loss, evaluate, select, record."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pairtune import __version__
from pairtune.data.datasets import load_task
from pairtune.data.filling import fill_dev
from pairtune.data.material import check_candidates, check_negatives, note_splits, training_dataset
from pairtune.data.pairs import Task
from pairtune.data.splits import join_dev, rotate_dev
from pairtune.errors import UserError
from pairtune.progress import say
from pairtune.runs.folder import RunFolder, ask_for, write_whole
from pairtune.runs.recipe import Recipe, Stage
from pairtune.runs.record import Epoch, Run, best_index, kept_run

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

VERSIONED = ("torch", "sentence-transformers", "transformers")


@dataclass(frozen=True)
class Trained:
    """What a stage leaves: its epochs, the place of the one that was kept, the seconds and pairs it took.

    rows: how many pairs (or triplets) an epoch has.
    """

    epochs: list[Epoch]
    kept: int
    seconds: float
    pairs: float
    rows: int


def run(
    recipe: Recipe,
    seed: int,
    *,
    out: Path,
    results: Path | None = None,
    task: Task | None = None,
    resume: bool = False,
    overwrite: bool = False,
    checkpoints: bool = True,
    keep_model: bool = True,
) -> Run:
    """Train one seed of a recipe into the folder `out`, and append its record to `results`.

    checkpoints: after each epoch, to resume from; without them less is written, and an interrupted run begins anew.
    keep_model: without, the record and the scores are all that remains.
    """
    from pairtune.encoders.ignoring import give_tokenizer, ignoring
    from pairtune.encoders.loading import load_encoder
    from pairtune.sbert.outcomes import evaluate_and_keep, kept_outcome, write_evidence

    task = task or load_task(recipe.task)
    folder, asked = RunFolder(out), ask_for(recipe, seed, task.fingerprint(recipe.extra_splits))
    folder.check(asked, resume=resume, overwrite=overwrite)
    if folder.finished and not overwrite:
        folder.drop_checkpoints()
        return folder.record()
    task = arrange(task, recipe, seed)
    for note in task.notes:
        say(f"{task.name}: {note}")
    model = load_encoder(recipe.encoder, recipe.stages[0].train.max_seq_length)
    tokenizer = ignoring(model.tokenizer, recipe.ignore) if recipe.ignore else model.tokenizer
    folder.begin(asked, overwrite=overwrite)  # not before all that can be refused has been
    say(f"{recipe.name}, seed {seed}: scoring {recipe.encoder} as it is on {task.name}")
    before = folder.remember("before", lambda: evaluate_and_keep(model, task, kept_outcome(folder, "before")))
    if recipe.ignore:
        give_tokenizer(model, tokenizer)
    trained = [
        train_stage(model, task, recipe, number, seed, folder.stage(number), checkpoints=checkpoints)
        for number in range(1, len(recipe.stages) + 1)
    ]
    after = evaluate_and_keep(model, task, kept_outcome(folder, "after"))
    record = write_record(recipe, seed, task, folder, before, after, trained, device=str(model.device))
    if keep_model:
        write_model(model, folder, len(recipe.stages), record, task)
    write_evidence(folder, task, len(recipe.stages))
    folder.finish(record, results or out.parent / "results.jsonl")
    return record


def arrange(task: Task, recipe: Recipe, seed: int) -> Task:
    """The task with the dev that the recipe asks for. Refuses, before anything is written, what cannot be trained."""
    if recipe.dev != "given" and any(stage.train.file for stage in recipe.stages):
        raise UserError(f'dev = "{recipe.dev}" takes pairs of the task, and train.file may have them too: set dev = "given"')
    if recipe.dev == "rotating":
        task = rotate_dev(task, seed)
    elif recipe.dev == "joined":
        if recipe.select == "best":
            raise UserError('dev = "joined" leaves no pairs to choose an epoch by: set select = "last" or "average"')
        task = join_dev(task)
    if recipe.dev_candidates:
        task = fill_dev(task, recipe.dev_candidates)
    for stage in recipe.stages:
        check_candidates(task, stage)
        check_negatives(task, stage)
    return replace(task, notes=(*task.notes, *note_splits(task, recipe.stages)))


def train(
    recipe: Recipe,
    *,
    out: Path | str,
    seeds: Sequence[int] | None = None,
    task: Task | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> list[Run]:
    """Train every seed of a recipe into its own folder; the best one on dev, with dev = "joined" the first, becomes `out/model`.

    seeds: other ones than the recipe's. task: your own data (`read_table`), where the recipe names none of ours.
    resume: go on with what is there. overwrite: begin anew; runs of other seeds in `out` are gone when these are done.
    """
    out, seeds = Path(out), recipe.seeds if seeds is None else seeds
    mine = {f"seed-{seed}" for seed in seeds}
    others = [path.parent for path in out.glob("seed-*/recipe.json") if path.parent.name not in mine]
    if (out / "model").exists() and not others and not any((out / name / "recipe.json").exists() for name in mine):
        raise UserError(f"{out / 'model'} is there, and no run of ours made it: give another --out")
    options: Any = {"results": out.parent / "results.jsonl", "task": task, "resume": resume, "overwrite": overwrite}
    runs = [run(recipe, seed, out=out / f"seed-{seed}", **options) for seed in seeds]
    if overwrite:
        for path in others:
            shutil.rmtree(path)
        (out / "report.html").unlink(missing_ok=True)  # of several seeds; who trains writes the new one
    copy_whole(out / f"seed-{runs[kept_run(runs)].seed}" / "model", out / "model")
    return runs


def train_stage(
    model: SentenceTransformer, task: Task, recipe: Recipe, number: int, seed: int, folder: Path, *, checkpoints: bool = True
) -> Trained:
    """Train the model in place, as one stage of the recipe says, and leave it at the epoch that was selected."""
    from pairtune.sbert.callbacks import Clock, Progress
    from pairtune.sbert.checkpoints import newest_usable_checkpoint
    from pairtune.sbert.trainer import make_trainer
    from pairtune.sbert.watch import Watch

    done = folder / "trained.json"
    if done.exists():
        restore(model, folder / "model")
        return Trained(**_read_trained(done))
    stage = recipe.stages[number - 1]
    model.max_seq_length = stage.train.max_seq_length or model.max_seq_length
    dataset = training_dataset(model, task, stage, seed)
    clock = Clock(pairs_per_epoch=len(dataset))
    watch = Watch(clock, stage.loss.positive_above)
    progress = Progress(clock, title=f"stage {number} of {len(recipe.stages)}" if len(recipe.stages) > 1 else "training")
    callbacks = [clock, progress, watch]
    trainer = make_trainer(model, dataset, stage, task, seed, folder, callbacks, select=recipe.select, checkpoints=checkpoints)
    try:
        trainer.train(resume_from_checkpoint=newest_usable_checkpoint(folder) if checkpoints else None)
    except Exception as problem:
        explain_failure(problem, stage, folder)
        raise
    finally:
        progress.close()
    epochs = read_history(trainer.state.log_history, number)
    kept = best_index([epoch.dev[task.metric] for epoch in epochs]) if recipe.select == "best" else len(epochs) - 1
    trained = Trained(epochs, kept, clock.seconds, clock.pairs, len(dataset))
    if checkpoints:
        save_whole(model, folder / "model")
        write_whole(done, json.dumps({**vars(trained), "epochs": [epoch.model_dump() for epoch in epochs]}))
    return trained


def read_history(log: list[dict[str, Any]], stage: int) -> list[Epoch]:
    """The epochs of a stage from the host's log: mean loss of the steps, dev scores, and τ where it is learned."""
    epochs: list[Epoch] = []
    losses: list[float] = []
    temperature: float | None = None
    for entry in log:
        losses += [entry["loss"]] if "loss" in entry else []
        temperature = entry.get("temperature", temperature)
        dev = {key.removeprefix("eval_dev_"): value for key, value in entry.items() if key.startswith("eval_dev_")}
        if dev:
            loss = float(np.mean(losses)) if losses else None
            epochs.append(Epoch(stage=stage, epoch=len(epochs) + 1, loss=loss, dev=dev, temperature=temperature))
            losses = []
    return epochs


def save_whole(model: SentenceTransformer, folder: Path) -> None:
    """Save aside, then rename: a folder under this name is complete."""
    aside = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    model.save_pretrained(str(aside))
    shutil.rmtree(folder, ignore_errors=True)
    aside.rename(folder)


def restore(model: SentenceTransformer, folder: Path) -> None:
    """Give the model the weights of a saved one."""
    from pairtune.encoders.loading import load_encoder

    model.load_state_dict(load_encoder(str(folder)).state_dict())


def _read_trained(path: Path) -> dict[str, Any]:
    values = json.loads(path.read_text())
    return {**values, "epochs": [Epoch.model_validate(epoch) for epoch in values["epochs"]]}


def explain_failure(problem: Exception, stage: Stage, folder: Path) -> None:
    """Turn what a user can mend, a full disk or too large a batch, into a message that says how."""
    text = f"{problem} {problem.__cause__ or ''}"
    if isinstance(problem, OSError) or any(sign in text for sign in ("os error 28", "os error 27", "failed writing file")):
        raise UserError(
            f"could not write to {folder} ({str(problem).splitlines()[0]}): free some space; "
            f"the last complete checkpoint is kept, and --resume goes on from it"
        ) from problem
    if type(problem).__name__ == "OutOfMemoryError":
        raise UserError(
            f"a batch of {stage.train.batch_size} pairs does not fit into the device's memory: lower train.batch_size, "
            f"or set loss.mini_batch_size (16, say) to go through it in parts"
        ) from problem


def write_record(
    recipe: Recipe,
    seed: int,
    task: Task,
    folder: RunFolder,
    before: dict[str, dict[str, float]],
    after: dict[str, dict[str, float]],
    trained: Sequence[Trained],
    device: str,
) -> Run:
    """All that a report needs to know of a finished run."""
    epochs = [epoch for stage in trained for epoch in stage.epochs]
    seconds = sum(stage.seconds for stage in trained)
    return Run(
        name=recipe.name,
        task=task.name,
        encoder=recipe.encoder,
        seed=seed,
        metric=task.metric,
        recipe=recipe.model_dump(mode="json"),
        before=before,
        after=after,
        epochs=epochs,
        best_epoch=trained[-1].epochs[trained[-1].kept].epoch,
        pairs={"train": trained[-1].rows, "dev": len(task.dev), "test": len(task.test)},
        notes=list(task.notes),
        seconds=seconds,
        pairs_per_second=sum(stage.pairs for stage in trained) / seconds if seconds else 0.0,
        device=describe_device(device),
        versions={"pairtune": __version__, **{name: version(name) for name in VERSIONED}},
        commit=current_commit(),
        finished=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        model=os.fspath(folder.model),
    )


def write_model(model: SentenceTransformer, folder: RunFolder, stages: int, record: Run, task: Task) -> None:
    """Put the model where users look for it, with a card that says how it came to be."""
    from pairtune.sbert.card import write_card

    saved = folder.stage(stages) / "model"
    if saved.exists():  # with the card that the host wrote when it was trained
        copy_whole(saved, folder.model)
    else:
        save_whole(model, folder.model)
    write_card(folder.model / "README.md", record, task)


def copy_whole(source: Path, target: Path) -> None:
    """Copy aside, then rename: a process that dies in between leaves the source, and no half target."""
    aside = target.with_name(f"{target.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(source, aside)
    shutil.rmtree(target, ignore_errors=True)
    aside.rename(target)


def describe_device(device: str) -> str:
    """The accelerator's name, or how many cores the CPU has."""
    import torch

    return torch.cuda.get_device_name() if device.startswith("cuda") else f"{device}, {os.cpu_count()} cores"


def current_commit() -> str | None:
    """The commit of pairtune's own checkout, where it runs from one."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return result.stdout.strip() if result.returncode == 0 else None
