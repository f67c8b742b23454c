"""The original datasets: the counts of the paper, and the scores that prove loader and order right."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import ir_measures
import numpy as np
import pytest

from pairtune.data.datasets import TASKS, load_task, task_status
from pairtune.data.pairs import PairSet
from pairtune.data.splits import single_spaces

load = cache(load_task)

ROWS = {
    "stsb": (5749, 1500, 1379),
    "mrpc": (3668, 408, 1725),
    "qqp": (9998, 7641, 7651),
    "antique": (3217, 380, 6589),
    "cqa-a": (10465 - 66, 2440, 2930),
    "cqa-b": (1999, 500, 880),
    "pfcc-s": (728, 72, 199),
}


def mean_average_precision_in_file_order(pairs: PairSet) -> float:
    """Plain loops; a query with no positive counts 0."""
    ranked: dict[str, list[bool]] = defaultdict(list)
    for query, label in zip(pairs.query, pairs.label, strict=True):
        ranked[query].append(label > 0.5)
    total = 0.0
    for labels in ranked.values():
        hits, precisions = 0, 0.0
        for rank, good in enumerate(labels, start=1):
            if good:
                hits += 1
                precisions += hits / rank
        total += precisions / hits if hits else 0.0
    return total / len(ranked)


@pytest.mark.parametrize(("name", "rows"), ROWS.items())
def test_every_split_has_as_many_pairs_as_the_readme_of_the_data_says(real_data, name, rows):
    task = load(name, real_data)
    assert (len(task.train), len(task.dev), len(task.test)) == rows
    assert all(text.strip() for part in (task.train, task.dev, task.test) for text in (*part.left, *part.right))
    assert task.kind == TASKS[name].kind and task.metric == task.metrics[0] and task.license and task.citation.startswith("@")


@pytest.mark.parametrize(
    ("name", "split", "truth"),
    [("cqa-a", "test", 0.7261), ("cqa-a", "test2016", 0.5953), ("cqa-b", "test", 0.4185), ("cqa-b", "test2016", 0.7475)],
)
def test_the_order_of_the_file_scores_the_known_map(real_data, name, split, truth):
    pairs = load(name, real_data).split(split)
    assert mean_average_precision_in_file_order(pairs) == pytest.approx(truth, abs=5e-5)


def test_ir_measures_gives_the_same_map_when_queries_without_a_positive_count_zero(real_data):
    pairs = load("cqa-a", real_data).test
    names = [f"d{row}" for row in range(len(pairs))]
    judged = [ir_measures.Qrel(q, d, int(y)) for q, d, y in zip(pairs.query, names, pairs.label, strict=True)]
    ranked = [ir_measures.ScoredDoc(q, d, -row) for row, (q, d) in enumerate(zip(pairs.query, names, strict=True))]
    values = [metric.value for metric in ir_measures.iter_calc([ir_measures.AP], judged, ranked)]
    assert sum(values) / len(set(pairs.query)) == pytest.approx(0.7261, abs=5e-5)


@pytest.mark.parametrize("name", ["antique", "cqa-a", "cqa-b", "mrpc"])  # STSb's own split repeats captions
def test_no_left_text_is_in_two_splits(real_data, name):
    task = load(name, real_data)
    train, dev, test = (set(map(single_spaces, part.left)) for part in (task.train, task.dev, task.test))
    assert not train & dev and not train & test and not dev & test


def test_stsb_scores_are_divided_by_five_and_the_grade_keeps_them(real_data):
    train = load("stsb", real_data).train
    assert train.grade.max() == 5 and train.label.max() == 1
    np.testing.assert_allclose(train.label * 5, train.grade, atol=1e-6)
    assert train.left[1] == "A man is playing a large flute." and train.grade[1] == np.float32(3.8)


def test_mrpc_keeps_quotation_marks_and_the_share_of_paraphrases(real_data):
    task = load("mrpc", real_data)
    assert task.train.left[0].startswith('Amrozi accused his brother, whom he called "the witness", of')
    assert [int(part.label.sum()) for part in (task.train, task.dev, task.test)] == [2474, 279, 1147]


def test_antique_skips_the_questions_without_texts_and_says_how_many(real_data):
    task = load("antique", real_data)
    assert len(set(task.train.query)) == 270 and len(set(task.dev.query)) == 30 and len(set(task.test.query)) == 200
    assert "3,597 of 27,422 rows" in task.notes[0] and "23,585 rows with ids and a grade but no text" in task.notes[0]
    np.testing.assert_allclose(task.test.label, (task.test.grade - 1) / 3, atol=1e-6)
    assert (task.test.positives(task.positive_above) == (task.test.grade >= 3)).all()


def test_cqa_a_leaves_out_the_seven_threads_that_are_asked_again_in_the_test(real_data):
    task = load("cqa-a", real_data)
    assert any("is also in dev or test: 7 (66 pairs)" in note for note in task.notes)
    assert any("test2016 is part of train" in note for note in task.notes)
    assert {"Q341_R44", "Q2774"} & set(task.train.query) == set()


def test_cqa_b_texts_look_the_same_in_xml_and_tsv(real_data):
    task = load("cqa-b", real_data)
    shared = set(task.train.right) & set(task.split("train-part2").right)
    assert len(shared) > 150  # the search engine found the same questions for both; a different joining would share none


def test_cqa_b_has_no_quotation_marks_and_says_how_many_texts_of_its_test_are_cut(real_data):
    task = load("cqa-b", real_data)
    assert not any(text.startswith("|") for split in (task.train, task.dev, task.test) for text in split.right)
    assert any("561 of 880" in note and "226 are whole again" in note and "335 are not" in note for note in task.notes)
    threads = set(load("cqa-a", real_data).test.left)
    assert len(threads) == 293 and threads <= set(task.test.right)  # the same questions in both subtasks, now letter by letter


def test_pfcc_searches_199_tweets_among_10369_claims(real_data):
    task = load("pfcc-s", real_data)
    assert len(task.test.corpus) == len(set(task.test.corpus)) == 10369
    assert len(set(task.test.query)) == 199
    assert set(task.train.right) | set(task.dev.right) | set(task.test.right) <= set(task.test.corpus)
    assert not set(task.train.right) & set(task.dev.right) and not set(task.train.left) & set(task.dev.left)
    assert len(task.train) + len(task.dev) == 800
    titles = task.extra["titles"]
    assert len(titles) == 10375 and set(titles.right) == set(titles.corpus) == set(task.test.corpus) and all(titles.left)


def test_status_counts_the_rows_of_what_is_there(real_data):
    status = task_status("cqa-b", real_data)
    assert status.rows == {"train": 1999, "dev": 500, "test": 880, "test2016": 700, "train-part2": 670}
    assert status.found == str(real_data / "cqa")
