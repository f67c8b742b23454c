"""The mean of the weights of several trainings of one encoder: often better than each of them, and as fast as one to use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from pairtune.encoders.loading import load_encoder
from pairtune.errors import UserError
from pairtune.sbert.callbacks import floating

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def average_with(
    model: SentenceTransformer, others: Sequence[Path], score: Callable[[], float], tell: Callable[[str], None]
) -> int:
    """Leave the model with the mean of its weights and those of saved ones; of how many trainings it is the mean.

    One after the other, in the order given, each joins the mean if that scores no lower with it (the greedy soup of Wortsman
    et al., 2022). score: of the model as it is by then, on dev. tell: is told what became of each.
    """
    kept, count, best = _copy(model), 1, score()
    tell(f"averaging the weights of {len(others) + 1} trainings: dev {best:.4f} alone")
    for folder in others:
        theirs = read_weights(model, folder)
        for name, tensor in floating(model).items():
            tensor.copy_(kept[name].lerp(theirs[name], 1 / (count + 1)))
        if (now := score()) >= best:
            kept, count, best = _copy(model), count + 1, now
            tell(f"the mean of {count}: dev {now:.4f}")
        else:
            tell(f"with one more it would be {now:.4f}: left out")
    for name, tensor in floating(model).items():
        tensor.copy_(kept[name])
    return count


def read_weights(model: SentenceTransformer, folder: Path) -> dict[str, Tensor]:
    """The weights of a saved model, which must have the shape of this one."""
    found, own = floating(load_encoder(str(folder), device=str(model.device))), floating(model)
    if {name: tensor.shape for name, tensor in found.items()} != {name: tensor.shape for name, tensor in own.items()}:
        raise UserError(f"{folder} holds a model of another shape: only trainings of one encoder can be averaged")
    return found


def _copy(model: SentenceTransformer) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in floating(model).items()}
