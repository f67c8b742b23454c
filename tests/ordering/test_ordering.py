from __future__ import annotations

import hashlib
import typing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairtune.errors import UserError
from pairtune.ordering import ORDERINGS, Order, Side, epoch_seed, note_limits, order_pairs
from pairtune.ordering.order import number_texts, rank_rows
from pairtune.runs.recipe import OrderSettings

BY = sorted(ORDERINGS)


def encoded(texts, other=None, width=8, seed=0, own=None):
    side = Side.of(texts, other)
    return side.encoded(np.random.default_rng(seed).normal(size=(len(side.texts), width)), own)


def settings_for(by, **more):
    return OrderSettings(**{"by": by, "group": 3, "neighbors": 4, **more})


def test_the_table_has_the_choices_of_the_recipe():
    assert set(ORDERINGS) == set(typing.get_args(OrderSettings.model_fields["by"].annotation))


@settings(max_examples=40)
@given(
    texts=st.lists(st.text("ab ςİ́", max_size=4) | st.none(), max_size=25),
    by=st.sampled_from(BY),
    group=st.integers(1, 6),
    neighbors=st.integers(1, 40),
    shingle=st.integers(1, 3),
    clusters=st.integers(0, 40),
    seed=st.integers(-5, 2**62),
    drop_identical=st.booleans(),
)
def test_every_ordering_is_a_permutation_that_falls_into_groups(
    texts, by, group, neighbors, shingle, clusters, seed, drop_identical
):
    choice = OrderSettings(
        by=by,
        group=group,
        neighbors=neighbors,
        shingle=shingle,
        clusters=clusters,
        drop_identical=drop_identical and "drop_identical" in ORDERINGS[by].controls,
    )
    side = encoded(texts) if texts else Side.of(texts).encoded(np.empty((0, 8)))
    order = order_pairs(side, choice, seed)
    assert order.rows.dtype == np.int64
    assert sorted(order.rows.tolist()) == list(range(len(texts)))
    sizes = order.sizes()
    assert sizes.sum() == len(texts)
    assert (sizes >= 1).all()
    most = {"original": 1, "uniform": 1, "queries": len(texts)}
    assert (sizes <= most.get(by, group)).all()
    again = order_pairs(side, choice, seed)
    assert again.rows.tolist() == order.rows.tolist()
    assert again.groups.tolist() == order.groups.tolist()


@pytest.mark.parametrize("by", [by for by in BY if by != "original"])
def test_another_seed_gives_another_order(by):
    side = encoded([f"word{i % 7} word{i % 5}" for i in range(60)])
    orders = {tuple(order_pairs(side, settings_for(by), seed).rows.tolist()) for seed in range(5)}
    assert len(orders) == 5


def test_uniform_puts_every_pair_anywhere():
    places = np.array(
        [np.argsort(order_pairs(Side.of(list("abcdef")), settings_for("uniform"), seed).rows) for seed in range(600)]
    )
    counts = np.array([np.bincount(places[:, row], minlength=6) for row in range(6)])
    assert abs(counts - 100).max() < 50  # 5 standard deviations


def test_epochs_of_neighboring_seeds_share_no_order():
    seeds = [epoch_seed(seed, epoch) for seed in range(20) for epoch in range(20)]
    assert len(set(seeds)) == 400
    assert epoch_seed(7, 0) == 7


@pytest.mark.parametrize("seed", [0, 7, -5, 2**62])
def test_the_random_numbers_of_rows_are_those_of_hashlib(seed):
    rows = [*range(120), *range(9990, 10_010), *range(16_380, 16_390), 19_999]  # over all seams
    found = rank_rows(20_000, seed)
    assert found[rows].tolist() == [int(hashlib.md5(f"{seed}|{row}".encode()).hexdigest()[:15], 16) for row in rows]
    assert rank_rows(0, seed).tolist() == []


@pytest.mark.parametrize("by", BY)
def test_no_order_draws_from_the_global_random_numbers(by):
    side = encoded([f"text {i}" for i in range(30)])
    np.random.seed(1)
    before = np.random.get_state()[1].tolist()
    order_pairs(side, settings_for(by), 3)
    assert np.random.get_state()[1].tolist() == before


def test_a_vector_with_nan_is_refused_by_the_first_row_that_has_it():
    vectors = np.ones((3, 4))
    vectors[1, 2] = np.nan
    with pytest.raises(UserError, match=r"the vector of pair 2 \('second'\) has NaN or infinite values, as do 0 others of 3"):
        Side.of(["first", "first", "second", "third"]).encoded(vectors)


def test_vectors_are_one_per_distinct_text():
    with pytest.raises(UserError, match=r"shape \(3, 2\) for 2 distinct texts"):
        Side.of(["a", "b", "a"]).encoded(np.ones((3, 2)))


@pytest.mark.parametrize("by", ["examples", "clusters", "neighbors"])
def test_an_order_by_meaning_wants_vectors(by):
    with pytest.raises(UserError, match="encode them first"):
        order_pairs(Side.of(["a", "b"]), settings_for(by), 1)


def test_a_margin_wants_the_similarity_of_each_pair():
    with pytest.raises(UserError, match="encode both sides"):
        order_pairs(encoded(["a", "b", "c"]), settings_for("examples", margin=0.1), 1)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (
            settings_for("words", skip_nearest=2),
            "order.skip_nearest is 2, but the order by 'words' .* one of: examples, neighbors",
        ),
        (settings_for("clusters", margin=0.0), "order.margin is 0.0, but the order by 'clusters'"),
        (settings_for("uniform", drop_identical=True), "one of: examples, words, clusters, neighbors"),
        (settings_for("examples", skip_nearest=4), "no neighbor would be left"),
    ],
)
def test_a_control_that_would_not_be_heeded_is_refused(choice, message):
    with pytest.raises(UserError, match=message):
        order_pairs(encoded(["a", "b", "c"]), choice, 1)


def test_sides_of_unequal_length_are_refused():
    with pytest.raises(UserError, match="2 texts on one side but 1 on the other"):
        Side.of(["a", "b"], ["x"])


@pytest.mark.parametrize("by", ["examples", "words", "clusters", "neighbors"])
def test_identical_texts_are_said_and_ordered_all_the_same(by):
    side = encoded(["the same text"] * 20)
    order = order_pairs(side, settings_for(by), 1)
    assert sorted(order.rows.tolist()) == list(range(20))
    assert order.sizes().max() == 3
    assert "all 20 left texts are identical" in note_limits(side, settings_for(by))[-1]


@pytest.mark.parametrize("by", ["examples", "words", "clusters", "neighbors"])
def test_identical_texts_stand_alone_when_they_are_dropped(by):
    order = order_pairs(encoded(["the same text"] * 20), settings_for(by, drop_identical=True), 1)
    assert order.sizes().tolist() == [1] * 20


def test_too_few_pairs_are_said_and_ordered_all_the_same():
    side, choice = encoded(["a b", "b c", "c d"]), OrderSettings(by="examples")
    assert order_pairs(side, choice, 1).sizes().tolist() == [3]
    assert note_limits(side, choice) == [
        "order.group is 8, but there are only 3 pairs: a group holds all of them at most",
        "order.neighbors is 500, but there are only 2 other pairs: all are considered",
    ]
    clusters = note_limits(side, OrderSettings(by="clusters", clusters=9, group=2))
    assert clusters == ["order.clusters is 9, but there are only 3 distinct texts: as many clusters"]
    assert note_limits(side, OrderSettings(by="uniform")) == []


def test_texts_are_numbered_by_first_appearance():
    distinct, numbers = number_texts(["b", "a", "b", None, "a"])
    assert distinct == ["b", "a", None]
    assert numbers.tolist() == [0, 1, 0, 2, 1]


def test_an_order_knows_the_sizes_of_its_groups():
    assert Order(np.arange(6), np.array([0, 1, 4])).sizes().tolist() == [1, 3, 2]


def test_by_queries_all_pairs_of_a_text_stand_together_in_an_order_that_changes_with_the_seed():
    texts = [f"question {number}" for number in np.random.default_rng(0).integers(0, 12, 80)]
    side = Side.of(texts)
    orders = [order_pairs(side, OrderSettings(by="queries"), seed) for seed in (1, 2)]
    for order in orders:
        groups = np.split(order.rows, order.groups[1:])
        assert [len({texts[row] for row in group}) for group in groups] == [1] * len(set(texts))
    assert orders[0].rows.tolist() != orders[1].rows.tolist()
    assert [texts[order.rows[0]] for order in orders] != [texts[0]] * 2
