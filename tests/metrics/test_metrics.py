"""Metrics against plain loops, other libraries, and on what breaks other people's: negative scores, ties, no positive."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata
from sklearn.metrics import f1_score, label_ranking_average_precision_score, ndcg_score

from pairtune.data.pairs import PairSet
from pairtune.errors import UserError
from pairtune.metrics import METRICS, best_threshold, score_split, scores_per_item, steady_threshold
from pairtune.metrics.measures import ranks_within


def ranking(labels, queries, grade=None):
    rows = [str(row) for row in range(len(labels))]
    return PairSet.of(rows, rows, labels, query=queries, grade=grade).gold()


def average_precision_by_a_loop(labels, scores):
    """Straight from the definition; among equal scores the negative comes first."""
    ordered = sorted(zip(scores, labels, strict=True), key=lambda pair: (-pair[0], pair[1]))
    hits, total = 0, 0.0
    for place, (_, label) in enumerate(ordered, start=1):
        if label:
            hits += 1
            total += hits / place
    return total / hits if hits else 0.0


@given(st.lists(st.tuples(st.booleans(), st.integers(-5, 5)), min_size=1, max_size=30), st.integers(1, 4))
def test_map_is_the_mean_over_all_queries_of_the_loop(candidates, queries):
    labels = np.array([float(label) for label, _ in candidates])
    scores = np.array([score / 5 for _, score in candidates])
    query = np.array([f"q{row % queries}" for row in range(len(candidates))])
    expected = [average_precision_by_a_loop(labels[query == q], scores[query == q]) for q in dict.fromkeys(query)]
    assert score_split(ranking(labels, query), scores, ["MAP"])["MAP"] == pytest.approx(np.mean(expected), abs=1e-6)


def test_a_query_without_a_positive_counts_zero():
    pairs = ranking([1, 0, 0, 0], ["a", "a", "b", "b"])
    values = score_split(pairs, np.array([0.9, 0.1, 0.8, 0.2]), ["MAP", "MRR", "P@1", "HP@1"])
    assert values == {"MAP": 0.5, "MRR": 0.5, "P@1": 0.5, "HP@1": 0.5}


def test_one_pair_correlates_with_nothing():
    assert score_split(ranking([1], ["q"]), np.array([0.4]), ["Spearman", "Pearson"]) == {"Spearman": 0.0, "Pearson": 0.0}


@pytest.mark.parametrize("name", ["a\0{}", "\ud800{}", " {} \n", "{}\t1"])
def test_any_text_may_be_the_name_of_a_query(name):
    """Left texts are names of queries. One with NUL ended the process, in the library that computes these."""
    labels, scores, plain = [1, 0, 0, 1], np.array([0.9, 0.1, 0.8, 0.2]), ["x", "x", "y", "y"]
    expected = score_split(ranking(labels, plain), scores, ["MAP", "MRR", "nDCG@2", "HP@1"])
    assert expected["MAP"] == 0.75
    assert score_split(ranking(labels, [name.format(q) for q in plain]), scores, list(expected)) == expected


def test_negative_scores_rank_like_any_others():
    rng = np.random.default_rng(0)
    labels, query = rng.random(60) > 0.6, np.repeat(np.arange(6).astype(str), 10)
    scores = rng.normal(size=60)
    names = ["MAP", "MRR", "P@3", "nDCG@5"]
    shifted = score_split(ranking(labels, query), scores - 100, names)
    assert shifted == pytest.approx(score_split(ranking(labels, query), scores, names))


def test_map_agrees_with_scikit_learn_where_there_are_no_ties():
    rng = np.random.default_rng(1)
    labels = (rng.random((20, 10)) > 0.5).astype(float)
    labels[:, 0] = 1  # scikit-learn leaves out queries without a positive
    scores = rng.normal(size=(20, 10))
    pairs = ranking(labels.ravel(), np.repeat(np.arange(20).astype(str), 10))
    expected = label_ranking_average_precision_score(labels, scores)
    assert score_split(pairs, scores.ravel(), ["MAP"])["MAP"] == pytest.approx(expected)


def test_ndcg_takes_grades_as_linear_gains_as_scikit_learn_does():
    rng = np.random.default_rng(2)
    grades = rng.integers(1, 5, size=(15, 8)).astype(float)
    scores = rng.normal(size=(15, 8))
    pairs = ranking((grades.ravel() - 1) / 3, np.repeat(np.arange(15).astype(str), 8), grade=grades.ravel())
    for cut in (1, 3):
        expected = ndcg_score(grades, scores, k=cut)
        assert score_split(pairs, scores.ravel(), [f"nDCG@{cut}"])[f"nDCG@{cut}"] == pytest.approx(expected)


def test_ties_never_help_a_system_that_ranks_nothing():
    pairs = ranking([1, 0, 0, 0], ["q"] * 4)  # the positive stands first in the file
    assert score_split(pairs, np.zeros(4), ["MRR", "P@1"]) == {"MRR": 0.25, "P@1": 0.0}


def test_a_search_finds_the_rank_of_the_first_hit():
    pairs = PairSet.of(["a", "b", "b"], ["x", "y", "z"], corpus=["x", "y", "z", "w"]).gold()
    scores = np.array([[0.1, 0.9, 0.3, 0.2], [0.9, 0.1, 0.5, 0.3]])  # x is 4th for a; z is 2nd for b
    assert score_split(pairs, scores, ["HP@1", "HP@2", "MRR"]) == pytest.approx({"HP@1": 0, "HP@2": 0.5, "MRR": 0.375})


def test_a_search_ranks_as_scipy_does_and_counts_ties_against_us():
    rng = np.random.default_rng(3)
    scores = rng.integers(0, 5, size=(30, 12)).astype(float)
    answers = rng.integers(0, 12, size=30)
    corpus = [f"t{column}" for column in range(12)]
    pairs = PairSet.of([f"q{row}" for row in range(30)], [corpus[a] for a in answers], corpus=corpus).gold()
    ranks = [rankdata(-scores[row], method="max")[answers[row]] for row in range(30)]
    assert scores_per_item(pairs, scores, "MRR") == pytest.approx(1 / np.array(ranks))


def test_a_hit_that_is_not_in_the_corpus_counts_zero():
    pairs = PairSet.of(["a"], ["gone"], corpus=["x", "y"]).gold()
    assert score_split(pairs, np.array([[0.5, 0.4]]), ["HP@50", "MRR"]) == {"HP@50": 0.0, "MRR": 0.0}


def test_ranks_of_infinite_and_of_equal_scores_are_those_of_scipy():
    scores = np.array([np.inf, -np.inf, 0.5, np.inf, -np.inf, 0.5, -2.0])
    assert ranks_within(np.full(7, "q"), scores).tolist() == (rankdata(scores, method="dense") - 1).tolist()
    assert ranks_within(np.array([], str), np.array([])).tolist() == []


@given(st.lists(st.tuples(st.booleans(), st.integers(-8, 8)), min_size=2, max_size=40))
def test_the_best_threshold_is_found_as_by_trying_all(candidates):
    positive = np.array([label for label, _ in candidates])
    scores = np.array([score / 8 for _, score in candidates])
    tries = [f1_score(positive, scores > cut, zero_division=0) for cut in np.arange(-1.0625, 1.1, 0.0625)]
    found = f1_score(positive, scores > best_threshold(scores, positive), zero_division=0)
    assert found == pytest.approx(max(tries))


def test_f1_uses_the_threshold_that_it_is_given_and_f1_best_its_own():
    pairs = ranking([1, 1, 0, 0], list("abcd"))
    scores = np.array([0.9, 0.6, 0.5, 0.1])
    values = score_split(pairs, scores, ["F1", "F1@best"], threshold=0.7)
    assert values == pytest.approx({"F1": 2 / 3, "F1@best": 1.0})


def test_f1_is_left_out_where_no_threshold_is_known():
    assert "F1" not in score_split(ranking([1, 0], ["a", "b"]), np.array([0.9, 0.1]), ["F1", "AP"])


def test_labels_strictly_above_the_threshold_are_positive():
    pairs = PairSet.of(["a", "b"], ["c", "d"], [0.6, 0.7], query=["q", "q"])
    assert score_split(pairs.gold(0.6), np.array([0.9, 0.1]), ["MRR"])["MRR"] == 0.5


def test_a_constant_side_correlates_with_nothing():
    pairs = ranking([0.1, 0.5, 0.9], list("abc"))
    assert score_split(pairs, np.full(3, 0.4), ["Spearman", "Pearson"]) == {"Spearman": 0.0, "Pearson": 0.0}


@pytest.mark.parametrize("name", ["MAPP", "P@0", "P@-1", "P@٣", "P@" + "9" * 30, "P@" + "9" * 5000, "@1", ""])
def test_an_unknown_metric_names_the_known_ones(name):
    with pytest.raises(UserError, match=f"unknown metric '{name}'; known: MAP, MRR, MRR@k, Recall@k, P@k"):
        score_split(ranking([1], ["q"]), np.array([1.0]), [name])


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (["a", "b"], "scores are of type <U1"),
        ([1j, 2], "scores are of type complex128"),
        ([0.1], "1 scores for 2 pairs"),
        ([0.1, np.nan], "score 1 is nan"),
        ([0.1, np.inf], "score 1 is inf"),
    ],
)
def test_scores_that_do_not_fit_the_split_are_refused(scores, message):
    with pytest.raises(UserError, match=message):
        score_split(ranking([1, 0], ["q", "q"]), np.array(scores), ["MAP"])


def test_every_metric_says_what_it_is():
    assert all(metric.says for metric in METRICS.values())


@pytest.mark.parametrize("apart", [1e-9, 1e-15])
def test_scores_that_are_apart_in_float64_are_ranked_so(apart):
    """Against the loop: trec_eval reads scores as float32, in which these are all equal."""
    rng = np.random.default_rng(8)
    labels = rng.random(200) > 0.5
    scores = 0.5 + apart * rng.permutation(200)
    query = np.repeat([f"q{number}" for number in range(20)], 10)
    expected = [average_precision_by_a_loop(labels[query == q], scores[query == q]) for q in dict.fromkeys(query)]
    assert scores_per_item(ranking(labels, query), scores, "MAP") == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("near", [0.3, 1.0, 1e12, -1e12, 1e308, 5e-324, -5e-324])
def test_the_best_threshold_parts_scores_that_are_next_to_each_other(near):
    for scores, positive in (
        (np.array([np.nextafter(near, np.inf), near]), np.array([True, False])),
        (np.array([near, np.nextafter(near, np.inf)]), np.array([True, True])),  # both, and so a number below both
        (np.array([near, near]), np.array([True, False])),
    ):
        expected = 1.0 if positive.all() or scores[0] != scores[1] else 2 / 3
        assert f1_score(positive, scores > best_threshold(scores, positive)) == pytest.approx(expected)


def test_the_best_threshold_of_float32_scores_is_that_of_their_exact_values():
    scores = np.array([np.nextafter(np.float32(0.5), np.float32(1)), 0.5], np.float32)
    threshold = best_threshold(scores, np.array([True, False]))
    assert float(scores[0]) > threshold >= float(scores[1])


def test_f1_parts_scores_that_are_the_same_in_float32():
    above = np.nextafter(0.5, 1)
    pairs, scores = ranking([1, 0], ["a", "b"]), np.array([above, 0.5])
    assert score_split(pairs, scores, ["F1", "F1@best"], threshold=0.5) == {"F1": 1.0, "F1@best": 1.0}


def test_scores_may_be_whole_numbers_without_a_sign():
    scores, positive = np.array([0, 3, 2, 1], np.uint8), np.array([True, False, False, False])
    assert best_threshold(scores, positive) < 0


def test_among_equally_good_thresholds_the_highest_is_taken():
    scores = np.array([0.9, 0.5, 0.3, 0.1])  # above 0.9: F1 is 2/3; with 0.5 and 0.3 as well: 2/3 again
    positive = np.array([True, False, False, True])
    assert best_threshold(scores, positive) == pytest.approx(0.7)


def drawn(pairs, rng):
    """Cosines of pairs that are positive or not, 30 % of them positive."""
    positive = rng.random(pairs) < 0.3
    return np.where(positive, rng.normal(0.7, 0.15, pairs), rng.normal(0.4, 0.2, pairs)), positive


def test_the_steady_threshold_is_better_on_other_pairs_than_the_best_of_few():
    rng = np.random.default_rng(10)
    others, right = drawn(20_000, rng)
    few = [drawn(80, rng) for _ in range(150)]
    steady, best = ([f1_score(right, others > how(*one)) for one in few] for how in (steady_threshold, best_threshold))
    gain = np.array(steady) - np.array(best)
    assert gain.mean() > 3 * gain.std() / len(gain) ** 0.5 > 0


def test_the_steady_threshold_is_the_mean_over_resamples():
    """Against trying every cut with scikit-learn's F1, each pair weighed by how often it was drawn."""
    scores, positive = drawn(25, np.random.default_rng(11))
    ranked = np.sort(scores)[::-1]
    cuts = [*((ranked[1:] + ranked[:-1]) / 2), ranked[-1] - 1e-6]
    order, rng, found = np.argsort(-scores), np.random.default_rng(0), []
    for _ in range(20):
        times = np.bincount(rng.integers(0, 25, 25), minlength=25)
        tries = [f1_score(positive[order], ranked > cut, sample_weight=times, zero_division=0) for cut in cuts]
        found += [cuts[int(np.argmax(np.round(tries, 12)))]] if times[positive[order]].any() else []
    assert steady_threshold(scores, positive, resamples=20) == pytest.approx(np.mean(found))


@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e308])
def test_the_steady_threshold_lies_among_the_scores(scale):
    scores, positive = drawn(60, np.random.default_rng(12))
    scores *= scale
    assert scores.min() < steady_threshold(scores, positive) < scores.max()


@pytest.mark.parametrize("positive", [[False] * 4, [True] * 4, [True, False, False, True]])
def test_where_nothing_can_be_parted_the_steady_threshold_is_the_best_one(positive):
    same = np.full(4, 0.5)
    assert steady_threshold(same, np.array(positive)) == best_threshold(same, np.array(positive))
    if not any(positive):
        assert steady_threshold(np.arange(4.0), np.array(positive)) == 3.0


def test_grades_that_are_no_whole_numbers_keep_three_digits_in_ndcg():
    rng = np.random.default_rng(9)
    grades = rng.integers(1, 10_000, size=(15, 8)) / 1000
    scores = rng.normal(size=(15, 8))
    pairs = ranking(grades.ravel() / 10, np.repeat(np.arange(15).astype(str), 8), grade=grades.ravel())
    assert score_split(pairs, scores.ravel(), ["nDCG@3"])["nDCG@3"] == pytest.approx(ndcg_score(grades, scores, k=3), abs=1e-9)


@pytest.mark.parametrize("scale", [1e-9, 1e-4, 20_000.0])
def test_grades_of_any_size_are_gains(scale):
    grades, scores = np.array([3, 0, 1, 2]) * scale, np.array([0.9, 0.1, 0.8, 0.2])
    pairs = ranking([1, 0, 1, 0], ["q"] * 4, grade=grades)
    assert score_split(pairs, scores, ["nDCG@4"])["nDCG@4"] == pytest.approx(ndcg_score([grades], [scores], k=4), abs=1e-6)


def test_grades_that_would_fill_the_memory_are_refused():
    with pytest.raises(UserError, match=r"grades go up to 3e\+09: give at most 100,000"):
        score_split(ranking([1, 0, 1], ["q"] * 3, grade=[3e9, 0, 1]), np.arange(3.0), ["nDCG@1"])


def test_correlations_are_those_of_numpy():
    rng = np.random.default_rng(10)
    labels = rng.random(40)
    scores = labels + rng.normal(size=40)
    found = score_split(ranking(labels, [str(row) for row in range(40)]), scores, ["Spearman", "Pearson"])
    kept = labels.astype(np.float32)  # as pairs keep them
    expected = {
        "Spearman": np.corrcoef(rankdata(scores), rankdata(kept))[0, 1],
        "Pearson": np.corrcoef(scores, kept)[0, 1],
    }
    assert found == pytest.approx(expected, abs=1e-6)
    assert min(found.values()) > 0.1


def test_average_precision_over_all_pairs_is_the_loop_and_zero_without_a_positive():
    rng = np.random.default_rng(11)
    labels, scores, names = rng.random(50) > 0.7, rng.normal(size=50), [str(row) for row in range(50)]
    expected = average_precision_by_a_loop(labels, scores)
    assert score_split(ranking(labels, names), scores, ["AP"])["AP"] == pytest.approx(expected)
    assert score_split(ranking(np.zeros(50), names), scores, ["AP"])["AP"] == 0.0


def test_a_pair_at_the_threshold_is_called_negative_and_nothing_found_is_zero():
    pairs, scores = ranking([1, 1], ["a", "b"]), np.array([0.9, 0.6])
    assert score_split(pairs, scores, ["F1"], threshold=0.6)["F1"] == pytest.approx(2 / 3)
    assert score_split(pairs, scores, ["F1"], threshold=0.95)["F1"] == 0.0
    assert score_split(ranking([0, 0], ["a", "b"]), scores, ["F1"], threshold=0.95)["F1"] == 0.0


def test_three_grades_are_gains_and_two_are_right_and_wrong():
    scores = np.array([[0.9, 0.5, 0.1]])
    for grades, gains in (([0, 1, 2], [0, 1, 2]), ([1, 1, 3], [0, 0, 1])):  # as 1 to 3: what is wrong is worth nothing
        pairs = ranking(np.array(grades) == max(grades), ["q"] * 3, grade=grades)
        expected = ndcg_score(np.array([gains]), scores, k=3)
        assert score_split(pairs, scores.ravel(), ["nDCG@3"])["nDCG@3"] == pytest.approx(expected)


def test_a_metric_of_the_whole_split_has_no_value_per_item():
    assert scores_per_item(ranking([1, 0], ["a", "b"]), np.array([0.9, 0.1]), "AP") is None
