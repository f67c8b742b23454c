"""bf16 copies of parameters: nearly the same embeddings and gradients, and an encoder that is as it was."""

from __future__ import annotations

import torch
from torch.nn.functional import cosine_similarity

from pairtune.encoders.adapters import add_adapter
from pairtune.fast.captured import Halves
from pairtune.runs.recipe import AdapterSettings

TEXTS = ["how are you", "the quick brown fox jumps over the lazy dog", "yes no", "What is it like to live in a large city?"]


def embed(model, halves=None):
    features = model.preprocess(TEXTS)
    first, *rest = model.children()
    if halves is None:
        features = first(features)
    else:
        with halves.instead():
            features = first(features)
    features["token_embeddings"] = features["token_embeddings"].float()
    for module in rest:
        features = module(features)
    return features["sentence_embedding"]


def test_half_the_bits_give_nearly_the_embeddings_and_gradients_of_all(tiny_model):
    model = tiny_model.eval()
    weight = torch.randn(4, 384, generator=torch.Generator().manual_seed(0))
    whole = embed(model)
    (whole * weight).sum().backward()
    expected = {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}
    model.zero_grad()
    halves = Halves(model[0])
    half = embed(model, halves)
    assert cosine_similarity(whole, half).min() > 0.9995
    (half * weight).sum().backward()
    assert all(parameter.grad is None for parameter in model.parameters())
    halves.hand_over()
    found = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert found.keys() == expected.keys()
    assert all(gradient.dtype == torch.float32 for gradient in found.values())
    joined = [torch.cat([gradients[name].flatten() for name in expected]) for gradients in (found, expected)]
    assert cosine_similarity(*joined, dim=0) > 0.998


def test_halves_follow_their_originals_and_replace_older_gradients(tiny_model):
    model = tiny_model.eval()
    halves = Halves(model[0])
    weights = model[0].auto_model.encoder.layer[0].output.dense.weight
    for _ in range(2):
        embed(model, halves).sum().backward()
        halves.hand_over()
        gradient = weights.grad
        kept = gradient.clone()
    assert weights.grad is gradient and torch.equal(weights.grad, kept)
    before = embed(model, halves)
    with torch.no_grad():
        weights.mul_(2)
    assert (embed(model, halves) - before).abs().max() > 1e-3


def test_an_encoder_that_is_frozen_gets_no_gradients(tiny_model):
    model = tiny_model.eval().requires_grad_(False)
    halves = Halves(model[0])
    embed(model, halves)
    halves.hand_over()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_gradients_that_a_step_did_not_find_are_zero_and_those_of_a_failed_one_forgotten(tiny_model):
    model = tiny_model.eval()
    halves = Halves(model[0])
    weights = model[0].auto_model.encoder.layer[0].output.dense.weight
    for _ in range(2):
        embed(model, halves).sum().backward()
        halves.forget()
    weights.grad = torch.ones_like(weights)
    halves.hand_over()
    assert not weights.grad.any()


def test_the_encoder_has_its_own_parameters_again(tiny_model):
    own = dict(tiny_model.named_parameters())
    halves = Halves(tiny_model[0])
    embed(tiny_model.eval(), halves)
    assert all(parameter is own[name] for name, parameter in tiny_model.named_parameters())


def test_with_an_adapter_only_its_own_parameters_follow_and_have_gradients(tiny_model):
    add_adapter(tiny_model.eval(), AdapterSettings(rank=2), seed=1)
    trained = {name: one for name, one in tiny_model.named_parameters() if one.requires_grad}
    halves = Halves(tiny_model[0])
    before = embed(tiny_model, halves)
    with torch.no_grad():
        for name, one in trained.items():
            one.normal_(std=0.03, generator=torch.Generator().manual_seed(len(name)))
    after = embed(tiny_model, halves)
    assert torch.equal(after, embed(tiny_model, Halves(tiny_model[0]))) and (after - before).abs().max() > 0.01
    assert cosine_similarity(after, embed(tiny_model)).min() > 0.999
    after.sum().backward()
    halves.hand_over()
    assert {name for name, one in tiny_model.named_parameters() if one.grad is not None} == trained.keys()
