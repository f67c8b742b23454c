"""How many tokens texts have, against counts by hand."""

from __future__ import annotations

from pairtune.encoders.embedding import describe_cut, needed_length

TEXTS = ["one two three"] * 98 + ["word " * 50, "word " * 1000]  # 5, 52 and 1002 tokens with the two special ones


def test_the_length_that_nearly_all_texts_need_and_how_many_it_cuts(tiny_model):
    assert needed_length(tiny_model, TEXTS, share=0.95) == (5, 2)
    assert needed_length(tiny_model, TEXTS, share=0.985) == (52, 1)


def test_the_encoders_own_limit_caps_it(tiny_model):
    tiny_model.max_seq_length = 128
    assert needed_length(tiny_model, TEXTS, share=1.0) == (128, 1)


def test_what_is_cut_is_said(tiny_model):
    tiny_model.max_seq_length = 32
    assert describe_cut(tiny_model, TEXTS) == "2 of 100 texts have more than 32 tokens and are cut (the longest has 1,002)"
    assert describe_cut(tiny_model, TEXTS[:98]) == ""


def test_of_many_texts_some_are_measured(tiny_model):
    tiny_model.max_seq_length = 4
    assert describe_cut(tiny_model, ["one two three"] * 20_000).startswith("5,000 of 5,000 texts that were measured have more")
    assert needed_length(tiny_model, ["one two three"] * 20_000) == (4, 20_000)
