"""A guide: the original encoder says which in-batch negatives may be right answers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from pairtune.errors import UserError
from pairtune.fast.packing import Tokens
from pairtune.loss import batch_softmax_loss
from pairtune.loss.terms import text_ids
from pairtune.runs.recipe import LossSettings
from pairtune.sbert.losses import BatchSoftmaxLoss, build_loss
from pairtune.sbert.memory import Guide

LEFT = ["how do I boil an egg", "boiling eggs, how", "who wrote Faust"]
RIGHT = ["six minutes in hot water", "put the egg into boiling water", "Goethe"]


def loop(similarity, guide, margin, positive, known_negative=()):
    """L0 + L1 of eq. 3, where what the guide finds nearer than the positive is left out of each sum."""
    m, total = len(similarity), 0.0
    for turn in (lambda i, j: (i, j), lambda i, j: (j, i)):
        for i in range(m):
            if not positive[i]:
                continue
            kept = [j for j in range(m) if i == j or turn(i, j) in known_negative or not guide[turn(i, j)] > guide[i, i] + margin]
            total += math.log(sum(math.exp(similarity[turn(i, j)]) for j in kept)) - similarity[i, i]
    return total / m


@pytest.mark.parametrize("margin", [0.0, 0.2, -0.1])
def test_what_the_guide_finds_nearer_than_the_positive_is_left_out_in_each_direction(margin):
    generator = torch.Generator().manual_seed(3)
    left, right, other_left, other_right = torch.nn.functional.normalize(
        torch.randn(4, 7, 5, generator=generator, dtype=torch.float64), dim=2
    )
    labels = torch.tensor([1, 1, 0, 1, 0, 1, 1])
    guide = other_left @ other_right.T
    loss = batch_softmax_loss(left, right, labels, temperature=0.2, guide=guide, guide_margin=margin)
    assert loss.item() == pytest.approx(loop((left @ right.T / 0.2).numpy(), guide.numpy(), margin, labels.tolist()))
    plain = batch_softmax_loss(left, right, labels, temperature=0.2)
    assert loss < plain


def test_a_pair_that_is_labelled_negative_stays_a_negative_whatever_the_guide_says():
    left, right = torch.nn.functional.normalize(torch.randn(2, 3, 5, dtype=torch.float64), dim=2)
    left[1] = left[0]  # one question with a right and a wrong answer
    guide = torch.zeros(3, 3, dtype=torch.float64)
    guide[0, 1] = guide[1, 1] = guide[0, 2] = 0.9  # the guide likes the wrong answer, and another question's
    ids = torch.tensor([5, 5, 6]), torch.tensor([7, 8, 9])
    found = batch_softmax_loss(
        left, right, torch.tensor([1, 0, 1]), temperature=1.0, guide=guide, left_ids=ids[0], right_ids=ids[1], directions="left"
    )
    similarity = left @ right.T
    own = torch.logsumexp(similarity[0, :2], 0) - similarity[0, 0] + torch.logsumexp(similarity[2], 0) - similarity[2, 2]
    assert found.item() == pytest.approx(own.item() / 3)


def test_the_numbers_of_texts_are_the_same_packed_and_padded(tiny_model):
    texts = [*LEFT, *RIGHT, LEFT[0].upper()]
    tokens = Tokens()
    tokens.add(tiny_model, texts)
    packed = [tokens.number(place) for place in tokens.places(tiny_model, texts)]
    assert packed == text_ids(tiny_model.preprocess(texts)).tolist()
    assert packed[0] == packed[-1]  # an uncased vocabulary reads the two alike


def test_a_guide_has_the_cosines_of_the_model_as_it_was(tiny_model):
    before = tiny_model.encode(LEFT) @ tiny_model.encode(RIGHT).T
    guide = Guide.of(tiny_model, LEFT + RIGHT)
    with torch.no_grad():
        for parameter in tiny_model.parameters():
            parameter.mul_(1.1)
    found = guide.similarity(*(text_ids(tiny_model.preprocess(side)) for side in (LEFT, RIGHT)))
    np.testing.assert_allclose(found.numpy(), before, atol=1e-5)


def test_a_text_that_the_guide_was_not_asked_about_hides_nothing_and_is_not_hidden(tiny_model):
    guide = Guide.of(tiny_model, LEFT[:2] + RIGHT[:2])
    loss = BatchSoftmaxLoss(tiny_model, guide=guide, guide_margin=-1.0)  # hides all that it knows
    vectors = [torch.nn.functional.normalize(torch.randn(3, 4), dim=1) for _ in range(2)]
    ids = [text_ids(tiny_model.preprocess(side)) for side in (LEFT, RIGHT)]
    found = loss.compute_loss_from_embeddings(vectors, ids=ids)
    similarity = vectors[0] @ vectors[1].T / 0.1
    similarity[0, 1] = similarity[1, 0] = -torch.inf
    expected = sum(torch.logsumexp(view, 1).sum() - view.diagonal().sum() for view in (similarity, similarity.T)) / 3
    torch.testing.assert_close(found, expected)


def test_a_recipe_with_a_guide_builds_one_from_the_texts_it_trains_on(tiny_model):
    loss = build_loss(tiny_model, LossSettings(kind="bsc", guide=0.05), texts=lambda: LEFT + RIGHT)
    assert loss.guide_margin == 0.05
    assert len(loss.guide.numbers) == 6
    assert not list(loss.guide.parameters())
    with pytest.raises(UserError, match="texts="):
        build_loss(tiny_model, LossSettings(kind="bsc", guide=0.05))


def test_a_guide_of_another_shape_is_refused():
    with pytest.raises(UserError, match="guide of shape"):
        batch_softmax_loss(torch.randn(3, 4), torch.randn(3, 4), guide=torch.zeros(2, 2))
