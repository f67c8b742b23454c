"""The step of a trainer on packed batches; parts of layers are compiled where kernels, not their launches, take the time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers.training_args import ParallelMode

from pairtune.fast.architectures import architecture_of, inner_encoder, packed_attention
from pairtune.fast.captured import CapturedSteps, Halves
from pairtune.fast.packing import Packed
from pairtune.fast.shared import SharedSteps
from pairtune.loss.large.fused import can_compile

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformerTrainer

WORTH_COMPILING = 4000  # steps: compiling takes about 8 s, and spares 2.4 ms of a step of 1,024 pairs
LEAST_TOKENS = 8_192  # in a batch; below, a captured step is as fast


class FastStep:
    """Encodes a packed batch without padding, in one pass or in parts, and hands its embeddings to the trainer's loss.

    On a GPU a step of one pass is a captured graph, in bf16 with copies of the parameters. Several processes join their
    embeddings and average their gradients outside of it (`SharedSteps`), on a CPU too.
    """

    def __init__(self, trainer: SentenceTransformerTrainer, weigh: Callable[[], float]) -> None:
        """weigh: what the loss of this process's part of a batch counts, where several train together."""
        self.trainer, self.weigh = trainer, weigh
        self.captured: CapturedSteps | None = None
        self.halves: Halves | None = None

    @property
    def shared(self) -> bool:
        """Whether several processes train together."""
        return self.trainer.args.parallel_mode == ParallelMode.DISTRIBUTED

    def takes(self, batch: Packed) -> bool:
        """Whether `run` can compute this batch: with several processes any, else on a GPU where no loss waits for it."""
        args = self.trainer.args
        if args.fp16 or args.gradient_accumulation_steps != 1 or isinstance(self.trainer.loss, dict):  # of several datasets
            return False
        waits = batch.parts or getattr(self.trainer.loss, "needs_ids", False)
        alone = args.parallel_mode == ParallelMode.NOT_PARALLEL
        return self.shared or (alone and args.device.type == "cuda" and not waits)

    def run(self, batch: Packed) -> tuple[Tensor, Tensor]:
        """The loss and the embeddings, (columns, m, n); gradients are in place of those that are there."""
        if self.captured is not None and not self.captured.current:
            self.close()
        if self.captured is None:
            self.captured = self._begin()
        return self.captured(batch)

    def compute(self, batch: Packed, name: str | None = None) -> tuple[Tensor, Tensor]:
        """The same with a graph behind it, and without the backward pass. name: of the dataset, where there are several."""
        embeddings = self.embed(batch)
        return self.loss_of(embeddings, batch, name), embeddings

    def embed(self, batch: Packed) -> Tensor:
        """The embeddings of a batch, (columns, m, n)."""
        if batch.parts:  # what a part leaves for its backward pass is computed again there, with the same dropout
            rows = [checkpoint(self._encode_part, part.ids, part, use_reentrant=False) for part in batch.parts]
            distinct = torch.cat(rows)
        else:
            distinct = self._encode_row(batch)
        return distinct.index_select(0, batch.index.reshape(-1)).view(*batch.index.shape, -1)

    def loss_of(self, embeddings: Tensor, batch: Packed, name: str | None = None) -> Tensor:
        """The loss of a batch's embeddings."""
        losses: Any = self.trainer.loss
        loss = losses[name] if isinstance(losses, dict) else losses
        more = {"ids": tuple(batch.number)} if hasattr(loss, "needs_ids") else {}  # a loss of ours
        return loss.compute_loss_from_embeddings(list(embeddings), batch.label, **more)

    def clip(self, limit: float) -> Tensor | None:
        """The norm of all gradients, scaled down to `limit`; None where the trainer has to do it: they are in no buffer."""
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
        on_gpu = self.trainer.args.device.type == "cuda"
        self.halves = Halves(model[0]) if on_gpu and self.trainer.args.bf16 else None
        captured = (
            SharedSteps(self._embed_alone, self._join, parameters, dropout, self.halves)
            if self.shared
            else CapturedSteps(self.compute, parameters, dropout, self.halves)
        )
        model.__dict__["zero_grad"] = captured.release
        return captured

    def _embed_alone(self, batch: Packed) -> Tensor:
        """The embeddings of this process's part of the batch."""
        with nullcontext() if self.halves else self.trainer.compute_loss_context_manager():
            return self.embed(batch)

    def _join(self, embeddings: Tensor, batch: Packed) -> Tensor:
        """The loss of this process, by which the mean of all gradients is that of the whole batch."""
        with nullcontext() if self.halves else self.trainer.compute_loss_context_manager():
            return self.weigh() * self.loss_of(embeddings, batch)

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
        """The embeddings by the host's modules, the first of them in bf16 where that is how steps are captured."""
        if self.halves is None:
            averaging = self.shared and self.captured is not None  # and DDP is not to do so, too
            model: Any = self.trainer.model if averaging else self.trainer.model_wrapped
            return model(features)["sentence_embedding"]
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
