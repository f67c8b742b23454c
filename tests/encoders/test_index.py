"""An index is used again for the same model and the same texts, and for no others."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tokenizers import normalizers

from pairtune.encoders.embedding import encode
from pairtune.encoders.index import Index, fingerprint_model, fingerprint_texts, open_index, read_index, write_index
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


def activate_otherwise(model) -> None:
    model[0].auto_model.config.hidden_act = "relu"


CHANGES = [lower_not, pool_otherwise, prompt, shorten, narrow, activate_otherwise]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_model_that_encodes_differently_gets_an_index_of_its_own(tmp_path, tiny_model, change):
    corpus = tmp_path / "texts.txt"
    open_index(tiny_model, TEXTS, corpus)
    change(tiny_model)
    found = open_index(tiny_model, TEXTS, corpus)
    expected = encode(tiny_model, TEXTS)
    np.testing.assert_allclose(found.faiss.reconstruct_n(0, len(TEXTS)), expected, atol=1e-6)


def test_a_model_that_encodes_the_same_gets_the_kept_one(tmp_path, tiny_model):
    before = fingerprint_model(tiny_model)
    corpus = tmp_path / "texts.txt"
    open_index(tiny_model, TEXTS, corpus)  # which sets truncation and padding of the tokenizer
    assert fingerprint_model(tiny_model) == before
    made = (tmp_path / "texts.txt.index" / "vectors.faiss").stat().st_ino
    open_index(tiny_model, TEXTS, corpus)
    assert (tmp_path / "texts.txt.index" / "vectors.faiss").stat().st_ino == made


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
    write_index(tmp_path, my_key, mine)
    sealed = (tmp_path / "key.json").read_bytes()
    write_index(tmp_path, other_key, others)
    assert read_index(tmp_path, other_key, TEXTS[::-1]) is not None
    (tmp_path / "key.json").write_bytes(sealed)
    assert json.loads(sealed)["model"] == "mine" and read_index(tmp_path, my_key, TEXTS) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["key.json", "vectors.faiss"]


def test_an_index_that_cannot_be_written_leaves_nothing_behind(tmp_path, tiny_model, capsys):
    corpus, kept = tmp_path / "texts.txt", tmp_path / "texts.txt.index"
    with files_of_at_most(100):
        found = open_index(tiny_model, TEXTS, corpus)
    assert found.search(tiny_model, "apple", 1)[0][1] == "a green apple"
    assert "could not be kept" in capsys.readouterr().err and list(kept.iterdir()) == []
    (kept / "vectors.faiss").mkdir()  # what was written cannot take its name
    open_index(tiny_model, TEXTS, corpus)
    assert [path.name for path in kept.iterdir()] == ["vectors.faiss"]
