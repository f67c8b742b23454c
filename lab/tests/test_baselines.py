"""What needs no encoder: BM25 against its formula in a loop, and the known scores of the orders of the files."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from lab.baselines import bm25, compute_baselines, read_baselines, score_by_words, write_baselines
from lab.book import Book
from lab.grids import grids_of

from pairtune import PairSet, load_task

RESULTS = Path(__file__).parents[1] / "results"
TEXTS = ["the river runs to the sea", "a stone by the river", "stone on stone on stone", "nothing here"]


def bm25_in_a_loop(query, text):
    words, mean = text.split(), np.mean([len(one.split()) for one in TEXTS])
    total = 0.0
    for word in query.split():
        having = sum(word in one.split() for one in TEXTS)
        often = words.count(word)
        rarity = math.log(1 + (len(TEXTS) - having + 0.5) / (having + 0.5))
        total += rarity * often * 2.2 / (often + 1.2 * (0.25 + 0.75 * len(words) / mean))
    return total


def test_bm25_is_its_formula():
    queries = ["river", "stone by stone", "unknown words", "the river the sea"]
    expected = [[bm25_in_a_loop(query, text) for text in TEXTS] for query in queries]
    assert bm25(queries, TEXTS) == pytest.approx(np.array(expected))


def test_pairs_are_scored_among_the_texts_of_their_split():
    pairs = PairSet.of(["river", "river", "stone"], [TEXTS[2], TEXTS[0], TEXTS[2]])
    whole = bm25(["river", "stone"], [TEXTS[2], TEXTS[0]])
    assert score_by_words(pairs) == pytest.approx(np.array([whole[0, 0], whole[0, 1], whole[1, 0]]))


def test_a_search_scores_every_query_with_every_text():
    pairs = PairSet.of(["river", "river", "stone"], [TEXTS[0], TEXTS[1], TEXTS[2]], corpus=TEXTS)
    assert score_by_words(pairs) == pytest.approx(bm25(["river", "stone"], TEXTS))


def test_the_orders_of_the_files_have_the_scores_that_semeval_gives_them():
    found = read_baselines(RESULTS)
    assert found["cqa-a"]["comments by time"]["MAP"] == pytest.approx(0.7261, abs=5e-5)
    assert found["cqa-b"]["the search engine's order"]["MAP"] == pytest.approx(0.4185, abs=5e-5)


def test_the_baselines_are_current(real_data):
    found, kept = compute_baselines(lambda name: load_task(name, real_data)), read_baselines(RESULTS)
    assert found.keys() == kept.keys()
    for task, scores in found.items():
        assert scores == {name: pytest.approx(values) for name, values in kept[task].items()}


def test_baselines_are_rows_of_the_tables(tmp_path):
    write_baselines(tmp_path, {"cqa-b": {"BM25": {"MAP": 0.25, "MRR": 0.5}}})
    main, other = grids_of("2", Book(tmp_path))[2:4]
    assert (main.rows[0][0], main.rows[0][3], other.rows[0][3]) == ("BM25", "0.2500", "0.5000")
    assert "BM25" not in {row[0] for row in grids_of("1", Book(tmp_path))[0].rows}
