"""CoSENT without its matrix, against the host's own and against the sum written out."""

from __future__ import annotations

import math

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import CoSENTLoss

from pairtune.loss.pointwise import cosent_loss, cosines


def batch(pairs, seed=0, dtype=torch.float64):
    left, right = torch.randn(2, pairs, 8, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return left.requires_grad_(), right.requires_grad_()


def written_out(left, right, labels):
    s, y = cosines(left, right).tolist(), labels.tolist()
    return math.log(1 + sum(math.exp((s[k] - s[i]) / 0.05) for i in range(len(y)) for k in range(len(y)) if y[k] < y[i]))


@pytest.mark.parametrize("labels", [[0, 1, 0, 1, 1, 0], [0.2, 0.2, 0.9, 0.5, 0.0, 1.0], [3, 1, 2, 2, 3, 1]])
def test_cosent_is_the_sum_over_all_pairs_of_pairs_with_different_labels(labels):
    left, right = batch(6)
    labels = torch.tensor(labels)
    assert cosent_loss(left, right, labels).item() == pytest.approx(written_out(left, right, labels))


def test_cosent_and_its_gradient_are_those_of_sentence_transformers(tiny_model):
    left, right = batch(40, dtype=torch.float32)
    labels = torch.randint(0, 5, (40,), generator=torch.Generator().manual_seed(1)).float()
    ours = torch.autograd.grad(loss := cosent_loss(left, right, labels), [left, right])
    host = CoSENTLoss(tiny_model).compute_loss_from_embeddings([left, right], labels)
    theirs = torch.autograd.grad(host, [left, right])
    torch.testing.assert_close(loss, host)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("labels", [[1, 1, 1], [0, 0, 0]])
def test_labels_that_do_not_differ_cost_nothing_and_push_nowhere(labels):
    left, right = batch(3)
    loss = cosent_loss(left, right, torch.tensor(labels))
    loss.backward()
    assert loss.item() == 0
    assert not left.grad.any()
    assert not right.grad.any()


def test_opposite_vectors_overflow_nothing():
    left = torch.tensor([[1.0, 0.0], [1.0, 0.0]], requires_grad=True)
    right = torch.tensor([[-1.0, 0.0], [1.0, 0.0]])
    loss = cosent_loss(left, right, torch.tensor([1.0, 0.0]))  # as wrong as can be: 2 / 0.05
    loss.backward()
    assert loss.item() == pytest.approx(40)
    assert torch.isfinite(left.grad).all()
