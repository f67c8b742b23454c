"""The story in one function: task, order, encode, loss, evaluate, select, record."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pairtune.data.datasets import load_task
from pairtune.data.material import check_candidates, check_negatives, note_splits, training_dataset
from pairtune.data.negatives import fill_dev
from pairtune.data.pairs import ALIKE, Task, add_prompts
from pairtune.data.splits import join_dev, rotate_dev
from pairtune.errors import UserError
from pairtune.progress import say
from pairtune.runs.folder import RunFolder, ask_for, whole_folder, write_whole
from pairtune.runs.lock import check_free
from pairtune.runs.recipe import Recipe, Select, Stage
from pairtune.runs.record import Epoch, Run, Trained, best_index, is_unchanged, kept_run, read_history
from pairtune.runs.settings import unread_settings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


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
    from pairtune.encoders.adapters import add_adapter, merge_adapter
    from pairtune.encoders.ignoring import give_tokenizer, ignoring
    from pairtune.encoders.prompts import choose_prompts, keep_prompts
    from pairtune.sbert.evaluator import evaluate_sizes
    from pairtune.sbert.outcomes import evaluate_and_keep, kept_outcome, make_record, write_evidence

    if task is None:
        refuse_borrowed_dev(recipe)
    task, results = task or load_task(recipe.task), results or out.parent / "results.jsonl"
    if "task" not in recipe.model_fields_set:  # the default's name would stand in records of a user's own pairs
        recipe = recipe.model_copy(update={"task": task.name})
    folder, asked = RunFolder(out), ask_for(recipe, seed, task.fingerprint(recipe.extra_splits))
    check_free(out)
    folder.check(asked, resume=resume, overwrite=overwrite)
    if folder.finished and not overwrite:
        folder.drop_checkpoints()
        return folder.record()
    task = arrange(task, recipe, seed)
    for note in task.notes:
        say(f"{task.name}: {note}")
    model = load_for(recipe)
    prompts = choose_prompts(model, recipe.prompts, alike=task.kind in ALIKE)
    if prompts:
        keep_prompts(model, prompts)
        say(f"{task.name}: {prompts}")
    task = add_prompts(task, prompts)
    original = model.tokenizer
    tokenizer = ignoring(original, recipe.ignore) if recipe.ignore else original
    with folder.hold(), disk_in_words(out):  # not before all that can be refused has been
        folder.check(asked, resume=resume, overwrite=overwrite)  # another process may have been faster
        folder.begin(asked, overwrite=overwrite)
        if folder.pending:
            return folder.publish(results)
        say(f"{recipe.name}, seed {seed}: scoring {recipe.encoder} as it is on {task.name}")
        before = folder.remember("before", lambda: evaluate_and_keep(model, task, kept_outcome(folder, "before")))
        if recipe.ignore:
            give_tokenizer(model, tokenizer)
        if recipe.adapter:
            say(f"{recipe.name}, seed {seed}: {add_adapter(model, recipe.adapter, seed)}")
        trained = train_stages(model, task, recipe, seed, folder, before["dev"][task.metric], checkpoints=checkpoints)
        if recipe.ignore and is_unchanged(trained):
            give_tokenizer(model, original)
        if recipe.adapter and recipe.adapter.save == "merged":
            merge_adapter(model)
        after = evaluate_and_keep(model, task, kept_outcome(folder, "after"))
        sizes = evaluate_sizes(model, task, "dev", recipe.dimensions) if recipe.dimensions else []
        record = make_record(recipe, seed, task, folder, before, after, trained, str(model.device), sizes)
        if keep_model:
            write_model(model, folder, len(recipe.stages), record, task)
        write_evidence(folder, task, len(recipe.stages))
        folder.finish(record, results)
    return record


def load_for(recipe: Recipe) -> SentenceTransformer:
    """The encoder of a recipe. Refuses, before anything is written, what it cannot do."""
    from pairtune.encoders.adapters import check_adapter, merge_adapter
    from pairtune.encoders.loading import check_dimensions, load_encoder
    from pairtune.sbert.outcomes import name_base_model

    model = load_encoder(recipe.encoder, recipe.stages[0].train.max_seq_length)
    check_dimensions(model, recipe.dimensions, "train.dimensions")
    if recipe.adapter:
        check_adapter(model, recipe.adapter)
    merge_adapter(model)  # one that the encoder came with
    name_base_model(model, recipe.encoder)
    return model


def refuse_borrowed_dev(recipe: Recipe) -> None:
    """Refuse to choose an epoch, and to report, on another task's pairs when `train.file` names the pairs to train on."""
    named = next((stage.train.file for stage in recipe.stages if stage.train.file), "")
    if named and "task" not in recipe.model_fields_set:
        raise UserError(
            f"train.file {named} holds pairs to train on, and dev and test would be those of {recipe.task}: give your own with "
            f"--dev FILE --test FILE, or name a task in the recipe"
        )


def arrange(task: Task, recipe: Recipe, seed: int) -> Task:
    """The task with the dev that the recipe asks for. Refuses, before anything is written, what cannot be trained."""
    if recipe.dev != "given" and any(stage.train.file for stage in recipe.stages):
        raise UserError(f'dev = "{recipe.dev}" takes pairs of the task, and train.file may have them too: set dev = "given"')
    if not len(task.train) and not all(stage.train.file for stage in recipe.stages):
        raise UserError(f"task {task.name} has no pairs to train on: give them with --train FILE or --data FILE")
    if not len(task.dev) or not len(task.test):
        raise UserError(f"task {task.name} needs pairs for dev and for test: give both --dev FILE and --test FILE")
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
    return replace(task, notes=(*task.notes, *note_splits(task, recipe.stages), *unread_settings(recipe).values()))


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
        raise UserError(f"{out / 'model'} was not made by pairtune, and would be replaced: give another --out")
    options: Any = {"results": out.parent / "results.jsonl", "task": task, "resume": resume, "overwrite": overwrite}
    runs = [run(recipe, seed, out=out / f"seed-{seed}", **options) for seed in seeds]
    if overwrite:
        for path in others:
            shutil.rmtree(path)
        (out / "report.html").unlink(missing_ok=True)  # of several seeds; who trains writes the new one
    with disk_in_words(out):
        copy_whole(out / f"seed-{runs[kept_run(runs)].seed}" / "model", out / "model")
    return runs


def train_stages(
    model: SentenceTransformer, task: Task, recipe: Recipe, seed: int, folder: RunFolder, score: float, *, checkpoints: bool
) -> list[Trained]:
    """Train the model in place, stage by stage, each from what the one before left. score: on dev, of the encoder as it came."""
    found: list[Trained] = []
    for number in range(1, len(recipe.stages) + 1):
        to_beat = score if recipe.select == "best" and recipe.keep_original else None
        place = folder.stage(number)
        found.append(train_stage(model, task, recipe, number, seed, place, to_beat=to_beat, checkpoints=checkpoints))
        if found[-1].kept:
            score = found[-1].epochs[found[-1].kept - 1].dev[task.metric]
    return found


def train_stage(
    model: SentenceTransformer,
    task: Task,
    recipe: Recipe,
    number: int,
    seed: int,
    folder: Path,
    *,
    to_beat: float | None = None,
    checkpoints: bool = True,
) -> Trained:
    """Train the model in place, as one stage of the recipe says, and leave it at the epoch that was selected.

    to_beat: the score on dev of the model as it is now, which is kept if no epoch has a higher one; None: an epoch is kept.
    """
    from pairtune.encoders.adapters import restore_weights
    from pairtune.encoders.embedding import describe_cut
    from pairtune.encoders.loading import length_of, set_length
    from pairtune.sbert.callbacks import Clock, LogEpochs, Progress
    from pairtune.sbert.checkpoints import newest_usable_checkpoint
    from pairtune.sbert.trainer import make_trainer, texts_of
    from pairtune.sbert.watch import Watch

    done = folder / "trained.json"
    if done.exists():
        restore_weights(model, folder / "model")
        return Trained(**_read_trained(done))
    stage, first = recipe.stages[number - 1], Beginning(model) if to_beat is not None else None
    set_length(model, stage.train.max_seq_length or length_of(model))
    dataset = training_dataset(model, task, stage, seed)
    if not stage.train.file and (cut := describe_cut(model, texts_of(dataset))):
        say(f"{task.name}: {cut}; train.max_seq_length says how many are read")
    clock = Clock(pairs_per_epoch=len(dataset))
    watch = Watch(clock, stage.loss.positive_above)
    progress = Progress(clock, title=f"stage {number} of {len(recipe.stages)}" if len(recipe.stages) > 1 else "training")
    callbacks = [clock, progress, watch, LogEpochs()]
    trainer = make_trainer(model, dataset, stage, task, seed, folder, callbacks, select=recipe.select, checkpoints=checkpoints)
    try:
        trainer.train(resume_from_checkpoint=newest_usable_checkpoint(folder) if checkpoints else None)
    except Exception as problem:
        explain_failure(problem, stage, trainer.state.log_history)
        raise
    finally:
        progress.close()
    epochs = read_history(trainer.state.log_history, number)
    kept = choose_epoch([epoch.dev[task.metric] for epoch in epochs], recipe.select, to_beat)
    if first is not None and not kept:
        say(f"{progress.title}: no epoch was better on dev than the start ({task.metric} {to_beat:.4f}): the start is kept")
        first.restore(model)
    trained = Trained(epochs, kept, clock.seconds, clock.pairs, len(dataset))
    if checkpoints:
        save_whole(model, folder / "model")
        write_whole(done, json.dumps({**vars(trained), "epochs": [epoch.model_dump() for epoch in epochs]}))
    return trained


class Beginning:
    """What a stage begins with, to go back to: the weights, and how much of a text is read."""

    def __init__(self, model: SentenceTransformer) -> None:
        from pairtune.encoders.loading import length_of

        self.length = length_of(model)
        self.weights = {name: tensor.to("cpu", copy=True) for name, tensor in model.state_dict().items()}

    def restore(self, model: SentenceTransformer) -> None:
        """Make the model what it was."""
        from pairtune.encoders.loading import set_length

        set_length(model, self.length)
        model.load_state_dict(self.weights)


def choose_epoch(dev_scores: Sequence[float], select: Select, to_beat: float | None) -> int:
    """The number of the epoch to keep, from 1; 0 where the best must have a higher score than `to_beat` and has not.

    >>> choose_epoch([0.7, 0.8], "best", None), choose_epoch([0.7, 0.8], "best", 0.8), choose_epoch([0.7, 0.8], "last", None)
    (2, 0, 2)
    """
    if select != "best":
        return len(dev_scores)
    best = best_index(dev_scores)
    return best + 1 if to_beat is None or dev_scores[best] > to_beat else 0


def save_whole(model: SentenceTransformer, folder: Path) -> None:
    """Save a model: its folder is complete, or not there."""
    with whole_folder(folder) as aside:
        model.save_pretrained(str(aside))


def _read_trained(path: Path) -> dict[str, Any]:
    values = json.loads(path.read_text())
    return {**values, "epochs": [Epoch.model_validate(epoch) for epoch in values["epochs"]]}


FULL_DISK = ("os error 28", "os error 27", "failed writing file", "inline_container")  # what safetensors and torch say


@contextmanager
def disk_in_words(folder: Path) -> Iterator[None]:
    """Say what to do about a disk that is full, whoever has noticed."""
    try:
        yield
    except Exception as problem:
        text = f"{problem} {problem.__cause__ or ''}"
        if not isinstance(problem, OSError) and not any(sign in text for sign in FULL_DISK):
            raise
        raise UserError(
            f"could not write to {folder} ({str(problem).splitlines()[0]}): free some space; "
            f"the last complete checkpoint is kept, and --resume goes on from it"
        ) from problem


def explain_failure(problem: Exception, stage: Stage, log: list[dict[str, Any]]) -> None:
    """Turn what a user can mend, too large a batch or too high a rate, into a message that says how. log: the host's."""
    if type(problem).__name__ == "OutOfMemoryError":
        raise UserError(
            f"a batch of {stage.train.batch_size} pairs does not fit into the device's memory: lower train.batch_size, "
            f"or set loss.mini_batch_size (16, say) to go through it in parts"
        ) from problem
    if lost := [entry["step"] for entry in log if not np.isfinite(entry.get("loss", 0.0))]:
        raise UserError(
            f"the training diverged: the loss is NaN or infinite since step {lost[0]}. Lower train.learning_rate "
            f"(it is {stage.train.learning_rate:g}; 2e-5 is usual), or raise loss.temperature (it is {stage.loss.temperature:g})"
        ) from problem


def write_model(model: SentenceTransformer, folder: RunFolder, stages: int, record: Run, task: Task) -> None:
    """Put the model where users look for it, with a card that says how it came to be."""
    from pairtune.encoders.adapters import has_adapter
    from pairtune.sbert.outcomes import write_card

    saved = folder.stage(stages) / "model"
    whole = (saved / "adapter_config.json").exists() == has_adapter(model)  # or its adapter has been merged since
    if saved.exists() and whole and not record.unchanged:  # with the card that the host wrote when it was trained
        copy_whole(saved, folder.model)
    else:
        save_whole(model, folder.model)
    write_card(folder.model / "README.md", record, task)


def copy_whole(source: Path, target: Path) -> None:
    """Copy a folder: a process that dies in between leaves the source, and no half target."""
    with whole_folder(target) as aside:
        shutil.copytree(source, aside)
