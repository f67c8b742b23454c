"""Metrics of a search with several right answers, against ir_measures on the whole ranking."""

from __future__ import annotations

import ir_measures
import numpy as np
import pytest
from ir_measures import AP, RR, R, nDCG
from sklearn.metrics import ndcg_score

from pairtune.data.pairs import PairSet
from pairtune.errors import UserError
from pairtune.metrics import score_split, scores_per_item

NAMES = {"MRR@10": RR @ 10, "nDCG@10": nDCG @ 10, "Recall@5": R @ 5, "MAP": AP}


def a_search(seed, graded):
    """12 queries with none to four right answers each among 60 texts, and scores of every query with every text."""
    rng = np.random.default_rng(seed)
    corpus = [f"text {place}" for place in range(60)]
    rows = [
        (f"query {query}", corpus[place], int(rng.integers(0, 4)) if graded else int(rng.integers(0, 2)))
        for query in range(12)
        for place in rng.choice(60, size=5, replace=False)
    ]
    grades = np.array([grade for _, _, grade in rows], np.float32)
    pairs = PairSet.of([q for q, _, _ in rows], [t for _, t, _ in rows], (grades > 0).astype(float), grade=grades, corpus=corpus)
    return pairs, rows, rng.normal(size=(12, 60))


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_every_metric_is_that_of_ir_measures(seed, graded):
    pairs, rows, scores = a_search(seed, graded)
    qrels = [ir_measures.Qrel(query, text, grade) for query, text, grade in rows]
    run = [
        ir_measures.ScoredDoc(f"query {query}", text, float(scores[query, place]))
        for query in range(12)
        for place, text in enumerate(pairs.corpus)
    ]
    expected = ir_measures.calc_aggregate(list(NAMES.values()), qrels, run)
    found = score_split(pairs.gold(), scores, list(NAMES))
    assert found == {name: pytest.approx(expected[measure], abs=1e-6) for name, measure in NAMES.items()}


@pytest.mark.parametrize("name", NAMES)
def test_the_values_of_the_queries_have_the_metric_as_their_mean(name):
    pairs, _, scores = a_search(2, graded=True)
    values = scores_per_item(pairs.gold(), scores, name)
    assert len(values) == 12 and np.mean(values) == pytest.approx(score_split(pairs.gold(), scores, [name])[name])


@pytest.mark.parametrize(("grades", "gains"), [([0, 1, 2], [0, 1, 2]), ([0, 2, 2], [0, 1, 1])])
def test_three_grades_are_gains_in_a_search_and_two_are_right_and_wrong(grades, gains):
    corpus, grade = ["a", "b", "c"], np.array(grades, np.float32)
    pairs = PairSet.of(["q"] * 3, corpus, (grade > 0).astype(float), grade=grade, corpus=corpus)
    scores = np.array([[0.3, 0.2, 0.1]])
    expected = ndcg_score(np.array([gains]), scores, k=3)
    assert score_split(pairs.gold(), scores, ["nDCG@3"])["nDCG@3"] == pytest.approx(expected)


def test_a_text_that_was_judged_twice_counts_by_its_best_grade():
    rows = [("a", 2), ("a", 1), ("b", 1), ("c", 0)]
    grade = np.array([grade for _, grade in rows], np.float32)
    pairs = PairSet.of(["q"] * 4, [text for text, _ in rows], (grade > 0).astype(float), grade=grade, corpus=["a", "b", "c"])
    scores = np.array([[0.1, 0.9, 0.5]])
    expected = ndcg_score(np.array([[2, 1, 0]]), scores, k=3)
    assert score_split(pairs.gold(), scores, ["nDCG@3"])["nDCG@3"] == pytest.approx(expected)


@pytest.mark.parametrize(
    "ask", [lambda gold: score_split(gold, np.zeros((1, 2)), ["F1"]), lambda gold: scores_per_item(gold, np.zeros((1, 2)), "F1")]
)
def test_a_metric_of_pairs_is_refused_for_a_search(ask):
    known = r"metric F1 cannot be computed for a search; use one of: .*MRR, .*MAP"
    with pytest.raises(UserError, match=known):
        ask(PairSet.of(["q"], ["a"], corpus=["a", "b"]).gold())


def test_among_equal_scores_wrong_answers_come_first():
    pairs = PairSet.of(["q"], ["a"], corpus=["a", "b", "c"])
    found = score_split(pairs.gold(), np.zeros((1, 3)), ["MAP", "Recall@2", "nDCG@3"])
    assert found == {"MAP": pytest.approx(1 / 3), "Recall@2": 0, "nDCG@3": pytest.approx(1 / np.log2(4))}


def test_the_scale_of_the_grades_does_not_matter():
    pairs, _, scores = a_search(1, graded=True)
    tenth = PairSet.of(pairs.left, pairs.right, pairs.label, grade=pairs.grade / 10, corpus=pairs.corpus)
    assert score_split(tenth.gold(), scores, ["nDCG@10"]) == pytest.approx(score_split(pairs.gold(), scores, ["nDCG@10"]))
