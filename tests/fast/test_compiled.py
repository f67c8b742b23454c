"""Compiled parts of layers: the same embeddings and gradients, one compilation for all layers."""

from __future__ import annotations

import shutil

import pytest
import torch

from pairtune.fast.architectures import ARCHITECTURES, first_position, packed_attention
from pairtune.fast.packing import Tokens, pack
from pairtune.fast.step import compiled

TEXTS = ["how are you", "a", "the quick brown fox jumps over the lazy dog", "yes no", "What is it like?", "no"]


@pytest.mark.skipif(not shutil.which("g++"), reason="torch.compile needs a C++ compiler here")
def test_compiled_layers_give_the_embeddings_and_gradients_of_the_others(tiny_model):
    model = tiny_model.eval()
    tokens = Tokens()
    found = []
    parts = ARCHITECTURES["bert"].parts_of(model[0].auto_model)
    for faster in (False, True):
        for texts in (TEXTS, TEXTS[:4]):
            batch = pack(tokens, tokens.places(model, texts).reshape(2, -1), None, offset=first_position(model), longest=32)
            model.zero_grad()
            with packed_attention(model, batch), compiled(parts if faster else []):
                out = model(batch.features())["sentence_embedding"]
            out[:, :10].sum().backward()
            found.append((out.detach(), model[0].auto_model.encoder.layer[0].output.dense.weight.grad.clone()))
    for one, other in zip(found[:2], found[2:], strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 12
    assert "forward" not in vars(model[0].auto_model.encoder.layer[0].output)
