"""The step of a trainer on packed batches; parts of layers are compiled where kernels, not their launches, take the time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers.training_args import ParallelMode

from pairtune.fast.architectures import architecture_of, inner_encoder, packed_attention
from pairtune.fast.captured import CapturedSteps, Halves, JoinedSteps
from pairtune.fast.packing import Packed
from pairtune.loss.large.fused import can_compile

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformerTrainer

WORTH_COMPILING = 4000  # steps: compiling takes about 8 s, and spares 2.4 ms of a step of 1,024 pairs
LEAST_TOKENS = 8_192  # in a batch; below, a captured step is as fast


class FastStep:
    """Encodes a packed batch without padding, in one pass or in parts, and hands its embeddings to the trainer's loss.

    On a GPU a step of one pass is a captured graph, in bf16 with copies of the parameters; of several processes it is two, where
    `several` says so: that has been tested on a CPU, without graphs, and waits for a run on GPUs.
    """

    several = False

    def __init__(self, trainer: SentenceTransformerTrainer, devices: Collection[str] = ("cuda",)) -> None:
        """devices: the kinds on which steps are cut up as graphs need it."""
        self.trainer, self.devices = trainer, devices
        self.captured: CapturedSteps | None = None
        self.halves: Halves | None = None

    def captures(self, batch: Packed) -> bool:
        """Whether `run` can take this batch: a GPU for each process, and in a single one a loss that never waits for it."""
        args = self.trainer.args
        return (
            not batch.parts
            and args.parallel_mode in (ParallelMode.NOT_PARALLEL, ParallelMode.DISTRIBUTED)
            and args.device.type in self.devices
            and not args.fp16
            and args.gradient_accumulation_steps == 1
            and not isinstance(self.trainer.loss, dict)  # of several datasets
            and (self.several if self.joined else not getattr(self.trainer.loss, "waits_for_device", False))
        )

    @property
    def joined(self) -> bool:
        """Whether several processes share a step."""
        return self.trainer.args.parallel_mode == ParallelMode.DISTRIBUTED

    def run(self, batch: Packed, weight: float = 1.0) -> tuple[Tensor, Tensor]:
        """The loss and the embeddings, (columns, m, n); gradients are in place of those that are there.

        weight: of this process's loss, among several.
        """
        if self.captured is not None and not self.captured.current:
            self.close()
        if self.captured is None:
            self.captured = self._begin()
        if isinstance(self.captured, JoinedSteps):
            self.captured.weight = weight
        return self.captured(batch)

    def compute(self, batch: Packed, name: str | None = None) -> tuple[Tensor, Tensor]:
        """The same with a graph behind it, and without the backward pass. name: of the dataset, where there are several."""
        embeddings = self.encode(batch)
        return self.cost(embeddings, batch, name), embeddings

    def encode(self, batch: Packed) -> Tensor:
        """The embeddings of a batch, (columns, m, n)."""
        if batch.parts:  # what a part leaves for its backward pass is computed again there, with the same dropout
            rows = [checkpoint(self._encode_part, part.ids, part, use_reentrant=False) for part in batch.parts]
            distinct = torch.cat(rows)
        else:
            distinct = self._encode_row(batch)
        return distinct.index_select(0, batch.index.reshape(-1)).view(*batch.index.shape, -1)

    def cost(self, embeddings: Tensor, batch: Packed, name: str | None = None) -> Tensor:
        """The loss of these embeddings. name: see `compute`."""
        losses: Any = self.trainer.loss
        loss = losses[name] if isinstance(losses, dict) else losses
        more = {"ids": tuple(batch.number)} if hasattr(loss, "needs_ids") else {}  # a loss of ours
        found: Tensor = loss.compute_loss_from_embeddings(list(embeddings), batch.label, **more)
        return found

    def clip(self, limit: float) -> Tensor | None:
        """The norm of all gradients, scaled down to `limit`; None where the trainer has to do it, as no step is captured."""
        return None if self.captured is None or self.captured.buffer is None else self.captured.clip(limit)

    def close(self) -> None:
        """Give the memory of captured steps back."""
        self.trainer.model.__dict__.pop("zero_grad", None)
        self.captured = self.halves = None

    def _begin(self) -> CapturedSteps:
        model: Any = self.trainer.model
        loss: Any = self.trainer.loss
        parameters = dict.fromkeys([*model.parameters(), *loss.parameters()])
        dropout = next((module for module in model.modules() if isinstance(module, nn.Dropout)), None)
        half = self.trainer.args.bf16
        if self.joined:
            self.halves = Halves(model, kept=list(model)[1:] if half else [model])
        else:
            self.halves = Halves(model[0]) if half else None
        kind = JoinedSteps if self.joined else CapturedSteps
        captured = kind(self.encode, self.cost, parameters, dropout, self.halves)
        model.__dict__["zero_grad"] = captured.release
        return captured

    def _encode_part(self, ids: Tensor, part: Packed) -> Tensor:
        """The embeddings of a part's own texts. ids: the part's, from which torch sees whose random numbers to keep."""
        return self._encode_row(part)[: part.index.numel()]

    def _encode_row(self, batch: Packed) -> Tensor:
        """The embeddings of the texts in a row, (texts, n)."""
        with packed_attention(self.trainer.model, batch), self._compiled(batch):
            return self._encode(batch.features())

    def _compiled(self, batch: Packed) -> Any:
        """Compiled layers where they pay."""
        large = batch.ids.is_cuda and batch.ids.shape[1] >= LEAST_TOKENS
        if not large or self.trainer.state.max_steps < WORTH_COMPILING or not can_compile():
            return nullcontext()
        encoder = inner_encoder(self.trainer.model)
        return compiled(architecture_of(encoder).parts_of(encoder))

    def _encode(self, features: dict[str, Tensor]) -> Tensor:
        """The embeddings by the host's modules, with other parameters where that is how steps are captured."""
        if self.halves is None:
            return self.trainer.model_wrapped(features)["sentence_embedding"]
        first, *rest = self.trainer.model.children()
        with self.halves.instead():
            features = first(features)
            features["token_embeddings"] = features["token_embeddings"].float()
            for module in rest:
                features = module(features)
        return features["sentence_embedding"]


@cache
def compile_part(forward: Any) -> Any:
    """One compiled function for all layers: their parameters are arguments, and the number of tokens may vary."""
    return torch.compile(forward, dynamic=True)


@contextmanager
def compiled(parts: Sequence[nn.Module]) -> Iterator[None]:
    """Inside, these parts of an encoder's layers run compiled; afterwards all is as it was."""
    try:
        for part in parts:
            part.__dict__["forward"] = compile_part(type(part).forward).__get__(part)
        yield
    finally:
        for part in parts:
            part.__dict__.pop("forward", None)
