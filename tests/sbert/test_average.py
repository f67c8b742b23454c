"""Averaged and blended weights, against the weights of every epoch as they were seen."""

from __future__ import annotations

import pytest
import torch
from datasets import Dataset
from transformers import TrainerCallback

from pairtune.runs.recipe import AdapterSettings
from pairtune.sbert.checkpoints import newest_usable_checkpoint
from small import small_recipe


class Look(TrainerCallback):
    """Copies the weights after each epoch; may break off when some steps are done, as a killed process does."""

    def __init__(self, stop_at=None):
        self.epochs, self.stop_at = [], stop_at

    def on_epoch_end(self, args, state, control, model=None, **kwargs):
        self.epochs.append({name: tensor.clone() for name, tensor in model.state_dict().items()})

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.stop_at:
            raise KeyboardInterrupt


def train(encoder, task, folder, *, select, checkpoints=True, look=None, adapter=None, **settings):
    """Three epochs; the model as it ends."""
    from pairtune.encoders.adapters import add_adapter
    from pairtune.encoders.loading import load_encoder
    from pairtune.sbert.trainer import make_trainer

    model = load_encoder(encoder, 16, "cpu")
    if adapter is not None:
        add_adapter(model, adapter, seed=1)
    stage = small_recipe(encoder, train={"epochs": 3, **settings}).stages[0]
    pairs = task.train
    dataset = Dataset.from_dict({"left": pairs.left, "right": pairs.right, "label": pairs.label})
    callbacks = [look] if look else []
    trainer = make_trainer(model, dataset, stage, task, 1, folder, callbacks, select=select, checkpoints=checkpoints)
    trainer.train(resume_from_checkpoint=newest_usable_checkpoint(folder) if checkpoints else None)
    return model.state_dict()


def assert_near(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=1e-6)


@pytest.mark.parametrize("checkpoints", [False, True])
def test_the_average_is_the_mean_of_the_weights_after_each_epoch(tmp_path, tiny_encoder, small_task, checkpoints):
    look = Look()
    found = train(tiny_encoder, small_task, tmp_path / "s" / "1", select="average", checkpoints=checkpoints, look=look)
    first, second, third = look.epochs
    assert_near(found, {name: (first[name] + second[name] + third[name]) / 3 for name in first})
    assert any((found[name] - third[name]).abs().max() > 1e-5 for name in first)


def test_the_average_of_an_adapter_leaves_the_frozen_weights_alone(tmp_path, tiny_encoder, small_task):
    look = Look()
    options = {"select": "average", "look": look, "adapter": AdapterSettings(rank=2), "learning_rate": 1e-2}
    found = train(tiny_encoder, small_task, tmp_path / "s" / "1", **options)
    first, second, third = look.epochs
    own = [name for name in found if "lora_" in name]
    assert_near({name: found[name] for name in own}, {name: (first[name] + second[name] + third[name]) / 3 for name in own})
    assert any((found[name] - third[name]).abs().max() > 1e-4 for name in own)
    assert all(torch.equal(found[name], first[name]) for name in found if "lora_" not in name)


def test_an_average_that_was_broken_off_goes_on_to_the_same_weights(tmp_path, tiny_encoder, small_task):
    whole = train(tiny_encoder, small_task, tmp_path / "whole" / "1", select="average")
    folder = tmp_path / "killed" / "1"
    with pytest.raises(KeyboardInterrupt):
        train(tiny_encoder, small_task, folder, select="average", look=Look(stop_at=14))  # epochs have six steps
    assert newest_usable_checkpoint(folder).endswith("checkpoint-12")
    assert_near(train(tiny_encoder, small_task, folder, select="average"), whole)


def test_a_blend_lies_between_the_encoder_as_it_came_and_the_tuned_one(tmp_path, tiny_encoder, small_task):
    from pairtune.encoders.loading import load_encoder

    before = load_encoder(tiny_encoder, 16, "cpu").state_dict()
    after = train(tiny_encoder, small_task, tmp_path / "plain" / "1", select="last", checkpoints=False)
    found = train(tiny_encoder, small_task, tmp_path / "blend" / "1", select="last", checkpoints=False, blend=0.25)
    assert_near(found, {name: torch.lerp(after[name], before[name], 0.25) for name in before})
    assert any((found[name] - after[name]).abs().max() > 1e-5 for name in before)


def test_the_card_and_the_record_of_an_average_say_so(tmp_path, tiny_encoder, small_task):
    from pairtune.training import run

    record = run(small_recipe(tiny_encoder, select="average"), 1, out=tmp_path / "run", task=small_task, checkpoints=False)
    assert record.recipe["select"] == "average"
    assert "Kept: the mean of the weights after each of 2 epochs; seed 1." in (tmp_path / "run/model/README.md").read_text()
    best = record.model_copy(update={"recipe": {**record.recipe, "select": "best"}, "best_epoch": 1})
    assert best.describe_kept() == "epoch 1 of 2, the best on dev"
