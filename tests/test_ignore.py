"""What an encoder is told not to see, against texts from which Python's own `re` has taken it."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from pairtune.errors import UserError
from pairtune.sbert.ignore import ignoring
from pairtune.train import run
from small import small_recipe

LINK, SIGNED = r"(https?://|pic\.twitter\.com/)\S+", r"\(@\w+\)\s\w+\s\d+,\s\d{4}$"
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


@pytest.mark.parametrize("fast", [True, False])
def test_training_that_ignores_links_is_training_without_them(tmp_path, tiny_encoder, small_task, fast):
    def linked(pairs):
        return replace(pairs, left=tuple(f"{text} https://t.co/{row}" for row, text in enumerate(pairs.left)))

    task = replace(small_task, **{name: linked(getattr(small_task, name)) for name in ("train", "dev", "test")})
    given = {"train": {"epochs": 1, "fast": fast}}
    plain = run(small_recipe(tiny_encoder, **given), 1, out=tmp_path / "plain", task=small_task)
    ignored = run(small_recipe(tiny_encoder, ignore=[LINK], **given), 1, out=tmp_path / "ignored", task=task)
    seen = run(small_recipe(tiny_encoder, **given), 1, out=tmp_path / "seen", task=task)
    for split in ("dev", "test"):
        assert ignored.after[split] == pytest.approx(plain.after[split], abs=1e-5)
        assert ignored.before[split] == pytest.approx(seen.before[split], abs=1e-5)  # the encoder as it is
        assert abs(seen.after[split]["Spearman"] - plain.after[split]["Spearman"]) > 1e-3
    tuned = SentenceTransformer(str(tmp_path / "ignored" / "model"), device="cpu")
    np.testing.assert_allclose(tuned.encode("a river https://t.co/x"), tuned.encode("a river"), atol=1e-6)


def test_a_rule_that_is_none_is_refused_before_anything_is_written(tmp_path, tiny_encoder, small_task):
    with pytest.raises(UserError, match=r"ignore: '\(' is not a regular expression .*: mend it"):
        run(small_recipe(tiny_encoder, ignore=["("]), 1, out=tmp_path / "run", task=small_task)
    assert not (tmp_path / "run").exists()


def test_a_tokenizer_that_takes_no_rules_is_refused():
    with pytest.raises(UserError, match=r"ignore = \['x'\]: the encoder's tokenizer is not a fast one"):
        ignoring(None, ["x"])
