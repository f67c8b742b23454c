"""The batch-softmax contrastive loss (BSC), equations 1–5 of the paper."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from pairtune.errors import UserError
from pairtune.loss.large.fused import fuse, fuse_dense, suits
from pairtune.loss.large.layout import make_layout
from pairtune.loss.terms import (
    NORMALIZATIONS,
    check_sides,
    exact,
    hide_known_positives,
    mark_pairs,
    positives,
    similarity,
    softmax_term,
    suspect_positives,
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
    guide: Tensor | None = None,
    guide_margin: float = 0.0,
    negatives: Sequence[Tensor] = (),
    negative_ids: Sequence[Tensor] = (),
    fused: bool | None = None,
) -> Tensor:
    """L = L0 + L1: each left text finds its right text among those of the batch, and each right text its left one.

    L0 = 1/m Σᵢ [yᵢ > t] (log Σⱼ exp Sᵢⱼ − Sᵢᵢ) with S = QAᵀ/τ, and L1 is the same of Sᵀ (eq. 1–3).
    Pairs with yᵢ ≤ t have no term of their own but stay in every sum over j.

    left, right: (m, n), Q and A before normalization. labels: (m,), or None when all pairs are positive.
    temperature: τ, a number or a tensor with one value. reduction: "sum" is the paper's, "mean" averages the directions.
    directions: "left" is L0 alone, "right" is L1 alone. duplicates: "keep" is eq. 1 as it stands (eq. 4–5), "mask"
    drops from the sums over j what `hide_known_positives` says; it needs the ids, where equal means the same text.
    shared_vectors promises that rows with equal ids are copies of one vector, as of a text that was encoded once. A large batch
    then computes with each text once, and one of the copies gets the gradient of all.
    guide: (m, m) cosines of the texts by another encoder, or None. What `suspect_positives` finds in them, in each direction,
    is not used as a negative. With ids, pairs that are labelled negative stay in.
    negatives: (m, n) each, further texts that go with none of the left texts. Like the right texts of other pairs, they stay in
    every sum of L0. L1 does not see them. negative_ids: their ids, which "mask" needs.
    fused: False takes the plain path below, True that of `fuse` where it can, None that of `fuse` for large batches. On a GPU
    `fuse_dense` goes before `fuse` for bf16 embeddings. The result is the same.
    """
    check_choices(normalize=normalize, reduction=reduction, directions=directions, duplicates=duplicates)
    check_temperature(temperature)
    check_sides(left, right)
    positive = positives(labels, positive_above, left)
    mask = duplicates == "mask"
    ids = _check_ids(left_ids, right_ids, left, mask=mask, shared_vectors=shared_vectors, guided=guide is not None)
    if fused is not False and guide is None and not negatives:
        divisor = len(left) * (2 if reduction == "mean" and directions == "both" else 1)
        how: dict[str, Any] = {"directions": directions, "normalize": normalize, "divisor": divisor}
        found = None if ids else fuse_dense(left, right, temperature, None if labels is None else positive, **how)
        if found is None and suits(left, right, any_size=fused is True):
            layout = make_layout(positive, ids, directions, everything=labels is None, mask=mask, merge=shared_vectors)
            found = fuse(left, right, temperature, layout, normalize, divisor) if layout else None
        if found is not None:
            return found
    with without_autocast(left):
        scores, further = _compare(left, right, negatives, temperature, normalize)  # (m, m), (m, k·m) with k columns of negatives
        if mask and ids:
            scores = hide_known_positives(scores, positive, *ids)
            further = _hide_positives_among(further, positive, ids, negative_ids)
        forth, back = _both_ways(scores, guide, guide_margin, mark_pairs(~positive, *ids) if ids and guide is not None else None)
        return _join_directions([torch.cat([forth, further], dim=1), back], positive, directions, reduction)


def _compare(
    left: Tensor, right: Tensor, negatives: Sequence[Tensor], temperature: float | Tensor, normalize: str
) -> Sequence[Tensor]:
    """S, the similarities of left texts with right texts and with further negatives. (m, m) and (m, k·m)."""
    others = [exact(left, column)[1] for column in negatives]
    left, right = exact(left, right)
    scale = NORMALIZATIONS[normalize]
    candidates = scale(torch.cat([right, *others]) if others else right)  # (m + k·m, n)
    return similarity(scale(left), candidates, temperature).tensor_split([len(left)], dim=1)


def _hide_positives_among(
    further: Tensor, positive: Tensor, ids: tuple[Tensor, Tensor], negative_ids: Sequence[Tensor]
) -> Tensor:
    """Take out negatives that are, somewhere in the batch, the right text of a positive pair with the left text. (m, k·m)."""
    if not further.shape[1]:
        return further
    if sum(map(len, negative_ids)) != further.shape[1]:
        raise UserError('duplicates="mask" needs negative_ids: one integer for each text of each column of negatives')
    left, right = ids
    answers = (left[:, None] == left) & positive  # (m, m): pair p gives a right answer to left text i
    same = right[:, None] == torch.cat([column.to(right.device) for column in negative_ids])  # (m, k·m)
    return further.masked_fill(answers.to(further.dtype) @ same.to(further.dtype) > 0, -torch.inf)


def _both_ways(scores: Tensor, guide: Tensor | None, margin: float, labelled_negative: Tensor | None) -> tuple[Tensor, Tensor]:
    """The scores by row and by column; with a guide, without the likely false negatives of each direction. (m, m) each."""
    if guide is None:
        return scores, scores.T
    check_guide(guide, scores)
    across = None if labelled_negative is None else labelled_negative.T
    return (
        scores.masked_fill(suspect_positives(guide, margin, labelled_negative), -torch.inf),
        scores.T.masked_fill(suspect_positives(guide.T, margin, across), -torch.inf),
    )


def _join_directions(views: Sequence[Tensor], positive: Tensor, directions: str, reduction: str) -> Tensor:
    """L0 of the first view, L1 of the second, or both of them together. A scalar."""
    seen = {"both": views, "left": views[:1], "right": views[1:]}[directions]
    terms = torch.stack([softmax_term(one, positive) for one in seen])  # (1,) or (2,)
    return terms.mean() if reduction == "mean" else terms.sum()


def check_guide(guide: Tensor, scores: Tensor) -> None:
    """Refuse what is not a cosine for each left text with each right text."""
    if guide.shape != scores.shape:
        raise UserError(
            f"guide of shape {tuple(guide.shape)} for {len(scores)} pairs: give the cosine of each left with each right"
        )


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
    left_ids: Tensor | None, right_ids: Tensor | None, like: Tensor, *, mask: bool, shared_vectors: bool, guided: bool
) -> tuple[Tensor, Tensor] | None:
    """The ids where they are used: a guide uses them if they are there, the others need them."""
    if left_ids is None or right_ids is None:
        if mask or shared_vectors:
            needing = 'duplicates="mask"' if mask else "shared_vectors"
            raise UserError(f"{needing} needs left_ids and right_ids: one integer per pair, equal for equal texts")
        return None
    if not (mask or shared_vectors or guided):
        return None
    for name, ids in (("left_ids", left_ids), ("right_ids", right_ids)):
        if ids.shape != like.shape[:1] or ids.is_floating_point():
            raise UserError(f"{len(like)} pairs but {name} is {ids.dtype} of shape {tuple(ids.shape)}: give one integer per pair")
    return left_ids.to(like.device), right_ids.to(like.device)
