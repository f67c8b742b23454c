"""Training with FSDP: weights, gradients and the optimizer's state are spread over the processes, as accelerate is told to.

What trains is a copy of the encoder. The encoder itself stays whole: it is brought up to date for scores, orders and checkpoints.
"""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers.sentence_transformer.modules import Normalize
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from pairtune.encoders.adapters import restore_weights
from pairtune.errors import UserError
from pairtune.processes import share_from_first
from pairtune.runs.recipe import Recipe
from pairtune.sbert.trainer import PairTrainer

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class ShardedTrainer(PairTrainer):
    """Trains a copy of `whole`, of which each process holds a part, and keeps `whole` what the copy is."""

    def __init__(self, *, model: SentenceTransformer, loss: nn.Module, callbacks: list[TrainerCallback], **more: Any) -> None:
        self.whole = model
        trained, loss = copy.deepcopy((model, loss))  # the loss calls the encoder that it holds
        for name in [name for name, module in trained.named_children() if isinstance(module, Normalize)]:
            del trained._modules[name]  # training sees raw embeddings anyway, and FSDP takes it for a layer to spread
        super().__init__(model=trained, loss=loss, callbacks=[KeepWhole(self), *callbacks], **more)

    @torch.no_grad()
    def gather(self) -> None:
        """Bring the whole encoder up to date. All processes call it together."""
        whole = dict(self.whole.named_parameters())
        for name, parameter in self.model.named_parameters():
            whole[name].copy_(parameter.full_tensor() if isinstance(parameter, DTensor) else parameter)

    @torch.no_grad()
    def spread(self) -> None:
        """Give the copy the weights of the whole encoder. All processes call it together."""
        whole = dict(self.whole.named_parameters())
        for name, parameter in self.model.named_parameters():
            given: torch.Tensor = whole[name]
            if isinstance(parameter, DTensor):
                given = distribute_tensor(given.to(parameter.device), parameter.device_mesh, parameter.placements)
            parameter.copy_(given)

    def evaluate(self, *args: Any, metric_key_prefix: str = "eval", **kwargs: Any) -> dict[str, float]:
        """The evaluator on the whole encoder: one process scores it, and a part of an encoder cannot encode."""
        self.gather()
        evaluator: Any = self.evaluator
        metrics = share_from_first(lambda: evaluator(self.whole, epoch=self.state.epoch, steps=self.state.global_step))
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in metrics.items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """The whole encoder, as any other training saves it."""
        self.gather()
        if self.args.should_save:
            self.whole.save_pretrained(str(output_dir or self.args.output_dir), create_model_card=False)

    def _load_from_checkpoint(self, checkpoint_path: str, model: Any = None) -> None:
        restore_weights(self.whole, Path(checkpoint_path))
        self.spread()

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """Each process its part: a run is gone on with by as many processes. The host would save the weights once more."""
        optimizer: Any = self.optimizer
        scheduler: Any = self.lr_scheduler
        state = optimizer.state_dict()
        own = {
            number: {name: value.to_local() if isinstance(value, DTensor) else value for name, value in moments.items()}
            for number, moments in state["state"].items()
        }
        torch.save({"optimizer": {**state, "state": own}, "scheduler": scheduler.state_dict()}, self._part_of(output_dir))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        optimizer: Any = self.optimizer
        scheduler: Any = self.lr_scheduler
        saved = torch.load(self._part_of(checkpoint), map_location="cpu", weights_only=True)
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for number, moments in saved["optimizer"]["state"].items():
            for name, value in moments.items():
                moments[name] = spread_like(value, parameters[number])
        optimizer.load_state_dict(saved["optimizer"])
        scheduler.load_state_dict(saved["scheduler"])

    def _part_of(self, checkpoint: str) -> Path:
        return Path(checkpoint) / f"optimizer-{self.args.process_index}.pt"


def spread_like(value: Any, parameter: Any) -> Any:
    """This process's part of something that has the shape of the parameter; anything else as it is."""
    if not isinstance(parameter, DTensor) or not isinstance(value, torch.Tensor) or value.shape != parameter.to_local().shape:
        return value
    how: Any = {"run_check": False, "shape": parameter.shape, "stride": parameter.stride()}
    return DTensor.from_local(value.to(parameter.device), parameter.device_mesh, parameter.placements, **how)


class KeepWhole(TrainerCallback):
    """The first callback: those after it see the whole encoder, and see it as it is."""

    def __init__(self, trainer: ShardedTrainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """From here on."""
        if not any(isinstance(parameter, DTensor) for parameter in self.trainer.model.parameters()):
            raise UserError(
                "training was started with FSDP, and accelerate has spread no weights: it does so for several processes "
                "with a GPU each. Start them with accelerate launch --use_fsdp, or train without"
            )
        self.trainer.callback_handler.model = self.trainer.whole
        self.trainer.gather()

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """For orders and mined negatives."""
        self.trainer.gather()

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """For whoever goes on with it."""
        self.trainer.gather()


def check_spread(recipe: Recipe) -> None:
    """Refuse settings of accelerate and of the recipe that do not go with weights that are spread over the processes."""
    if os.environ.get("FSDP_VERSION", "1") != "2":
        raise UserError("accelerate was told to use FSDP's first version: start with --fsdp_version 2")
    found = {
        "adapter": bool(recipe.adapter),
        "loss.learn_temperature": any(stage.loss.learn_temperature for stage in recipe.stages),
        'order.encode = "reuse"': any(stage.order.encode == "reuse" for stage in recipe.stages),
        "loss.mini_batch_size": any(stage.loss.mini_batch_size for stage in recipe.stages),
        'train.optimizer = "adamw-8bit"': any(stage.train.optimizer != "adamw" for stage in recipe.stages),
    }
    if wrong := [name for name, asked in found.items() if asked]:
        raise UserError(f"FSDP spreads the weights over the processes, and does not go with {', '.join(wrong)}: train without")
