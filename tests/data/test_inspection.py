"""What an encoder meets in the pairs before training."""

from __future__ import annotations

import numpy as np

from pairtune.data.inspection import find_rivals, inspect_recipe
from pairtune.data.pairs import PairSet
from pairtune.encoders.embedding import count_tokens
from small import small_recipe


def test_the_clearest_rival_comes_first_and_known_positives_are_none():
    pairs = PairSet.of(["q", "q", "r", "s"], ["a", "b", "c", "d"], [1.0, 1.0, 1.0, 0.0])
    left = np.array([[1.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    right = np.array([[0.1, 0, 1], [1, 0, 0], [0, 0.5, 1], [0.2, 1, 0]])
    rivals, share = find_rivals(pairs, left, right, pairs.positives())
    assert [(one.row, one.other) for one in rivals] == [(2, 3), (0, 3)]  # b is closest to the first q, and a right answer
    assert share == 2 / 3  # of three positive pairs


def test_the_share_of_texts_that_are_cut_is_counted_in_tokens(tiny_encoder, tiny_model, small_task):
    seen = inspect_recipe(small_recipe(tiny_encoder, train={"max_seq_length": 6}), small_task)
    texts = [*small_task.train.left, *small_task.train.right]
    counts = [len(tiny_model.tokenizer(text)["input_ids"]) for text in texts]
    assert count_tokens(tiny_model, texts) == counts
    assert seen.lengths.cut == np.mean([count > 6 for count in counts]) > 0
    assert seen.lengths.longest == max(counts) and seen.lengths.limit == 6


def test_the_prompts_that_pairs_are_inspected_with_are_said(small_task, tiny_encoder, capsys):
    inspect_recipe(small_recipe(tiny_encoder, prompts={"left": "query: ", "right": "passage: "}), small_task)
    assert "left texts begin with 'query: ', right texts with 'passage: '" in capsys.readouterr().err
