"""A second look where a small dev keeps the original encoder."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest

from pairtune.runs.record import read_records
from pairtune.training import train
from pairtune.tune.doubt import ANSWER, ask_folds, in_doubt, train_surely
from small import make_smallest_encoder, small_pairs, small_recipe


@pytest.fixture(scope="module")
def encoder(tiny_encoder, tmp_path_factory):
    return make_smallest_encoder(tiny_encoder, tmp_path_factory.mktemp("smallest"))


@pytest.fixture(scope="module")
def task(small_task):
    """What the encoder believes is wrong, which train and the folds show; the few pairs of dev say the opposite."""
    train_part, test = (small_pairs(count, seed) for count, seed in ((160, 1), (40, 3)))
    turned = {name: replace(one, label=1 - one.label) for name, one in (("train", train_part), ("test", test))}
    return replace(small_task, dev=small_pairs(8, 2), **turned)


def recipe_of(encoder, **settings):
    return small_recipe(encoder, keep_original=True, loss={"kind": "mse"}, train={"epochs": 2, "learning_rate": 1e-3}, **settings)


@pytest.fixture(scope="module")
def doubted(tmp_path_factory, encoder, task):
    out = tmp_path_factory.mktemp("doubted") / "run"
    return out, train_surely(recipe_of(encoder), out=out, task=task)


def test_where_folds_are_for_training_a_small_dev_does_not_keep_the_original_encoder(tmp_path, encoder, task, doubted):
    (alone,) = train(recipe_of(encoder), out=tmp_path / "run", task=task)
    assert alone.unchanged and in_doubt(recipe_of(encoder), task, [alone])
    out, (found,) = doubted
    assert not found.unchanged and not found.recipe["keep_original"] and (out / ANSWER).exists()
    assert found.after["test"]["Spearman"] > alone.after["test"]["Spearman"] + 0.1


def test_what_the_folds_said_is_known_to_a_resumed_training(doubted, encoder, task):
    out, (found,) = doubted
    records = len(read_records(out.parent / "results.jsonl"))
    assert train_surely(recipe_of(encoder), out=out, task=task, resume=True) == [found]
    assert len(read_records(out.parent / "results.jsonl")) == records


def test_a_process_that_died_before_its_second_training_makes_it_when_resumed(tmp_path, encoder, task, doubted):
    train(recipe_of(encoder), out=tmp_path / "run", task=task)
    shutil.copy(doubted[0] / ANSWER, tmp_path / "run")  # the last thing that it did
    (found,) = train_surely(recipe_of(encoder), out=tmp_path / "run", task=task, resume=True)
    assert not found.unchanged and found.after == doubted[1][0].after


def test_what_folds_said_of_other_pairs_or_settings_does_not_count(tmp_path, encoder, small_task, doubted):
    """A finished run is not lost to an answer that an earlier one has left in its folder."""
    (found,) = train(recipe_of(encoder), out=tmp_path / "run", task=small_task)
    shutil.copy(doubted[0] / ANSWER, tmp_path / "run")
    settings = found.recipe
    (again,) = train_surely(recipe_of(encoder), out=tmp_path / "run", task=small_task, resume=True)
    assert again.recipe["keep_original"] is settings["keep_original"] is True and again.finished == found.finished


def test_pairs_that_all_share_texts_have_no_parts_to_ask(encoder, task, capsys):
    lefts = tuple(f"stone river {row % 2}" for row in range(160))
    shared = replace(task, train=replace(task.train, left=lefts, right=lefts[1:] + lefts[:1]))
    assert ask_folds(recipe_of(encoder), shared).folds == 0
    assert "there are no parts to ask" in capsys.readouterr().err


def test_where_folds_are_not_for_training_the_original_encoder_is_kept(tmp_path, encoder, small_task, capsys):
    still = small_recipe(encoder, keep_original=True, train={"epochs": 1, "learning_rate": 1e-12})
    (found,) = train_surely(still, out=tmp_path / "run", task=small_task)
    assert found.unchanged and not (tmp_path / "run" / ANSWER).exists()
    assert "not clearly better there" in capsys.readouterr().err


def test_folds_are_asked_only_where_few_dev_pairs_have_chosen(encoder, task, doubted):
    (run,) = doubted[1]
    unchanged = run.model_copy(update={"kept_epochs": [0], "best_epoch": 0})
    recipe = recipe_of(encoder)
    assert in_doubt(recipe, task, [unchanged]) and not in_doubt(recipe, task, [run])
    assert not in_doubt(recipe, task, [unchanged.model_copy(update={"pairs": {"dev": 100}})])
    assert not in_doubt(recipe.model_copy(update={"keep_original": False}), task, [unchanged])
    assert not in_doubt(recipe.model_copy(update={"select": "last"}), task, [unchanged])
    perfect = unchanged.model_copy(update={"before": {"dev": {"Spearman": 1.0}}})
    assert not in_doubt(recipe, task, [perfect])


def test_the_folds_compare_trained_epochs_with_the_original_encoder(encoder, task):
    found = ask_folds(
        recipe_of(
            encoder,
        ).model_copy(update={"keep_original": False}),
        task,
    )
    assert found.folds == 5 and found.gain > found.error > 0 and np.isfinite(found.error)
