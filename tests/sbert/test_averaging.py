"""The mean of the weights of several trainings, chosen on dev."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from pairtune.data.pairs import PairSet, add_prompts
from pairtune.encoders.prompts import MARKS
from pairtune.errors import UserError
from pairtune.runs.evidence import EVIDENCE, read_evidence
from pairtune.runs.record import read_records
from pairtune.runs.toml import make_recipe
from pairtune.sbert.averaging import average_with
from pairtune.sbert.evaluator import evaluate_task
from pairtune.training import SEED_STEP, train
from small import assert_same_weights, make_smallest_encoder, small_recipe, weights


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
    """How far the weights have moved from those of the first encoder, and the places of those in the mean.

    scores: of each alone, the first encoder at the beginning, then of each mean that is tried.
    """
    model = SentenceTransformer(str(folder / "0"), device="cpu")
    left = iter(scores)
    joined = average_with(model, [folder / one for one in others], lambda: next(left), lambda line: None)
    assert next(left, None) is None
    model.save_pretrained(str(tmp_path / "mean"), create_model_card=False)
    first, now = weights(folder / "0"), weights(tmp_path / "mean")
    return joined, {round(float(np.mean(now[name] - first[name])), 4) for name in first}


def test_what_does_not_lower_the_score_joins_the_mean(changed, tmp_path):
    assert averaged(changed, ["1", "4"], [0.5, 0.4, 0.3, 0.5, 0.6], tmp_path) == ([0, 1, 2], {round(5 / 3, 4)})


def test_what_lowers_the_score_is_left_out(changed, tmp_path):
    assert averaged(changed, ["1", "4"], [0.5, 0.3, 0.2, 0.4, 0.5], tmp_path) == ([0, 2], {2.0})
    assert averaged(changed, ["1", "4"], [0.5, 0.3, 0.2, 0.6, 0.5], tmp_path) == ([0, 1], {0.5})
    assert averaged(changed, ["1", "4"], [0.5, 0.3, 0.2, 0.4, 0.4], tmp_path) == ([0], {0.0})


def test_the_best_alone_leads_the_mean(changed, tmp_path):
    assert averaged(changed, ["1", "4"], [0.5, 0.6, 0.7, 0.6, 0.6], tmp_path) == ([2], {4.0})
    assert averaged(changed, ["1", "4"], [0.5, 0.6, 0.7, 0.7, 0.6], tmp_path) == ([2, 1], {2.5})
    assert averaged(changed, ["1", "4"], [0.5, 0.5, 0.5, 0.4, 0.4], tmp_path) == ([0], {0.0})  # among equals the first


def test_encoders_of_another_shape_have_no_mean(changed, tiny_encoder, tmp_path):
    model = SentenceTransformer(str(changed / "0"), device="cpu")
    with pytest.raises(UserError, match="another shape: only trainings of one encoder"):
        average_with(model, [Path(tiny_encoder)], lambda: 0.5, lambda line: None)


def test_average_of_keeps_the_mean_of_several_seeds_where_dev_is_not_worse_for_it(tmp_path, smallest_encoder, small_task):
    """By hand: two trainings apart, the better one alone, and the mean of their weights if it scores no lower on dev."""
    alone = small_recipe(smallest_encoder, train={"epochs": 1, "learning_rate": 1e-2})
    (found,) = train(alone.model_copy(update={"average_of": 2}), out=tmp_path / "both" / "run", task=small_task)
    apart = train(alone, seeds=[1, 1 + SEED_STEP], out=tmp_path / "apart" / "run", task=small_task)
    model, other = (SentenceTransformer(run.model, device="cpu") for run in apart)
    for name, tensor in model.state_dict().items():
        tensor.copy_((tensor + other.state_dict()[name]) / 2)
    mean = evaluate_task(model, small_task)
    best = max(apart, key=lambda run: run.dev_score())
    joins = mean["dev"]["Spearman"] >= best.dev_score()
    assert found.mean_of == (2 if joins else 1)
    expected = mean if joins else best.after
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
        ({"dev": "rotating", "select": "last"}, 'dev decides which trainings are kept, so set dev = "given"'),
        ({"adapter": {"save": "adapter"}}, "adapters alone cannot be averaged"),
    ):
        recipe = small_recipe(smallest_encoder, average_of=2, **settings)
        with pytest.raises(UserError, match=message):
            train(recipe, out=tmp_path / "run", task=small_task)
    with pytest.raises(UserError, match="average_of"):
        make_recipe({"name": "mine", "average_of": 0})


RUINOUS, HARMLESS = 1e-2, 1e-9  # learning rates for an encoder that is good at the small task as it comes


def test_another_recipe_that_is_better_on_dev_is_kept(tmp_path, smallest_encoder, small_task):
    bad = small_recipe(smallest_encoder, loss={"kind": "pearson"}, train={"epochs": 1, "learning_rate": RUINOUS})
    good = small_recipe(smallest_encoder, loss={"kind": "mse"}, train={"epochs": 1, "learning_rate": HARMLESS})
    (found,) = train(bad, out=tmp_path / "both" / "run", task=small_task, average_with=[good])
    first, other = (train(one, out=tmp_path / name, task=small_task)[0] for name, one in (("first", bad), ("other", good)))
    assert first.dev_score() < other.dev_score() == found.dev_score() and found.mean_of == 1
    assert found.led_by == "loss.kind = mse, train.learning_rate = 1e-09"
    assert found.epochs == other.epochs and ", of the training with loss.kind = mse" in found.describe_kept()
    assert found.after == other.after and found.seconds > other.seconds
    assert_same_weights(Path(other.model), Path(found.model))
    assert len(read_records(tmp_path / "both" / "results.jsonl")) == 1  # test was scored once
    seen = [read_evidence(folder / "seed-1" / EVIDENCE) for folder in (tmp_path / "both" / "run", tmp_path / "other")]
    assert [step.loss for step in seen[0].stages[0].steps] == [step.loss for step in seen[1].stages[0].steps] != []


def test_another_recipe_that_is_worse_on_dev_changes_nothing(tmp_path, smallest_encoder, small_task):
    good = small_recipe(smallest_encoder, train={"epochs": 1, "learning_rate": HARMLESS})
    bad = small_recipe(smallest_encoder, train={"epochs": 1, "learning_rate": RUINOUS})
    (alone,) = train(good, out=tmp_path / "alone", task=small_task)
    (found,) = train(good, out=tmp_path / "both", task=small_task, average_with=[bad])
    assert not found.led_by and found.epochs == alone.epochs and found.after == alone.after
    assert_same_weights(Path(alone.model), Path(found.model))


def test_another_recipe_is_kept_where_the_first_cannot_beat_the_encoder(tmp_path, smallest_encoder, small_task):
    """The sides are marked: the kept model reads texts with the marks that it was trained with."""
    parts = {name: PairSet.of(part.left, part.right, part.label < 0.5, query=part.left) for name, part in splits(small_task)}
    ranking = replace(small_task, kind="ranking", metrics=("MAP", "MRR"), metric="MAP", **parts)
    still = small_recipe(smallest_encoder, keep_original=True, mark_sides=True, train={"epochs": 1, "learning_rate": 1e-12})
    (alone,) = train(still, out=tmp_path / "alone", task=ranking)
    moving = small_recipe(smallest_encoder, keep_original=True, mark_sides=True, train={"epochs": 1, "learning_rate": 1e-2})
    (found,) = train(still, out=tmp_path / "run", task=ranking, average_with=[moving])
    assert alone.unchanged and not found.unchanged and found.led_by == "train.learning_rate = 0.01"
    assert found.dev_score() > alone.dev_score()
    model = SentenceTransformer(found.model, device="cpu")
    assert model.prompts["query"] == "question: "
    assert evaluate_task(model, add_prompts(ranking, MARKS))["test"] == pytest.approx(found.after["test"], abs=1e-6)


def splits(task):
    return [(name, task.split(name)) for name in ("train", "dev", "test")]
