"""Test pairs that look mislabelled."""

from __future__ import annotations

import numpy as np

from pairtune.report.wins import find_doubts
from pairtune.runs.evidence import Evidence, Judged, Outcome


def judged(kind, label, before, after, **search):
    count = len(label)
    outcomes = [Outcome(score=list(map(float, score)), **search) for score in (before, after)]
    texts = {"left": [f"left {row}" for row in range(count)], "right": [f"right {row}" for row in range(count)]}
    labels = {"label": list(map(float, label)), "grade": list(map(float, label)), "query": list(range(count))}
    tested = Judged(total=count, **texts, **labels, before=outcomes[0], after=outcomes[1])
    return Evidence(command="", kind=kind, positive_above=0.5, stages=[], test=tested)


def scores_of(label, spread, seed):
    return np.asarray(label) * 0.6 + 0.2 + np.random.default_rng(seed).normal(scale=spread, size=len(label))


def test_a_flipped_label_is_found_and_nothing_else():
    truth = np.tile([0.0, 1.0], 50)
    label = truth.copy()
    label[[7, 20]] = 1 - label[[7, 20]]
    before, after = scores_of(truth, 0.05, 1), scores_of(truth, 0.02, 2)
    for score in (before, after):
        score[[20, 7]] = 0.15, 0.85  # as usual for what they are, and not for what their labels say
    found = find_doubts(judged("classification", label, before, after))
    assert {one.left for one in found} == {"left 7", "left 20"}
    assert {one.truth for one in found} == {"negative", "positive"}


def test_a_pair_that_only_one_of_the_two_models_contradicts_is_no_doubt():
    truth = np.tile([0.0, 1.0], 50)
    before = scores_of(truth, 0.05, 1)
    before[3] = 0.0  # a positive that the training has learned
    assert find_doubts(judged("classification", truth, before, scores_of(truth, 0.02, 2))) == []


def test_a_grade_from_the_wrong_end_of_the_scale_is_found():
    truth = np.linspace(0, 1, 60)
    label = truth.copy()
    label[2] = 1.0
    found = find_doubts(judged("regression", label, scores_of(truth, 0.01, 3), scores_of(truth, 0.01, 4)))
    assert [one.left for one in found] == ["left 2"] and found[0].truth == "label 1"


def test_in_a_search_another_text_that_both_models_prefer_may_be_right():
    search = {"rank": [1, 2, 3], "right": ["a", "b", "c"], "rival": ["x", "y", "z"], "rival_score": [0.1, 0.9, 0.52]}
    found = find_doubts(judged("retrieval", [1, 1, 1], [0.8, 0.4, 0.5], [0.9, 0.6, 0.5], **search))
    assert [(one.left, one.instead) for one in found] == [("left 1", "y")]


def test_a_run_without_scores_of_pairs_has_no_doubts():
    assert find_doubts(None) == []
