"""The batch-softmax contrastive loss (BSC), equations 1–5 of the paper."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from pairtune.errors import UserError
from pairtune.loss.large.layout import make_plan
from pairtune.loss.large.paths import fuse, suits
from pairtune.loss.terms import (
    NORMALIZATIONS,
    check_sides,
    exact,
    hide_known_positives,
    positives,
    similarity,
    softmax_term,
    without_autocast,
)

CHOICES: dict[str, Collection[str]] = {
    "normalize": NORMALIZATIONS,
    "reduction": ("sum", "mean"),
    "directions": ("both", "left", "right"),
    "duplicates": ("keep", "mask"),
}


def batch_softmax_loss(
    left: Tensor,
    right: Tensor,
    labels: Tensor | None = None,
    *,
    temperature: float | Tensor = 0.1,
    normalize: str = "l2",
    positive_above: float = 0.5,
    reduction: str = "sum",
    directions: str = "both",
    duplicates: str = "keep",
    left_ids: Tensor | None = None,
    right_ids: Tensor | None = None,
    shared_vectors: bool = False,
    fast: bool = True,
) -> Tensor:
    """L = L0 + L1: each left text finds its right text among those of the batch, and each right text its left one.

    L0 = 1/m Σᵢ [yᵢ > t] (log Σⱼ exp Sᵢⱼ − Sᵢᵢ) with S = QAᵀ/τ, and L1 is the same of Sᵀ (eq. 1–3).
    Pairs with yᵢ ≤ t have no term of their own but stay in every sum over j.

    left, right: (m, n), Q and A before normalization. labels: (m,), or None when all pairs are positive.
    temperature: τ, a number or a tensor with one value. reduction: "sum" is the paper's, "mean" averages the directions.
    directions: "left" is L0 alone, "right" is L1 alone. duplicates: "keep" is eq. 1 as it stands (eq. 4–5), "mask"
    drops from the sums over j what `hide_known_positives` says; it needs the ids, where equal means the same text.
    shared_vectors promises that rows with equal ids are copies of one vector, as of a text encoded once (with dropout two
    encodings differ): a large batch then computes with each text once, and finds the gradient of its copies on one of them.
    fast=False keeps to the plain path below; otherwise `fuse` may take another, with the same result.
    """
    check_choices(normalize=normalize, reduction=reduction, directions=directions, duplicates=duplicates)
    check_temperature(temperature)
    check_sides(left, right)
    positive = positives(labels, positive_above, left)
    needing = {'duplicates="mask"': duplicates == "mask", "shared_vectors": shared_vectors}
    ids = _check_ids(left_ids, right_ids, left, [name for name, asked in needing.items() if asked])
    if fast and suits(left, right):
        mask = duplicates == "mask"
        plan = make_plan(positive, ids, directions, everything=labels is None, mask=mask, merge=shared_vectors)
        divisor = len(left) * (2 if reduction == "mean" and directions == "both" else 1)
        fused = fuse(left, right, temperature, plan, normalize, divisor) if plan else None
        if fused is not None:
            return fused
    left, right = exact(left, right)
    scale = NORMALIZATIONS[normalize]
    with without_autocast(left):
        scores = similarity(scale(left), scale(right), temperature)  # (m, m)
        if duplicates == "mask" and ids:
            scores = hide_known_positives(scores, positive, *ids)
        seen = {"both": (scores, scores.T), "left": (scores,), "right": (scores.T,)}[directions]
        terms = torch.stack([softmax_term(one, positive) for one in seen])  # (1,) or (2,)
        return terms.mean() if reduction == "mean" else terms.sum()


def check_choices(**chosen: Any) -> None:
    """Refuse a word that is not in its table, and list the table."""
    for name, value in chosen.items():
        if value not in CHOICES[name]:
            raise UserError(f"unknown {name} {value!r}; known: {', '.join(CHOICES[name])}")


def check_temperature(temperature: float | Tensor) -> None:
    """Refuse what the softmax cannot divide by."""
    if isinstance(temperature, Tensor) and temperature.numel() != 1:
        raise UserError(f"temperature is a tensor of shape {tuple(temperature.shape)}: give a single value")
    if isinstance(temperature, Tensor) and temperature.device.type != "cpu":
        return  # reading it would make the host wait for the device at every step
    value = float(temperature.detach() if isinstance(temperature, Tensor) else temperature)
    if not 0 < value < float("inf"):
        raise UserError(f"temperature is {value:g}; the softmax divides by it: give a value above 0 (0.05 is usual)")


def _check_ids(
    left_ids: Tensor | None, right_ids: Tensor | None, like: Tensor, needed_by: Sequence[str]
) -> tuple[Tensor, Tensor] | None:
    if not needed_by:
        return None
    if left_ids is None or right_ids is None:
        raise UserError(f"{needed_by[0]} needs left_ids and right_ids: one integer per pair, equal for equal texts")
    for name, ids in (("left_ids", left_ids), ("right_ids", right_ids)):
        if ids.shape != like.shape[:1] or ids.is_floating_point():
            raise UserError(f"{len(like)} pairs but {name} is {ids.dtype} of shape {tuple(ids.shape)}: give one integer per pair")
    return left_ids.to(like.device), right_ids.to(like.device)
