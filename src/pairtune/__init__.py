"""Fine-tune sentence encoders to score pairs of texts.

The public names are resolved when they are first used, so that `pairtune --help` does not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "BatchSoftmaxLoss": "pairtune.sbert.losses",
    "ComboLoss": "pairtune.sbert.losses",
    "PearsonLoss": "pairtune.sbert.losses",
    "LearnedTemperature": "pairtune.sbert.temperature",
    "HardBatches": "pairtune.sbert.sampler",
    "Reorder": "pairtune.sbert.reorder",
    "PairEvaluator": "pairtune.sbert.evaluator",
    "PairSet": "pairtune.data.pairs",
    "Recipe": "pairtune.runs.recipe",
    "Task": "pairtune.data.pairs",
    "batch_softmax_loss": "pairtune.loss",
    "load_encoder": "pairtune.encoders.loading",
    "UserError": "pairtune.errors",
    "load_task": "pairtune.data.datasets",
    "read_pairs": "pairtune.data.tables",
    "read_recipe": "pairtune.runs.recipe",
    "run": "pairtune.train",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pairtune' has no attribute {name!r}; public names: {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
