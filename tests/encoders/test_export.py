"""A model for another runtime: it encodes as before, and says what it needs."""

from __future__ import annotations

from importlib.util import find_spec

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


def test_an_export_without_its_packages_says_what_to_install(tiny_encoder, tmp_path, monkeypatch):
    monkeypatch.setitem(export.PACKAGES, "openvino", ("numpy", "no_such_package.part"))
    with pytest.raises(UserError, match=r"needs no_such_package\.part: pip install 'pairtune\[export\]'"):
        export.export_model(tiny_encoder, tmp_path / "out", "openvino")
    monkeypatch.setitem(export.PACKAGES, "openvino", ())
    with pytest.raises(UserError, match="is there already"):
        export.export_model(tiny_encoder, tmp_path, "openvino")


@pytest.mark.parametrize("flags", [[], ["--onnx", "--openvino"]])
def test_an_export_is_for_one_runtime(flags, tmp_path, capfd):
    with pytest.raises(SystemExit, match="2"):
        main(["export", "minilm", str(tmp_path), *flags])
    assert "--onnx or --openvino, one of them" in capfd.readouterr().err
