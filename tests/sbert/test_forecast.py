"""What a training will need is told before it is spent, and telling changes nothing."""

from __future__ import annotations

import json
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from pairtune.data.material import training_dataset
from pairtune.encoders.loading import load_encoder
from pairtune.errors import UserError
from pairtune.sbert import forecast
from pairtune.sbert.optimizer import EIGHT_BIT, find_8bit_optimizer
from pairtune.sbert.trainer import make_trainer, training_arguments
from pairtune.training import run
from small import assert_same_weights, small_recipe, weights


def trainer_of(model, task, stage, folder):
    dataset = training_dataset(model, task, stage, 1)
    return make_trainer(model, dataset, stage, task, 1, folder / "a" / "b", [], select="last", checkpoints=False)


@pytest.fixture(scope="module")
def plain_run(tiny_encoder, small_task, tmp_path_factory):
    """A run of one epoch that is too short for a trial."""
    folder = tmp_path_factory.mktemp("plain") / "run"
    run(small_recipe(tiny_encoder, train={"epochs": 1}), 1, out=folder, task=small_task, checkpoints=False)
    return folder


def train_after_a_trial(encoder, task, folder, free=None):
    """What a run of one epoch does, but with a trial before it, however short the training is; the stage that it trains.

    free: how much memory there is, in bytes.
    """
    stage = small_recipe(encoder, train={"epochs": 1}).stages[0]
    torch.manual_seed(1)
    model = load_encoder(encoder, 16, "cpu")
    make = partial(trainer_of, model, task, folder=folder)
    folder.mkdir()
    trainer, stage = forecast.fit_memory(make, stage, folder, "training", worth=0, free=free)
    trainer.train()
    model.save_pretrained(str(folder / "model"), create_model_card=False)
    return stage


def test_a_trial_tells_parameters_memory_and_time_and_leaves_no_trace(plain_run, tiny_encoder, small_task, tmp_path, capsys):
    train_after_a_trial(tiny_encoder, small_task, tmp_path / "run")
    said = next(line for line in capsys.readouterr().err.splitlines() if "parameters" in line)
    count = sum(value.size for name, value in weights(plain_run / "model").items() if "position_ids" not in name)
    assert f"{count:,} parameters; a step takes up to " in said
    assert "are free; about" in said and "pairs/s by a short trial: 48 pairs in 1 epochs take at least 0:" in said
    assert_same_weights(tmp_path / "run" / "model", plain_run / "model")


@pytest.mark.parametrize("fast", [True, False])
def test_the_forecast_of_a_large_batch_is_what_the_batch_keeps(tiny_model, small_task, tmp_path, fast):
    stage = small_recipe("minilm", train={"batch_size": 48, "fast": fast, "max_seq_length": 64}).stages[0]
    trainer = trainer_of(tiny_model, small_task, stage, tmp_path)
    found = forecast.forecast(trainer, stage)
    dataset = trainer.train_dataset
    whole = trainer.data_collator([dataset[row] for row in forecast.longest_first(dataset)])
    tiny_model.train()
    measured = forecast.count_saved(trainer, whole)
    assert found.token * found.tokens == pytest.approx(measured, rel=0.15)
    assert found.texts == 96 and found.fixed == 12 * found.trainable


def test_a_batch_that_does_not_fit_is_gone_through_in_parts_that_do(tiny_encoder, tiny_model, small_task, tmp_path, capsys):
    stage = small_recipe("minilm", train={"batch_size": 48}).stages[0]
    make = partial(trainer_of, tiny_model, small_task, folder=tmp_path)
    found = forecast.forecast(make(stage), stage)
    free = (found.fixed + found.step()) // 2 + 1  # with half of the activations
    trainer, stage = forecast.fit_memory(make, stage, tmp_path, "training", worth=0, free=free)
    said = capsys.readouterr().err
    assert "a batch of 48 pairs takes" in said and f"{forecast.gigabytes(free)} are free: loss.mini_batch_size is 48 for" in said
    assert "the same mathematics" in said
    assert stage.loss.mini_batch_size == json.loads((tmp_path / "mini_batch_size.json").read_text()) == 48
    parts = trainer.data_collator([trainer.train_dataset[row] for row in range(48)])["packed"].parts
    assert len(parts) >= 2 and all(len(part.starts) - 1 <= 48 for part in parts)


def test_an_encoder_that_is_too_large_for_any_part_is_told_so(tiny_encoder, small_task, tmp_path, capsys):
    stage = train_after_a_trial(tiny_encoder, small_task, tmp_path / "run", free=1_000_000)
    said = capsys.readouterr().err
    assert (
        "a batch of 8 pairs takes" in said and "1 MB are free: loss.mini_batch_size is 8 for this run. That still takes" in said
    )
    assert "of it gradients and optimizer: if memory runs out, train an adapter (--set adapter.kind=lora)" in said
    assert stage.loss.mini_batch_size == json.loads((tmp_path / "run" / "mini_batch_size.json").read_text()) == 8


def test_a_resumed_run_goes_through_batches_in_the_same_parts(tmp_path):
    (tmp_path / "mini_batch_size.json").write_text("4")
    made = []
    trainer, stage = forecast.fit_memory(lambda stage: made.append(stage), small_recipe("minilm").stages[0], tmp_path, "training")
    assert made == [stage] and stage.loss.mini_batch_size == 4 and trainer is None


def test_gradient_checkpointing_changes_memory_and_not_the_gradients(tiny_model, small_task, tmp_path):
    for module in tiny_model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    found = {}
    for checkpointing in (False, True):
        stage = small_recipe("minilm", train={"fast": False, "gradient_checkpointing": checkpointing}).stages[0]
        trainer = trainer_of(tiny_model, small_task, stage, tmp_path)
        assert trainer.args.gradient_checkpointing is checkpointing
        if checkpointing:
            tiny_model.gradient_checkpointing_enable()
        inputs = trainer.data_collator([trainer.train_dataset[row] for row in range(8)])
        tiny_model.train()
        trainer.compute_loss(tiny_model, inputs).backward()
        gradients = [parameter.grad.clone() for parameter in tiny_model.parameters() if parameter.grad is not None]
        tiny_model.zero_grad()
        found[checkpointing] = gradients, forecast.count_saved(trainer, inputs)
    for one, other in zip(found[False][0], found[True][0], strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)
    assert found[True][1] < 0.7 * found[False][1]


def test_an_8_bit_optimizer_needs_a_package_and_says_which(monkeypatch, tmp_path):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install bitsandbytes"):
        find_8bit_optimizer()
    stage = small_recipe("minilm", train={"optimizer": "adamw-8bit"}).stages[0]
    with pytest.raises(UserError, match="adamw-8bit"):
        training_arguments(stage, 1, tmp_path)
    for package, name in (("torchao", "adamw_torch_8bit"), ("bitsandbytes", "adamw_bnb_8bit")):
        monkeypatch.setattr(importlib.util, "find_spec", lambda asked, package=package: asked == package or None)
        assert find_8bit_optimizer() == name
        assert training_arguments(stage, 1, tmp_path).optim == name


@pytest.mark.skipif(not any(map(find_spec, EIGHT_BIT)), reason="needs bitsandbytes or torchao")
def test_an_8_bit_optimizer_trains_nearly_what_adamw_trains(plain_run, tiny_encoder, small_task, tmp_path):
    run(
        small_recipe(tiny_encoder, train={"epochs": 1, "optimizer": "adamw-8bit"}),
        1,
        out=tmp_path / "run",
        task=small_task,
        checkpoints=False,
    )
    before, exact, rounded = (weights(folder) for folder in (Path(tiny_encoder), plain_run / "model", tmp_path / "run" / "model"))
    apart, moved = (
        np.sqrt(sum(np.square(one[name] - exact[name]).sum() for name in exact if exact[name].dtype == np.float32))
        for one in (rounded, before)
    )
    assert 0 < apart < 0.2 * moved


def test_a_learning_rate_that_is_a_tensor_is_logged_as_a_number(tiny_model, small_task, tmp_path):
    trainer = trainer_of(tiny_model, small_task, small_recipe("minilm").stages[0], tmp_path)
    trainer.log({"loss": 0.5, "learning_rate": torch.tensor(0.25)})
    assert trainer.state.log_history[-1]["learning_rate"] == 0.25
    trainer.state.save_to_json(str(tmp_path / "state.json"))
