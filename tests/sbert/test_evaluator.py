from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import f1_score

from pairtune.encoders.embedding import Embeddings
from pairtune.sbert.evaluator import PairEvaluator, evaluate_task
from report_runs import duplicates_task, ranking_task, search_task


def count_texts(model):
    """How often each text goes through the encoder from now on, by its tokens."""
    counted = Counter()

    def count(_, given):
        rows = given[0]["input_ids"]
        counted.update(model.tokenizer.batch_decode(rows, skip_special_tokens=True))

    model.register_forward_pre_hook(count)
    return counted


def search_in_halves():
    """Dev and test look for different texts in one corpus."""
    task = search_task()
    rows = np.arange(len(task.test))
    return replace(task, dev=task.test.take(rows[::2]), test=task.test.take(rows[1::2]))


@pytest.mark.parametrize("make_task", [duplicates_task, ranking_task, search_in_halves])
def test_each_text_of_both_splits_is_encoded_once(tiny_model, make_task):
    task = make_task()
    encoded = count_texts(tiny_model)
    evaluate_task(tiny_model, task)
    splits = (task.dev, task.test)
    texts = {text for pairs in splits for text in (*pairs.left, *(pairs.right if pairs.corpus is None else pairs.corpus))}
    read = tiny_model.tokenizer(sorted(texts))["input_ids"]
    assert encoded == Counter(tiny_model.tokenizer.batch_decode(read, skip_special_tokens=True))


def test_a_search_finds_what_the_hosts_vectors_find(tiny_model):
    task = search_in_halves()
    found = evaluate_task(tiny_model, task)
    for name, pairs in (("dev", task.dev), ("test", task.test)):
        ranks = []
        corpus = tiny_model.encode(list(pairs.corpus), show_progress_bar=False)
        for left in dict.fromkeys(pairs.left):
            cosines = tiny_model.similarity(tiny_model.encode(left, show_progress_bar=False), corpus)[0]
            right = [pairs.corpus.index(text) for text, own in zip(pairs.right, pairs.left, strict=True) if own == left]
            ranks.append(1 + int((cosines > cosines[right].max()).sum()))
        expected = {"HP@1": np.mean([r <= 1 for r in ranks]), "HP@5": np.mean([r <= 5 for r in ranks])}
        expected["MRR"] = np.mean([1 / r for r in ranks])
        assert found[name] == pytest.approx(expected)


def test_the_threshold_of_f1_comes_from_dev_alone(tiny_model):
    task = duplicates_task()
    found = evaluate_task(tiny_model, task)
    assert found["test"]["threshold"] == found["dev"]["threshold"]
    scores = Embeddings(tiny_model).score(task.test.left, task.test.right)
    expected = f1_score(task.test.label > 0.5, scores >= found["test"]["threshold"])
    assert found["test"]["F1"] == pytest.approx(expected)
    assert found["test"]["F1@best"] >= found["test"]["F1"] and found["dev"]["F1@best"] == found["dev"]["F1"]


def test_an_evaluator_sees_the_weights_as_they_are_when_it_is_called(tiny_model):
    judge = PairEvaluator.of_task(ranking_task())
    before = judge(tiny_model)
    for weights in tiny_model.parameters():
        weights.data *= 0.5
    assert judge(tiny_model) != before
