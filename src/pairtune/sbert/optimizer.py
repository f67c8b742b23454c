"""AdamW without bias correction: BERT's original optimizer had none, and the paper used both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pairtune.errors import UserError

FAR = float(2**25)  # 1 − βᵗ is 1 at this step, and in float32 the next step has the same number


class UncorrectedAdamW(torch.optim.AdamW):
    """torch's AdamW, p ← p − lr·(λ·p + m/(√v + ε)), with the moments m and v as they are.

    torch divides them by 1 − βᵗ. Without, the first steps are larger (at step 1 by 0.1/√0.001 ≈ 3.2), as in the optimizer
    BERT was published with. All of torch's ways to compute it serve, `fused` too: for them each step is the one numbered FAR.
    """

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Whatever step a checkpoint was at, the next one is without correction too."""
        super().__setstate__(state)
        for one in self.state.values():
            if "step" in one:
                one["step"] = torch.full_like(torch.as_tensor(one["step"], dtype=torch.float32), FAR)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update of every parameter that has a gradient; all have moments from the first step on."""
        for parameter in (parameter for group in self.param_groups for parameter in group["params"]):
            if not self.state[parameter]:
                moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
                step = torch.full((), FAR, device=parameter.device if self.defaults["fused"] else "cpu")
                self.state[parameter].update(step=step, **moments)
        return super().step(closure)


def without_bias_correction(chosen: tuple[Any, dict[str, Any]]) -> tuple[type[UncorrectedAdamW], dict[str, Any]]:
    """What the host's `get_optimizer_cls_and_kwargs` returned, without bias correction: all its settings stay."""
    optimizer, settings = chosen
    if optimizer is not torch.optim.AdamW:
        raise UserError(f"only AdamW can do without bias correction, not {optimizer.__name__}: use optim='adamw_torch'")
    return UncorrectedAdamW, settings
