"""A step as one CUDA graph, or as two around what processes share, with bf16 copies of the parameters.

The device never waits for Python to launch kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pairtune.fast.packing import Packed
from pairtune.processes import world_size
from pairtune.progress import say


class Halves:
    """The parameters of a module in bf16, brought up to date before each step; their gradients go to the originals.

    Autocast, too, multiplies in bf16 and keeps the parameters in float32, but it casts each of them in each step on its own,
    and every input of a product, and its gradient: more kernels than the rest of a small step has. Here hidden states stay
    in bf16 from layer to layer, sums within a kernel are float32, and the optimizer sees float32 only.
    """

    def __init__(self, module: nn.Module, kept: Iterable[nn.Module] = ()) -> None:
        """kept: parts whose parameters keep their type: other tensors stand in for them, in the same memory."""
        same = {id(parameter) for part in kept for parameter in part.parameters()}
        self.whole: list[Tensor] = [parameter for parameter in module.parameters() if parameter.is_floating_point()]
        types = [whole.dtype if id(whole) in same else torch.bfloat16 for whole in self.whole]
        self.half = [
            whole.detach().to(dtype).requires_grad_(whole.requires_grad) for whole, dtype in zip(self.whole, types, strict=True)
        ]
        half = {id(whole): half for whole, half in zip(self.whole, self.half, strict=True)}
        trained = [whole for whole in self.whole if whole.requires_grad and id(whole) not in same]  # the others stay as they are
        self.moving = [half[id(whole)] for whole in trained], trained
        owners = [(one._parameters, name) for one in module.modules() for name in one._parameters]
        self.places = [(table, name, half[id(table[name])]) for table, name in owners if id(table[name]) in half]

    @contextmanager
    def instead(self) -> Iterator[None]:
        """Inside, the module has the other parameters, as the originals are now."""
        if self.moving[0]:
            with torch.no_grad():
                torch._foreach_copy_(*self.moving)
        originals = [table[name] for table, name, _ in self.places]
        try:
            for table, name, half in self.places:
                table[name] = half  # type: ignore[assignment]  # a plain tensor, but a leaf all the same
            yield
        finally:
            for (table, name, _), original in zip(self.places, originals, strict=True):
                table[name] = original

    def hand_over(self) -> None:
        """The gradients of a backward pass, in float32, to the originals: in place of those that are there."""
        targets: list[Tensor] = []
        sources: list[Tensor] = []
        for whole, half in zip(self.whole, self.half, strict=True):
            if half.grad is not None:
                whole.grad = torch.empty_like(whole) if whole.grad is None else whole.grad
                targets.append(whole.grad)
                sources.append(half.grad)
            elif whole.grad is not None:
                whole.grad.zero_()
        if targets:
            torch._foreach_copy_(targets, sources)  # all of them in a few kernels
        self.forget()

    def forget(self) -> None:
        """Drop the gradients of a backward pass."""
        for half in self.half:
            half.grad = None


MOST_TOKENS = 32_768  # beyond this the kernels take longer than their launches
MOST_GRAPHS = 48

Thing = TypeVar("Thing")
Encode = Callable[[Packed], Tensor]
Cost = Callable[[Tensor, Packed], Tensor]


@dataclass(frozen=True)
class Graph:
    """A captured step: the batch that it reads, the loss and the embeddings that it writes."""

    graph: torch.cuda.CUDAGraph
    batch: Packed
    loss: Tensor
    embeddings: Tensor


class CapturedSteps:
    """Runs a step and its backward pass; batches of a shape that was seen before are played from a graph.

    encode: a batch to its embeddings, (columns, m, n). cost: these to the loss. Both without waiting for the device. The first
    batch of a shape is computed in the ordinary way, with the same random numbers, so where graphs begin does not change the
    result. On a CPU all are.
    """

    halves: Halves | None

    def __init__(
        self,
        encode: Encode,
        cost: Cost,
        parameters: Iterable[nn.Parameter],
        dropout: nn.Dropout | None = None,
        halves: Halves | None = None,
    ) -> None:
        """dropout: one of the model's; a graph serves as long as its share stays. halves: what `encode` computes with."""
        self.encode, self.cost, self.dropout, self.halves = encode, cost, dropout, halves
        self.trains = {parameter: parameter.requires_grad for parameter in parameters}
        self.parameters = [parameter for parameter in self.trains if parameter.requires_grad]
        self.gradients: list[Tensor] = []  # of the parameters that have one, parts of `buffer`: graphs write there
        self.added: list[Tensor] = []  # those that a backward pass adds to, and does not replace
        self.buffer: Tensor | None = None
        self.mixed = len({parameter.dtype for parameter in self.parameters}) > 1  # one buffer is of one type
        self.off = not all(parameter.is_cuda for parameter in self.parameters)
        if not self.off:
            self.stream = torch.cuda.Stream()
            self.pool: Any = torch.cuda.graph_pool_handle()
        self.seen: set[Any] = set()
        self.graphs: dict[Any, Any] = {}

    def __call__(self, batch: Packed) -> tuple[Tensor, Tensor]:
        """The loss and the embeddings, (columns, m, n); gradients are in place of those that are there."""
        if not batch.ids.is_cuda:
            return self._step(batch)
        current = torch.cuda.current_stream()
        self.stream.wait_stream(current)  # a graph, and what it shares memory with, stays on one stream
        with torch.cuda.stream(self.stream):
            found = self._step(batch)
        current.wait_stream(self.stream)
        return found

    def _step(self, batch: Packed) -> tuple[Tensor, Tensor]:
        if self.buffer is not None:
            self._attach()
            return self._play(batch)
        found = self._compute(batch)
        if not self.mixed:
            self._make_buffer()
        return found

    def clip(self, limit: float) -> Tensor:
        """Scale all gradients down so that their common norm is at most `limit`, as torch's clip_grad_norm_; the norm before."""
        assert self.buffer is not None
        norm = torch.linalg.vector_norm(self.buffer)
        self.buffer.mul_((limit / (norm + 1e-6)).clamp(max=1.0))
        return norm

    def release(self, set_to_none: bool = True) -> None:
        """What the model's `zero_grad` does, without looking for its parameters anew: half a millisecond of a step."""
        for parameter in self.trains:
            parameter.grad = None

    @property
    def current(self) -> bool:
        """Whether the same parameters are trained as when it was made."""
        return all(parameter.requires_grad == before for parameter, before in self.trains.items())

    def _play(self, batch: Packed) -> tuple[Tensor, Tensor]:
        key = batch.shape, self.dropout and self.dropout.p
        if key not in self.graphs:
            if self.off or key not in self.seen or len(self.graphs) >= MOST_GRAPHS or batch.ids.shape[1] > MOST_TOKENS:
                self.seen.add(key)
                return self._compute(batch)
            captured = self._capture(batch)
            if captured is None:
                return self._compute(batch)
            self.graphs[key] = captured
        step = self.graphs[key]
        for target, source in zip(step.batch.tensors(), batch.tensors(), strict=True):
            target.copy_(source, non_blocking=True)
        return self._replay(step, batch)

    def _replay(self, step: Any, batch: Packed) -> tuple[Tensor, Tensor]:
        step.graph.replay()
        return step.loss.clone(), step.embeddings.clone()

    def _compute(self, batch: Packed) -> tuple[Tensor, Tensor]:
        embeddings = self.encode(batch)
        loss = self.cost(embeddings, batch)
        loss.backward()
        if self.halves is not None:
            self.halves.hand_over()
        return loss.detach(), embeddings.detach()

    def _capture(self, batch: Packed) -> Any:
        """The graph of a step, or None, having said why, where there can be none."""
        batch = batch.clone()
        recorded = self._record(lambda: self._compute(batch))
        return recorded and Graph(recorded[0], batch, *recorded[1])

    def _record(self, work: Callable[[], Thing]) -> tuple[torch.cuda.CUDAGraph, Thing] | None:
        """As `torch.cuda.graph` does it, but without collecting garbage each time, which takes longer than all the rest."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        random = torch.cuda.default_generators[torch.cuda.current_device()]
        before = random.clone_state()
        # a thread of NCCL may ask for its events meanwhile
        graph.capture_begin(pool=self.pool, capture_error_mode="global" if world_size() == 1 else "thread_local")
        problem: RuntimeError | None = None
        try:
            found = work()
        except RuntimeError as raised:
            problem = raised
        try:
            graph.capture_end()
        except RuntimeError as raised:
            problem = problem or raised
        if problem is not None:
            self.off = True
            random.graphsafe_set_state(before)  # a capture that fails leaves it waiting for the capture's end, and dropout fails
            if self.halves is not None:
                self.halves.forget()
            say(f"this step cannot be captured as a CUDA graph ({str(problem).splitlines()[0]}): training goes on, more slowly")
            return None
        return graph, found

    def _make_buffer(self) -> None:
        """One buffer for all gradients that the first step has found; parameters that nothing uses stay without."""
        self.parameters = [parameter for parameter in self.parameters if parameter.grad is not None]
        sizes = [parameter.numel() for parameter in self.parameters]
        self.buffer = torch.cat([parameter.grad.reshape(-1) for parameter in self.parameters if parameter.grad is not None])
        parts = zip(self.buffer.split(sizes), self.parameters, strict=True)
        self.gradients = [part.view_as(parameter) for part, parameter in parts]
        replaced = set() if self.halves is None else {id(whole) for whole in self.halves.whole}
        for parameter, gradient in zip(self.parameters, self.gradients, strict=True):
            parameter.grad = gradient
            if id(parameter) not in replaced:
                self.added.append(gradient)

    def _attach(self) -> None:
        """Give the parameters their gradients back, set to zero, after the host took them away."""
        if self.added and all(parameter.grad is None for parameter in self.parameters):
            torch._foreach_zero_(self.added)
        for parameter, gradient in zip(self.parameters, self.gradients, strict=True):
            if parameter.grad is None:
                parameter.grad = gradient


@dataclass(frozen=True)
class TwoGraphs:
    """A captured step of several processes: encoding, and its backward pass, which reads the gradient of the embeddings."""

    forward: torch.cuda.CUDAGraph
    backward: torch.cuda.CUDAGraph
    batch: Packed
    embeddings: Tensor
    gradient: Tensor


class JoinedSteps(CapturedSteps):
    """The same for several processes, whose loss is that of all their embeddings: it and its gradient stay outside of the graphs.

    So the loss may wait for the device. The gradients of the parameters are averaged over the processes afterwards, all at once.
    The model is called without DDP, and needs `halves` for all of its parameters: what DDP hangs on the originals runs on a
    stream of its own, which a graph does not take.
    """

    halves: Halves
    weight = 1.0  # of this process's loss among those of all

    def _step(self, batch: Packed) -> tuple[Tensor, Tensor]:
        found = super()._step(batch)
        gradients = [parameter.grad for parameter in self.parameters] if self.buffer is None else [self.buffer]
        for gradient in gradients:
            if gradient is not None and world_size() > 1:
                dist.all_reduce(gradient)
                gradient.div_(world_size())
        return found

    def _compute(self, batch: Packed) -> tuple[Tensor, Tensor]:
        embeddings = self.encode(batch)
        loss, gradient = self._weigh(embeddings, batch)
        self._pull(embeddings, gradient)
        return loss, embeddings.detach()

    def _capture(self, batch: Packed) -> Any:
        batch = batch.clone()
        forward = self._record(lambda: self.encode(batch))
        if forward is None:
            return None
        embeddings = forward[1]
        gradient = torch.empty_like(embeddings)
        backward = self._record(lambda: self._pull(embeddings, gradient))
        return backward and TwoGraphs(forward[0], backward[0], batch, embeddings.detach(), gradient)

    def _replay(self, step: Any, batch: Packed) -> tuple[Tensor, Tensor]:
        step.forward.replay()
        loss, gradient = self._weigh(step.embeddings, batch)
        step.gradient.copy_(gradient)
        step.backward.replay()
        return loss, step.embeddings.clone()

    def _weigh(self, embeddings: Tensor, batch: Packed) -> tuple[Tensor, Tensor]:
        """The loss of embeddings and its gradient by them; parameters of the loss get theirs."""
        leaf = embeddings.detach().requires_grad_()
        loss = self.cost(leaf, batch) * self.weight
        loss.backward()
        assert leaf.grad is not None
        return loss.detach(), leaf.grad

    def _pull(self, embeddings: Tensor, gradient: Tensor) -> None:
        embeddings.backward(gradient)
        self.halves.hand_over()
