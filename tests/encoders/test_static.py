"""Static embeddings: no transformer, no padding, no limit of length. All that a run does works with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from pairtune.data.inspection import measure_lengths
from pairtune.data.pairs import PairSet
from pairtune.encoders.adapters import check_adapter
from pairtune.encoders.embedding import describe_cut, encode
from pairtune.encoders.index import Index
from pairtune.encoders.loading import length_of, load_encoder
from pairtune.errors import UserError
from pairtune.runs.recipe import AdapterSettings
from pairtune.training import run
from small import small_pairs, small_recipe

TEXTS = ["a river under the bridge", "the stone", "a candle in the window of the garden " * 40]


@pytest.fixture(scope="module")
def static_encoder(tmp_path_factory, tiny_encoder):
    """Random vectors for the words of the tiny encoder."""
    torch.manual_seed(0)
    tokenizer = load_encoder(tiny_encoder, device="cpu").tokenizer.backend_tokenizer
    tokenizer.no_truncation()
    folder = str(tmp_path_factory.mktemp("static"))
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=32)], device="cpu").save_pretrained(folder)
    return folder


def test_a_static_embedding_is_ordered_trained_evaluated_and_saved(static_encoder, small_task, tmp_path, capsys):
    order = {"by": "examples", "group": 4, "neighbors": 6, "encode": "reuse"}
    loss = {"kind": "combo", "duplicates": "mask", "guide": 0.0}
    train = {"learning_rate": 0.02, "dimensions": [32, 8]}
    record = run(
        small_recipe(static_encoder, order=order, loss=loss, train=train),
        1,
        out=tmp_path / "run",
        task=small_task,
        checkpoints=False,
    )
    assert "its first module is StaticEmbedding" in capsys.readouterr().err
    assert [size.dimension for size in record.sizes[::3]] == [32, 8]
    before, after = (SentenceTransformer(folder, device="cpu").encode(TEXTS) for folder in (static_encoder, record.model))
    assert np.abs(after - before).max() > 0.01 and record.after["dev"]["Spearman"] > record.before["dev"]["Spearman"] - 0.05
    assert Path(record.model, "README.md").exists()


def test_where_training_does_not_help_a_static_embedding_is_kept(static_encoder, small_task, tmp_path):
    wrong = PairSet.of(small_task.train.left, small_task.train.right, 1 - small_task.train.label)
    recipe = small_recipe(static_encoder, train={"learning_rate": 0.5, "epochs": 1}, loss={"kind": "mse"}, keep_original=True)
    record = run(recipe, 1, out=tmp_path / "run", task=replace(small_task, train=wrong), checkpoints=False)
    assert record.unchanged and record.after == record.before


def test_all_of_a_text_is_read_and_found(static_encoder):
    model = load_encoder(static_encoder, 16, "cpu")
    assert length_of(model) is None and describe_cut(model, TEXTS) == ""
    lengths = measure_lengths(model, small_pairs(8, 1))
    assert lengths.cut == 0 and lengths.limit == lengths.longest
    np.testing.assert_allclose(encode(model, TEXTS), model.encode(TEXTS, normalize_embeddings=True), atol=1e-6)
    assert Index.build(model, TEXTS).search(model, "stone", top=1)[0][1] == "the stone"


def test_what_a_static_embedding_cannot_do_is_refused(static_encoder):
    with pytest.raises(UserError, match="needs a transformer, but this encoder begins with StaticEmbedding"):
        check_adapter(load_encoder(static_encoder, device="cpu"), AdapterSettings())
