from __future__ import annotations

import hashlib
import unicodedata

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairtune.engines import shuffle
from pairtune.ordering import Side, order_pairs
from pairtune.ordering.order import hash_text
from pairtune.ordering.shingles import STOP_WORDS, draw_shingle, find_clusters, find_words, order_by_shingles
from pairtune.runs.recipe import OrderSettings

TEXTS = [
    "How do I learn Python?",
    "Python in seven days",
    "the and of",
    None,
    "",
    "ΟΔΟΣ οδος, ὁδός",
    "İstanbul istanbul",
    "learn python, learn it",
    "cafe\u0301 in Python",
    "Python Python snake",
]


def md5(text):
    return int(hashlib.md5(text.encode()).hexdigest()[:15], 16)


def algorithm_2(shingles, seed, k):
    """The paper's pseudo-code, with its random numbers taken from a hash, and s set back where the shingle changes."""
    data = sorted(range(len(shingles)), key=lambda e: (shingles[e], md5(f"{seed}|{e}"), e))
    group, s, chunk, previous = {}, 0, 0, None
    for e in data:
        if shingles[e] != previous:
            s, chunk = 0, 0  # not in the paper: there, s runs on
        if s >= k:
            s, chunk = 0, chunk + 1
        group[e] = md5(f"{seed}|{shingles[e]}|{chunk}")
        s, previous = s + 1, shingles[e]
    return sorted(data, key=lambda e: (group[e], e)), group


@pytest.mark.parametrize(("shingle", "rows"), [(1, [1, 8, 0, 7, 2, 9, 3, 6, 4, 5]), (2, [0, 7, 2, 3, 9, 6, 5, 4, 1, 8])])
def test_words_give_the_order_that_all_engines_agreed_on(shingle, rows):
    order = order_pairs(Side.of(TEXTS), OrderSettings(by="words", group=2, shingle=shingle), seed=7)
    assert order.rows.tolist() == rows


@settings(max_examples=60)
@given(
    words=st.lists(st.lists(st.sampled_from("abcde"), max_size=4), min_size=1, max_size=30),
    k=st.integers(1, 5),
    t=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_groups_follow_the_pseudo_code_of_algorithm_2(words, k, t, seed):
    order = order_by_shingles(words, len(words), k, t, seed)
    shingles = [draw_shingle(list(row), t, md5(f"{seed}|{e}"), e) for e, row in enumerate(words)]
    rows, group = algorithm_2(shingles, seed, k)
    assert order.rows.tolist() == rows
    starts = [place for place, row in enumerate(rows) if place == 0 or group[row] != group[rows[place - 1]]]
    assert order.groups.tolist() == starts


@pytest.mark.parametrize("by", ["words", "random"])
def test_the_order_in_memory_is_the_order_of_a_file_shuffled_by_duckdb(tmp_path, by):
    rng = np.random.default_rng(3)
    words = [*(word for text in TEXTS if text for word in text.split()), "don't", "x_y", "日本語", "ΣΑΣ", "ẞ", "—", "mañana"]
    texts = [None if i % 40 == 7 else " ".join(rng.choice(words, rng.integers(0, 6))) for i in range(400)]
    pq.write_table(pa.table({"text": texts, "row": range(400)}), tmp_path / "in.parquet")
    column = {"column": "text"} if by == "words" else {}
    shuffle(str(tmp_path / "in.parquet"), str(tmp_path / "out.parquet"), by=by, group_size=4, shingle=2, seed=11, **column)
    settings = OrderSettings(by="uniform" if by == "random" else by, group=4, shingle=2)
    assert pq.read_table(tmp_path / "out.parquet")["row"].to_pylist() == order_pairs(Side.of(texts), settings, 11).rows.tolist()


def test_every_engine_can_compute_the_hash():
    for text in ("7|0", "7|python|3", "1|İ ς é|0"):
        found = duckdb.execute("SELECT ('0x' || substr(md5(?), 1, 15))::BIGINT", [text]).fetchall()[0]
        assert hash_text(text) == md5(text) == found[0]


def test_a_shingle_is_a_random_subset_of_different_words():
    words = ["a", "b", "c", "c"]
    drawn = [draw_shingle(list(words), 2, md5(f"1|{row}"), row) for row in range(3000)]
    counts = {shingle: drawn.count(shingle) / 3000 for shingle in set(drawn)}
    assert set(counts) == {"a b", "a c", "b c"}  # sorted, and c only once
    assert counts["a b"] == pytest.approx(1 / 4 * 1 / 3 * 2, abs=0.04)  # first a or b, then the other out of b, c, c
    assert draw_shingle(["x"], 3, 5, 0) == "x"
    assert draw_shingle([], 1, 5, 17) == " 17"


def test_words_are_letters_marks_and_digits_without_stop_words():
    assert find_words("The café's 2nd_menu: naïve, don't!") == ["café", "2nd", "menu", "naïve"]
    assert find_words(None) == find_words("") == find_words("and the of") == []
    assert find_words("ΟΔΟΣ İİ") == ["οδοσ", "ii"]
    for character in map(chr, range(0x2000)):
        if unicodedata.category(character) != "Cn":
            expected = unicodedata.category(character)[0] in "LMN"
            assert bool(find_words(character * 3)) == expected, hex(ord(character))


def test_stop_words_are_words_as_the_texts_are_read():
    assert 100 <= len(STOP_WORDS) <= 250
    assert all(word == word.lower() and word.isalpha() for word in STOP_WORDS)


def test_pairs_of_a_group_share_their_words():
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{x}" for x in rng.integers(0, 12, 5)) for _ in range(200)]
    for shingle in (1, 2):
        order = order_pairs(Side.of(texts), OrderSettings(by="words", group=4, shingle=shingle), 1)
        groups = [part for part in np.split(order.rows, order.groups[1:]) if len(part) > 1]
        assert len(groups) > 20
        assert all(len(set.intersection(*(set(texts[row].split()) for row in rows))) >= shingle for rows in groups)


def test_identical_texts_part_ways_when_they_are_dropped():
    texts = [f"python {i % 6}" for i in range(48)]
    order = order_pairs(Side.of(texts), OrderSettings(by="words", group=8, drop_identical=True), 1)
    groups = [[texts[row] for row in part] for part in np.split(order.rows, order.groups[1:])]
    assert all(len(set(group)) == len(group) for group in groups)
    assert max(map(len, groups)) > 2


def test_dropping_identical_texts_changes_nothing_where_there_are_none():
    side = Side.of([text or str(i) for i, text in enumerate(TEXTS)])
    orders = [order_pairs(side, OrderSettings(by="words", drop_identical=drop), 1).rows.tolist() for drop in (False, True)]
    assert orders[0] == orders[1]


def blobs(count, each, seed=0, width=16):
    rng = np.random.default_rng(seed)
    return np.repeat(rng.normal(size=(count, width)), each, axis=0) + 0.02 * rng.normal(size=(count * each, width))


def test_clusters_keep_to_the_blobs_in_the_data():
    side = Side.of([str(i) for i in range(120)]).encoded(blobs(6, 20))
    order = order_pairs(side, OrderSettings(by="clusters", clusters=12, group=5), 2)
    groups = np.split(order.rows, order.groups[1:])
    assert all(len(set((rows // 20).tolist())) == 1 for rows in groups)
    assert np.mean([len(rows) for rows in groups]) > 3


def test_clusters_are_the_square_root_of_the_texts_unless_told():
    vectors = np.random.default_rng(0).normal(size=(400, 8))
    side = Side.of([str(i) for i in range(400)]).encoded(vectors)
    plain = order_pairs(side, OrderSettings(by="clusters"), 3)
    assert plain.rows.tolist() == order_pairs(side, OrderSettings(by="clusters", clusters=20), 3).rows.tolist()
    assert plain.rows.tolist() != order_pairs(side, OrderSettings(by="clusters", clusters=21), 3).rows.tolist()
    assert len(set(find_clusters(vectors, 20, 3).tolist())) == 20


def test_pairs_of_a_group_by_neighbors_have_a_near_text_in_common():
    vectors = np.random.default_rng(3).normal(size=(150, 4))
    side = Side.of([str(i) for i in range(150)]).encoded(vectors)
    order = order_pairs(side, OrderSettings(by="neighbors", group=5), 1)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    near = [set(row.tolist()) for row in np.argsort(-unit @ unit.T, axis=1)[:, :5]]  # itself and the 4 nearest
    groups = [rows for rows in np.split(order.rows, order.groups[1:]) if len(rows) > 1]
    assert len(groups) > 10
    assert all(set.intersection(*(near[row] for row in rows)) for rows in groups)


def test_two_texts_nearest_to_each_other_can_meet():
    vectors = np.repeat(np.eye(30), 2, axis=0) + 0.01 * np.random.default_rng(0).normal(size=(60, 30))
    side = Side.of([str(i) for i in range(60)]).encoded(vectors)
    met = 0
    for seed in range(10):
        order = order_pairs(side, OrderSettings(by="neighbors", group=2), seed)
        met += sum(len(rows) == 2 and rows[0] // 2 == rows[1] // 2 for rows in np.split(order.rows, order.groups[1:]))
    assert 100 < met < 200  # of 300: each of two draws one of the same two numbers


def test_what_the_controls_leave_out_is_no_word_of_a_pair():
    vectors = np.random.default_rng(4).normal(size=(80, 6))
    side = Side.of([str(i) for i in range(80)])
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    ranked = np.argsort(-unit @ unit.T, axis=1)
    order = order_pairs(side.encoded(vectors), OrderSettings(by="neighbors", group=3, skip_nearest=4), 1)
    words = [{row, *ranked[row, 5:7].tolist()} for row in range(80)]
    for rows in np.split(order.rows, order.groups[1:]):
        assert set.intersection(*(words[row] for row in rows))
    strict = order_pairs(side.encoded(vectors, np.full(80, -2.0)), OrderSettings(by="neighbors", group=3, margin=0.0), 1)
    assert strict.sizes().tolist() == [1] * 80  # all others are too close: each pair has only its own number


@pytest.mark.parametrize("skipped", [0, 4])
def test_neighbors_are_algorithm_2_over_the_texts_that_a_full_sort_finds(skipped):
    vectors = np.random.default_rng(5).normal(size=(90, 5))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    ranked = np.argsort(-unit @ unit.T, axis=1)  # each text itself first
    words = [[str(row), *map(str, ranked[row, 1 + skipped : 4 + skipped])] for row in range(90)]
    expected = order_by_shingles(words, 90, 4, 1, seed=6)
    side = Side.of([str(row) for row in range(90)]).encoded(vectors)
    found = order_pairs(side, OrderSettings(by="neighbors", group=4, skip_nearest=skipped), 6)
    assert found.rows.tolist() == expected.rows.tolist() and found.groups.tolist() == expected.groups.tolist()
