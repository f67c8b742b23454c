"""What an encoder is told not to see, against texts from which Python's own `re` has taken it."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from tokenizers import ByteLevelBPETokenizer, Regex, normalizers
from transformers import CanineTokenizer, PreTrainedTokenizerFast

from pairtune.data.inspection import inspect_recipe
from pairtune.encoders.embedding import encode
from pairtune.encoders.ignoring import ignoring, note_emptied
from pairtune.errors import UserError
from pairtune.runs.toml import read_recipe
from pairtune.training import run
from small import small_recipe

LINK, SIGNED = r"(https?://|pic\.twitter\.com/)\S+", r"\(@\w+\)\s\w+\s\d+,\s\d{4}$"
EMPTY = ("", "x*", "a|", r"\s*", r"(https?://\S+)?", r"\b", "$", ".*", "(?=the)", "(?<=cat)")
POST = "The moon is cheese https://t.co/a1?b=2 pic.twitter.com/xyz — A Mouse (@mouse) May 4, 2018"


def test_a_saved_model_encodes_a_text_as_another_does_without_what_is_ignored(tmp_path, tiny_model):
    rules, bare = [LINK, SIGNED], POST
    for rule in rules:
        bare = re.sub(rule, " ", bare)
    assert bare.split() == ["The", "moon", "is", "cheese", "—", "A", "Mouse"]
    expected = tiny_model.encode([bare, "no link"])
    tiny_model[0].processor = ignoring(tiny_model.tokenizer, rules)
    tiny_model.max_seq_length = 64
    tiny_model.save_pretrained(str(tmp_path / "model"))
    saved = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    np.testing.assert_allclose(saved.encode([POST, "no link"]), expected, atol=1e-6)
    assert saved.max_seq_length == 64


def test_the_tokenizer_that_was_given_still_sees_all(tiny_model):
    before = tiny_model.tokenizer.tokenize(POST)
    assert len(ignoring(tiny_model.tokenizer, [LINK]).tokenize(POST)) < len(before)
    assert tiny_model.tokenizer.tokenize(POST) == before


LINKS = ",".join(["https://t.co/a"] * 20)
PFCC = tomllib.loads((Path(__file__).parents[2] / "lab/recipes/pfcc-s/best.toml").read_text())["ignore"]
LONG = [LINKS, LINKS * 300, "http" * 25_000, "(@" * 50_000, " " * 100_000, "(@a) b 1, " * 10_000, "https://a " * 10_000]


@pytest.mark.parametrize("rules", [[r"https?://\S+"], PFCC, [LINK, SIGNED]], ids=["documented", "pfcc-s/best", "signed"])
def test_texts_made_to_slow_the_rules_down_are_read(tiny_model, rules):
    tokenizer = ignoring(tiny_model.tokenizer, rules)
    for text in LONG:  # the engine gives up, and the tokenizer panics, after ten million steps back
        assert len(tokenizer(f"the moon is cheese! {text}")["input_ids"]) > 5
    assert tokenizer.tokenize(f"the moon {LINKS} is cheese") == tiny_model.tokenizer.tokenize("the moon is cheese")


def test_rules_hold_to_the_end_of_the_longest_text(tmp_path, tiny_model):
    tiny_model[0].processor = ignoring(tiny_model.tokenizer, ["<[^<>]+>"])
    tiny_model.save_pretrained(str(tmp_path))
    seen = SentenceTransformer(str(tmp_path), device="cpu").tokenizer.backend_tokenizer.normalizer.normalize_str
    moons, open_tags = "moon " * 40_000, "<" * 200_000
    assert seen(f"{moons}<river> {open_tags}<{'x' * 200_000}> moon") == f"{moons}{open_tags} moon"


NOTED = [r"(?x) id: \d+  # a note", "(?x)\nmy[ ]\\w+  # whose )\n[ ]phone  # (or tablet", r"#\w+ (?#a note)"]


@pytest.mark.parametrize("rule", [r"(a+)+b", r"x(?:\w+\s?)*:", r"(\d|1)+x", r"<[^>]+>", r"(?x) (a+)+ b # (a", r"\w+(?=:)"])
def test_a_rule_that_some_text_slows_down_is_refused(tiny_model, rule):
    with pytest.raises(UserError, match=f"ignore: {re.escape(repr(rule))} repeats .* without end"):
        ignoring(tiny_model.tokenizer, [rule])


def test_a_rule_of_brackets_within_brackets_is_refused(tiny_model):
    with pytest.raises(UserError, match="has too many groups within groups: write fewer"):
        ignoring(tiny_model.tokenizer, ["(" * 1500 + "a" + ")" * 1500])


@pytest.mark.parametrize(
    "rule", [r"<[^>]{1,200}>", r"\[[^\[\]]*\]", r"#\w+", r"(?i)sent from my \w+", r"\bid:\s*\d+\b", r"^>.*$", *NOTED]
)
def test_a_rule_that_no_text_slows_down_is_taken(tiny_model, rule):
    assert ignoring(tiny_model.tokenizer, [rule]).tokenize("the moon") == ["the", "moon"]


def test_rules_that_leave_nothing_of_texts_say_so_and_of_no_text_are_refused(tiny_model):
    texts = ["the moon", "the moon", "a river", "a cat", "a dog"]
    assert note_emptied(ignoring(tiny_model.tokenizer, ["the moon"]), texts) == "ignore leaves nothing of 1 of 4 texts"
    assert note_emptied(ignoring(tiny_model.tokenizer, ["moon"]), texts) == ""
    with pytest.raises(UserError, match="ignore leaves nothing of any text"):
        note_emptied(ignoring(tiny_model.tokenizer, [".+"]), texts)


def test_a_tokenizer_that_panics_is_reported_in_words(tiny_model):
    backend = tiny_model.tokenizer.backend_tokenizer
    backend.normalizer = normalizers.Sequence([normalizers.Replace(Regex("(a+)+b"), ""), backend.normalizer])
    with pytest.raises(UserError, match=r"the encoder's tokenizer gave up on a text .*Train the model again"):
        encode(tiny_model, ["a" * 40])


@pytest.fixture
def linked_task(small_task):
    """The small task with a link behind every left text."""

    def linked(pairs):
        return replace(pairs, left=tuple(f"{text} https://t.co/{row}" for row, text in enumerate(pairs.left)))

    return replace(small_task, **{name: linked(getattr(small_task, name)) for name in ("train", "dev", "test")})


@pytest.mark.parametrize("fast", [True, False])
def test_training_that_ignores_links_is_training_without_them(tmp_path, tiny_encoder, small_task, linked_task, fast):
    given = {"train": {"epochs": 1, "fast": fast}}
    plain = run(small_recipe(tiny_encoder, **given), 1, out=tmp_path / "plain", task=small_task, checkpoints=False)
    ignored = run(
        small_recipe(tiny_encoder, ignore=[LINK], **given), 1, out=tmp_path / "ignored", task=linked_task, checkpoints=False
    )
    seen = run(small_recipe(tiny_encoder, **given), 1, out=tmp_path / "seen", task=linked_task, checkpoints=False)
    for split in ("dev", "test"):
        assert ignored.after[split] == pytest.approx(plain.after[split], abs=1e-5)
        assert ignored.before[split] == pytest.approx(seen.before[split], abs=1e-5)  # the encoder as it is
        assert abs(seen.after[split]["Pearson"] - plain.after[split]["Pearson"]) > 1e-3
    tuned = SentenceTransformer(str(tmp_path / "ignored" / "model"), device="cpu")
    np.testing.assert_allclose(tuned.encode("a river https://t.co/x"), tuned.encode("a river"), atol=1e-6)


def test_a_second_stage_does_not_see_it_either(tmp_path, tiny_encoder, small_task, linked_task):
    stages = [{"train": {"epochs": 1}}, {"loss": {"kind": "mse"}, "train": {"epochs": 1, "max_seq_length": 12}}]
    plain = run(small_recipe(tiny_encoder, stages=stages), 1, out=tmp_path / "plain", task=small_task, checkpoints=False)
    ignored = run(
        small_recipe(tiny_encoder, ignore=[LINK], stages=stages), 1, out=tmp_path / "ignored", task=linked_task, checkpoints=False
    )
    assert ignored.after["test"] == pytest.approx(plain.after["test"], abs=1e-5)


def test_batches_are_inspected_as_they_are_trained_on(tiny_encoder, small_task, linked_task):
    plain = inspect_recipe(small_recipe(tiny_encoder), small_task).orders
    ignored = inspect_recipe(small_recipe(tiny_encoder, ignore=[LINK]), linked_task).orders
    seen = inspect_recipe(small_recipe(tiny_encoder), linked_task).orders
    assert ignored["original"].positive_similarity == pytest.approx(plain["original"].positive_similarity, abs=1e-5)
    assert abs(seen["original"].positive_similarity - plain["original"].positive_similarity) > 1e-3


def test_a_tokenizer_to_which_a_space_is_a_token_sees_none_in_its_place():
    learner = ByteLevelBPETokenizer()
    learner.train_from_iterator(["The moon is cheese, said the mouse on the moon."] * 9, vocab_size=400)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=learner._tokenizer)
    assert tokenizer.backend_tokenizer.normalizer is None and len(tokenizer.tokenize("a  b")) > len(tokenizer.tokenize("a b"))
    found = ignoring(tokenizer, [LINK]).tokenize("http://a.b http://c.d The moon http://e.f http://g.h is cheese http://i.j")
    assert found == tokenizer.tokenize("The moon is cheese")


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("(", r"ignore: '\(' is not a regular expression as Oniguruma has them .*: mend it"),
        *((rule, "also matches where there is nothing: have it match one character at least") for rule in EMPTY),
    ],
)
def test_a_rule_that_cannot_be_followed_is_refused_before_anything_is_written(tmp_path, tiny_encoder, small_task, rule, message):
    with pytest.raises(UserError, match=message):
        run(small_recipe(tiny_encoder, ignore=[rule]), 1, out=tmp_path / "run", task=small_task)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("tokenizer", [None, CanineTokenizer(), ByteLevelBPETokenizer()], ids=["none", "slow", "bare"])
def test_a_tokenizer_that_takes_no_rules_is_refused(tokenizer):
    with pytest.raises(UserError, match=r"ignore = \['x'\]: the encoder's tokenizer is not a fast one"):
        ignoring(tokenizer, ["x"])


def test_one_expression_by_itself_is_answered_with_how_to_write_a_list():
    with pytest.raises(UserError, match=r"ignore is 'https\S+'; write a list of regular expressions, such as \['https"):
        read_recipe("own/labelled", ["ignore=https://"])
