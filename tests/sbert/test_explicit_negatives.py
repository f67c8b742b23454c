"""Explicit negatives: in the denominators of L0, as the host's loss has them, on every path."""

from __future__ import annotations

import pytest
import torch
from datasets import Dataset
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from pairtune.data.pairs import PairSet, Task
from pairtune.errors import UserError
from pairtune.loss import batch_softmax_loss
from pairtune.sbert.losses import BatchSoftmaxLoss, ComboLoss, PearsonLoss
from pairtune.training import run
from small import WORDS, small_recipe

ROWS = [(f"{word} of stone", f"a {word}", f"the {word} is red", f"no {word}") for word in WORDS]
COLUMNS = [list(column) for column in zip(*ROWS, strict=True)]


def random_columns(count, rows=6, width=8, seed=0):
    return list(torch.randn(count, rows, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)))


def test_every_negative_stands_in_every_denominator_as_a_loop_has_it():
    left, right, first, second = random_columns(4)
    unit = [torch.nn.functional.normalize(side) for side in (left, right, first, second)]
    candidates = torch.cat(unit[1:])
    loop = sum(
        -torch.log(torch.exp(unit[0][i] @ unit[1][i] / 0.1) / sum(torch.exp(unit[0][i] @ text / 0.1) for text in candidates))
        for i in range(6)
    )
    found = batch_softmax_loss(left, right, directions="left", negatives=[first, second])
    assert found.item() == pytest.approx(loop.item() / 6)


def test_the_other_direction_does_not_see_them():
    left, right, first = random_columns(3)
    assert batch_softmax_loss(left, right, directions="right", negatives=[first]) == batch_softmax_loss(
        left, right, directions="right"
    )


def test_a_negative_that_is_a_known_positive_is_masked():
    left, right, first = random_columns(3)
    ids = torch.arange(6)
    negative_ids = torch.tensor([3, 100, 101, 102, 103, 104])  # the first row's negative is the answer of the fourth
    masked = batch_softmax_loss(
        left,
        right,
        directions="left",
        duplicates="mask",
        left_ids=ids,
        right_ids=ids,
        negatives=[first],
        negative_ids=[negative_ids],
    )
    scale = torch.nn.functional.normalize
    scores = scale(left) @ scale(torch.cat([right, first])).T / 0.1
    scores[3, 6] = -torch.inf
    assert masked.item() == pytest.approx((scores.logsumexp(1) - scores.diagonal()).mean().item())


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("mini_batch_size", [0, 4])
def test_it_is_the_loss_of_sentence_transformers_on_the_same_columns(tiny_model, count, mini_batch_size):
    tiny_model.eval()
    theirs = MultipleNegativesRankingLoss(tiny_model, scale=20.0)
    ours = BatchSoftmaxLoss(tiny_model, temperature=0.05, directions="left", mini_batch_size=mini_batch_size)
    values, gradients = [], []
    for loss in (theirs, ours):
        tiny_model.zero_grad()
        value = loss([tiny_model.preprocess(column) for column in COLUMNS[: 2 + count]], None)
        value.backward()
        values.append(value.item())
        gradients.append(torch.cat([p.grad.flatten() for p in tiny_model.parameters() if p.grad is not None]))
    assert values[1] == pytest.approx(values[0], abs=1e-5)
    torch.testing.assert_close(gradients[1], gradients[0], atol=1e-5, rtol=1e-4)


def test_combo_takes_negatives_and_losses_of_single_pairs_refuse_them(tiny_model):
    features = [tiny_model.preprocess(column) for column in COLUMNS[:3]]
    labels = torch.ones(len(WORDS))
    assert ComboLoss(tiny_model)(features, labels).isfinite()
    with pytest.raises(UserError, match="PearsonLoss takes two columns of texts, left and right, but the dataset has 3"):
        PearsonLoss(tiny_model)(features, labels)


def task_with_negatives():
    pairs = PairSet.of(COLUMNS[0], COLUMNS[1], corpus=COLUMNS[1], negatives=list(zip(*COLUMNS[2:], strict=True)))
    return Task("small", "retrieval", pairs, pairs, pairs, "MRR", ("MRR",))


def test_negatives_count_in_the_packed_step_as_in_the_padded_one(tmp_path, tiny_encoder):
    loss = {"kind": "bsc", "temperature": 0.05}
    losses = []
    for fast in (True, False):
        recipe = small_recipe(tiny_encoder, loss=loss, train={"fast": fast, "epochs": 1})
        record = run(recipe, 1, out=tmp_path / str(fast), task=task_with_negatives(), checkpoints=False)
        losses.append(record.epochs[0].loss)
    assert losses[0] == pytest.approx(losses[1], rel=0.05), "dropout is all that differs"
    alone = small_recipe(tiny_encoder, loss=loss, train={"epochs": 1})
    pairs = task_with_negatives()
    without = PairSet.of(pairs.train.left, pairs.train.right, corpus=pairs.train.corpus)
    plain = Task("small", "retrieval", without, without, without, "MRR", ("MRR",))
    assert run(alone, 1, out=tmp_path / "alone", task=plain, checkpoints=False).epochs[0].loss < losses[0] - 0.1


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"loss": {"kind": "mse"}}, 'has 2 negatives for each pair, and loss.kind = "mse" cannot use them: take bsc or combo'),
        ({"loss": {"kind": "bsc"}, "train": {"negatives": "logarithmic"}}, "and train.negatives makes negatives of its own"),
    ],
)
def test_negatives_that_would_be_ignored_are_refused_before_training(tmp_path, tiny_encoder, tables, message):
    with pytest.raises(UserError, match=message):
        run(small_recipe(tiny_encoder, **tables), 1, out=tmp_path / "run", task=task_with_negatives())


def test_triplets_are_made_of_the_given_negatives(tiny_model, tiny_encoder):
    from pairtune.data.material import training_dataset

    recipe = small_recipe(tiny_encoder, loss={"kind": "triplet"})
    found = training_dataset(tiny_model, task_with_negatives(), recipe.stages[0], 1)
    assert found.column_names == ["anchor", "positive", "negative"] and len(found) == 2 * len(WORDS)
    assert set(zip(found["anchor"], found["negative"], strict=True)) == {(row[0], text) for row in ROWS for text in row[2:]}


def test_the_dataset_of_a_stage_has_the_negatives_as_columns(tiny_model, tiny_encoder):
    from pairtune.data.material import training_dataset

    recipe = small_recipe(tiny_encoder, loss={"kind": "bsc"})
    found = training_dataset(tiny_model, task_with_negatives(), recipe.stages[0], 1)
    assert isinstance(found, Dataset) and found.column_names == ["left", "right", "negative_1", "negative_2", "label"]
    assert list(found[3].values())[:4] == list(ROWS[3])
