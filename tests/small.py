"""A task and a recipe that train in seconds, the weights that come of it, and a disk that is soon full."""

from __future__ import annotations

import json
import resource
import zlib
from contextlib import contextmanager

import numpy as np
from safetensors.numpy import load_file

from pairtune.data.pairs import PairSet
from pairtune.runs.toml import make_recipe

WORDS = ["stone", "river", "cloud", "engine", "garden", "paper", "silver", "window", "forest", "needle", "bridge", "candle"]
RARE = ["##plane", "aero", "fe", "kitten", "mat", "moon", "rested", "rug", "sorted", "sunny"]  # in texts of other tests


def sentence(rng):
    return " ".join(rng.choice(WORDS, size=4))


def small_pairs(count, seed):
    """Each left text with a near and a random right text; the label is the share of words they have in common."""
    rng = np.random.default_rng(seed)
    left = [text for _ in range(count // 2) for text in [sentence(rng)] * 2]
    right = [sentence(rng) if row % 2 else f"a {text}" for row, text in enumerate(left)]
    label = [len(set(a.split()) & set(b.split())) / len(set(a.split())) for a, b in zip(left, right, strict=True)]
    return PairSet.of(left, right, label)


def small_recipe(tiny_encoder, **tables):
    train = {"epochs": 2, "batch_size": 8, "learning_rate": 1e-4, "max_seq_length": 16, **tables.pop("train", {})}
    # an epoch is kept, better or not: two trainings that both kept the original encoder would be equal whatever they did
    return make_recipe({"name": "small/combo", "encoder": tiny_encoder, "keep_original": False, "train": train, **tables})


def weights(folder):
    return load_file(folder / "model.safetensors")


def assert_same_weights(one, other):
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


PIECES, NEURONS = 3000, 256  # of 30,522 pieces of words, and of the 1,536 neurons between two layers


def tiny_name():
    """The name of its folder: another one whenever it would be another encoder."""
    words = zlib.crc32(" ".join([*WORDS, *RARE]).encode())
    return f"minilm-2-layers-{PIECES}-pieces-{NEURONS}-neurons-{words:08x}"


def make_tiny_encoder(folder):
    """The first two layers of MiniLM: their strongest neurons, the most frequent pieces of words, and words that tests need."""
    from torch.nn import Embedding

    from pairtune.encoders.loading import load_encoder

    model = load_encoder("minilm", device="cpu")
    bert = model[0].auto_model
    bert.encoder.layer = bert.encoder.layer[:2]
    for layer in bert.encoder.layer:
        keep_strongest(layer.intermediate.dense, layer.output.dense)
    words = {*WORDS, *RARE}
    kept = sorted(place for word, place in model.tokenizer.get_vocab().items() if place < PIECES or word in words)
    bert.embeddings.word_embeddings = Embedding.from_pretrained(bert.embeddings.word_embeddings.weight[kept].detach())
    bert.config.update({"num_hidden_layers": 2, "intermediate_size": NEURONS, "vocab_size": len(kept)})
    model.save_pretrained(str(folder), create_model_card=False)
    pieces = json.loads((folder / "tokenizer.json").read_text())
    known = {place: word for word, place in pieces["model"]["vocab"].items()}
    pieces["model"]["vocab"] = {known[place]: row for row, place in enumerate(kept)}
    (folder / "tokenizer.json").write_text(json.dumps(pieces))


def keep_strongest(enter, leave):
    """Of the neurons between two linear layers, those with the largest weights on both sides."""
    from torch.nn import Parameter

    strength = enter.weight.norm(dim=1) * leave.weight.norm(dim=0)
    kept = strength.topk(NEURONS).indices.sort().values
    enter.weight, enter.bias = Parameter(enter.weight[kept].detach()), Parameter(enter.bias[kept].detach())
    leave.weight = Parameter(leave.weight[:, kept].detach())
    enter.out_features = leave.in_features = NEURONS


def make_smallest_encoder(tiny_encoder, folder):
    """An encoder of one narrow layer with the tiny one's words: a training and its checkpoints cost a moment."""
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_encoder)
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 32, "intermediate_size": 32}
    config = AutoConfig.for_model("bert", vocab_size=tokenizer.vocab_size, initializer_range=0.2, **sizes)
    torch.manual_seed(0)
    AutoModel.from_config(config).save_pretrained(folder / "plain")
    tokenizer.save_pretrained(folder / "plain")
    SentenceTransformer(str(folder / "plain"), device="cpu").save_pretrained(str(folder / "whole"), create_model_card=False)
    return str(folder / "whole")


@contextmanager
def files_of_at_most(size):
    """A limit on the size of files fails a write like a full disk does, without filling this one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
