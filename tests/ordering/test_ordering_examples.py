from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pairtune.errors import UserError
from pairtune.ordering import Side, order_pairs
from pairtune.ordering.examples import gather_groups, order_by_examples
from pairtune.ordering.nearest import drop_self, find_nearest, search_approximately, search_exactly, unit_rows
from pairtune.ordering.nearest_gpu import CoarseSearch, multiply_halves, search_device
from pairtune.ordering.order import shuffle_rows
from pairtune.runs.recipe import OrderSettings


def cosines(vectors):
    vectors = np.asarray(vectors, np.float64)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit @ unit.T


def algorithm_1(visits, similarity, n, s):
    """The paper's pseudo-code, line by line."""
    result, used = [], set()
    for e in visits:
        if e not in used:
            nearest = sorted((x for x in visits if x != e), key=lambda x: -similarity[e][x])[:n]
            chosen = [x for x in nearest if x not in used][: s - 1]
            result += [*chosen, e]
            used |= {*chosen, e}
    return result[::-1]


@pytest.mark.parametrize(("count", "n", "s"), [(40, 500, 8), (40, 5, 8), (40, 10, 3), (7, 3, 2), (12, 4, 1)])
def test_examples_follow_the_pseudo_code_of_algorithm_1(count, n, s):
    vectors = np.random.default_rng(count + n).normal(size=(count, 6))
    side = Side.of([str(i) for i in range(count)]).encoded(vectors)
    order = order_pairs(side, OrderSettings(by="examples", neighbors=n, group=s), seed=5)
    assert order.rows.tolist() == algorithm_1(shuffle_rows(count, 5).tolist(), cosines(vectors), n, s)


def by_brute_force(side, own, choice, visits):
    """Algorithm 1 over pairs, not texts: every pair is ranked against every other, and each control is a loop."""
    similarity, text, other = cosines(side.vectors), side.text.tolist(), side.other.tolist()
    count = len(text)
    result, used, sizes = [], set(), []
    for e in visits:
        if e in used:
            continue

        def close(x, e=e):
            return 1.0 if text[x] == text[e] else similarity[text[e]][text[x]]

        nearest = sorted((x for x in range(count) if x != e), key=lambda x: (-close(x), text[x], (x - e) % count))
        ranked = list(dict.fromkeys(text[x] for x in nearest if text[x] != text[e]))
        allowed = nearest[: choice.neighbors]
        if choice.skip_nearest:
            skipped = {text[e], *ranked[: choice.skip_nearest]}
            allowed = [x for x in allowed if text[x] not in skipped]
        if choice.margin is not None:
            allowed = [x for x in allowed if not close(x) > own[e] + choice.margin]
        group = [e]
        for x in allowed:
            clash = choice.drop_identical and any(text[x] == text[y] or other[x] == other[y] for y in group)
            if x not in used and not clash and len(group) < choice.group:
                group.append(x)
        used |= set(group)
        result += [*group[1:], e]
        sizes.append(len(group))
    return result[::-1], sizes[::-1]


@settings(max_examples=60)
@example(text=[0, 0, 2, 1, 1, 1, 1, 1, 1], group=2, neighbors=3, skip=0, margin=None, drop=False, seed=0, first=32)  # > 3 alike
@given(
    text=st.lists(st.integers(0, 9), min_size=2, max_size=30),
    group=st.integers(1, 5),
    neighbors=st.integers(3, 35),
    skip=st.integers(0, 2),
    margin=st.none() | st.floats(-0.5, 0.5),
    drop=st.booleans(),
    seed=st.integers(0, 1000),
    first=st.sampled_from([1, 2, 5, 32]),
)
def test_distinct_texts_stand_for_their_pairs_as_brute_force_over_pairs_says(
    text, group, neighbors, skip, margin, drop, seed, first
):
    rng = np.random.default_rng(seed)
    own = rng.uniform(-0.5, 1, len(text)).astype(np.float32)
    side = Side.of([str(t) for t in text], [str(t) for t in rng.integers(0, 12, len(text))])
    side = side.encoded(rng.normal(size=(len(side.texts), 5)), own)
    choice = OrderSettings(by="examples", group=group, neighbors=neighbors, skip_nearest=skip, margin=margin, drop_identical=drop)
    order = order_by_examples(side, choice, seed, first=first)
    rows, sizes = by_brute_force(side, own, choice, shuffle_rows(len(text), seed).tolist())
    assert order.rows.tolist() == rows
    assert order.sizes().tolist() == sizes


@pytest.mark.parametrize(("ahead", "first"), [(1, 32), (7, 5), (1000, 1)])
def test_groups_do_not_depend_on_how_much_is_searched_and_read_at_a_time(ahead, first):
    rng = np.random.default_rng(3)
    own = rng.uniform(-0.5, 1, 130).astype(np.float32)
    side = Side.of([str(t) for t in rng.integers(0, 100, 130)])
    side = side.encoded(rng.normal(size=(len(side.texts), 5)), own)
    choice = OrderSettings(by="examples", group=40, neighbors=60, margin=0.3)
    order = order_by_examples(side, choice, 1, ahead=ahead, first=first)
    rows, sizes = by_brute_force(side, own, choice, shuffle_rows(130, 1).tolist())
    assert (order.rows.tolist(), order.sizes().tolist()) == (rows, sizes)


def test_pairs_that_found_no_neighbor_come_first():
    rng = np.random.default_rng(0)
    side = Side.of([str(i) for i in range(400)]).encoded(rng.normal(size=(400, 4)))
    sizes = order_pairs(side, OrderSettings(by="examples", neighbors=8, group=8), 1).sizes()
    alone = np.flatnonzero(sizes == 1)
    assert len(alone) > 10
    assert alone.mean() < len(sizes) / 4  # an easy start
    quarter = len(sizes) // 4
    assert sizes[-quarter:].min() > 1  # nobody alone at the end
    assert sizes[:quarter].mean() < sizes[-quarter:].mean() / 2


def test_groups_are_closer_than_chance():
    rng = np.random.default_rng(1)
    centres = rng.normal(size=(20, 16))
    vectors = np.repeat(centres, 8, axis=0) + 0.05 * rng.normal(size=(160, 16))
    order = order_pairs(Side.of([str(i) for i in range(160)]).encoded(vectors), OrderSettings(by="examples", group=8), 3)
    blobs = [set((part // 8).tolist()) for part in np.split(order.rows, order.groups[1:])]
    assert all(len(blob) == 1 for blob in blobs)


def test_many_copies_of_one_text_still_form_full_groups():
    side = Side.of(["again"] * 300 + [f"text {i}" for i in range(20)])
    side = side.encoded(np.random.default_rng(0).normal(size=(21, 4)))
    sizes = order_pairs(side, OrderSettings(by="examples", neighbors=10, group=4), 1).sizes()
    assert np.count_nonzero(sizes == 4) > 60  # of 80: with 10 neighbors fixed for all copies it would be 3


def test_no_text_of_either_side_stands_twice_in_a_group_when_identical_ones_are_dropped():
    rng = np.random.default_rng(2)
    left, right = [[str(x) for x in rng.integers(0, 15, 120)] for _ in range(2)]
    side = Side.of(left, right)
    side = side.encoded(rng.normal(size=(len(side.texts), 6)))
    order = order_pairs(side, OrderSettings(by="examples", drop_identical=True), 1)
    for rows in np.split(order.rows, order.groups[1:]):
        assert len({left[row] for row in rows}) == len({right[row] for row in rows}) == len(rows)
    assert order.sizes().max() == 8


def test_the_greedy_pass_reads_no_neighbor_where_none_was_found():
    order = gather_groups(lambda pairs, used: lambda place: [-1, -1], visits=[0, 1, 2], size=3)
    assert order.sizes().tolist() == [1, 1, 1]


def sorted_neighbors(vectors, count):
    similarity = cosines(vectors)
    np.fill_diagonal(similarity, -np.inf)
    ids = np.argsort(-similarity, axis=1)[:, :count]
    return ids, np.take_along_axis(similarity, ids, axis=1)


VECTORS = unit_rows(np.random.default_rng(4).normal(size=(130, 12)))
EVERY_ROW = np.arange(130)


def test_neighbors_by_faiss_are_those_of_a_full_sort():
    ids, similarities = search_exactly(VECTORS, 60, block=37)(EVERY_ROW)
    expected, values = sorted_neighbors(VECTORS, 60)
    assert ids.tolist() == expected.tolist()
    assert np.allclose(similarities, values, atol=1e-6)


@pytest.mark.parametrize("limits", [{"coarse_from": 1}, {"fine_from": 1}, {"fine_from": 100}], ids=["coarse", "fine", "all"])
def test_neighbors_by_torch_are_those_of_a_full_sort(limits):
    ids, similarities = search_device(3 * VECTORS, 60, "cpu", block=37, **limits)(EVERY_ROW)
    expected, values = sorted_neighbors(VECTORS, 60)
    assert ids.tolist() == expected.tolist()
    assert np.allclose(similarities, values, atol=1e-6)
    again, none = search_device(VECTORS, 60, "cpu", similar=False, block=37, **limits)(EVERY_ROW)
    assert again.tolist() == expected.tolist() and none.shape == (130, 0)


@settings(max_examples=40)
@given(
    size=st.integers(40, 400),
    count=st.integers(1, 12),
    width=st.integers(1, 24),
    spread=st.sampled_from([1, 1e-2, 1e-4, 0]),
    many=st.sampled_from([1, 1000]),
)
def test_a_device_finds_exact_neighbors_however_close_the_vectors_are(size, count, width, spread, many):
    """The nearer together, the less the coarse scores can tell apart, and the more rows are compared with all."""
    rng = np.random.default_rng(size * count)
    centres = rng.normal(size=(3, width))
    vectors = unit_rows(centres[rng.integers(0, 3, size)] + spread * rng.normal(size=(size, width)))
    ids, similarities = search_device(vectors, count, "cpu", coarse_from=many)(np.arange(len(vectors)))
    _, expected = sorted_neighbors(vectors, ids.shape[1])
    found = np.take_along_axis(cosines(vectors), ids.astype(np.int64), axis=1)
    assert np.abs(found - expected).max() < 1e-6  # equal up to ties in float32
    assert np.abs(similarities - expected).max() < 1e-6
    assert all(row not in near and len(set(near)) == len(near) for row, near in enumerate(ids.tolist()))


def test_rows_that_the_bound_on_coarse_scores_leaves_unsure_are_compared_with_all():
    rng = np.random.default_rng(8)
    vectors = unit_rows(0.3 * rng.normal(size=(600, 64)) + rng.normal(size=64))
    search = CoarseSearch(torch.nn.functional.normalize(torch.from_numpy(vectors)), 10, 12)
    coarse = multiply_halves(search.left, search.right)[:, :600].numpy()
    assert 0 < np.abs(coarse - cosines(vectors)).max() < search.error < 2**-13
    rows = torch.arange(100, 500)
    (ids, _), (_, _, unsure) = search.find(rows), search.look(rows)
    _, values = sorted_neighbors(vectors, 12)
    gap = (values[:, 9] - values[:, 11])[100:500]  # what is left out lies below the 12th
    surely, possibly = (set(np.flatnonzero(gap < share * search.error) + 100) for share in (0.9, 1.1))
    assert 0 < len(surely) < 100
    assert surely <= set(rows[unsure].tolist()) <= possibly
    found = np.take_along_axis(cosines(vectors)[100:500], ids.numpy(), axis=1)
    assert np.abs(found - values[100:500, :10]).max() < 1e-6


def test_a_text_is_never_its_own_neighbor_even_among_equal_vectors():
    vectors = np.ones((9, 4), np.float32)
    ids, _ = find_nearest(vectors, 3)(np.arange(len(vectors)))
    assert ids.shape == (9, 3)
    assert all(row not in ids[row] for row in range(9))
    dropped, _ = drop_self(np.array([0]), np.array([[5, 0, 7]]), np.zeros((1, 3)))
    assert dropped.tolist() == [[5, 7]]


def test_approximate_search_says_the_recall_that_it_has(capsys):
    vectors = unit_rows(np.random.default_rng(5).normal(size=(3000, 16)))
    ids, _ = search_approximately(vectors, 10, probes=20)(np.arange(len(vectors)))
    exact, _ = find_nearest(vectors, 10)(np.arange(len(vectors)))
    recall = np.mean([len(np.intersect1d(*pair)) / 10 for pair in zip(ids, exact, strict=True)])
    said = capsys.readouterr().err
    assert "neighbors of 3,000 texts: approximate, 20 of 219 lists searched" in said
    assert abs(float(said.split("finds ")[1].split("%")[0]) / 100 - recall) < 0.08  # on 200 of 3000, itself counted
    assert 0.5 < recall < 1


def test_approximate_search_that_runs_dry_leaves_pairs_alone_rather_than_astray():
    vectors = unit_rows(np.random.default_rng(6).normal(size=(300, 8)))
    search = search_approximately(vectors, 40, probes=1)
    assert (search(np.arange(len(vectors)))[0] == -1).any()
    side = Side.of([str(i) for i in range(300)]).encoded(vectors)
    order = order_by_examples(side, OrderSettings(by="examples", neighbors=40), 1, search=search)
    assert sorted(order.rows.tolist()) == list(range(300))


@pytest.mark.cuda
def test_neighbors_on_cuda_are_those_of_faiss():
    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
    vectors = unit_rows(np.random.default_rng(7).normal(size=(5000, 64)))
    exact, _ = find_nearest(vectors, 100)(np.arange(len(vectors)))
    ids, _ = find_nearest(vectors, 100, device="cuda")(np.arange(len(vectors)))
    assert (ids == exact).mean() > 0.999  # sums are rounded differently: near ties may change places


@pytest.mark.cuda
def test_vectors_that_lie_on_the_device_give_the_order_of_those_that_do_not():
    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
    vectors = torch.randn(3000, 32, device="cuda")
    side = Side.of([str(row) for row in range(3000)])
    settings = OrderSettings(by="examples", neighbors=50)
    there, here = (order_pairs(side.encoded(some, device="cuda"), settings, 1) for some in (vectors, vectors.cpu().numpy()))
    assert there.rows.tolist() == here.rows.tolist()
    vectors[7, 3] = torch.nan
    with pytest.raises(UserError, match="the vector of pair 7"):
        side.encoded(vectors, device="cuda")


def test_many_vectors_are_searched_approximately(capsys):
    vectors = np.random.default_rng(5).normal(size=(300, 8))
    find_nearest(vectors, 10, exact_below=301)
    assert "approximate" not in capsys.readouterr().err
    find_nearest(vectors, 10, exact_below=300)
    assert "neighbors of 300 texts: approximate" in capsys.readouterr().err


def released_shuffle(visits, vectors, text, n, s):
    """The authors' example-based shuffling, line by line: a group is full with its s-th distinct text."""
    result, used = [], set()
    for e in visits:
        if e in used:
            continue
        used.add(e)
        result.append(e)
        group = {text[e]}
        apart = np.linalg.norm(vectors[text] - vectors[text[e]], axis=1)
        for x in sorted((x for x in range(len(text)) if x != e), key=lambda x: (apart[x], text[x], (x - e) % len(text)))[:n]:
            if x not in used:
                result.append(x)
                used.add(x)
                group.add(text[x])
                if len(group) >= s:
                    break
    return result[::-1]


@pytest.mark.parametrize(("n", "s"), [(60, 4), (9, 3), (60, 7)])
def test_groups_that_count_texts_of_euclidean_neighbors_are_those_of_the_released_code(n, s):
    rng = np.random.default_rng(s)
    text = np.concatenate([np.arange(15), rng.integers(0, 15, 45)])
    vectors = rng.normal(size=(15, 4)) * rng.uniform(0.2, 5, size=(15, 1))  # of very different lengths
    side = Side.of([f"text {number}" for number in text]).encoded(vectors)
    choice = OrderSettings(by="examples", neighbors=n, group=s, group_counts="texts", distance="euclidean")
    order = order_pairs(side, choice, seed=3)
    expected = released_shuffle(shuffle_rows(60, 3).tolist(), vectors, text, n, s)
    starts = [*order.groups.tolist(), 60]
    ours = [set(order.rows[begin:end].tolist()) for begin, end in pairwise(starts)]
    assert sorted(order.rows.tolist()) == list(range(60))
    assert max(len({text[row] for row in group}) for group in ours) <= s < max(map(len, ours))
    places = np.cumsum([0, *map(len, ours)])
    assert [set(expected[begin:end]) for begin, end in pairwise(places)] == ours


def test_a_margin_of_cosines_and_euclidean_neighbors_are_refused_together():
    with pytest.raises(UserError, match=r"order\.margin compares cosines"):
        order_pairs(Side.of(["a", "b"]), OrderSettings(by="examples", margin=0.1, distance="euclidean"), seed=1)
