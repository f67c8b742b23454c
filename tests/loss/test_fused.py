"""The fused loss on a CPU: same loss and gradients as the plain path, and when it is taken."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pairtune.errors import UserError
from pairtune.loss import NORMALIZATIONS, batch_softmax_loss
from pairtune.loss.large.fused import _sums_are_safe, fuse
from pairtune.loss.large.layout import MOST_TAGS, layout_of_pairs, layout_of_texts, make_layout

PAIRS, TEXTS, WIDTH = 37, 30, 10


def is_fused(loss):
    return loss.grad_fn.name() == "FusedLossBackward"


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# --- the same loss and gradients -------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
@pytest.mark.parametrize("duplicates", ["keep", "mask"])
@pytest.mark.parametrize("shared_vectors", [False, True])
def test_loss_and_every_gradient_are_those_of_the_plain_path_in_float64(normalize, duplicates, shared_vectors):
    ids = torch.randint(0, TEXTS, (2, PAIRS), generator=torch.Generator().manual_seed(1))
    some = (draw(PAIRS, seed=2) > 0.2).float()
    sharp = 0.06 if normalize.startswith("l2") else 0.6  # of longer vectors 2^S would overflow, and the plain path be taken
    cases = itertools.product((sharp, 1.2), (None, some, torch.zeros(PAIRS)), ("both", "left", "right"), ("sum", "mean"))
    for seed, (tau, labels, directions, reduction) in enumerate(cases):
        count = TEXTS if shared_vectors else PAIRS
        leaves = [*draw(2, count, WIDTH, seed=seed), torch.tensor(tau)]
        leaves = [leaf.clone().requires_grad_() for leaf in leaves]
        found = []
        for fused, dtype in ((True, torch.float32), (False, torch.float64)):
            left, right = (x[i] if shared_vectors else x for x, i in zip(leaves, ids, strict=False))
            chosen = {"normalize": normalize, "duplicates": duplicates, "directions": directions, "reduction": reduction}
            known = {"left_ids": ids[0], "right_ids": ids[1], "shared_vectors": shared_vectors}
            loss = batch_softmax_loss(
                left.to(dtype), right.to(dtype), labels, temperature=leaves[2], fused=fused, **chosen, **known
            )
            assert is_fused(loss) is fused
            found.append([loss.to(torch.float32), *torch.autograd.grad(loss, leaves)])
        torch.testing.assert_close(*found, rtol=1e-4, atol=2e-5)


def loop_loss(left, right, pairs, tau, mask):
    """Eq. 1 and 3 over lists of floats; pairs: (left text, right text, positive)."""
    scores = [[sum(x * y for x, y in zip(a, b, strict=True)) / tau for b in right] for a in left]
    known = {(a, b) for a, b, positive in pairs if positive}
    total = 0.0
    for i, (_, _, positive) in enumerate(pairs):
        for row in (True, False):
            kept = [
                scores[i][j] if row else scores[j][i]
                for j in range(len(pairs))
                if i == j or not mask or (pairs[i if row else j][0], pairs[j if row else i][1]) not in known
            ]
            total += (math.log(sum(map(math.exp, kept))) - scores[i][i]) / len(pairs) if positive else 0
    return total


texts = st.tuples(st.sampled_from("abcde"), st.sampled_from("vwxyz"), st.booleans())


@settings(max_examples=80)
@given(st.lists(texts, min_size=1, max_size=14), st.booleans(), st.booleans())
def test_any_pairs_of_texts_cost_what_the_loop_says(pairs, mask, shared):
    vectors = {text: draw(4, seed=ord(text)) / 3 for text in "abcdevwxyz"}
    own = 0 if shared else 1  # copies of a text with vectors of their own
    sides = [torch.stack([vectors[p[s]] + own * draw(4, seed=i) / 3 for i, p in enumerate(pairs)]) for s in (0, 1)]
    ids = [torch.tensor([ord(pair[side]) for pair in pairs]) for side in (0, 1)]
    positive = torch.tensor([pair[2] for pair in pairs])
    layout = make_layout(positive, tuple(ids), "both", everything=False, mask=mask, merge=shared)
    found = fuse(*sides, 0.3, layout, "none", len(pairs))
    assert found.item() == pytest.approx(loop_loss(*(side.tolist() for side in sides), pairs, 0.3, mask), abs=1e-4)


def test_no_positive_costs_exactly_nothing_and_moves_nothing():
    left, right = draw(2, 600, 8).requires_grad_().unbind()
    loss = batch_softmax_loss(left, right, torch.zeros(600))
    assert is_fused(loss) and loss.item() == 0
    assert not any(gradient.any() for gradient in torch.autograd.grad(loss, (left, right)))


def test_rows_of_zeros_give_moderate_gradients():
    left, right = draw(2, 20, 8)
    left[3] = right[5] = 0
    left, right = left.requires_grad_(), right.requires_grad_()
    loss = batch_softmax_loss(left, right, fused=True)
    assert is_fused(loss)
    assert math.isfinite(loss.item())
    assert all(gradient.abs().max() < 1e3 for gradient in torch.autograd.grad(loss, (left, right)))


def test_a_graph_that_is_retained_gives_its_gradients_again_and_evaluation_needs_none():
    left, right = (side.requires_grad_() for side in draw(2, 30, 8))
    loss = batch_softmax_loss(left, right, fused=True)
    first, second = (torch.autograd.grad(loss, (left, right), retain_graph=True) for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    with torch.no_grad():
        assert batch_softmax_loss(left, right, fused=True).item() == loss.item()


def test_a_gradient_of_the_gradient_is_refused():
    left, right = (side.requires_grad_() for side in draw(2, 30, 8))
    with pytest.raises(UserError, match="no second derivative: call batch_softmax_loss with fused=False"):
        torch.autograd.grad(batch_softmax_loss(left, right, fused=True), left, create_graph=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_embeddings_are_scored_in_float32_even_under_autocast(dtype):
    left, right = (side.to(dtype).requires_grad_() for side in draw(2, 30, 8))
    expected = batch_softmax_loss(left.float(), right.float(), fused=False)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = batch_softmax_loss(left, right, fused=True)
    assert is_fused(found) and found.dtype == torch.float32
    torch.testing.assert_close(found, expected)
    for ours, theirs in zip(*(torch.autograd.grad(loss, (left, right)) for loss in (found, expected)), strict=True):
        assert ours.dtype == dtype
        torch.testing.assert_close(ours, theirs)


def test_a_temperature_of_one_element_keeps_its_shape():
    left, right = draw(2, 30, 8)
    one, flat = (torch.full(shape, 0.1, requires_grad=True) for shape in ((1,), ()))
    losses = [batch_softmax_loss(left, right, temperature=tau, fused=True).sum() for tau in (one, flat)]
    gradients = [torch.autograd.grad(loss, tau)[0] for loss, tau in zip(losses, (one, flat), strict=True)]
    assert gradients[0].shape == (1,)
    torch.testing.assert_close(gradients[0][0], gradients[1])


# --- what is summed over ---------------------------------------------------------------------------------------------


def area(layout, step=1):
    return sum((rows.stop - rows.start) * (columns.stop - columns.start) for rows, columns in layout.regions(step))


def test_negatives_are_never_computed_against_negatives():
    positive = torch.arange(50) % 5 < 2  # 20 of 50
    assert area(layout_of_pairs(positive, "both")) == 50 * 50 - 30 * 30
    assert area(layout_of_pairs(positive, "both"), step=32) == 50 * 50 - 18 * 18  # in blocks that products like
    assert area(layout_of_pairs(positive, "left")) == area(layout_of_pairs(positive, "right")) == 20 * 50


def test_a_text_that_is_encoded_once_is_computed_once():
    questions, answers = torch.arange(64) // 8, torch.arange(64)
    everything = torch.ones(64, dtype=torch.bool)
    assert area(layout_of_texts(everything, questions, answers, "both", mask=False, merge=True)) == 8 * 64
    assert area(layout_of_texts(everything, questions, answers, "both", mask=True, merge=False)) == 64 * 64


def test_entangled_positives_are_left_to_the_plain_path():
    many = MOST_TAGS + 2
    ids = torch.arange(many).repeat_interleave(many), torch.arange(many).repeat(many)  # each with each
    everything = torch.ones(many**2, dtype=torch.bool)
    assert layout_of_texts(everything, *ids, "both", mask=True, merge=False) is None
    assert make_layout(everything, ids, "both", everything=True, mask=False, merge=True).tags is None  # kept: one row per pair
    left, right = (side.requires_grad_() for side in draw(2, many**2, 8))
    known = dict(zip(("left_ids", "right_ids"), ids, strict=True))
    assert not is_fused(batch_softmax_loss(left, right, duplicates="mask", fused=True, **known))


# --- which path ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs", "width", "dtype", "chosen", "fused"),
    [
        (511, 8, torch.float32, {}, False),
        (512, 8, torch.float32, {}, True),
        (512, 8, torch.bfloat16, {}, True),
        (512, 8, torch.float64, {}, False),
        (512, 1025, torch.float32, {}, False),
        (512, 8, torch.float32, {"fused": False}, False),
        (512, 8, torch.float32, {"temperature": 0.005}, False),  # 2^S would overflow
        (512, 8, torch.float32, {"temperature": 1.0, "normalize": "none"}, True),
        (512, 8, torch.float32, {"temperature": 0.01, "normalize": "none"}, False),
        (512, 8, torch.float32, {"temperature": 0.01, "normalize": "l2-batch"}, True),
    ],
)
def test_large_batches_are_fused_where_that_is_safe(pairs, width, dtype, chosen, fused):
    left, right = (side.to(dtype).requires_grad_() for side in draw(2, pairs, width))
    assert is_fused(batch_softmax_loss(left, right, **chosen)) is fused


def test_the_temperature_down_to_which_no_maximum_is_needed():
    layout = layout_of_pairs(torch.ones(2**20, dtype=torch.bool), "both")
    assert _sums_are_safe(layout, 1 / 0.0138) and not _sums_are_safe(layout, 1 / 0.0135)


def test_copies_of_a_text_count_in_what_must_not_overflow():
    """One left text with 1,024 right texts, half of them wrong: its sum is taken once for each of its copies."""
    pairs = 1024
    left, right = torch.ones(pairs, 4), torch.ones(pairs, 4) + 1e-4 * draw(pairs, 4)
    ids = torch.zeros(pairs, dtype=torch.long), torch.arange(pairs)
    labels = (torch.arange(pairs) % 2).float()
    known = {"left_ids": ids[0], "right_ids": ids[1], "shared_vectors": True, "temperature": 1 / (114 * math.log(2))}
    found = batch_softmax_loss(left, right, labels, **known)
    expected = batch_softmax_loss(left.double(), right.double(), labels, fused=False, **known)
    assert found.item() == pytest.approx(expected.item(), rel=1e-3)


def test_the_lengths_of_both_sides_count_in_what_must_not_overflow():
    left, right = (side / side.norm(dim=1, keepdim=True) for side in draw(2, 512, 8))
    for one, other in ((200.0, 1.0), (1.0, 200.0)):
        scaled = (one * left).requires_grad_(), (other * right).requires_grad_()
        assert not is_fused(batch_softmax_loss(*scaled, normalize="none", temperature=1.0))
    scaled = (200.0 * left).requires_grad_(), (0.005 * right).requires_grad_()
    assert is_fused(batch_softmax_loss(*scaled, normalize="none", temperature=1.0))


def test_the_switch_reaches_the_function(tiny_model):
    from pairtune.runs.recipe import LossSettings
    from pairtune.sbert.losses import Batch, build_loss

    left, right = (side.requires_grad_() for side in draw(2, 512, 8))
    for fused in (None, False):
        loss = build_loss(tiny_model, LossSettings(kind="bsc"), fused=fused)
        assert is_fused(loss.loss_of(left, right, Batch(None, None))) is (fused is None)
        assert build_loss(tiny_model, LossSettings(kind="combo"), fused=fused).fused is fused


def test_shared_vectors_without_ids_are_refused():
    left, right = draw(2, 6, 5)
    with pytest.raises(UserError, match="shared_vectors needs left_ids and right_ids: one integer per pair"):
        batch_softmax_loss(left, right, shared_vectors=True)
