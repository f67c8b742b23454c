"""Epoch 0, the original encoder, is a candidate like any other: tuning never makes a model worse in silence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from pairtune.data.pairs import PairSet, Task
from pairtune.report.page import write_reports
from pairtune.report.plots import plot_dev
from pairtune.report.summary import read_runs
from pairtune.runs.record import Epoch
from pairtune.training import run, train
from small import WORDS, assert_same_weights, small_pairs, small_recipe, weights

TEXTS = ["a river https://t.co/x", "the stone", "a candle in the window of the garden"]


@pytest.fixture(scope="session")
def wrong_task(small_task):
    """The labels of train are turned upside down: whatever is learned from them is worse on dev."""
    train = small_pairs(48, 1)
    return replace(small_task, train=PairSet.of(train.left, train.right, 1 - train.label))


def wrong_recipe(encoder, **tables):
    train = {"epochs": 2, "learning_rate": 1e-3, **tables.pop("train", {})}
    return small_recipe(encoder, **{"loss": {"kind": "mse"}, "train": train, "keep_original": True, **tables})


@pytest.mark.parametrize("checkpoints", [True, False])
def test_where_no_epoch_beats_the_encoder_it_is_kept_as_it_came(tmp_path, tiny_encoder, wrong_task, checkpoints):
    recipe = wrong_recipe(tiny_encoder, ignore=[r"https?://\S+"])
    record = run(recipe, 1, out=tmp_path / "run", task=wrong_task, checkpoints=checkpoints)
    assert max(epoch.dev["Spearman"] for epoch in record.epochs) < record.before["dev"]["Spearman"]
    assert record.best_epoch == 0 and record.unchanged and record.after == record.before
    original = SentenceTransformer(tiny_encoder, device="cpu")
    original.max_seq_length = 16
    kept = SentenceTransformer(record.model, device="cpu")
    np.testing.assert_array_equal(kept.encode(TEXTS), original.encode(TEXTS))  # with its own tokenizer, which sees links
    assert "Kept: the original encoder, which no epoch beat on dev" in (tmp_path / "run/model/README.md").read_text()
    before, best = record.before["dev"]["Spearman"], max(epoch.dev["Spearman"] for epoch in record.epochs)
    assert record.advise().startswith(
        f"no epoch beat the original encoder on dev (Spearman {before:.3f} against {best:.3f}): it is kept unchanged. "
        "Dev has 24 pairs only, which can hardly tell: `pairtune tune` judges by cross-validation. Try"
    )


def test_an_epoch_that_beats_the_encoder_is_kept(tmp_path, tiny_encoder, small_task):
    record = run(
        small_recipe(tiny_encoder, keep_original=True),
        1,
        out=tmp_path / "run",
        task=small_task,
        checkpoints=False,
        keep_model=False,
    )
    assert record.best_epoch > 0 and record.kept_epochs == [record.best_epoch] and record.advise() is None
    assert record.after["dev"]["Spearman"] > record.before["dev"]["Spearman"]


@pytest.fixture
def easy_task(small_task):
    """A search whose main metric is always 1: there are fewer texts than it looks at. The others see what is learned."""
    texts = tuple(f"{word} {other}" for word in WORDS[:6] for other in WORDS[6:])
    pairs = PairSet.of([text.split()[0] for text in texts[::7]], texts[::7], corpus=texts)
    return Task("easy", "retrieval", pairs, pairs, pairs, "HP@50", ("HP@50", "MRR"))


@pytest.mark.parametrize("checkpoints", [True, False])
def test_where_dev_is_too_easy_or_too_small_to_tell_epochs_apart_the_other_metrics_choose(
    tmp_path, tiny_encoder, easy_task, checkpoints
):
    recipe = wrong_recipe(tiny_encoder, loss={"kind": "bsc", "temperature": 0.05}, train={"epochs": 3, "batch_size": 6})
    record = run(recipe, 1, out=tmp_path / "run", task=easy_task, checkpoints=checkpoints)
    found = [epoch.dev["MRR"] for epoch in record.epochs]
    assert [epoch.dev["HP@50"] for epoch in record.epochs] == [1.0] * 3 and max(found) > record.before["dev"]["MRR"]
    assert record.best_epoch == 1 + int(np.argmax(found)) > 1
    assert record.after["dev"]["MRR"] == max(found)


def test_the_encoder_is_no_candidate_where_the_recipe_says_so(tmp_path, tiny_encoder, wrong_task):
    for settings in ({"keep_original": False}, {"select": "last"}, {"select": "average"}):
        record = run(
            wrong_recipe(tiny_encoder, train={"epochs": 1}, **settings),
            1,
            out=tmp_path / str(settings),
            task=wrong_task,
            checkpoints=False,
            keep_model=False,
        )
        assert record.best_epoch > 0 and record.after["dev"]["Spearman"] < record.before["dev"]["Spearman"]


def test_a_stage_that_makes_it_worse_leaves_what_the_stage_before_left(tmp_path, tiny_encoder, small_task):
    good = {"train": {"epochs": 2}}
    bad = {
        "loss": {"kind": "mse"},
        "train": {"epochs": 2, "learning_rate": 0.05, "max_seq_length": 5},
    }  # the host's words are lost
    alone = run(
        small_recipe(tiny_encoder, keep_original=True, stages=[good]),
        1,
        out=tmp_path / "alone",
        task=small_task,
        checkpoints=False,
    )
    both = run(
        small_recipe(tiny_encoder, keep_original=True, stages=[good, bad]),
        1,
        out=tmp_path / "both",
        task=small_task,
        checkpoints=False,
    )
    assert alone.best_epoch > 0 and both.kept_epochs == [alone.best_epoch, 0] and not both.unchanged
    assert_same_weights(tmp_path / "alone" / "model", tmp_path / "both" / "model")
    assert both.after == alone.after and SentenceTransformer(both.model, device="cpu").max_seq_length == 16
    assert "what the stage before left" in both.describe_kept()


def test_a_resumed_run_keeps_the_encoder_too(tmp_path, tiny_encoder, wrong_task):
    recipe = wrong_recipe(tiny_encoder, stages=[{}, {"train": {"epochs": 1}}])
    whole = run(recipe, 1, out=tmp_path / "whole", task=wrong_task)
    run(recipe, 1, out=tmp_path / "again", task=wrong_task, checkpoints=True)
    (tmp_path / "again" / "record.json").unlink()  # a process that died just before it was done
    again = run(recipe, 1, out=tmp_path / "again", task=wrong_task, resume=True)
    assert again.kept_epochs == whole.kept_epochs == [0, 0] and again.after == whole.after
    assert_same_weights(tmp_path / "whole" / "model", tmp_path / "again" / "model")


def test_the_report_marks_epoch_zero_as_the_one_that_was_kept(tmp_path, tiny_encoder, wrong_task):
    runs = train(wrong_recipe(tiny_encoder), out=tmp_path / "all", task=wrong_task)
    write_reports(tmp_path / "all", [1])
    ring = plot_dev(read_runs([tmp_path / "all"])).data[-1]
    assert ring.name == "kept" and list(ring.x) == [0] and list(ring.y) == [runs[0].before["dev"]["Spearman"]]
    assert weights(tmp_path / "all" / "model")


def test_the_place_of_the_kept_epoch_counts_the_stages_before(tmp_path, tiny_encoder, small_task):
    record = run(
        small_recipe(tiny_encoder, train={"epochs": 1}),
        1,
        out=tmp_path / "run",
        task=small_task,
        checkpoints=False,
        keep_model=False,
    )
    epochs = [Epoch(stage=stage, epoch=number, dev={}) for stage, number in ((1, 1), (1, 2), (2, 1), (2, 2))]
    for kept, place in (([2, 1], 3), ([2, 0], 2), ([0, 2], 4), ([0, 0], 0)):
        found = record.model_copy(update={"epochs": epochs, "kept_epochs": kept, "best_epoch": kept[-1]})
        assert found.kept_place == place
    old = record.model_copy(update={"epochs": epochs, "kept_epochs": [], "best_epoch": 2})  # a record without them
    assert old.kept_place == 4 and not old.unchanged
