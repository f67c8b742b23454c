"""The stages of a training: each from what the one before has left, and the epoch that each keeps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairtune.data.material import count_rows, texts_of
from pairtune.data.pairs import Task
from pairtune.data.sources import training_data
from pairtune.progress import is_first, say
from pairtune.runs.folder import RunFolder, whole_folder, write_whole
from pairtune.runs.recipe import Recipe, Select, Stage
from pairtune.runs.record import Epoch, Trained, best_index, choice_score, read_history
from pairtune.runs.settings import stage_of

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from pairtune.sbert.callbacks import Progress
    from pairtune.sbert.trainer import PairTrainer


STAGE_DONE = "trained.json"


def train_stages(
    model: SentenceTransformer, task: Task, recipe: Recipe, seed: int, folder: RunFolder, score: float, *, checkpoints: bool
) -> list[Trained]:
    """Train the model in place, stage by stage, each from what the one before left. score: of the original encoder, to beat."""
    found: list[Trained] = []
    for number, select in enumerate(recipe.selects, start=1):
        to_beat = score if select == "best" and recipe.keep_original else None
        place = folder.stage(number)
        found.append(train_stage(model, task, recipe, number, seed, place, to_beat=to_beat, checkpoints=checkpoints))
        if found[-1].kept:
            score = choice_score(found[-1].epochs[found[-1].kept - 1].dev, task.metric)
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
    from pairtune.encoders.loading import length_of, set_length
    from pairtune.processes import share_from_first
    from pairtune.sbert.callbacks import Clock, LogEpochs, Progress
    from pairtune.sbert.checkpoints import newest_usable_checkpoint
    from pairtune.sbert.forecast import fit_memory
    from pairtune.sbert.trainer import make_trainer
    from pairtune.sbert.watch import Watch

    if (done := share_from_first(lambda: _read_trained(folder / STAGE_DONE))) is not None:
        restore_weights(model, folder / "model")
        return done
    stage, select = recipe.stages[number - 1], recipe.selects[number - 1]
    first = Beginning(model) if to_beat is not None else None
    set_length(model, stage.train.max_seq_length or length_of(model))
    dataset = training_data(model, task, recipe, stage, seed)
    if not stage.train.file:
        say_lengths(model, task.name, texts_of(dataset))
    rows = count_rows(dataset)
    clock = Clock(pairs_per_epoch=rows)
    watch = Watch(clock, stage.loss.positive_above)
    progress = Progress(clock, title=f"stage {number} of {len(recipe.stages)}" if len(recipe.stages) > 1 else "training")
    callbacks = [clock, progress, watch, LogEpochs()]
    options: Any = {"select": select, "checkpoints": checkpoints, "share": recipe.share}

    def make(stage: Stage) -> PairTrainer:
        several = isinstance(dataset, dict)
        stages = {name: stage_of(recipe, stage, name) for name in task.sources} if several else {"": stage}
        return make_trainer(model, dataset, stages, task, seed, folder, callbacks, **options)

    trainer, stage = fit_memory(make, stage, folder if checkpoints else None, progress.title)
    train_epochs(trainer, stage, progress, share_from_first(lambda: newest_usable_checkpoint(folder)) if checkpoints else None)
    epochs = read_history(trainer.state.log_history, number)
    kept = choose_epoch([choice_score(epoch.dev, task.metric) for epoch in epochs], select, to_beat)
    if first is not None and not kept:
        say(f"{progress.title}: no epoch was better on dev than the start ({task.metric} {to_beat:.4f}): the start is kept")
        first.restore(model)
    trained = Trained(epochs, kept, clock.seconds, clock.pairs, rows)
    if checkpoints and is_first():
        save_stage(model, folder, trained)
    return trained


def train_epochs(trainer: PairTrainer, stage: Stage, progress: Progress, checkpoint: str | None) -> None:
    """Train, from a checkpoint where there is one; a failure that a user can do something about is said in words."""
    from pairtune.sbert.forecast import explain_failure

    try:
        trainer.train(resume_from_checkpoint=checkpoint)
    except Exception as problem:
        explain_failure(problem, stage, trainer.state.log_history)
        raise
    finally:
        progress.close()


def save_stage(model: SentenceTransformer, folder: Path, trained: Trained) -> None:
    """Write what a stage has left; the file that says so comes last."""
    save_whole(model, folder / "model")
    values = {**vars(trained), "epochs": [epoch.model_dump() for epoch in trained.epochs]}
    write_whole(folder / STAGE_DONE, json.dumps(values))


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


def _read_trained(path: Path) -> Trained | None:
    """What a stage has left; None where it is not done, or its file is damaged: then it is trained again."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return Trained(**{**values, "epochs": [Epoch.model_validate(epoch) for epoch in values["epochs"]]})
    except (OSError, ValueError, TypeError, LookupError):
        return None


def say_lengths(model: SentenceTransformer, name: str, texts: Sequence[str]) -> None:
    """How many texts are cut, and whether the encoder knows their words."""
    from pairtune.encoders.embedding import describe_cut, share_unknown, warn_unknown

    if cut := describe_cut(model, texts):
        say(f"{name}: {cut}; train.max_seq_length says how many are read")
    if unknown := warn_unknown(share_unknown(model, texts)):
        say(f"{name}: {unknown}")
