"""What a training will need, told before it is spent: memory and time, from a short trial that leaves no trace."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from sentence_transformers.base.losses.gradcache import has_static_embedding_input
from torch import Tensor

from pairtune.encoders.embedding import leave_no_trace
from pairtune.errors import UserError
from pairtune.processes import gather_everywhere, share_from_first, spreads_weights, world_size
from pairtune.progress import is_first, say
from pairtune.runs.folder import write_whole
from pairtune.runs.recipe import Stage
from pairtune.sbert.raw import PairLoss, raw_embeddings
from pairtune.sbert.trainer import PairTrainer

PROBE = 16  # pairs of a trial step; two such steps are made
WORTH = 50  # a training of fewer pairs than this many trials has is over before the trial would pay
LOOKED_AT = 20_000  # pairs, among which the longest are looked for
SHORT_LIVED = 1.25  # so much more than its activations may a step need, for what lives shortly
FEWEST = 8  # texts that are encoded at a time
CHOSEN = "mini_batch_size.json"
STATE = {"adamw": 8, "adamw-8bit": 2}  # bytes of the optimizer's state for each parameter


@dataclass(frozen=True)
class Forecast:
    """What a step needs, in bytes beside the weights, and how fast steps are.

    parameters: all, trainable: those that are trained. token: activations of a token. tokens: of the longest batch of a process.
    texts: how many it has. fixed: gradients and the optimizer's state. free: what the device has. speed: pairs a second, of all.
    """

    parameters: int
    trainable: int
    weights: int
    fixed: int
    token: float
    tokens: int
    texts: int
    free: int
    speed: float

    def step(self, part: int = 0) -> int:
        """The bytes that a step takes beside the weights. part: texts that are encoded at a time, 0 for all."""
        share = min(part, self.texts) / self.texts if part else 1.0
        return self.fixed + round(SHORT_LIVED * self.token * self.tokens * share)

    def fitting_part(self) -> int:
        """How many texts at a time fit into the memory, half of them as often as needed; 0: all do. At least FEWEST.

        >>> of = dict(parameters=0, trainable=0, weights=0, fixed=0, token=8.0, tokens=1000, texts=100, speed=1.0)
        >>> Forecast(**of, free=10_000).fitting_part(), Forecast(**of, free=3_000).fitting_part()
        (0, 25)
        """
        if self.step() <= self.free:
            return 0
        part = self.texts
        while part > FEWEST and self.step(part) > self.free:
            part = max(FEWEST, part // 2)
        return part


def fit_memory(
    make: Callable[[Stage], PairTrainer],
    stage: Stage,
    folder: Path | None,
    title: str,
    *,
    worth: int = WORTH,
    free: int | None = None,
) -> tuple[PairTrainer, Stage]:
    """The trainer of a stage, and the stage, with the `loss.mini_batch_size` that its memory asks for; says what it will need.

    folder: where the choice is kept for a resume, which must make the same steps. worth: see `is_worth_a_trial`.
    free: the bytes that a process may have beside the weights, unless that is what the device has.
    """
    kept = share_from_first(lambda: _read_chosen(folder))
    if kept is not None:
        stage = with_part(stage, kept)
    trainer = make(stage)
    if kept is None and is_worth_a_trial(trainer, stage, worth):
        found = forecast(trainer, stage, free)
        say(f"{title}: {describe_forecast(found, trainer, stage)}")
        part = 0 if stage.loss.mini_batch_size else min(gather_everywhere(found.fitting_part()), key=lambda one: one or np.inf)
        if part:
            say(f"{title}: {explain_part(found, part, trainer, stage)}")
        if part and can_part(trainer):
            stage = with_part(stage, part)
            trainer = make(stage)
        if folder and is_first():
            write_whole(folder / CHOSEN, json.dumps(stage.loss.mini_batch_size))
    return trainer, stage


def with_part(stage: Stage, part: int) -> Stage:
    """The stage with this `loss.mini_batch_size`."""
    return stage.model_copy(update={"loss": stage.loss.model_copy(update={"mini_batch_size": part})})


def can_part(trainer: PairTrainer) -> bool:
    """Whether its loss can go through a batch in parts: one of ours, or any in the fast step."""
    packs = hasattr(trainer.data_collator, "tokens")
    return (isinstance(trainer.loss, PairLoss) or packs) and not has_static_embedding_input(trainer.model)


def is_worth_a_trial(trainer: PairTrainer, stage: Stage, worth: int) -> bool:
    """Whether the training has the pairs of so many trials: with WORTH, the trial takes about 2 % of it.

    With FSDP it is not: what is spread in training would have to fit whole.
    """
    if spreads_weights():
        return False
    pairs = len(trainer.train_dataset) * stage.train.epochs  # type: ignore[arg-type]
    return pairs >= worth * 2 * PROBE * world_size()


def forecast(trainer: PairTrainer, stage: Stage, free: int | None = None) -> Forecast:
    """Try two short steps, on usual and on the longest pairs; weights, gradients and random numbers are as they were.

    free: see `fit_memory`.
    """
    model: Any = trainer.model
    dataset: Any = trainer.train_dataset
    own = stage.train.batch_size // world_size()
    rows = longest_first(dataset)
    longest = trainer.data_collator([dataset[row] for row in rows[: min(own, len(rows))]])
    usual = trainer.data_collator([dataset[int(row)] for row in np.linspace(0, len(dataset) - 1, min(PROBE, own)).astype(int)])
    hard = trainer.data_collator([dataset[row] for row in rows[: min(PROBE, own)]])
    with leave_no_trace(model), raw_embeddings(model):
        model.train()
        saved = count_saved(trainer, hard)  # the first step is slower than others
        took = time_step(trainer, usual)
    trainable = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return Forecast(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        trainable=trainable,
        weights=sum(parameter.numel() * parameter.element_size() for parameter in model.parameters()),
        fixed=trainable * (4 + STATE[stage.train.optimizer]),
        token=saved / size_of_batch(hard),
        tokens=size_of_batch(longest),
        texts=min(own, len(rows)) * 2,
        free=free_memory(model.device) if free is None else free,
        speed=min(PROBE, own) * world_size() / took,
    )


def time_step(trainer: PairTrainer, inputs: Any) -> float:
    """The seconds of a forward and backward pass, without an update."""
    device: torch.device = trainer.model.device
    inputs = {name: value.to(device) if hasattr(value, "to") else value for name, value in inputs.items()}
    began = time.perf_counter()
    with trainer.compute_loss_context_manager():
        loss: Tensor = trainer.compute_loss(trainer.model, inputs)
    loss.backward()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    modules: list[Any] = [trainer.model, trainer.loss]
    for module in modules:
        module.zero_grad(set_to_none=True)
    return time.perf_counter() - began


def count_saved(trainer: PairTrainer, inputs: Any) -> int:
    """The bytes that a forward pass keeps for the backward pass, each piece of memory once, and without the weights."""
    seen = {parameter.untyped_storage().data_ptr(): 0 for parameter in trainer.model.parameters()}

    def count(tensor: Tensor) -> Tensor:
        seen.setdefault(tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        time_step(trainer, inputs)
    return sum(seen.values())


def longest_first(dataset: Any) -> list[int]:
    """The pairs with the longest texts first, among at most LOOKED_AT that are spread evenly over all."""
    rows = np.unique(np.linspace(0, len(dataset) - 1, min(len(dataset), LOOKED_AT)).astype(int))
    columns = dataset[rows.tolist()].values()
    lengths = np.sum([[len(text) if isinstance(text, str) else 0 for text in column] for column in columns], axis=0)
    return rows[np.argsort(-lengths, kind="stable")].tolist()


def size_of_batch(inputs: Any) -> int:
    """The tokens of a batch, padding included, packed or as the host has it."""
    if "packed" in inputs:
        return inputs["packed"].ids.numel()
    return sum(value.numel() for name, value in inputs.items() if name.endswith("input_ids"))


def free_memory(device: torch.device) -> int:
    """The bytes that tensors on the device can still have; on a CPU each process of this machine has its part."""
    if device.type == "cuda":
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + held
    return psutil.virtual_memory().available // world_size()


def describe_forecast(found: Forecast, trainer: PairTrainer, stage: Stage) -> str:
    """The forecast in words."""
    pairs = len(trainer.train_dataset)  # type: ignore[arg-type]
    seconds = pairs * stage.train.epochs / found.speed
    trained = "" if found.trainable == found.parameters else f" ({found.trainable:,} are trained)"
    size, fixed = (gigabytes(found.weights + one) for one in (found.step(), found.fixed))
    step = "" if stage.loss.mini_batch_size else f" a step takes up to {size}, {fixed} of it weights, gradients and optimizer;"
    return (
        f"{found.parameters:,} parameters{trained};{step} {gigabytes(found.free)} are free; "
        f"about {found.speed:.0f} pairs/s by a short trial: {pairs * stage.train.epochs:,} pairs in {stage.train.epochs} epochs "
        f"take at least {describe_seconds(seconds)}, updates of the weights and evaluation not counted"
    )


def explain_part(found: Forecast, part: int, trainer: PairTrainer, stage: Stage) -> str:
    """That the batch does not fit, and what is done about it, or can be."""
    need = f"a batch of {stage.train.batch_size:,} pairs takes {gigabytes(found.step())}, and {gigabytes(found.free)} are free"
    if can_part(trainer) and found.step(part) <= found.free:
        return f"{need}: loss.mini_batch_size is {part} for this run: the same mathematics, a little slower"
    if can_part(trainer):
        return (
            f"{need}: loss.mini_batch_size is {part} for this run. That still takes {gigabytes(found.step(part))}, "
            f"{gigabytes(found.fixed)} of it gradients and optimizer: if memory runs out, train an adapter "
            f'(--set adapter.kind=lora), set train.optimizer = "adamw-8bit", or take a smaller encoder'
        )
    return f"{need}, and this loss cannot go through a batch in parts: if memory runs out, lower train.batch_size"


def gigabytes(size: int) -> str:
    """Bytes as people say them.

    >>> gigabytes(2_340_000_000), gigabytes(40_000_000)
    ('2.3 GB', '40 MB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def describe_seconds(seconds: float) -> str:
    """A length of time as a clock shows it.

    >>> describe_seconds(75), describe_seconds(7322)
    ('1:15', '2:02:02')
    """
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


def _read_chosen(folder: Path | None) -> int | None:
    path = folder / CHOSEN if folder else None
    return json.loads(path.read_text()) if path and path.exists() else None


def explain_failure(problem: Exception, stage: Stage, log: list[dict[str, Any]]) -> None:
    """Turn what a user can mend, too large a batch or too high a rate, into a message that says how. log: the host's."""
    if type(problem).__name__ == "OutOfMemoryError":
        raise UserError(
            f"a batch of {stage.train.batch_size} pairs does not fit into the device's memory: lower train.batch_size, "
            f"or set loss.mini_batch_size (16, say) to go through it in parts"
        ) from problem
    if lost := [entry["step"] for entry in log if not np.isfinite(entry.get("loss", 0.0))]:
        raise UserError(
            f"training diverged: the loss is NaN or infinite since step {lost[0]}. Lower train.learning_rate "
            f"(it is {stage.train.learning_rate:g}; 2e-5 is usual), or raise loss.temperature (it is {stage.loss.temperature:g})"
        ) from problem
