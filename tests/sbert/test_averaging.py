"""The mean of the weights of several trainings, chosen on dev."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from pairtune.errors import UserError
from pairtune.runs.record import read_records
from pairtune.runs.toml import make_recipe
from pairtune.sbert.averaging import average_with
from pairtune.sbert.evaluator import evaluate_task
from pairtune.training import SEED_STEP, train
from small import make_smallest_encoder, small_recipe, weights


@pytest.fixture(scope="module")
def smallest_encoder(tiny_encoder, tmp_path_factory):
    return make_smallest_encoder(tiny_encoder, tmp_path_factory.mktemp("smallest"))


@pytest.fixture(scope="module")
def changed(tmp_path_factory, smallest_encoder):
    """Three encoders of one shape: all weights of the first are moved by 1 and by 4."""
    folder = tmp_path_factory.mktemp("changed")
    for moved in (0, 1, 4):
        model = SentenceTransformer(smallest_encoder, device="cpu")
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor.add_(moved)
        model.save_pretrained(str(folder / str(moved)), create_model_card=False)
    return folder


def averaged(folder, others, scores, tmp_path):
    """How far the weights have moved from those of the first encoder, and the mean of how many they are."""
    model = SentenceTransformer(str(folder / "0"), device="cpu")
    left = iter(scores)
    count = average_with(model, [folder / one for one in others], lambda: next(left), lambda line: None)
    model.save_pretrained(str(tmp_path / "mean"), create_model_card=False)
    first, now = weights(folder / "0"), weights(tmp_path / "mean")
    return count, {round(float(np.mean(now[name] - first[name])), 4) for name in first}


def test_what_does_not_lower_the_score_joins_the_mean(changed, tmp_path):
    assert averaged(changed, ["1", "4"], [0.5, 0.5, 0.6], tmp_path) == (3, {round(5 / 3, 4)})


def test_what_lowers_the_score_is_left_out(changed, tmp_path):
    assert averaged(changed, ["1", "4"], [0.5, 0.4, 0.5], tmp_path) == (2, {2.0})
    assert averaged(changed, ["1", "4"], [0.5, 0.6, 0.5], tmp_path) == (2, {0.5})
    assert averaged(changed, ["1", "4"], [0.5, 0.4, 0.4], tmp_path) == (1, {0.0})


def test_encoders_of_another_shape_have_no_mean(changed, tiny_encoder, tmp_path):
    model = SentenceTransformer(str(changed / "0"), device="cpu")
    with pytest.raises(UserError, match="another shape: only trainings of one encoder"):
        average_with(model, [Path(tiny_encoder)], lambda: 0.5, lambda line: None)


def test_average_of_keeps_the_mean_of_several_seeds_where_dev_is_not_worse_for_it(tmp_path, smallest_encoder, small_task):
    """By hand: two trainings apart, and the mean of their weights if it scores no lower on dev than the first alone."""
    alone = small_recipe(smallest_encoder, train={"epochs": 1, "learning_rate": 1e-2})
    (found,) = train(alone.model_copy(update={"average_of": 2}), out=tmp_path / "both" / "run", task=small_task)
    apart = train(alone, seeds=[1, 1 + SEED_STEP], out=tmp_path / "apart" / "run", task=small_task)
    model, other = (SentenceTransformer(run.model, device="cpu") for run in apart)
    for name, tensor in model.state_dict().items():
        tensor.copy_((tensor + other.state_dict()[name]) / 2)
    mean = evaluate_task(model, small_task)
    joins = mean["dev"]["Spearman"] >= apart[0].dev_score()
    assert found.mean_of == (2 if joins else 1)
    expected = mean if joins else apart[0].after
    assert found.after["test"]["Spearman"] == pytest.approx(expected["test"]["Spearman"], abs=1e-6)
    assert ("the mean of the weights of 2 trainings" in found.describe_kept()) == joins
    assert len(read_records(tmp_path / "both" / "results.jsonl")) == 1  # test was scored once
    assert not (tmp_path / "both" / "run" / "averaged").exists()


def test_average_of_goes_on_after_its_trainings_were_made(tmp_path, smallest_encoder, small_task, monkeypatch):
    from pairtune import training

    recipe = small_recipe(smallest_encoder, train={"epochs": 1}, average_of=2)
    with monkeypatch.context() as broken:
        broken.setattr(training, "conclude", stop_at_the_second(training.conclude))
        with pytest.raises(KeyboardInterrupt):
            train(recipe, out=tmp_path / "run", task=small_task)
    before = (tmp_path / "run" / "averaged" / "1" / "1" / "record.json").read_bytes()
    (stopped,) = train(recipe, out=tmp_path / "run", task=small_task, resume=True)
    (whole,) = train(recipe, out=tmp_path / "whole", task=small_task)
    assert before and stopped.after == whole.after and stopped.mean_of == whole.mean_of


def stop_at_the_second(conclude):
    made = []

    def stop(*given, **more):
        if made:
            raise KeyboardInterrupt
        made.append(conclude(*given, **more))
        return made[-1]

    return stop


def test_what_has_no_mean_is_refused(tmp_path, smallest_encoder, small_task):
    for settings, message in (
        ({"dev": "rotating", "select": "last"}, 'dev decides which trainings join the average, so set dev = "given"'),
        ({"adapter": {"save": "adapter"}}, "adapters alone cannot be averaged"),
    ):
        recipe = small_recipe(smallest_encoder, average_of=2, **settings)
        with pytest.raises(UserError, match=message):
            train(recipe, out=tmp_path / "run", task=small_task)
    with pytest.raises(UserError, match="average_of"):
        make_recipe({"name": "mine", "average_of": 0})
