from __future__ import annotations

import json
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from transformers import AutoConfig, AutoModel
from typer.testing import CliRunner

from pairtune.encoders import export
from pairtune.encoders.embedding import can_cut, cut_features, embed, encode, gpu_products
from pairtune.encoders.export import run_on_openvino
from pairtune.encoders.index import fingerprint_model
from pairtune.encoders.loading import fast_precision
from pairtune.errors import UserError

TEXTS = [
    "How do I sort a list?",
    "",
    "Is it going to rain tomorrow, or will it stay dry until the weekend?",
    "a",
    "A sentence that goes on. " * 12,
    "Wie spät ist es? ¿Qué hora es? 何時ですか",
    "How do I sort a list?",
    *(f"{'word ' * count}end" for count in range(1, 14)),
]


def host(model, texts=TEXTS):
    return model.encode(texts, normalize_embeddings=True, show_progress_bar=False)


@pytest.mark.parametrize("tokens", [1, 64, 1024])
def test_vectors_are_those_of_the_host_whatever_stands_in_a_block(tiny_model, tokens):
    found = torch.nn.functional.normalize(embed(tiny_model, TEXTS, block=(tokens, 16))).numpy()
    assert found.dtype == np.float32 and found.shape == (len(TEXTS), 384)
    assert np.abs(found - host(tiny_model)).max() < 1e-6
    np.testing.assert_allclose(encode(tiny_model, TEXTS), found, atol=1e-6)


@pytest.mark.parametrize("given", ["none", "ieee", "tf32"])
def test_encoding_leaves_the_precision_of_products_to_whoever_set_it(tiny_model, given):
    products = torch.backends.cuda.matmul
    before = products.fp32_precision
    try:
        products.fp32_precision = given  # as transformers does for tf32=True
        embed(tiny_model, ["a", "b"])
        assert products.fp32_precision == given
        with gpu_products("cuda"):
            assert products.fp32_precision == "tf32"
        assert products.fp32_precision == given
    finally:
        products.fp32_precision = before


def test_no_text_gives_no_vector(tiny_model):
    assert encode(tiny_model, []).shape == (0, 384)


def test_prompt_and_width_are_those_that_the_model_was_saved_with(tiny_model):
    plain = encode(tiny_model, TEXTS)
    tiny_model.prompts, tiny_model.default_prompt_name, tiny_model.truncate_dim = {"ask": "a question: "}, "ask", 64
    found = encode(tiny_model, TEXTS)
    assert found.shape == (len(TEXTS), 64)
    assert np.abs(found - host(tiny_model)).max() < 1e-6
    assert np.abs(found - plain[:, :64]).max() > 1e-2
    tiny_model.set_pooling_include_prompt(False)
    assert np.abs(encode(tiny_model, TEXTS) - host(tiny_model)).max() < 1e-6


def test_texts_that_are_padded_in_front_are_left_to_the_host(tiny_model):
    tiny_model.tokenizer.padding_side = "left"
    assert not can_cut(tiny_model.preprocess(["a", "a b c"]))
    assert np.abs(encode(tiny_model, TEXTS) - host(tiny_model)).max() < 1e-6


def test_an_encoder_without_attention_is_left_to_the_host(tiny_model):
    torch.manual_seed(0)
    model = SentenceTransformer(modules=[StaticEmbedding(tiny_model.tokenizer, embedding_dim=8)], device="cpu")
    assert not can_cut(model.preprocess(["a", "b"]))
    assert np.allclose(encode(model, TEXTS), host(model), atol=1e-6)


def test_encoding_switches_dropout_off(tiny_model):
    tiny_model.train()
    assert torch.equal(embed(tiny_model, TEXTS), embed(tiny_model, TEXTS))


@settings(max_examples=50)
@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=40), tokens=st.integers(1, 100))
def test_blocks_hold_each_text_once_whole_and_no_more_tokens_than_allowed(lengths, tokens):
    width = max(lengths)
    mask = (torch.arange(width) < torch.tensor(lengths)[:, None]).long()
    ids = torch.arange(len(lengths) * width).view(len(lengths), width) * mask
    seen = []
    for rows, block in cut_features({"input_ids": ids, "attention_mask": mask, "modality": "text"}, tokens):
        seen += rows
        assert block["modality"] == "text"
        longest = max(lengths[row] for row in rows)
        assert block["input_ids"].shape == block["attention_mask"].shape == (len(rows), longest)
        assert len(rows) == 1 or len(rows) * longest <= tokens
        for row, cut in zip(rows, block["input_ids"], strict=True):
            assert cut.sum() == ids[row].sum()
    assert sorted(seen) == list(range(len(lengths)))


needs_openvino = pytest.mark.skipif(find_spec("openvino") is None, reason="needs OpenVINO: pip install 'pairtune[openvino]'")


@needs_openvino
def test_an_encoder_on_openvino_gives_nearly_the_same_vectors_and_reports_to_nobody(tiny_encoder, tiny_model):
    model = run_on_openvino(SentenceTransformer(tiny_encoder, device="cpu"))
    found, plain = encode(model, TEXTS), encode(tiny_model, TEXTS)
    cosine = (found * plain).sum(axis=1)
    assert cosine.mean() > 0.9999 and cosine.min() > 0.999
    assert not np.array_equal(found, plain)  # it is another computation
    assert sys.modules["openvino_telemetry"] is None
    assert fingerprint_model(model) != fingerprint_model(tiny_model)  # an index of one is not taken for that of the other


@needs_openvino
@pytest.mark.parametrize("kind", ["mpnet", "distilbert", "roberta"])
def test_an_encoder_on_openvino_may_be_of_another_architecture(kind, tiny_model, tmp_path):
    sizes = {"n_layers": 2, "n_heads": 4, "dim": 64, "hidden_dim": 128}
    if kind != "distilbert":
        sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64, "intermediate_size": 128}
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, vocab_size=tiny_model.tokenizer.vocab_size, initializer_range=0.2, **sizes)
    AutoModel.from_config(config).save_pretrained(tmp_path)
    tiny_model.tokenizer.save_pretrained(tmp_path)
    model = SentenceTransformer(str(tmp_path), device="cpu")
    model.max_seq_length = 100
    plain = encode(model, TEXTS)
    found = encode(run_on_openvino(model), TEXTS)
    assert (plain[:6] @ plain[:6].T).min() < 0.9  # texts that attention and positions tell apart
    assert (plain * found).sum(axis=1).min() > 0.999


@needs_openvino
def test_the_command_line_scores_with_openvino_when_asked(tiny_encoder, monkeypatch):
    from pairtune.cli import app

    asked = []
    monkeypatch.setattr(export, "run_on_openvino", lambda model: asked.append(model) or run_on_openvino(model))
    arguments = ["score", tiny_encoder, "--left", "how old is the moon", "--right", "the age of the moon", "--json"]
    slow, fast = (json.loads(CliRunner().invoke(app, [*arguments, *more]).stdout)["scores"][0] for more in ([], ["--openvino"]))
    assert len(asked) == 1
    assert slow > 0.2 and abs(slow - fast) < 5e-3


def test_an_encoder_on_openvino_without_openvino_says_what_to_install(tiny_model, monkeypatch):
    monkeypatch.setattr(export, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"OpenVINO is not installed: pip install 'pairtune\[openvino\]'"):
        run_on_openvino(tiny_model)


@needs_openvino
def test_what_openvino_cannot_take_is_refused(tiny_model):
    static = SentenceTransformer(modules=[StaticEmbedding(tiny_model.tokenizer, embedding_dim=8)], device="cpu")
    with pytest.raises(UserError, match="a Transformer on torch, but this encoder begins with StaticEmbedding"):
        run_on_openvino(static)
    with pytest.raises(
        UserError, match=r"OpenVINO gives other vectors \(lowest cosine \d\.\d+, not 1\.1\): encode without --openvino"
    ):
        run_on_openvino(tiny_model, lowest_cosine=1.1)


def test_scores_after_a_training_in_bf16_are_in_float32(tiny_model):
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    before = embed(tiny_model, TEXTS, exact=True)
    AcceleratorState._reset_state()  # a training before this test may have left its precision
    Accelerator(mixed_precision="bf16", cpu=True).prepare_model(tiny_model)  # as the host's trainer does, and leaves it so
    AcceleratorState._reset_state()
    assert (tiny_model.encode(TEXTS, convert_to_tensor=True) - before).abs().max() > 1e-4
    assert torch.equal(embed(tiny_model, TEXTS, exact=True), before)
    with torch.autocast("cpu", dtype=torch.bfloat16):  # an order's vectors, which ask for it
        assert (embed(tiny_model, TEXTS) - before).abs().max() > 1e-4


@pytest.mark.parametrize(
    ("able", "expected"),
    [
        ({"amx_bf16": True}, "bf16"),
        ({"avx512_bf16": True, "amx_bf16": False}, "bf16"),
        ({"avx512_f": True}, "float32"),
        ({}, "float32"),
    ],
)
def test_bf16_is_for_processors_that_have_instructions_for_it(monkeypatch, able, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able)
    assert fast_precision() == expected
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert fast_precision() == "float32"


@pytest.mark.parametrize("expected", ["bf16", "float32"])
def test_a_gpu_that_only_emulates_bf16_computes_in_float32(monkeypatch, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation or expected == "bf16")
    assert fast_precision() == expected
