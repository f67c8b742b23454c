"""Parts of the losses: scaled embeddings, similarities, which pairs are positive, which texts are equal, softmax term."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from pairtune.errors import UserError

SMALL_RANGE = 1e-5  # a coordinate whose range is this small beside its largest value differs by rounding only
DEAD = 1e-2  # one this small beside the others, on average, carries nothing: all-MiniLM-L6-v2 has three, of 1e-33 to 1e-8


def scale_rows(vectors: Tensor) -> Tensor:
    """Each row divided by its L2 norm: dot products become cosines. (m, n) to (m, n); a row of zeros stays zeros."""
    return _divide(vectors, torch.linalg.vector_norm(vectors, dim=1, keepdim=True))


def scale_coordinates(vectors: Tensor) -> Tensor:
    """Each coordinate divided by its L2 norm over the batch. A dead one stays. (m, n) to (m, n)."""
    return _divide_alive(vectors, torch.linalg.vector_norm(vectors, dim=0, keepdim=True))


def stretch_coordinates(vectors: Tensor) -> Tensor:
    """Each coordinate stretched to 0…1 over the batch, (x − min) / (max − min). A constant one becomes 0. (m, n) to (m, n)."""
    return _divide_alive(vectors - vectors.amin(dim=0, keepdim=True), _range(vectors))


def divide_by_range(vectors: Tensor) -> Tensor:
    """Each coordinate divided by its range over the batch, x / (max − min). A constant one stays. (m, n) to (m, n).

    The paper says min-max; its released code does not subtract the minimum, and PFCC-S and QQP were trained so.
    """
    return _divide_alive(vectors, _range(vectors))


def keep(vectors: Tensor) -> Tensor:
    """The vectors as they are."""
    return vectors


NORMALIZATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "l2": scale_rows,
    "l2-batch": scale_coordinates,
    "minmax-batch": stretch_coordinates,
    "range-batch": divide_by_range,
    "none": keep,
}


def _range(vectors: Tensor) -> Tensor:
    """max − min of each coordinate, and 0 where that is only rounding. (m, n) to (1, n)."""
    high, low = vectors.amax(dim=0, keepdim=True), vectors.amin(dim=0, keepdim=True)
    noise = SMALL_RANGE * vectors.detach().abs().amax(dim=0, keepdim=True)
    return torch.where(high - low > noise, high - low, 0)


def _divide_alive(vectors: Tensor, divisor: Tensor) -> Tensor:
    # what is divided by almost nothing has a gradient of 1/almost nothing: after clipping, no other is left
    alive = divisor.detach() > DEAD * divisor.detach().mean()
    return _divide(vectors, torch.where(alive, divisor, 0))


def _divide(vectors: Tensor, divisor: Tensor) -> Tensor:
    # a divisor of 0 counts as 1: an epsilon there would give finite values but gradients of 1/epsilon
    return vectors / torch.where(divisor > torch.finfo(vectors.dtype).tiny, divisor, 1)


def similarity(left: Tensor, right: Tensor, temperature: float | Tensor) -> Tensor:
    """S = QAᵀ/τ: entry [i, j] is left i against right j. (m, n) and (m, n) to (m, m)."""
    return left @ right.T / temperature


def softmax_term(similarity: Tensor, positive: Tensor) -> Tensor:
    """How hard it is for each left text to find its own right text (eq. 3, L0). L1 is the same of the transpose.

    similarity: (m, m), already divided by τ; positive: (m,) bool. A scalar: the sum over positives, divided by m.

    >>> softmax_term(torch.zeros(4, 4), torch.ones(4, dtype=bool))   # nothing known: log 4
    tensor(1.3863)
    """
    cost = torch.logsumexp(similarity, dim=1) - similarity.diagonal()  # (m,)
    return torch.where(positive, cost, 0).sum() / len(similarity)


def hide_known_positives(similarity: Tensor, positive: Tensor, left_ids: Tensor, right_ids: Tensor) -> Tensor:
    """Take out of the denominators what is known not to be a negative.

    Entry [i, j], i ≠ j, becomes −∞ when left text i and right text j are, somewhere in the batch, the two texts
    of a positive pair. So neither the other positives of a text nor further copies of its own partner push it away,
    in both directions. A pair's own entry always stays. similarity: (m, m); positive: (m,) bool; ids: (m,) integers.
    """
    return similarity.masked_fill(mark_pairs(positive, left_ids, right_ids).fill_diagonal_(False), -torch.inf)


def mark_pairs(chosen: Tensor, left_ids: Tensor, right_ids: Tensor) -> Tensor:
    """(m, m) bool: whether left text i and right text j are the two texts of a chosen pair. chosen: (m,) bool; ids: (m,)."""
    pairs = len(chosen)
    left, right = (torch.searchsorted(ids.sort().values, ids) for ids in (left_ids, right_ids))  # equal ids, equal places
    # no size here depends on the data, so that a GPU need not be waited for; what is not chosen goes into one more cell
    cell = torch.where(chosen, left * pairs + right, pairs * pairs)
    known = chosen.new_zeros(pairs * pairs + 1).index_fill_(0, cell, True)[:-1].view(pairs, pairs)
    return known[left][:, right]


def suspect_positives(guide: Tensor, margin: float, labelled_negative: Tensor | None = None) -> Tensor:
    """(m, m) bool: in-batch negatives that a guide finds nearer to the anchor of their row than its own positive is.

    They may be right answers that nobody labelled (false negatives). A pair's own entry is never one, nor is a pair that the
    data labels as negative. guide: (m, m) cosines of another encoder. margin: by how much nearer they have to be.
    """
    nearer = (guide > guide.diagonal()[:, None] + margin).fill_diagonal_(False)
    return nearer if labelled_negative is None else nearer & ~labelled_negative


def positives(labels: Tensor | None, positive_above: float, like: Tensor) -> Tensor:
    """Which of the m pairs of `like` are positive: y > t, strictly, or all of them without labels. (m,) bool."""
    if labels is None:
        return torch.ones(len(like), dtype=torch.bool, device=like.device)
    return flat_labels(labels, like) > positive_above


def flat_labels(labels: Tensor, like: Tensor) -> Tensor:
    """One label for each of the m pairs of `like`, on its device. (m,) or (m, 1) to (m,)."""
    if labels.numel() != len(like):
        raise UserError(f"{len(like)} pairs but labels of shape {tuple(labels.shape)}: give one label per pair")
    if labels.device.type == "cpu":  # elsewhere the check would make the host wait for the device at every step
        check_labels(labels)
    return labels.reshape(-1).to(like.device)


def check_labels(labels: Tensor) -> None:
    """Refuse NaN, which no comparison would notice."""
    bad = labels.reshape(-1).isnan()
    if bad.any():
        raise UserError(f"the label of pair {int(bad.nonzero()[0])} of the batch is NaN: give every pair a number")


def check_sides(left: Tensor, right: Tensor) -> None:
    """Refuse what is not m pairs of vectors of width n."""
    if left.ndim != 2 or left.shape != right.shape or not len(left):
        shapes = f"left of shape {tuple(left.shape)} and right of shape {tuple(right.shape)}"
        raise UserError(f"{shapes}: a batch of pairs is two matrices of the same shape (pairs, width), with at least one pair")


def exact(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """The two sides in one dtype of at least float32; refused where they are not m pairs of vectors of width n."""
    check_sides(left, right)
    dtype = torch.promote_types(torch.promote_types(left.dtype, right.dtype), torch.float32)
    return left.to(dtype), right.to(dtype)


def without_autocast(like: Tensor) -> AbstractContextManager[None]:
    """Inside, products stay in the dtype of their inputs: bf16 similarities divided by a small τ are noise."""
    return torch.autocast(device_type=like.device.type, enabled=False)


def text_ids(features: Mapping[str, Any]) -> Tensor:
    """A 64-bit number for each tokenized text, equal for equal token ids, in whatever batch, padding or process. (m,)."""
    if not isinstance(features.get("input_ids"), Tensor):
        found = ", ".join(features)
        raise UserError(
            f'equal texts are known by their token ids, but the features are {found}: no duplicates="mask", guide or listwise'
        )
    token, row, place, rows = _tokens(features)
    return token.new_zeros(rows, dtype=torch.int64).index_add_(0, row, _mix(token ^ _mix(place + 1)))


def _tokens(features: Mapping[str, Any]) -> tuple[Tensor, Tensor, Tensor, int]:
    """All tokens that are not padding, the text each is in, its place in that text, and how many texts there are."""
    ids = features["input_ids"].long()
    starts = features["cu_seq_lens_q"][:-1] if "cu_seq_lens_q" in features else features.get("offsets")
    if starts is None:
        mask = features.get("attention_mask", torch.ones_like(ids)).bool()
        return ids[mask], mask.nonzero()[:, 0], (mask.cumsum(dim=1) - 1)[mask], len(ids)
    token = ids.reshape(-1)  # texts without padding, one after the other
    index = torch.arange(len(token), device=token.device)
    row = torch.searchsorted(starts.long(), index, right=True) - 1
    return token, row, index - starts[row], len(starts)


def _mix(value: Tensor) -> Tensor:
    """Scatter integers over all 64 bits (the finaliser of SplitMix64, with its multipliers as signed integers)."""
    value = (value ^ (value >> 30)) * -0x40A7B892E31B1A47
    value = (value ^ (value >> 27)) * -0x6B2FB644ECCEEE15
    return value ^ (value >> 31)
