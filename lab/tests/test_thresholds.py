"""Thresholds of F1 that few pairs give, on other pairs."""

import numpy as np
from lab.cosines import Labels
from lab.guises import load_guise
from lab.thresholds import score_draws, thin_positives

from pairtune.metrics import THRESHOLDS


def test_positives_are_thinned_to_their_share():
    positive = np.arange(100) < 60
    kept = thin_positives(positive, 0.2, np.random.default_rng(0))
    assert positive[kept].sum() == 10 and (~positive[kept]).sum() == 40
    assert sorted(thin_positives(positive, None, np.random.default_rng(0))) == [*range(100)]


def test_a_run_that_parts_all_pairs_has_an_f1_of_one_wherever_the_threshold_comes_from():
    labels = Labels(np.repeat([0.0, 1.0], 200), 0.5)
    scores = [*score_draws([labels.values], labels, 60, None, np.random.default_rng(0))]
    assert scores and all(found == [1.0] * len(THRESHOLDS) for found in scores)
    assert not [*score_draws([labels.values], labels, 300, None, np.random.default_rng(0))]  # too few others


def test_rows_are_scored_with_the_threshold_of_the_paper():
    assert load_guise("stdlib").f1_threshold == "best"
