"""AdamW with bias correction as a choice: BERT's original optimiser had none, and the paper used both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from pairtune.errors import UserError


class AdamW(Optimizer):
    """Adam with decoupled weight decay: p ← p − lr·(λ·p + m/(√v + ε)), with m and v the moments of the gradient.

    With correct_bias, m and v are divided by 1 − βᵗ first, as in torch.optim.AdamW. Without, the first steps are larger
    (at step 1 by 0.1/√0.001 ≈ 3.2), as in the optimiser BERT was published with.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        *,
        correct_bias: bool = True,
    ) -> None:
        if lr < 0 or eps < 0 or weight_decay < 0 or not all(0 <= beta < 1 for beta in betas):
            raise UserError(
                f"AdamW with lr {lr}, betas {betas}, eps {eps}, weight_decay {weight_decay}: "
                f"expected betas from 0 to below 1, and nothing negative"
            )
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "correct_bias": correct_bias}
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update of every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [parameter for parameter in group["params"] if parameter.grad is not None]
            if params:
                self._update(params, **{key: value for key, value in group.items() if key in self.defaults})
        return loss

    def _update(
        self,
        params: list[Tensor],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        correct_bias: bool,
    ) -> None:
        """The parameters of one group all at once: a call for each operation, not for each tensor."""
        gradients = [parameter.grad for parameter in params if parameter.grad is not None]
        states = [self._state_of(parameter) for parameter in params]
        means, squares = [state["exp_avg"] for state in states], [state["exp_avg_sq"] for state in states]
        torch._foreach_lerp_(means, gradients, 1 - betas[0])
        torch._foreach_mul_(squares, betas[1])
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - betas[1])
        roots = torch._foreach_sqrt(squares)
        rates = [-lr] * len(params)
        if correct_bias:
            torch._foreach_div_(roots, [(1 - betas[1] ** state["step"]) ** 0.5 for state in states])
            rates = [-lr / (1 - betas[0] ** state["step"]) for state in states]
        torch._foreach_add_(roots, eps)
        torch._foreach_mul_(params, 1 - lr * weight_decay)
        torch._foreach_addcdiv_(params, means, roots, rates)

    def _state_of(self, parameter: Tensor) -> dict[str, Any]:
        """The moments, zeros at first, and the number of the step that is now being made."""
        state = self.state[parameter]
        if not state:
            state.update(step=0, exp_avg=torch.zeros_like(parameter), exp_avg_sq=torch.zeros_like(parameter))
        state["step"] += 1
        return state


def without_bias_correction(chosen: tuple[Any, dict[str, Any]]) -> tuple[type[AdamW], dict[str, Any]]:
    """What the host's `get_optimizer_cls_and_kwargs` returned, with this AdamW and no bias correction.

    Rates, betas, epsilon and parameter groups stay; `fused` goes, which only torch's own class knows.
    """
    optimiser, settings = chosen
    if optimiser is not torch.optim.AdamW:
        raise UserError(f"only AdamW can do without bias correction, not {optimiser.__name__}: use optim='adamw_torch'")
    return AdamW, {key: value for key, value in settings.items() if key != "fused"} | {"correct_bias": False}
