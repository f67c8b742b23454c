"""Hard negatives that are mined anew before every epoch."""

from __future__ import annotations

import numpy as np
import pytest

from pairtune.data.pairs import PairSet, Task
from pairtune.errors import UserError
from pairtune.sbert.mined import MinedNegatives
from pairtune.training import run
from small import WORDS, assert_same_weights, small_recipe

LEFT = [f"{word} of {other}" for word in WORDS for other in WORDS[:3]]
RIGHT = [f"a {text} stands here" for text in LEFT]
LOSS = {"kind": "bsc", "temperature": 0.05}


@pytest.fixture(scope="module")
def task():
    pairs = PairSet.of(LEFT, RIGHT, corpus=RIGHT)
    return Task("small", "retrieval", pairs, pairs, pairs, "MRR", ("MRR",))


def recipe(tiny_encoder, **train):
    order = {"by": "examples", "group": 4}
    return small_recipe(tiny_encoder, loss=LOSS, order=order, train={"negatives": "mined", "mined": 2, "batch_size": 12, **train})


@pytest.fixture
def seen(monkeypatch):
    """The negatives of each epoch, and the cosines of the model that they were mined with, by its own `encode`."""
    epochs = []
    begin = MinedNegatives.on_epoch_begin

    def look(self, args, state, control, **kwargs):
        begin(self, args, state, control, **kwargs)
        model = kwargs["model"]
        model.eval()
        left, right = (model.encode(texts, normalize_embeddings=True) for texts in (LEFT, RIGHT))
        model.train()
        epochs.append((dict(self.found), left @ right.T))

    monkeypatch.setattr(MinedNegatives, "on_epoch_begin", look)
    return epochs


def test_negatives_are_the_nearest_wrong_texts_below_the_margin_anew_for_every_epoch(tmp_path, tiny_encoder, task, seen):
    run(recipe(tiny_encoder, learning_rate=1e-3), 1, out=tmp_path / "run", task=task, checkpoints=False)
    assert len(seen) == 2 and seen[0][0] != seen[1][0]
    for found, similarity in seen:
        mined = 0
        for row, left in enumerate(LEFT):
            allowed = [place for place in range(len(RIGHT)) if similarity[row, place] <= 0.95 * similarity[row, row] + 1e-5]
            best = sorted((place for place in allowed if place != row), key=lambda place: -similarity[row, place])[:2]
            assert RIGHT[row] not in found[left] and len(found[left]) == 2
            if len(best) == 2:
                mined += 1
                scores = [similarity[row, RIGHT.index(text)] for text in found[left]]
                np.testing.assert_allclose(scores, similarity[row, best], atol=1e-4)
        assert mined > len(LEFT) / 2


def test_the_packed_step_sees_them_as_the_padded_one_does(tmp_path, tiny_encoder, task):
    losses = [
        run(recipe(tiny_encoder, fast=fast, epochs=1), 1, out=tmp_path / str(fast), task=task, checkpoints=False).epochs[0].loss
        for fast in (True, False)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=0.05), "dropout is all that differs"
    alone = run(
        recipe(tiny_encoder, negatives="given", mined=1, epochs=1), 1, out=tmp_path / "alone", task=task, checkpoints=False
    )
    assert alone.epochs[0].loss < losses[0] - 0.1


def test_a_run_that_died_goes_on_with_the_same_negatives(tmp_path, tiny_encoder, task, monkeypatch):
    run(recipe(tiny_encoder), 1, out=tmp_path / "undisturbed", task=task)
    begin = MinedNegatives.on_epoch_begin

    def die(self, args, state, control, **kwargs):
        if state.global_step:
            raise RuntimeError("the machine went down")
        begin(self, args, state, control, **kwargs)

    monkeypatch.setattr(MinedNegatives, "on_epoch_begin", die)
    with pytest.raises(RuntimeError, match="went down"):
        run(recipe(tiny_encoder), 1, out=tmp_path / "died", task=task)
    monkeypatch.setattr(MinedNegatives, "on_epoch_begin", begin)
    run(recipe(tiny_encoder), 1, out=tmp_path / "died", task=task, resume=True)
    assert_same_weights(tmp_path / "died" / "model", tmp_path / "undisturbed" / "model")


def test_where_no_text_is_far_enough_random_ones_stand_in_and_it_is_said(tmp_path, tiny_encoder, task, capsys):
    run(recipe(tiny_encoder, epochs=1, mined_margin=0.99), 1, out=tmp_path / "run", task=task, checkpoints=False)
    assert f"random ones for {len(LEFT)}, where none is far enough" in capsys.readouterr().err


def test_what_cannot_use_them_is_refused(tmp_path, tiny_encoder, task):
    wrong = small_recipe(tiny_encoder, loss={"kind": "mse"}, train={"negatives": "mined"})
    with pytest.raises(UserError, match=r'train\.negatives = "mined": loss\.kind = "mse" cannot use them: take bsc or combo'):
        run(wrong, 1, out=tmp_path / "run", task=task)
    few = PairSet.of(LEFT[:12], RIGHT[:1] * 12, corpus=RIGHT[:1])
    small = Task("few", "retrieval", few, few, few, "MRR", ("MRR",))
    with pytest.raises(UserError, match="of 1 different right texts too few are wrong for"):
        run(recipe(tiny_encoder), 1, out=tmp_path / "few", task=small, checkpoints=False)
