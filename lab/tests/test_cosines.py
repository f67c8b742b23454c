"""The cosines of test pairs: kept whole, and worth to F1 and Spearman what drawing pairs again says."""

from __future__ import annotations

import numpy as np
import pytest
from lab.agenda import record_key
from lab.book import Book, compare
from lab.cosines import Labels, append_pairs, pack, pair_worths, read_cosines, read_labels, unpack
from lab.rows import read_row
from made_runs import make_run, write
from scipy.stats import spearmanr
from sklearn.metrics import f1_score

from pairtune.runs.evidence import Evidence, Judged, Outcome

RNG = np.random.default_rng(4)
LABEL = RNG.integers(0, 6, 150) / 5
COSINES = np.clip(LABEL + RNG.normal(0, 0.3, 150), -1, 1).round(4)
GRADED, YES_NO = Labels(LABEL, 0.6), Labels((LABEL > 0.5).astype(float), 0.5)


def evidence(cosines, labels=LABEL, kind="regression", total=None):
    texts, outcome = [""] * len(cosines), Outcome(score=list(cosines))
    kept = {"label": list(labels), "grade": list(labels), "query": list(range(len(cosines)))}
    tested = Judged(total=total or len(cosines), left=texts, right=texts, before=outcome, after=outcome, **kept)
    return Evidence(command="", kind=kind, positive_above=0.6, stages=[], test=tested)


def test_cosines_come_back_to_four_digits():
    assert unpack(pack(COSINES)) == pytest.approx(COSINES, abs=2e-5)
    assert len(pack(COSINES)) < 3 * len(COSINES) < len(str(COSINES.tolist())) / 2


@pytest.mark.parametrize("place", [0, 7, 149])
def test_a_worth_is_the_jackknifes_pseudo_value(place):
    """150 times the score with all pairs less 149 times the score without one."""
    rest = np.arange(150) != place
    spearman = 150 * spearmanr(COSINES, LABEL).statistic - 149 * spearmanr(COSINES[rest], LABEL[rest]).statistic
    assert pair_worths("Spearman", COSINES, GRADED, None)[place] == pytest.approx(spearman)
    gold, called = LABEL > 0.5, COSINES > 0.4
    f1 = 150 * f1_score(gold, called) - 149 * f1_score(gold[rest], called[rest])
    assert pair_worths("F1", COSINES, YES_NO, 0.4)[place] == pytest.approx(f1)


@pytest.mark.parametrize(("metric", "labels"), [("Spearman", GRADED), ("F1", YES_NO)])
def test_worths_vary_as_the_score_of_pairs_that_are_drawn_again(metric, labels):
    scored = {"Spearman": lambda rows: spearmanr(COSINES[rows], LABEL[rows]).statistic}
    scored["F1"] = lambda rows: f1_score(labels.values[rows] > 0.5, COSINES[rows] > 0.4)
    drawn = [scored[metric](RNG.integers(0, 150, 150)) for _ in range(600)]
    worths = pair_worths(metric, COSINES, labels, 0.4)
    assert worths.mean() == pytest.approx(scored[metric](np.arange(150)), abs=0.01)
    assert worths.std() / np.sqrt(150) == pytest.approx(np.std(drawn), rel=0.12)


def test_other_metrics_and_other_pairs_have_no_worths():
    assert pair_worths("AP", COSINES, YES_NO, 0.4) is None
    assert pair_worths("F1", COSINES[:-1], YES_NO, 0.4) is None


def test_only_whole_test_sets_of_pairs_that_do_not_compete_are_kept(tmp_path):
    append_pairs(tmp_path, "minilm", "stsb", "a-1", evidence(COSINES))
    append_pairs(tmp_path, "minilm", "stsb", "b-1", evidence(COSINES, total=900))
    append_pairs(tmp_path, "minilm", "cqa-a", "c-1", evidence(COSINES, kind="ranking"))
    assert read_cosines(tmp_path).keys() == {"a-1"}
    assert read_labels(tmp_path)["stsb"].values == pytest.approx(LABEL) and read_labels(tmp_path).keys() == {"stsb"}


def test_pairs_count_in_a_comparison_of_rows_that_left_them(tmp_path):
    """Two seeds that agree: over seeds alone anything is sure, over 150 pairs it is not."""
    better = np.clip(COSINES + 0.02 * LABEL, -1, 1)
    for name, cosines in (("stsb/mse", better), ("stsb/combo", COSINES)):
        for seed in (1, 2):
            run = make_run(name, seed, float(spearmanr(cosines, LABEL).statistic) + seed / 1e6, 0.5)
            write(tmp_path, [run])
            append_pairs(tmp_path, "minilm", "stsb", record_key(run), evidence(cosines))
    rows = [Book(tmp_path).find(read_row(name), "minilm") for name in ("stsb/mse", "stsb/combo")]
    found = compare(*rows, ("Spearman", "test"))
    assert found.mean == pytest.approx(rows[0].mean(("Spearman", "test")) - rows[1].mean(("Spearman", "test")))
    one, other = (pair_worths("Spearman", cosines, GRADED, None) for cosines in (better, COSINES))
    assert found.high - found.low == pytest.approx(2 * 1.96 * (one - other).std() / np.sqrt(150), rel=0.05)
