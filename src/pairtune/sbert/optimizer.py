"""BERT's optimizer, AdamW without bias correction, and AdamW with a state of 8 bits."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import torch

from pairtune.errors import UserError

LATE_STEP = float(2**25)  # 1 − βᵗ is 1 at this step, and in float32 the next step has the same number


class UncorrectedAdamW(torch.optim.AdamW):
    """torch's AdamW, p ← p − lr·(λ·p + m/(√v + ε)), with the moments m and v as they are.

    torch divides them by 1 − βᵗ. Without, the first steps are larger (at step 1 by 0.1/√0.001 ≈ 3.2), as in the optimizer
    BERT was published with. All of torch's ways to compute it serve, `fused` too: for them each step is number LATE_STEP.
    """

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Whatever step a checkpoint was at, the next one is without correction too."""
        super().__setstate__(state)
        for one in self.state.values():
            if "step" in one:
                one["step"] = torch.full_like(torch.as_tensor(one["step"], dtype=torch.float32), LATE_STEP)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update of every parameter that has a gradient; all have moments from the first step on."""
        for parameter in (parameter for group in self.param_groups for parameter in group["params"]):
            if not self.state[parameter]:
                moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
                step = torch.full((), LATE_STEP, device=parameter.device if self.defaults["fused"] else "cpu")
                self.state[parameter].update(step=step, **moments)
        return super().step(closure)


def without_bias_correction(chosen: tuple[Any, dict[str, Any]]) -> tuple[type[UncorrectedAdamW], dict[str, Any]]:
    """What the host's `get_optimizer_cls_and_kwargs` returned, without bias correction: all its settings stay."""
    optimizer, settings = chosen
    if optimizer is not torch.optim.AdamW:
        raise UserError(
            f'bias_correction = false works with AdamW only, not with {optimizer.__name__}: set train.optimizer = "adamw"'
        )
    return UncorrectedAdamW, settings


EIGHT_BIT = {"bitsandbytes": "adamw_bnb_8bit", "torchao": "adamw_torch_8bit"}  # what the host calls theirs


def find_8bit_optimizer() -> str:
    """The host's name of the 8-bit AdamW of a package that is installed."""
    for package, name in EIGHT_BIT.items():
        if importlib.util.find_spec(package):
            return name
    raise UserError('train.optimizer is "adamw-8bit", which needs a package that is not installed here: pip install bitsandbytes')
