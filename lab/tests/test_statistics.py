"""One bootstrap: against intervals that are known in closed form, and Holm's correction by hand."""

from __future__ import annotations

import numpy as np
import pytest
from lab.book import Sample, compare
from lab.statistics import Difference, difference, holm
from made_runs import make_run
from scipy import stats

MAP = ("MAP", "test")


def sample(*scores, items=None):
    runs = tuple(make_run("cqa-a/bsc", seed, score, score) for seed, score in enumerate(scores))
    return Sample(runs, None if items is None else np.array(items, float))


def test_without_queries_the_interval_and_p_are_those_of_welchs_t():
    one, other = (0.81, 0.84, 0.86, 0.83), (0.80, 0.79, 0.81)
    found, expected = compare(sample(*one), sample(*other), MAP), stats.ttest_ind(one, other, equal_var=False)
    interval = expected.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=0.002)
    assert found.p == pytest.approx(expected.pvalue, abs=0.004) and found.sign == 1
    assert found.mean == pytest.approx(np.mean(one) - np.mean(other))
    assert compare(sample(), sample(0.1), MAP) is None


def test_with_queries_the_interval_is_that_of_the_paired_differences():
    rng = np.random.default_rng(3)
    hard = rng.normal(size=400)  # some queries are hard for both: that must not count
    one, other = (np.repeat(hard + rng.normal(0.1, 0.3, size=(1, 400)), 2, axis=0) for _ in range(2))  # seeds that agree
    found = compare(sample(0.7, items=one + 0.05), sample(0.6, items=other), MAP)
    each = (one + 0.05 - other)[0]
    expected = stats.ttest_1samp(each, 0)
    assert found.high - found.low == pytest.approx(2 * 1.96 * each.std() / np.sqrt(400), rel=0.03)
    assert found.p == pytest.approx(expected.pvalue, abs=0.01)


def test_queries_and_seeds_both_count():
    rng = np.random.default_rng(5)
    items, seeds = rng.normal(0, 0.3, 300), rng.normal(0, 0.02, (2, 5, 1))
    one, other = 0.6 + items + seeds[0], 0.5 + np.zeros(300) + seeds[1]
    found = difference(one, other)
    over_seeds = sum(side[:, 0].var(ddof=1) / 5 for side in seeds)
    error = np.sqrt(items.var() / 300 + over_seeds)
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.15)
    assert found.high - found.low > 2 * 1.96 * np.sqrt(items.var() / 300)


def test_a_single_seed_is_never_surely_better_however_many_queries():
    rng = np.random.default_rng(3)
    one, other = rng.normal(0.9, 0.01, (1, 400)), rng.normal(0.1, 0.01, (1, 400))
    found = compare(sample(0.9, items=one), sample(0.1, items=other), MAP)
    assert (found.low, found.high, found.p) == (-np.inf, np.inf, 1.0)


def test_to_be_better_by_a_tenth_is_more_than_to_be_better():
    one, other = np.array([[0.801], [0.8], [0.799]]), np.full((3, 1), 0.75)
    assert difference(one, other).sign == 1
    by_a_tenth = difference(one, other, share=0.1)
    assert by_a_tenth.sign == -1 and by_a_tenth.mean == pytest.approx(0.72 - 0.75)
    assert by_a_tenth.lost == pytest.approx(0.0625)
    assert difference(one, other - 0.1, share=0.1).sign == 1


def test_the_same_rows_do_not_differ():
    scores = np.random.default_rng(1).random((3, 50))
    found = difference(scores, scores)
    assert found.mean == 0 and found.low < 0 < found.high and found.p > 0.8


def test_holm_stops_at_the_first_that_is_not_sure():
    assert holm([0.001, 0.01, 0.02, 0.04]) == [True, True, True, True]
    assert holm([0.04, 0.02, 0.001]) == [True, True, True]  # 0.001 < 0.05/3, 0.02 < 0.05/2, 0.04 < 0.05
    assert holm([0.03, 0.03, 0.001]) == [False, False, True]
    assert holm([]) == []


def test_a_difference_is_sure_where_its_interval_leaves_out_zero():
    assert [Difference(0.1, low, high).sign for low, high in ((0.01, 0.2), (-0.1, 0.2), (-0.3, -0.1))] == [1, 0, -1]
