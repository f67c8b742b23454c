"""Weights that no single epoch had: the mean of several epochs, or some of the encoder that training began with."""

from __future__ import annotations

from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from pairtune.sbert.callbacks import checkpoint_folder

SUMS = "average.safetensors"


class Average(TrainerCallback):
    """Ends the training with the mean of the weights that its epochs ended with; kept with each checkpoint, for a resume."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.epochs = 0

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Take up what the checkpoint has, if training goes on from one."""
        if state.global_step:
            self.sums = load_file(checkpoint_folder(args, state) / SUMS, device=str(kwargs["model"].device))
            self.epochs = int(self.sums.pop("epochs"))

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Add this epoch's weights."""
        for name, tensor in floating(kwargs["model"]).items():
            self.sums[name] = self.sums[name] + tensor if name in self.sums else tensor.clone()
        self.epochs += 1

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Keep the sums with the checkpoint."""
        if state.is_world_process_zero:
            save_file({**self.sums, "epochs": torch.tensor(self.epochs)}, checkpoint_folder(args, state) / SUMS)

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
    """The model's weights, and what else it has that is no whole number, by name; not copied."""
    return {name: tensor for name, tensor in model.state_dict().items() if tensor.is_floating_point()}
