"""Losses of the cosines of the pairs: squared error (eq. 6's second part), Pearson's correlation, CoSENT, lists of answers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import softplus

from pairtune.loss.terms import exact, flat_labels, scale_rows, without_autocast

COSENT_TEMPERATURE = 0.05  # the host's default, a scale of 20; of lists, too
LISTS_WEIGHT = 0.2  # beside Pearson
NO_SCORE = -1e4  # where there is nothing to sum: finite, so that the gradient is 0 and not NaN
SMALL_DEVIATION = 1e-6  # values whose deviation is this small beside the largest of them differ by rounding only


def cosines(left: Tensor, right: Tensor) -> Tensor:
    """The cosine of each pair, 0 where a vector is zero. (m, n) and (m, n) to (m,)."""
    left, right = exact(left, right)
    return (scale_rows(left) * scale_rows(right)).sum(dim=1)


def mse_of_cosines(left: Tensor, right: Tensor, labels: Tensor) -> Tensor:
    """mean over all pairs of (cos(qᵢ, aᵢ) − yᵢ)². left, right: (m, n); labels: (m,). A scalar."""
    with without_autocast(left):
        cosine = cosines(left, right)
        return (cosine - flat_labels(labels, cosine).to(cosine.dtype)).square().mean()


def pearson_loss(left: Tensor, right: Tensor, labels: Tensor) -> Tensor:
    """1 − r between the cosines and the labels of the batch. left, right: (m, n); labels: (m,). A scalar in 0…2.

    Where either side is constant r is undefined: it counts as 0, with a gradient of zeros.
    """
    with without_autocast(left):
        cosine = cosines(left, right)
        label = flat_labels(labels, cosine).to(cosine.dtype)
        (x, x_varies), (y, y_varies) = _centre(cosine), _centre(label)
        defined = x_varies & y_varies
        spread = torch.where(defined, x.square().sum() * y.square().sum(), 1).sqrt()
        return 1 - torch.where(defined, (x * y).sum() / spread, 0)


def cosent_loss(left: Tensor, right: Tensor, labels: Tensor) -> Tensor:
    """log(1 + Σ exp((sₖ − sᵢ)/τ)) over all i, k with yₖ < yᵢ: a lower label should have the lower cosine s. A scalar.

    The sum over k is a running sum over the pairs in order of their labels, so no (m, m) matrix is needed.
    left, right: (m, n); labels: (m,). Labels that are all equal cost 0, with a gradient of zeros.
    """
    with without_autocast(left):
        scaled = cosines(left, right) / COSENT_TEMPERATURE  # (m,)
        label, order = flat_labels(labels, scaled).to(scaled.dtype).sort()
        scaled = scaled[order]
        lower = torch.searchsorted(label, label)  # (m,): how many labels are strictly lower
        running = torch.logcumsumexp(scaled, dim=0)
        below = torch.where(lower > 0, running[(lower - 1).clamp(min=0)], -torch.inf)  # log Σ exp(sₖ/τ)
        return torch.cat([below - scaled, scaled.new_zeros(1)]).logsumexp(dim=0)


def pearson_and_cosent(left: Tensor, right: Tensor, labels: Tensor) -> Tensor:
    """Pearson plus τ·CoSENT: the line through all pairs and the worst violations of their order, both on the scale of cosines."""
    return pearson_loss(left, right, labels) + COSENT_TEMPERATURE * cosent_loss(left, right, labels)


def listwise_loss(left: Tensor, right: Tensor, labels: Tensor, left_ids: Tensor) -> Tensor:
    """Each right text against those of the same left text that have a lower label, by a softmax. A scalar.

    The mean of log(1 + Σ exp((sₖ − sᵢ)/τ)) over all i for which there is such a k: equal left texts, and yₖ < yᵢ.
    left, right: (m, n); labels: (m,); left_ids: (m,), equal for equal left texts. Takes m² numbers of memory.
    """
    with without_autocast(left):
        scaled = cosines(left, right) / COSENT_TEMPERATURE  # (m,)
        label = flat_labels(labels, scaled)
        worse = (left_ids[:, None] == left_ids) & (label < label[:, None])  # (m, m): k is worse than i
        below = torch.where(worse, scaled, NO_SCORE).logsumexp(dim=1)
        counts = worse.any(dim=1)
        return torch.where(counts, softplus(below - scaled), 0).sum() / counts.sum().clamp(min=1)


def pearson_and_lists(left: Tensor, right: Tensor, labels: Tensor, left_ids: Tensor) -> Tensor:
    """Pearson plus LISTS_WEIGHT times the loss of lists: a line through all pairs, and the order of each left text's own."""
    return pearson_loss(left, right, labels) + LISTS_WEIGHT * listwise_loss(left, right, labels, left_ids)


POINTWISE: dict[str, Callable[..., Tensor]] = {
    "mse": mse_of_cosines,
    "pearson": pearson_loss,
    "cosent": cosent_loss,
    "pearson+cosent": pearson_and_cosent,
    "pearson+listwise": pearson_and_lists,
}
OF_LISTS = frozenset(["pearson+listwise"])  # those that must know which left texts are equal


def _centre(values: Tensor) -> tuple[Tensor, Tensor]:
    """The values less their mean, and whether they vary at all. (m,) to (m,) and a scalar bool."""
    centred = values - values.mean()
    return centred, centred.detach().abs().amax() > SMALL_DEVIATION * values.detach().abs().amax()
