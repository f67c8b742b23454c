"""What the loss sees: embeddings before a final Normalize; what users load and score has it."""

from __future__ import annotations

import shutil
import warnings

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import TripletLoss
from sentence_transformers.sentence_transformer.modules import Normalize
from transformers import TrainerCallback

from pairtune.encoders.embedding import embed, encode_texts
from pairtune.encoders.loading import load_encoder
from pairtune.loss import batch_softmax_loss
from pairtune.runs.toml import make_recipe
from pairtune.sbert.losses import BatchSoftmaxLoss
from pairtune.sbert.raw import raw_embeddings, unnormalized
from pairtune.sbert.trainer import make_trainer
from small import small_pairs, small_recipe

PAIRS = small_pairs(8, 1)
LEFT, RIGHT = PAIRS.left, PAIRS.right
TEMPERATURE = 1.2


def encoder_without_dropout(folder):
    model = load_encoder(folder, 16, "cpu")
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


def embed_raw(model, texts):
    """By the modules before Normalize, one after the other."""
    features = model.preprocess(list(texts))
    for module in list(model.children())[:-1]:
        features = module(features)
    return features["sentence_embedding"]


class Watching(TrainerCallback):
    """The loss of the first step, and while the model trains, the lengths of an order's vectors."""

    def __init__(self):
        self.losses, self.lengths = [], []

    def on_step_begin(self, args, state, control, **kwargs):
        self.lengths += [np.linalg.norm(encode_texts(kwargs["model"], LEFT), axis=1)]

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.losses += [logs["loss"]] if "loss" in logs else []


def train(model, small_task, folder, loss, fast, **more):
    """One step over all pairs at once, or as many epochs as asked for."""
    settings = {"epochs": 1, "batch_size": 8, "learning_rate": 1e-3, "warmup": 0, "max_seq_length": 16, "fast": fast, **more}
    recipe = make_recipe({"name": "small/x", "loss": loss, "order": {"by": "original"}, "train": settings})
    columns = {"left": LEFT, "right": RIGHT, "label": np.ones(8)}
    if loss["kind"] == "triplet":
        columns = {"left": LEFT, "right": RIGHT, "negative": RIGHT[::-1]}
    watching = Watching()
    given = model, Dataset.from_dict(columns), recipe.stages[0], small_task, 1, folder / "stages" / "1", [watching]
    trainer = make_trainer(*given, select="last", checkpoints=False)
    trainer.train()
    return watching


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("normalize", ["none", "l2", "l2-batch", "minmax-batch", "range-batch"])
def test_a_step_has_the_loss_of_the_vectors_before_normalize(tiny_encoder, small_task, tmp_path, normalize, fast):
    model = encoder_without_dropout(tiny_encoder)
    raw = [embed_raw(model, side) for side in (LEFT, RIGHT)]
    settings = {"temperature": TEMPERATURE, "normalize": normalize}
    expected = batch_softmax_loss(*raw, **settings).item()
    on_unit_vectors = batch_softmax_loss(*(torch.nn.functional.normalize(side) for side in raw), **settings).item()
    with warnings.catch_warnings(action="error", category=UserWarning):
        watching = train(model, small_task, tmp_path, {"kind": "bsc", **settings}, fast)
    assert watching.losses[0] == pytest.approx(expected, abs=2e-4)
    assert (abs(on_unit_vectors - expected) < 1e-3) == (normalize == "l2")


@pytest.mark.parametrize("fast", [True, False])
def test_the_margin_of_a_triplet_is_between_raw_vectors(tiny_encoder, small_task, tmp_path, fast):
    model = encoder_without_dropout(tiny_encoder)
    raw = [embed_raw(model, side) for side in (LEFT, RIGHT, RIGHT[::-1])]
    loss = TripletLoss(model, triplet_margin=0.5)
    expected = loss.compute_loss_from_embeddings(raw, None).item()
    on_unit_vectors = loss.compute_loss_from_embeddings([torch.nn.functional.normalize(side) for side in raw], None).item()
    found = train(model, small_task, tmp_path, {"kind": "triplet", "margin": 0.5}, fast).losses[0]
    assert found == pytest.approx(expected, abs=2e-4) and abs(on_unit_vectors - expected) > 0.1


def test_while_it_trains_orders_and_evaluation_see_unit_vectors_and_afterwards_everyone(tiny_encoder, small_task, tmp_path):
    model = encoder_without_dropout(tiny_encoder)
    watching = train(model, small_task, tmp_path, {"kind": "bsc", "normalize": "none"}, True)
    np.testing.assert_allclose(np.concatenate(watching.lengths), 1, atol=1e-5)
    model.train()
    vectors = model(model.preprocess(LEFT))["sentence_embedding"]
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(8))


def test_checkpoints_and_the_saved_folder_end_in_normalize_and_resume_gives_the_same_weights(tiny_encoder, small_task, tmp_path):
    from pairtune.stages import train_stage

    recipe = small_recipe(tiny_encoder, loss={"kind": "bsc", "normalize": "none", "temperature": TEMPERATURE})
    whole, again = load_encoder(tiny_encoder, 16, "cpu"), load_encoder(tiny_encoder, 16, "cpu")
    train_stage(whole, small_task, recipe, 1, 1, tmp_path / "stages" / "1")
    first, *others = sorted((tmp_path / "stages" / "1").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    for folder in (first, tmp_path / "stages" / "1" / "model"):
        loaded = SentenceTransformer(str(folder), device="cpu")
        assert type(list(loaded.children())[-1]) is Normalize
        np.testing.assert_allclose(np.linalg.norm(loaded.encode(LEFT), axis=1), 1, atol=1e-5)
    shutil.copytree(first, tmp_path / "again" / "1" / first.name)
    train_stage(again, small_task, recipe, 1, 1, tmp_path / "again" / "1")
    for name, tensor in whole.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], tensor, atol=0, rtol=0)
    assert others  # so the second training did go on from the first epoch


@pytest.mark.parametrize(("normalize", "expected"), [("none", 1), ("minmax-batch", 1), ("l2", 0)])
def test_a_loss_in_ones_own_script_says_once_that_it_got_unit_vectors(tiny_encoder, normalize, expected):
    model = load_encoder(tiny_encoder, 16, "cpu")
    loss = BatchSoftmaxLoss(model, normalize=normalize)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            loss([model.preprocess(LEFT), model.preprocess(RIGHT)], None)
    said = [str(one.message) for one in said if "raw embeddings" in str(one.message)]
    assert len(said) == expected and all(f"normalize='{normalize}' works on raw embeddings" in one for one in said)


def test_only_normalizations_at_the_end_are_taken_off(tiny_encoder):
    plain = load_encoder(tiny_encoder, 16, "cpu")
    first, pooling, normalize = plain.children()
    model = SentenceTransformer(modules=[first, pooling, Normalize(), torch.nn.Identity(), normalize], device="cpu").train()
    before, inner = (set(vars(module)) for module in (normalize, model[2]))
    with raw_embeddings(model):
        assert set(vars(model[2])) == inner and set(vars(normalize)) == before | {"forward"}
    assert set(vars(normalize)) == before


def test_unnormalized_vectors_have_their_own_lengths_and_the_model_is_as_it_was_afterwards(tiny_model):
    texts = ["a stone", "a river in the garden"]

    def lengths():
        return embed(tiny_model, texts).norm(dim=1)

    with raw_embeddings(tiny_model):  # as in a training, where an order asks for them
        with unnormalized(tiny_model):
            assert (lengths() - 1).abs().min() > 0.1
        assert torch.allclose(lengths(), torch.ones(2), atol=1e-5)
    assert torch.allclose(lengths(), torch.ones(2), atol=1e-5)
