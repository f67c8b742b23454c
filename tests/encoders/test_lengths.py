"""How many texts are cut, against counts by hand."""

from __future__ import annotations

from pairtune.encoders.embedding import describe_cut, share_unknown, warn_unknown

TEXTS = ["one two three"] * 98 + ["word " * 50, "word " * 1000]  # 5, 52 and 1002 tokens with the two special ones


def test_what_is_cut_is_said(tiny_model):
    tiny_model.max_seq_length = 32
    assert describe_cut(tiny_model, TEXTS) == "2 of 100 texts have more than 32 tokens and are cut (the longest has 1,002)"
    assert describe_cut(tiny_model, TEXTS[:98]) == ""


def test_of_many_texts_some_are_measured(tiny_model):
    tiny_model.max_seq_length = 4
    assert describe_cut(tiny_model, ["one two three"] * 20_000).startswith("5,000 of 5,000 texts that were measured have more")


def test_a_script_that_the_encoder_does_not_know_is_said(tiny_model):
    known, unknown = ["the red stone"] * 3, ["如何煮鸡蛋"]  # the tiny encoder has none of these words
    assert share_unknown(tiny_model, known) == 0 and warn_unknown(0.0) == ""
    ids = tiny_model.tokenizer(unknown, add_special_tokens=False)["input_ids"][0]
    share = share_unknown(tiny_model, [*known, *unknown])
    assert share == ids.count(tiny_model.tokenizer.unk_token_id) / (9 + len(ids)) > 0.2
    assert warn_unknown(share).startswith(f"{share:.0%} of the tokens are unknown to the encoder; it may not know this language")
