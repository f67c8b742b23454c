"""bf16 copies of an encoder's parameters that stand in for them while a step is computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Halves:
    """The parameters of a module in bf16, brought up to date before each step; their gradients go to the originals.

    Autocast, too, multiplies in bf16 and keeps the parameters in float32, but it casts each of them in each step on its own,
    and every input of a product, and its gradient: more kernels than the rest of a small step has. Here hidden states stay
    in bf16 from layer to layer, sums within a kernel are float32, and the optimiser sees float32 only.
    """

    def __init__(self, module: nn.Module) -> None:
        self.whole: list[Tensor] = [parameter for parameter in module.parameters() if parameter.is_floating_point()]
        self.half = [parameter.detach().to(torch.bfloat16).requires_grad_(parameter.requires_grad) for parameter in self.whole]
        half = {id(whole): half for whole, half in zip(self.whole, self.half, strict=True)}
        owners = [(one._parameters, name) for one in module.modules() for name in one._parameters]
        self.places = [(table, name, half[id(table[name])]) for table, name in owners if id(table[name]) in half]

    @contextmanager
    def instead(self) -> Iterator[None]:
        """Inside, the module has the bf16 parameters, as the originals are now."""
        with torch.no_grad():
            torch._foreach_copy_(self.half, self.whole)
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
