"""Means of weights: of the epochs of a training, of its end with its beginning, of several trainings of one encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from pairtune.data.pairs import Task
from pairtune.encoders.loading import load_encoder
from pairtune.errors import UserError
from pairtune.progress import say
from pairtune.runs.record import Run, choice_score
from pairtune.sbert.checkpoints import checkpoint_folder
from pairtune.sbert.evaluator import evaluate_task

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

AVERAGE_FILE = "average.safetensors"


class Average(TrainerCallback):
    """Ends the training with the mean of the weights that its epochs ended with; kept with each checkpoint, for a resume."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.epochs = 0

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Take up what the checkpoint has, if training goes on from one."""
        if state.global_step:
            self.sums = load_file(checkpoint_folder(args, state) / AVERAGE_FILE, device=str(kwargs["model"].device))
            self.epochs = int(self.sums.pop("epochs"))

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Add this epoch's weights."""
        for name, tensor in floating(kwargs["model"]).items():
            self.sums[name] = self.sums[name] + tensor if name in self.sums else tensor.clone()
        self.epochs += 1

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Keep the sums with the checkpoint."""
        if state.is_world_process_zero:
            save_file({**self.sums, "epochs": torch.tensor(self.epochs)}, checkpoint_folder(args, state) / AVERAGE_FILE)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Give the model the mean."""
        for name, tensor in floating(kwargs["model"]).items():
            tensor.copy_(self.sums[name] / self.epochs)


class Blend(TrainerCallback):
    """Ends the training between where it began and where it arrived: a share of the weights is the first ones'."""

    def __init__(self, model: nn.Module, share: float) -> None:
        self.share = share
        self.first = {name: tensor.clone() for name, tensor in floating(model).items()}

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Mix them."""
        for name, tensor in floating(kwargs["model"]).items():
            tensor.lerp_(self.first[name].to(tensor.device), self.share)


def floating(model: nn.Module) -> dict[str, Tensor]:
    """The weights that are trained, and what else a model has that is no whole number, by name; not copied."""
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    return {name: tensor for name, tensor in model.state_dict().items() if tensor.is_floating_point() and name not in frozen}


def join_others(model: SentenceTransformer, task: Task, others: Sequence[Run], *, alone: bool) -> list[Run | None]:
    """Leave the model with what is best on dev: its weights, those of another run, or the mean of several.

    Runs that kept the original encoder have nothing to add; alone: the model itself is that. Returns the runs that are in
    it, the leader first; None is the model itself. Of one that kept the encoder among others that did, none.
    """
    members: list[Run | None] = [*([] if alone else [None]), *(one for one in others if not one.unchanged)]
    if not members:
        return []
    if members[0] is not None:
        give_weights(model, read_weights(model, Path(members[0].model)))
    rest = [Path(one.model) for one in members[1:] if one is not None]
    score = partial(_score_on_dev, model, task)
    return [members[place] for place in (average_with(model, rest, score, say) if rest else [0])]


def _score_on_dev(model: SentenceTransformer, task: Task) -> float:
    return choice_score(evaluate_task(model, task, ["dev"])["dev"], task.metric)


def average_with(
    model: SentenceTransformer, others: Sequence[Path], score: Callable[[], float], tell: Callable[[str], None]
) -> list[int]:
    """Leave the model with the best of its weights and those of saved ones, or with the mean of several if that is no worse.

    The best alone comes first. One after the other, each of the rest joins the mean if that scores no lower with it (the greedy
    soup of Wortsman et al., 2022). score: of the model as it is by then, on dev. tell: is told what became of each.
    Returns the places of those in the mean, the leader first; 0 is the model itself, 1 the first of the others.
    """
    own = _copy(model)

    def weights(place: int) -> dict[str, Tensor]:
        return own if place == 0 else read_weights(model, others[place - 1])

    def score_with(tensors: dict[str, Tensor]) -> float:
        give_weights(model, tensors)
        return score()

    alone = [score_with(weights(place)) for place in range(len(others) + 1)]
    tell(f"{len(alone)} trainings, alone on dev: {', '.join(f'{one:.4f}' for one in alone)}")
    leader, *rest = sorted(range(len(alone)), key=lambda place: -alone[place])  # among equals the earlier
    kept, joined, best = weights(leader), [leader], alone[leader]
    for place in rest:
        theirs, share = weights(place), 1 / (len(joined) + 1)
        mean = {name: tensor.lerp(theirs[name], share) for name, tensor in kept.items()}
        if (now := score_with(mean)) >= best:
            kept, joined, best = mean, [*joined, place], now
            tell(f"the mean of {len(joined)}: dev {now:.4f}")
        else:
            tell(f"with one more it would be {now:.4f}: left out")
    give_weights(model, kept)
    return joined


def read_weights(model: SentenceTransformer, folder: Path) -> dict[str, Tensor]:
    """The weights of a saved model, which must have the shape of this one."""
    found, own = floating(load_encoder(str(folder), device=str(model.device))), floating(model)
    if {name: tensor.shape for name, tensor in found.items()} != {name: tensor.shape for name, tensor in own.items()}:
        raise UserError(f"{folder} holds a model of another shape: only trainings of one encoder can be averaged")
    return found


def _copy(model: SentenceTransformer) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in floating(model).items()}


def give_weights(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Put these weights into the model."""
    for name, tensor in floating(model).items():
        tensor.copy_(tensors[name])
