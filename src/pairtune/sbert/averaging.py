"""Means of weights: of the epochs of a training, of its end with its beginning, of several trainings of one encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from pairtune.encoders.loading import load_encoder
from pairtune.errors import UserError
from pairtune.sbert.checkpoints import checkpoint_folder

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


def average_with(
    model: SentenceTransformer, others: Sequence[Path], score: Callable[[], float], tell: Callable[[str], None]
) -> int:
    """Leave the model with the mean of its weights and those of saved ones: often better than each, and as fast as one.

    One after the other, in the order given, each joins the mean if that scores no lower with it (the greedy soup of Wortsman
    et al., 2022). score: of the model as it is by then, on dev. tell: is told what became of each.
    Returns of how many trainings it is the mean.
    """
    kept, count, best = _copy(model), 1, score()
    tell(f"averaging the weights of {len(others) + 1} trainings: dev {best:.4f} alone")
    for folder in others:
        theirs = read_weights(model, folder)
        for name, tensor in floating(model).items():
            tensor.copy_(kept[name].lerp(theirs[name], 1 / (count + 1)))
        if (now := score()) >= best:
            kept, count, best = _copy(model), count + 1, now
            tell(f"the mean of {count}: dev {now:.4f}")
        else:
            tell(f"with one more it would be {now:.4f}: left out")
    for name, tensor in floating(model).items():
        tensor.copy_(kept[name])
    return count


def read_weights(model: SentenceTransformer, folder: Path) -> dict[str, Tensor]:
    """The weights of a saved model, which must have the shape of this one."""
    found, own = floating(load_encoder(str(folder), device=str(model.device))), floating(model)
    if {name: tensor.shape for name, tensor in found.items()} != {name: tensor.shape for name, tensor in own.items()}:
        raise UserError(f"{folder} holds a model of another shape: only trainings of one encoder can be averaged")
    return found


def _copy(model: SentenceTransformer) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in floating(model).items()}
