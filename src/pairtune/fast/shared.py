"""A captured step of several processes: they join their embeddings in the middle of it, and their gradients at its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pairtune.fast.captured import CapturedSteps, Recorded, recording, take_over
from pairtune.fast.packing import Packed

Meet = Callable[[Tensor, Packed], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class TwoGraphs:
    """A captured step in two halves. Between them the processes meet, which no graph holds.

    forward: from `batch` to `embeddings`, and what the other half needs of it. backward: from `gradient`, that of the embeddings.
    No other graph is played between the two, so what the first one leaves in their common memory is still there.
    """

    forward: torch.cuda.CUDAGraph
    backward: torch.cuda.CUDAGraph
    batch: Packed
    embeddings: Tensor
    gradient: Tensor
    meet: Meet

    def play(self, batch: Packed) -> tuple[Tensor, Tensor]:
        """The loss and the embeddings of another batch of its shape."""
        take_over(self.batch, batch)
        self.forward.replay()
        loss, gradient = self.meet(self.embeddings, batch)
        self.gradient.copy_(gradient)
        self.backward.replay()
        return loss, self.embeddings.clone()


class SharedSteps(CapturedSteps):
    """The steps of several processes: encode, join the embeddings, go back, and average the gradients of all.

    Gradients are in one buffer, which is averaged at once. DDP would average them while the backward pass goes on, and cannot
    do so for a graph. On a CPU nothing is captured, and the steps are the same.
    """

    def __init__(
        self, encode: Callable[[Packed], Tensor], join: Callable[[Tensor, Packed], Tensor], *arguments: Any, **options: Any
    ) -> None:
        """encode: a batch to its embeddings, (columns, m, n), without waiting. join: embeddings to the loss, which may wait."""
        super().__init__(lambda batch: (torch.empty(()), encode(batch)), *arguments, **options)
        self.encode, self.join = encode, join

    def __call__(self, batch: Packed) -> tuple[Tensor, Tensor]:
        """The loss and the embeddings of this process; gradients are the mean of those of all processes."""
        found = super().__call__(batch)
        with self._own_stream():
            self._average()
        return found

    def _compute(self, batch: Packed) -> tuple[Tensor, Tensor]:
        embeddings = self.encode(batch)
        loss, gradient = self._meet(embeddings, batch)
        self._go_back(embeddings, gradient)
        return loss, embeddings.detach()

    def _meet(self, embeddings: Tensor, batch: Packed) -> tuple[Tensor, Tensor]:
        """The loss, and its gradient by the embeddings; a parameter of the loss gets its own gradient."""
        given = embeddings.detach().clone().requires_grad_()
        loss = self.join(given, batch)
        loss.backward()
        return loss.detach(), torch.zeros_like(given) if given.grad is None else given.grad

    def _go_back(self, embeddings: Tensor, gradient: Tensor) -> None:
        embeddings.backward(gradient)
        if self.halves is not None:
            self.halves.hand_over()

    def _record(self, batch: Packed) -> Recorded:
        mode = "thread_local"  # a thread of NCCL asks the device all the time
        with recording(self.pool, mode) as forward:
            embeddings = self.encode(batch)
        gradient = torch.zeros_like(embeddings)
        with recording(self.pool, mode) as backward:
            self._go_back(embeddings, gradient)
        return TwoGraphs(forward, backward, batch, embeddings.detach(), gradient, self._meet)

    def _average(self) -> None:
        found = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        shared = found if self.buffer is None else [self.buffer]
        torch._foreach_div_(shared, dist.get_world_size())  # first, as DDP does it: sums stay small
        for gradient in shared:
            dist.all_reduce(gradient)
