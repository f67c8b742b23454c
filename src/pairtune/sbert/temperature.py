"""A temperature that is learned, and the callback by which the host's trainer treats it as it should."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from pairtune.errors import UserError
from pairtune.processes import world_size
from pairtune.sbert.callbacks import calling_trainer

LOWEST, HIGHEST = 1e-3, 10.0
SAVED = "learned temperature"  # our entry in the checkpoint's trainer_state.json


class Temperature(nn.Module):
    """τ: a number, or with `learned` the exponential of the parameter `log`, which has the learning rate `rate`.

    One that is learned gives the trainer that it finds itself in a `LearnedTemperature`, unless there is one.
    """

    log: nn.Parameter | None

    def __init__(self, initial: float, *, learned: bool = False, rate: float = 1e-3) -> None:
        super().__init__()
        if not rate > 0:
            raise UserError(f"the learning rate of the temperature is {rate}: give a value above 0 (0.001 is usual)")
        if learned and not LOWEST <= initial <= HIGHEST:
            raise UserError(
                f"temperature is {initial:g}; a learned one stays between {LOWEST:g} and {HIGHEST:g}: give a value in that range"
            )
        self.initial, self.rate = float(initial), rate
        self.log = nn.Parameter(torch.tensor(math.log(initial))) if learned else None

    def forward(self) -> float | Tensor:
        """τ, with a graph to `log` when it is learned."""
        if self.log is not None and torch.is_grad_enabled():
            tend(self)
        return self.initial if self.log is None else self.log.exp()

    @property
    def value(self) -> float:
        """τ as a plain number."""
        return self.initial if self.log is None else math.exp(self.log.item())


@dataclass
class Adam:
    """One number, log τ, with the two moments of its gradient: Adam without weight decay, within the bounds of τ."""

    log: float
    mean: float = 0.0
    square: float = 0.0
    steps: int = 0

    def step(self, gradient: float, rate: float, betas: tuple[float, float], epsilon: float) -> None:
        """One update."""
        self.steps += 1
        self.mean = betas[0] * self.mean + (1 - betas[0]) * gradient
        self.square = betas[1] * self.square + (1 - betas[1]) * gradient**2
        mean, square = self.mean / (1 - betas[0] ** self.steps), self.square / (1 - betas[1] ** self.steps)
        moved = self.log - rate * mean / (math.sqrt(square) + epsilon)
        self.log = min(max(moved, math.log(LOWEST)), math.log(HIGHEST))


class LearnedTemperature(TrainerCallback):
    """Trains log τ of the given losses.

    Left to the host, a parameter of a loss has the encoder's learning rate and weight decay, is not clipped, drifts
    apart between processes, and is lost with every checkpoint. Here its gradient is averaged over the processes and
    clipped by the norm it has together with the encoder's; then it is taken away from the host's optimizer, for a step
    of `Adam` at its own rate, which follows the schedule of the encoder's rate. The value and its moments are in
    the trainer_state.json of each checkpoint, and return from there on resume.
    """

    def __init__(self, *losses: nn.Module) -> None:
        learned = _learned(*losses)
        if not learned:
            raise UserError("none of the given losses learns its temperature: make one with learn_temperature=True")
        self.logs, self.rates = [log for log, _ in learned], [rate for _, rate in learned]
        self.numbers = [Adam(log.item()) for log in self.logs]
        self.clip = 0.0

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Start from what the checkpoint holds, or from where the losses are."""
        self._return_clipping(args)
        saved = _entries(state).get(SAVED)
        if state.global_step and (saved is None or len(saved) != len(self.logs)):
            found = "no learned temperature" if saved is None else f"{len(saved)} learned temperatures"
            raise UserError(f"the checkpoint has {found}, the losses have {len(self.logs)}: resume with what it was trained with")
        self.numbers = [Adam(**one) for one in saved] if saved else [Adam(log.item()) for log in self.logs]
        self._write(state)

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Take clipping over for one step: the host would leave the temperature out of the norm."""
        if args.max_grad_norm:
            self.clip, args.max_grad_norm = args.max_grad_norm, 0.0

    def on_pre_optimizer_step(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Average, clip, step, clamp. The host's optimizer then finds no gradient, and leaves the parameter alone."""
        self._average_gradients()
        if self.clip:
            nn.utils.clip_grad_norm_([*kwargs["model"].parameters(), *self.logs], self.clip)
        self._return_clipping(args)
        group = kwargs["optimizer"].param_groups[0]
        # torchao's optimizers keep the rate as a tensor, which no file of JSON takes
        schedule = float(group["lr"] / group["initial_lr"]) if group.get("initial_lr") else 1.0
        for log, rate, number in zip(self.logs, self.rates, self.numbers, strict=True):
            gradient = math.nan if log.grad is None else log.grad.item()
            log.grad = None
            if math.isfinite(gradient):  # a loss that was not used in this step, or one that overflowed in fp16, waits
                number.step(gradient, rate * schedule, (args.adam_beta1, args.adam_beta2), args.adam_epsilon)
        self._write(state)

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """The temperatures beside the loss in the history."""
        names = ["temperature", *(f"temperature_{index}" for index in range(2, len(self.numbers) + 1))]
        state.log_history[-1].update({name: math.exp(number.log) for name, number in zip(names, self.numbers, strict=True)})

    def _return_clipping(self, args: TrainingArguments) -> None:
        if self.clip:
            args.max_grad_norm, self.clip = self.clip, 0.0

    def _average_gradients(self) -> None:
        """What DDP does for the encoder; a process whose batch did not use a loss counts as a gradient of zero."""
        if world_size() == 1:
            return
        absent = [log.grad is None for log in self.logs]
        gradients = [torch.zeros_like(log) if log.grad is None else log.grad for log in self.logs]
        table = torch.stack([torch.stack(gradients), 1 - torch.tensor(absent).to(gradients[0])])  # (2, losses)
        dist.all_reduce(table)
        for log, gradient, users in zip(self.logs, *table, strict=True):
            log.grad = gradient / world_size() if users else None

    def _write(self, state: TrainerState) -> None:
        """The numbers into the parameters, and into the state that every checkpoint saves."""
        with torch.no_grad():
            for log, number in zip(self.logs, self.numbers, strict=True):
                log.fill_(number.log)
        _entries(state)[SAVED] = [asdict(number) for number in self.numbers]


def temperature_callbacks(*losses: nn.Module) -> list[TrainerCallback]:
    """What the trainer of these losses needs beside them: a `LearnedTemperature` where there is one to learn, or nothing."""
    return [LearnedTemperature(*losses)] if any(map(_learned, losses)) else []


def tend(temperature: Temperature) -> None:
    """Give the trainer that is in a step the callback for all temperatures of its losses; outside of one, nothing."""
    trainer = calling_trainer()
    if trainer is None or any(isinstance(one, LearnedTemperature) for one in trainer.callback_handler.callbacks):
        return
    losses: Any = getattr(trainer, "loss", temperature)
    callback = LearnedTemperature(*(losses.values() if isinstance(losses, dict) else [losses]))
    trainer.add_callback(callback)
    callback.on_train_begin(trainer.args, trainer.state, trainer.control)  # which the others had before this step
    callback.on_step_begin(trainer.args, trainer.state, trainer.control)


def _learned(*losses: nn.Module) -> list[tuple[nn.Parameter, float]]:
    """The parameters log τ in these losses, each once, however they are nested, with their learning rates."""
    found = {module: None for loss in losses for module in loss.modules() if isinstance(module, Temperature)}
    return [(module.log, module.rate) for module in found if module.log is not None]


def _entries(state: TrainerState) -> dict[str, Any]:
    """What trainer_state.json keeps for callbacks. The host fills it by class names, and leaves other entries alone."""
    return cast(dict[str, Any], state.stateful_callbacks)
