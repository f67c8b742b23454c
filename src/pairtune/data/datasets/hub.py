"""Datasets from the Hugging Face hub, for machines with a network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pairtune.errors import UserError
from pairtune.progress import say

HubRow = Mapping[str, Any]


def hub_splits(repository: str, config: str | None, how: str) -> Mapping[str, Iterable[HubRow]]:
    """The dataset's splits by the hub's names (train, validation, test); `how` tells a user without a network what to do."""
    import datasets

    shown = f"{repository} ({config})" if config else repository
    say(f"fetching {shown} from the Hugging Face hub, once")
    try:
        return datasets.load_dataset(repository, config)
    except (OSError, ValueError, RuntimeError) as problem:
        reason = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
        raise UserError(
            f"the dataset was not found on this machine, and the hub gave no {shown}: {reason}. "
            f"Without a network, bring the files: {how}"
        ) from problem
