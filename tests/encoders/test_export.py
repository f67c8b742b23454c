"""A model for another runtime: it encodes as before, and says what it needs."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import numpy as np
import pytest

from pairtune.cli import main
from pairtune.encoders import export
from pairtune.errors import UserError


@pytest.mark.skipif(find_spec("optimum") is None, reason="needs Optimum Intel: pip install 'pairtune[export]'")
def test_an_exported_model_encodes_as_before(tiny_encoder, tmp_path):
    from sentence_transformers import SentenceTransformer

    assert export.export_model(tiny_encoder, tmp_path / "out", "openvino") >= 0.9999
    texts = ["another text", "than the ones that were checked " * 30]
    before = SentenceTransformer(tiny_encoder, device="cpu").encode(texts, normalize_embeddings=True)
    after = SentenceTransformer(str(tmp_path / "out"), backend="openvino").encode(texts, normalize_embeddings=True)
    assert (before * after).sum(1).min() >= 0.9999


def test_a_graph_gives_the_embeddings_of_the_model_without_torch(tiny_encoder, tmp_path):
    import onnxruntime
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer

    assert export.export_model(tiny_encoder, tmp_path / "out", "onnx", dimension=48) >= 0.9999
    assert not list((tmp_path / "out").glob("*.safetensors"))
    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    tokenizer.enable_padding()
    tokenizer.enable_truncation(256)
    session = onnxruntime.InferenceSession(tmp_path / "out" / "onnx" / "model.onnx")
    model = SentenceTransformer(tiny_encoder, device="cpu", truncate_dim=48)
    for texts in (["another text"], ["than the ones that were checked " * 30, "a", "of other lengths"]):
        found = tokenizer.encode_batch(texts)
        columns = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
        inputs = {name: np.array([getattr(one, column) for one in found]) for name, column in columns.items()}
        tokens, vectors = session.run(["last_hidden_state", "sentence_embedding"], inputs)
        np.testing.assert_allclose(vectors, model.encode(texts, normalize_embeddings=True), atol=1e-5)
        assert tokens.shape == (*inputs["input_ids"].shape, 384)


def test_an_export_without_its_packages_says_what_to_install(tiny_encoder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optimum", None)  # as if it were not installed
    with pytest.raises(UserError, match=r"optimum\.intel: pip install 'pairtune\[export\]'"):
        export.export_model(tiny_encoder, tmp_path / "out", "openvino")
    with pytest.raises(UserError, match="is there already"):
        export.export_model(tiny_encoder, tmp_path, "torch")


@pytest.mark.parametrize("flags", [[], ["--onnx", "--openvino"]])
def test_an_export_is_for_one_runtime(flags, tmp_path, capfd):
    with pytest.raises(SystemExit, match="2"):
        main(["export", "minilm", str(tmp_path), *flags])
    assert "give --onnx or --openvino (one of them)" in capfd.readouterr().err
