"""The losses as functions of tensors, against plain loops over the paper's equations and closed forms."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pairtune.errors import UserError
from pairtune.loss import NORMALIZATIONS, batch_softmax_loss, mse_of_cosines, pearson_loss
from pairtune.loss.batch_softmax import CHOICES
from pairtune.loss.pointwise import COSENT_TEMPERATURE, LISTS_WEIGHT, OF_LISTS, POINTWISE, listwise_loss
from pairtune.loss.terms import softmax_term
from pairtune.runs.recipe import LossSettings


def batch(pairs=6, width=5, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    left, right = torch.randn(2, pairs, width, generator=generator, dtype=dtype)
    return left.requires_grad_(), right.requires_grad_()


# --- the paper, written out with lists of floats -------------------------------------------------------------------


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def loop_normalize(rows, how):
    columns = list(zip(*rows, strict=True))
    if how == "l2":
        return [[x / math.sqrt(dot(row, row)) for x in row] for row in rows]
    if how == "l2-batch":
        columns = [[x / math.sqrt(dot(c, c)) for x in c] for c in columns]
    if how == "minmax-batch":
        columns = [[(x - min(c)) / (max(c) - min(c)) for x in c] for c in columns]
    if how == "range-batch":
        columns = [[x / (max(c) - min(c)) for x in c] for c in columns]
    return [list(row) for row in zip(*columns, strict=True)]


def loop_equation_3(q, a, y, tau, hidden=()):
    """−1/(mτ) Σ [yᵢ] qᵢ·aᵢ + 1/m Σ [yᵢ] log Σⱼ exp(qᵢ·aⱼ/τ), as it is printed; `hidden` (i, j) are left out of Σⱼ."""
    m = len(q)
    first = -sum(y[i] * dot(q[i], a[i]) for i in range(m)) / (m * tau)
    second = 0.0
    for i in range(m):
        if y[i]:
            second += math.log(sum(math.exp(dot(q[i], a[j]) / tau) for j in range(m) if (i, j) not in hidden))
    return first + second / m


def loop_loss(left, right, y=None, tau=0.1, how="l2", hidden=()):
    q, a = loop_normalize(left.tolist(), how), loop_normalize(right.tolist(), how)
    y = [1] * len(q) if y is None else y
    return loop_equation_3(q, a, y, tau, hidden), loop_equation_3(a, q, y, tau, {(j, i) for i, j in hidden})


# --- the equations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
@pytest.mark.parametrize("temperature", [0.05, 1.2])
def test_equation_1_matches_the_loop_for_every_normalization(normalize, temperature):
    left, right = batch()
    expected = loop_loss(left, right, tau=temperature, how=normalize)
    found = batch_softmax_loss(left, right, temperature=temperature, normalize=normalize)
    assert found.item() == pytest.approx(sum(expected), abs=1e-9)


def test_labelled_negatives_match_the_loop_from_equation_3():
    left, right = batch()
    labels = torch.tensor([1, 0, 1, 1, 0, 0])
    found = batch_softmax_loss(left, right, labels)
    assert found.item() == pytest.approx(sum(loop_loss(left, right, labels.tolist())), abs=1e-9)
    assert batch_softmax_loss(left, right, labels.view(-1, 1)).item() == found.item()


def test_a_label_equal_to_the_threshold_is_a_negative():
    left, right = batch()
    labels = torch.tensor([0.6, 0.61, 0.0, 1.0, 3 / 5, 0.59])
    found = batch_softmax_loss(left, right, labels, positive_above=0.6)
    assert found.item() == pytest.approx(sum(loop_loss(left, right, [0, 1, 0, 1, 0, 0])), abs=1e-9)


def test_directions_are_the_two_halves_of_equation_1_and_mean_averages_them():
    left, right = batch()
    labels = torch.tensor([1, 1, 0, 1, 0, 1])
    first, second = loop_loss(left, right, labels.tolist())
    assert batch_softmax_loss(left, right, labels, directions="left").item() == pytest.approx(first, abs=1e-9)
    assert batch_softmax_loss(left, right, labels, directions="right").item() == pytest.approx(second, abs=1e-9)
    assert batch_softmax_loss(left, right, labels, reduction="mean").item() == pytest.approx((first + second) / 2, abs=1e-9)
    assert batch_softmax_loss(left, right, labels, directions="left", reduction="mean").item() == pytest.approx(first, abs=1e-9)


def test_keeping_duplicates_is_the_average_over_the_positives_of_a_text():
    """Eq. 4–5: with several positives of one text in the numerator, averaged outside the logarithm, the loss is the same."""
    left, right = batch(pairs=5)
    texts = [0, 1, 0, 0, 1]  # which left text each pair has
    left = left.detach()[texts]
    q, a = loop_normalize(left.tolist(), "l2"), loop_normalize(right.tolist(), "l2")
    m, tau = 5, 0.1
    expected = 0.0
    for one, other in ((q, a), (a, q)):
        for i in range(m):
            same = [j for j in range(m) if texts[j] == texts[i]]
            numerator = sum(dot(q[i], a[j]) if one is q else dot(q[j], a[i]) for j in same) / len(same)
            expected += (math.log(sum(math.exp(dot(one[i], other[j]) / tau) for j in range(m))) - numerator / tau) / m
    assert batch_softmax_loss(left, right, temperature=tau, duplicates="keep").item() == pytest.approx(expected, abs=1e-9)


MASKED = [
    # left texts, right texts, labels, what each left text must not be pushed away from
    ("aabc", "wxyz", "1111", {(0, 1), (1, 0)}),  # two positives of one text
    ("abcd", "wwyz", "1111", {(0, 1), (1, 0)}),  # two texts with the same positive
    ("aabc", "wxyz", "1011", {(1, 0)}),  # a labelled negative stays one: (0, 1) is not here, but a is no stranger to w
    ("aabc", "wxxz", "1111", {(0, 1), (0, 2), (1, 0), (1, 2), (2, 1)}),  # a copy of a known positive under another text
    ("aaaa", "wwww", "1111", {(i, j) for i in range(4) for j in range(4) if i != j}),
]


@pytest.mark.parametrize(("lefts", "rights", "labels", "hidden"), MASKED)
def test_masking_leaves_the_known_positives_out_of_both_sums(lefts, rights, labels, hidden):
    left, right = batch(pairs=4)
    ids = [torch.tensor([ord(letter) for letter in texts]) for texts in (lefts, rights)]
    y = [int(label) for label in labels]
    found = batch_softmax_loss(left, right, torch.tensor(y), duplicates="mask", left_ids=ids[0], right_ids=ids[1])
    assert found.item() == pytest.approx(sum(loop_loss(left, right, y, hidden=hidden)), abs=1e-9)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.booleans()), min_size=2, max_size=7))
def test_masking_matches_a_loop_over_any_pairs(pairs):
    left, right = batch(pairs=len(pairs))
    known = {(a, b) for a, b, positive in pairs if positive}
    hidden = {(i, j) for i, (a, _, _) in enumerate(pairs) for j, (_, b, _) in enumerate(pairs) if i != j and (a, b) in known}
    y = [int(positive) for _, _, positive in pairs]
    ids = [torch.tensor([ord(pair[side]) for pair in pairs]) for side in (0, 1)]
    found = batch_softmax_loss(left, right, torch.tensor(y), duplicates="mask", left_ids=ids[0], right_ids=ids[1])
    assert found.item() == pytest.approx(sum(loop_loss(left, right, y, hidden=hidden)), abs=1e-9)


def test_symmetric_loss_is_twice_the_one_of_sentence_transformers():
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    left, right = batch(pairs=9, dtype=torch.float32)
    host = MultipleNegativesRankingLoss(
        None, scale=1 / 0.07, directions=("query_to_doc", "doc_to_query"), partition_mode="per_direction"
    )
    expected = 2 * host.compute_loss_from_embeddings([left, right], None)
    found = batch_softmax_loss(left, right, temperature=0.07)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    ours, theirs = (torch.autograd.grad(loss, (left, right)) for loss in (found, expected))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


# --- closed forms, edges --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pairs", [1, 4, 30])
def test_uniform_similarity_costs_log_batch_size(pairs):
    assert softmax_term(torch.zeros(pairs, pairs), torch.ones(pairs, dtype=torch.bool)).item() == pytest.approx(math.log(pairs))


def test_orthogonal_pairs_cost_the_closed_form():
    identity = torch.eye(4, dtype=torch.float64)
    expected = 2 * math.log1p(3 * math.exp(-1 / 0.1))
    assert batch_softmax_loss(identity, identity, temperature=0.1).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
def test_no_positive_costs_exactly_nothing_and_moves_nothing(normalize):
    left, right = batch(dtype=torch.float32)
    temperature = torch.tensor(0.1, requires_grad=True)
    loss = batch_softmax_loss(left, right, torch.zeros(6), temperature=temperature, normalize=normalize)
    loss.backward()
    assert loss.item() == 0.0
    for gradient in (left.grad, right.grad, temperature.grad):
        assert gradient is not None
        assert torch.equal(gradient, torch.zeros_like(gradient))


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
def test_a_batch_of_one_costs_exactly_nothing(normalize):
    left, right = batch(pairs=1, dtype=torch.float32)
    loss = batch_softmax_loss(left, right, normalize=normalize)
    loss.backward()
    assert loss.item() == 0.0
    assert left.grad is not None and not left.grad.any()


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
def test_zero_rows_and_constant_coordinates_give_moderate_gradients(normalize):
    left, right = (side.detach() for side in batch(dtype=torch.float32))
    left[:, 2] = 0.3  # constant
    left[:, 3] = 0.3 + torch.arange(6) * 3e-8  # constant but for rounding
    right[:, 2:4] = torch.tensor([[1e-33, 1e-8]]) * torch.randn(6, 2)  # dead, as in some encoders
    left[1] = right[4] = 0
    left[:, 4] = 0
    left.requires_grad_(), right.requires_grad_()
    loss = batch_softmax_loss(left, right, normalize=normalize) + mse_of_cosines(left, right, torch.ones(6))
    loss.backward()
    assert math.isfinite(loss.item())
    for gradient in (left.grad, right.grad):
        assert gradient is not None and gradient.abs().max() < 1e3


@pytest.mark.parametrize("normalize", ["l2-batch", "range-batch"])
def test_a_coordinate_that_is_a_hundredth_as_large_as_the_others_is_dead_and_stays(normalize):
    vectors = torch.linspace(-1, 1, 9)[:, None] * torch.ones(9, 100)
    for size, alive in ((0.007, False), (0.013, True)):  # beside a mean of about 1
        one = vectors.clone()
        one[:, 0] *= size
        found = NORMALIZATIONS[normalize](one)
        torch.testing.assert_close(found[:, 0], found[:, 1] if alive else one[:, 0])


def test_a_coordinate_that_differs_by_rounding_only_is_constant():
    for width, constant in ((3e-6, True), (3e-5, False)):
        vectors = torch.ones(5, 3, dtype=torch.float64)
        vectors[0] += width  # all are as narrow, so none is dead beside the others
        stretched = NORMALIZATIONS["minmax-batch"](vectors)
        assert stretched[0].max().item() == pytest.approx(width if constant else 1.0, rel=1e-6)
        divided = NORMALIZATIONS["range-batch"](vectors)
        assert divided[1].max().item() == pytest.approx(1.0 if constant else 1 / width, rel=1e-6)


@pytest.mark.parametrize("temperature", [0, -1.0, float("inf"), float("nan"), torch.tensor(0.0)])
def test_a_temperature_that_nothing_can_be_divided_by_is_refused(temperature):
    with pytest.raises(UserError, match="temperature"):
        batch_softmax_loss(*batch(), temperature=temperature)


def test_a_temperature_of_a_thousandth_neither_overflows_nor_loses_the_loop():
    left, right = batch()
    expected = loop_of_shifted_exponentials(left, right, 1e-3)
    single = batch_softmax_loss(left.float(), right.float(), temperature=1e-3)
    single.backward()
    assert single.item() == pytest.approx(expected, rel=1e-4)
    assert left.grad is not None and left.grad.isfinite().all()


def loop_of_shifted_exponentials(left, right, tau):
    q, a = loop_normalize(left.tolist(), "l2"), loop_normalize(right.tolist(), "l2")
    total = 0.0
    for one, other in ((q, a), (a, q)):
        for i in range(len(one)):
            gaps = [(dot(one[i], other[j]) - dot(one[i], other[i])) / tau for j in range(len(one))]
            total += max(gaps) + math.log(sum(math.exp(gap - max(gaps)) for gap in gaps))
    return total / len(q)


# --- gradients ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
@pytest.mark.parametrize("duplicates", ["keep", "mask"])
def test_gradients_are_those_of_finite_differences(normalize, duplicates):
    left, right = batch(pairs=4, width=3)
    labels = torch.tensor([1, 1, 0, 1])
    ids = {"left_ids": torch.tensor([7, 7, 8, 9]), "right_ids": torch.tensor([1, 2, 3, 1])}

    def loss(left, right, temperature):
        return batch_softmax_loss(left, right, labels, temperature=temperature, normalize=normalize, duplicates=duplicates, **ids)

    temperature = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss, (left, right, temperature))


@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise_gradients_are_those_of_finite_differences(name):
    left, right = batch(pairs=4, width=3)
    labels = torch.tensor([0.1, 0.9, 0.4, 0.5])
    more = [torch.tensor([7, 7, 8, 7])] * (name in OF_LISTS)
    assert torch.autograd.gradcheck(lambda a, b: POINTWISE[name](a, b, labels, *more), (left, right))


# --- pointwise ------------------------------------------------------------------------------------------------------


def test_mean_squared_error_is_that_of_sentence_transformers():
    from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss

    left, right = batch(dtype=torch.float32)
    labels = torch.rand(6)
    expected = CosineSimilarityLoss(None).compute_loss_from_embeddings([left, right], labels)
    torch.testing.assert_close(mse_of_cosines(left, right, labels), expected)


def test_pearson_loss_is_one_minus_scipys_correlation():
    from scipy.stats import pearsonr

    left, right = batch(pairs=12)
    labels = torch.rand(12, dtype=torch.float64)
    cosines = torch.cosine_similarity(left, right).tolist()
    assert pearson_loss(left, right, labels).item() == pytest.approx(1 - pearsonr(cosines, labels.tolist()).statistic, abs=1e-9)
    assert pearson_loss(left, right, torch.tensor(cosines) * 3 + 1).item() == pytest.approx(0, abs=1e-6)


def test_pearson_and_cosent_are_added_on_the_scale_of_cosines():
    left, right = batch(pairs=12)
    labels = torch.rand(12, dtype=torch.float64)
    cosent = POINTWISE["cosent"](left, right, labels).item()
    expected = pearson_loss(left, right, labels).item() + COSENT_TEMPERATURE * cosent
    assert cosent > 2  # not a number that is much the same multiplied and divided by
    assert POINTWISE["pearson+cosent"](left, right, labels).item() == pytest.approx(expected)


def test_lists_are_those_of_plain_loops():
    left, right = batch(pairs=12)
    labels, ids = [0, 0.5, 1, 0, 1, 0.5, 0, 1, 1, 1, 0, 0.2], [1, 1, 1, 2, 2, 2, 2, 3, 3, 4, 5, 1]
    scores = (torch.cosine_similarity(left, right) / COSENT_TEMPERATURE).tolist()
    terms = []
    for i in range(12):
        worse = [scores[k] for k in range(12) if ids[k] == ids[i] and labels[k] < labels[i]]
        if worse:
            terms.append(math.log(1 + sum(math.exp(score - scores[i]) for score in worse)))
    assert 3 < len(terms) < 12
    found = listwise_loss(left, right, torch.tensor(labels), torch.tensor(ids))
    assert found.item() == pytest.approx(sum(terms) / len(terms))
    both = POINTWISE["pearson+listwise"](left, right, torch.tensor(labels), torch.tensor(ids))
    assert both.item() == pytest.approx(pearson_loss(left, right, torch.tensor(labels)).item() + LISTS_WEIGHT * found.item())


def test_a_list_with_one_right_answer_is_a_softmax_over_its_texts():
    left, right = batch(pairs=5, dtype=torch.float32)
    scores = torch.cosine_similarity(left, right) / COSENT_TEMPERATURE
    expected = torch.nn.functional.cross_entropy(scores[None], torch.tensor([3]))
    labels = torch.tensor([0.0, 0, 0, 1, 0])
    torch.testing.assert_close(listwise_loss(left, right, labels, torch.zeros(5, dtype=torch.long)), expected)


@pytest.mark.parametrize("case", ["all equal", "all alone"])
def test_lists_without_a_better_text_cost_nothing_and_move_nothing(case):
    left, right = batch(dtype=torch.float32)
    labels, ids = (torch.ones(6), torch.zeros(6)) if case == "all equal" else (torch.linspace(0, 1, 6), torch.arange(6))
    loss = listwise_loss(left, right, labels, ids)
    loss.backward()
    assert loss == 0
    assert not left.grad.any()
    assert not right.grad.any()


@pytest.mark.parametrize("case", ["labels", "cosines", "one pair"])
def test_pearson_of_a_constant_side_is_undefined_and_moves_nothing(case):
    left, right = batch(pairs=1 if case == "one pair" else 5, dtype=torch.float32)
    if case == "cosines":
        right = left.detach() * 2  # cosines of 1, but for rounding
    labels = torch.full((5,), 0.3) if case == "labels" else torch.linspace(0, 1, len(left))
    loss = pearson_loss(left, right, labels)
    loss.backward()
    assert loss.item() == 1.0
    assert left.grad is not None and torch.equal(left.grad, torch.zeros_like(left))


# --- precision ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_embeddings_are_scored_in_float32_even_under_autocast(dtype):
    left, right = (side.detach().to(dtype) for side in batch(dtype=torch.float32))
    labels = torch.tensor([1, 0, 1, 1, 0, 1.0])
    expected = [loss(left.float(), right.float(), labels) for loss in (batch_softmax_loss, mse_of_cosines, pearson_loss)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = [loss(left, right, labels) for loss in (batch_softmax_loss, mse_of_cosines, pearson_loss)]
    assert [loss.dtype for loss in found] == [torch.float32] * 3
    assert [loss.item() for loss in found] == [loss.item() for loss in expected]


# --- properties -----------------------------------------------------------------------------------------------------

seeds = st.integers(0, 1000)


@settings(max_examples=25)
@given(seeds, st.sampled_from(list(NORMALIZATIONS)), st.permutations(range(6)))
def test_the_order_of_the_pairs_does_not_matter(seed, normalize, order):
    left, right = batch(seed=seed)
    labels = torch.tensor([1, 0, 1, 1, 0, 1])
    found = batch_softmax_loss(left[order], right[order], labels[order], normalize=normalize)
    torch.testing.assert_close(found, batch_softmax_loss(left, right, labels, normalize=normalize))


@settings(max_examples=25)
@given(seeds, st.floats(0.01, 100), st.sampled_from(["l2", "l2-batch", "minmax-batch", "range-batch"]))
def test_the_length_of_the_vectors_does_not_matter_once_normalized(seed, scale, normalize):
    left, right = batch(seed=seed)
    found = batch_softmax_loss(left * scale, right, normalize=normalize)
    torch.testing.assert_close(found, batch_softmax_loss(left, right, normalize=normalize))


@settings(max_examples=25)
@given(seeds)
def test_swapping_the_sides_swaps_the_directions(seed):
    left, right = batch(seed=seed)
    torch.testing.assert_close(
        batch_softmax_loss(left, right, directions="left"), batch_softmax_loss(right, left, directions="right")
    )


# --- refusals -------------------------------------------------------------------------------------------------------


def test_the_tables_are_the_choices_of_a_recipe():
    for name, words in {**CHOICES, "pointwise": POINTWISE}.items():
        assert tuple(words) == get_args(LossSettings.model_fields[name].annotation)


REFUSALS = [
    ({"normalize": "l3"}, "unknown normalize 'l3'; known: l2, l2-batch, minmax-batch, range-batch, none"),
    ({"reduction": "max"}, "unknown reduction 'max'; known: sum, mean"),
    ({"directions": "up"}, "unknown directions 'up'; known: both, left, right"),
    ({"duplicates": "drop"}, "unknown duplicates 'drop'; known: keep, mask"),
    ({"temperature": 0}, "temperature is 0; the softmax divides by it: give a value above 0"),
    ({"temperature": math.nan}, "temperature is nan"),
    ({"temperature": torch.tensor(-1.0)}, "temperature is -1"),
    ({"temperature": torch.ones(6)}, r"temperature is a tensor of shape \(6,\): give a single value"),
    ({"labels": torch.ones(5)}, r"6 pairs but labels of shape \(5,\): give one label per pair"),
    ({"labels": torch.tensor([1, 1, 1, math.nan, 1, 1])}, "the label of pair 3 of the batch is NaN"),
    ({"duplicates": "mask"}, 'duplicates="mask" needs left_ids and right_ids'),
    ({"duplicates": "mask", "left_ids": torch.arange(6), "right_ids": torch.arange(5)}, "right_ids is torch.int64 of shape"),
    ({"duplicates": "mask", "left_ids": torch.rand(6), "right_ids": torch.arange(6)}, "left_ids is torch.float32 of shape"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSALS)
def test_bad_settings_are_refused_by_what_was_expected(settings, message):
    left, right = batch()
    with pytest.raises(UserError, match=message):
        batch_softmax_loss(left, right, **settings)


@pytest.mark.parametrize("shapes", [((6, 5), (5, 5)), ((6, 5), (6, 4)), ((5,), (5,)), ((0, 5), (0, 5))])
def test_sides_that_are_not_pairs_are_refused(shapes):
    with pytest.raises(UserError, match="a batch of pairs is two matrices of the same shape"):
        batch_softmax_loss(torch.ones(shapes[0]), torch.ones(shapes[1]))
