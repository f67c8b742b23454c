"""Choosing a recipe for one's data, and many trainings at once: `from pairtune.tune import tune`."""

from __future__ import annotations

from typing import Any

__all__ = ["tune"]


def __getattr__(name: str) -> Any:
    if name != "tune":
        raise AttributeError(f"module 'pairtune.tune' has no attribute {name!r}")
    from pairtune.tune.tuner import tune

    return tune
