"""Fine-tune sentence encoders to score pairs of texts.

The public names are resolved when they are first used, so that `pairtune --help` does not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "train": "pairtune.training",
    "choose": "pairtune.tune.rules",
    "read_recipe": "pairtune.runs.toml",
    "Recipe": "pairtune.runs.recipe",
    "Run": "pairtune.runs.record",
    "read_pairs": "pairtune.data.own_tables",
    "read_table": "pairtune.data.own_tables",
    "load_task": "pairtune.data.datasets",
    "PairSet": "pairtune.data.pairs",
    "Task": "pairtune.data.pairs",
    "shuffle": "pairtune.engines.shuffle",
    "prepare": "pairtune.engines.shuffle",
    "stream": "pairtune.engines.parquet",
    "epoch_seed": "pairtune.ordering.order",
    "load_encoder": "pairtune.encoders.loading",
    "Index": "pairtune.encoders.index",
    "HardBatches": "pairtune.sbert.hard_batches",
    "BatchSoftmaxLoss": "pairtune.sbert.losses",
    "ComboLoss": "pairtune.sbert.losses",
    "PearsonLoss": "pairtune.sbert.losses",
    "CosentLoss": "pairtune.sbert.losses",
    "Guide": "pairtune.sbert.memory",
    "PairEvaluator": "pairtune.sbert.evaluator",
    "batch_softmax_loss": "pairtune.loss",
    "UserError": "pairtune.errors",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pairtune' has no attribute {name!r}; public names: {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
