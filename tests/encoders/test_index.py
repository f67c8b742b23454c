"""An index is used again for the same model and the same texts, and for no others."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tokenizers import normalizers

from pairtune.encoders.embedding import encode
from pairtune.encoders.index import Index, fingerprint_model, fingerprint_texts, open_index, read_index, write_index
from pairtune.encoders.prompts import Prompts
from small import files_of_at_most

TEXTS = ("a green apple", "a red engine", "A Ripe Pear")


def lower_not(model) -> None:
    model.tokenizer.backend_tokenizer.normalizer = normalizers.NFC()


def pool_otherwise(model) -> None:
    model[1].pooling_mode = "cls"


def prompt(model) -> None:
    model.prompts = {"query": "find: "}
    model.default_prompt_name = "query"


def shorten(model) -> None:
    model.max_seq_length = 5


def narrow(model) -> None:
    model.truncate_dim = 16


def prompt_otherwise(model) -> None:
    model.prompts = {**model.prompts, model.default_prompt_name: "seek: "}


def prompt_not(model) -> None:
    model.default_prompt_name = None


def look_ahead_not(model) -> None:
    model[0].auto_model.config.is_decoder = True


def round_weights(model) -> None:
    model.bfloat16().float()


CHANGES = [lower_not, pool_otherwise, prompt, shorten, narrow, look_ahead_not, round_weights]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_model_that_encodes_differently_gets_an_index_of_its_own(tmp_path, tiny_model, change):
    corpus = tmp_path / "texts.txt"
    open_index(tiny_model, TEXTS, corpus)
    change(tiny_model)
    found = open_index(tiny_model, TEXTS, corpus)
    expected = encode(tiny_model, TEXTS)
    np.testing.assert_allclose(found.faiss.reconstruct_n(0, len(TEXTS)), expected, atol=1e-6)


def test_every_change_is_another_model_whatever_came_before(tiny_model):
    """Each on top of the others: none is seen only because something else changes with it."""
    found = [fingerprint_model(tiny_model)]
    for change in (*CHANGES, prompt_otherwise, prompt_not):
        change(tiny_model)
        found.append(fingerprint_model(tiny_model))
    assert len(set(found)) == len(CHANGES) + 3


def test_a_model_that_encodes_the_same_gets_the_kept_one(tmp_path, tiny_model):
    before = fingerprint_model(tiny_model)
    corpus = tmp_path / "texts.txt"
    open_index(tiny_model, TEXTS, corpus)  # which sets truncation and padding of the tokenizer
    assert fingerprint_model(tiny_model) == before
    made = (tmp_path / "texts.txt.index" / "vectors.faiss").stat().st_ino
    open_index(tiny_model, TEXTS, corpus)
    assert (tmp_path / "texts.txt.index" / "vectors.faiss").stat().st_ino == made


def test_texts_with_another_prompt_get_an_index_of_their_own(tmp_path, tiny_model):
    corpus, prompts = tmp_path / "texts.txt", Prompts(right="a passage: ")
    open_index(tiny_model, TEXTS, corpus)
    found = open_index(tiny_model, TEXTS, corpus, prompts)
    np.testing.assert_allclose(found.faiss.reconstruct_n(0, len(TEXTS)), encode(tiny_model, prompts.of_right(TEXTS)), atol=1e-6)


def test_texts_that_end_elsewhere_are_other_texts():
    assert fingerprint_texts(["a\0b", "c"]) != fingerprint_texts(["a", "b", "c"])
    assert fingerprint_texts(["ab", "c"]) != fingerprint_texts(["a", "bc"])
    assert fingerprint_texts(["a\ud800"]) != fingerprint_texts(["a"])


def test_vectors_that_changed_on_the_disk_are_not_used(tmp_path, tiny_model):
    corpus, kept = tmp_path / "texts.txt", tmp_path / "texts.txt.index" / "vectors.faiss"
    whole = open_index(tiny_model, TEXTS, corpus).search(tiny_model, "apple")
    stored = kept.read_bytes()
    kept.write_bytes(stored[:-400] + bytes(400))  # still an index, with zeroes
    assert open_index(tiny_model, TEXTS, corpus).search(tiny_model, "apple") == whole


def test_of_two_that_write_at_once_neither_gets_the_vectors_of_the_other(tmp_path, tiny_model):
    """The worst order of the two files: the vectors of one, then both of the other, then the key of the first."""
    mine, others = Index.build(tiny_model, TEXTS), Index.build(tiny_model, TEXTS[::-1])
    my_key, other_key = {"model": "mine", "texts": "x"}, {"model": "other", "texts": "x"}
    (tmp_path / "vectors.faiss.part").mkdir()  # no two write under one name: what is called so is in nobody's way
    write_index(tmp_path, my_key, mine)
    sealed = (tmp_path / "key.json").read_bytes()
    write_index(tmp_path, other_key, others)
    assert read_index(tmp_path, other_key, TEXTS[::-1]) is not None
    (tmp_path / "key.json").write_bytes(sealed)
    assert json.loads(sealed)["model"] == "mine" and read_index(tmp_path, my_key, TEXTS) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["key.json", "vectors.faiss", "vectors.faiss.part"]


def test_an_index_that_cannot_be_written_leaves_nothing_behind(tmp_path, tiny_model, capsys):
    corpus, kept = tmp_path / "texts.txt", tmp_path / "texts.txt.index"
    with files_of_at_most(100):
        found = open_index(tiny_model, TEXTS, corpus)
    assert found.search(tiny_model, "apple", 1)[0][1] == "a green apple"
    assert "could not be kept" in capsys.readouterr().err and list(kept.iterdir()) == []
    (kept / "vectors.faiss").mkdir()  # what was written cannot take its name
    open_index(tiny_model, TEXTS, corpus)
    assert [path.name for path in kept.iterdir()] == ["vectors.faiss"]
