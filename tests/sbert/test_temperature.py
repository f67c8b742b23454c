"""A learned temperature in the host's own trainer: each thing that the host alone would not do for it."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset, DatasetDict
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss, MatryoshkaLoss
from transformers import TrainerCallback

from pairtune.errors import UserError
from pairtune.sbert.losses import BatchSoftmaxLoss
from pairtune.sbert.temperature import LearnedTemperature, temperature_callbacks

NUMBERS = {
    "one": "uno",
    "two": "dos",
    "three": "tres",
    "four": "cuatro",
    "five": "cinco",
    "six": "seis",
    "seven": "siete",
    "ten": "diez",
}
TEXTS = {
    "left": [f"question number {number}" for number in NUMBERS],
    "right": [f"the answer is {number}" for number in NUMBERS.values()],
}


def make_trainer(encoder, folder, callbacks=(), rate=0.1, settings=None, **more):
    model = SentenceTransformer(encoder, device="cpu")
    model[0].auto_model.embeddings.word_embeddings.weight.requires_grad_(False)  # most of the weights, none of the point
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=4,
        num_train_epochs=3,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        logging_steps=1,
        **{"save_strategy": "no", "learning_rate": 1e-4, "weight_decay": 0.5, **more},
    )
    loss = BatchSoftmaxLoss(model, learn_temperature=True, temperature_learning_rate=rate, **(settings or {}))
    trainer = SentenceTransformerTrainer(
        model, arguments, train_dataset=Dataset.from_dict(TEXTS), loss=loss, callbacks=list(callbacks)
    )
    return trainer, loss


class Spy(TrainerCallback):
    """Keeps what stands in the gradients when the optimizer is about to step."""

    def __init__(self):
        self.seen = []

    def on_pre_optimizer_step(self, args, state, control, model, optimizer, **kwargs):
        norm = math.sqrt(sum(p.grad.double().square().sum().item() for p in model.parameters() if p.grad is not None))
        log = next(p for group in optimizer.param_groups for p in group["params"] if p.ndim == 0)
        self.seen.append((norm, None if log.grad is None else log.grad.item(), optimizer.param_groups[0]["lr"]))


@pytest.mark.parametrize("clip", [0.5, 1e6])
def test_log_temperature_takes_the_steps_of_adam_at_its_own_rate_clipped_with_the_encoder(tiny_encoder, tmp_path, clip):
    before, after = Spy(), Spy()
    trainer, loss = make_trainer(tiny_encoder, tmp_path, [before], max_grad_norm=clip, lr_scheduler_type="linear")
    trainer.add_callback(LearnedTemperature(loss))  # by hand, to be between the two
    trainer.add_callback(after)
    trainer.train()

    log = torch.tensor(math.log(0.1), dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([log], eps=trainer.args.adam_epsilon)
    for (norm, gradient, rate), (clipped, taken, _) in zip(before.seen, after.seen, strict=True):
        coefficient = min(1, clip / math.hypot(norm, gradient))
        assert clipped == pytest.approx(norm * coefficient, rel=1e-4)
        assert taken is None  # the host's optimizer, with its weight decay of a half, has nothing to do
        log.grad = torch.tensor(gradient * coefficient, dtype=torch.float64)
        adam.param_groups[0]["lr"] = 0.1 * rate / 1e-4  # the encoder's schedule, at its own height
        adam.step()
    assert len(before.seen) == 6
    assert before.seen[0][2] > before.seen[-1][2] > 0
    assert loss.temperature.value == pytest.approx(math.exp(log.item()), rel=1e-5)
    assert loss.temperature.value != pytest.approx(0.1, rel=0.01)
    assert any(min(1, clip / math.hypot(*row[:2])) < 1 for row in before.seen) == (clip == 0.5)
    assert trainer.args.max_grad_norm == clip


def test_a_loss_in_a_plain_trainer_brings_its_own_care(tiny_encoder, tmp_path):
    alone, loss = make_trainer(tiny_encoder, tmp_path, max_grad_norm=0.5)
    alone.train()
    tended, same = make_trainer(tiny_encoder, tmp_path, max_grad_norm=0.5)
    tended.add_callback(LearnedTemperature(same))
    tended.train()
    assert loss.temperature.value == same.temperature.value != pytest.approx(0.1, rel=0.01)
    assert [row.get("temperature") for row in alone.state.log_history] == [
        row.get("temperature") for row in tended.state.log_history
    ]
    for trainer in (alone, tended):
        assert sum(isinstance(one, LearnedTemperature) for one in trainer.callback_handler.callbacks) == 1


def test_one_callback_tends_the_temperatures_of_all_losses(tiny_model, tmp_path):
    data = DatasetDict({name: Dataset.from_dict(TEXTS) for name in ("one", "two")})
    losses = {name: BatchSoftmaxLoss(tiny_model, learn_temperature=True, temperature_learning_rate=0.1) for name in data}
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path), per_device_train_batch_size=4, use_cpu=True, report_to=[], max_steps=4, save_strategy="no"
    )
    trainer = SentenceTransformerTrainer(tiny_model, arguments, data, loss=losses)
    trainer.train()
    (callback,) = (one for one in trainer.callback_handler.callbacks if isinstance(one, LearnedTemperature))
    assert callback.logs == [loss.temperature.log for loss in losses.values()]
    assert all(loss.temperature.value != pytest.approx(0.1, rel=0.01) for loss in losses.values())


def test_outside_of_a_trainer_the_temperature_is_a_parameter_like_any_other(tiny_model):
    loss = BatchSoftmaxLoss(tiny_model, learn_temperature=True)
    loss([tiny_model.tokenize(column) for column in TEXTS.values()]).backward()
    assert loss.temperature.log.grad is not None


@pytest.mark.parametrize("start", [0.0011, 9.0])
def test_the_temperature_stays_within_its_bounds(tiny_encoder, tmp_path, start):
    trainer, loss = make_trainer(tiny_encoder, tmp_path, rate=20.0, settings={"temperature": start})
    trainer.train()
    history = [row["temperature"] for row in trainer.state.log_history if "loss" in row]
    assert len(history) == 6
    assert all(1e-3 * 0.999 <= value <= 10.01 for value in history)
    assert {round(value, 3) for value in history} & {0.001, 10.0}  # it did hit them
    assert loss.temperature.value == pytest.approx(history[-1], rel=1e-6)


class Kill(TrainerCallback):
    """The power goes off in the middle of step 4."""

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 4:
            raise KeyboardInterrupt


def test_a_killed_run_resumes_to_the_same_temperature_and_weights(tiny_encoder, tmp_path):
    saving = {"save_strategy": "steps", "save_steps": 3, "settings": {"mini_batch_size": 2}}
    whole, expected = make_trainer(tiny_encoder, tmp_path / "whole", **saving)
    whole.train()
    assert expected.temperature.value != pytest.approx(0.1, rel=0.01)

    killed, _ = make_trainer(tiny_encoder, tmp_path / "killed", [Kill()], **saving)
    with pytest.raises(KeyboardInterrupt):
        killed.train()
    for restore in (False, True):  # the host can also make callbacks anew from a checkpoint
        again = {**saving, "restore_callback_states_from_checkpoint": restore}
        resumed, found = make_trainer(tiny_encoder, tmp_path / str(restore), **again)
        resumed.train(resume_from_checkpoint=str(tmp_path / "killed" / "checkpoint-3"))
        assert found.temperature.value == expected.temperature.value
        for ours, theirs in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
            assert torch.equal(ours, theirs)


def test_a_second_training_starts_from_where_the_first_one_ended(tiny_encoder, tmp_path):
    trainer, loss = make_trainer(tiny_encoder, tmp_path, max_steps=1)
    trainer.train()
    first = loss.temperature.value
    trainer.train()
    assert abs(math.log(loss.temperature.value / first)) == pytest.approx(0.1, rel=1e-3)  # a first step of Adam is ± its rate
    assert trainer.args.max_grad_norm == 1.0


def test_a_checkpoint_without_a_temperature_is_refused(tiny_encoder, tmp_path):
    earlier, _ = make_trainer(tiny_encoder, tmp_path, max_steps=1, save_strategy="steps", save_steps=1)
    earlier.train()
    saved = tmp_path / "checkpoint-1" / "trainer_state.json"
    state = json.loads(saved.read_text())
    del state["stateful_callbacks"]["learned temperature"]  # as in a checkpoint of a loss that nobody tended
    saved.write_text(json.dumps(state))
    trainer, _ = make_trainer(tiny_encoder, tmp_path, max_steps=2)
    with pytest.raises(UserError, match="the checkpoint has no learned temperature, the losses have 1"):
        trainer.train(resume_from_checkpoint=True)


def test_a_loss_with_a_learned_temperature_asks_for_the_callback_and_others_for_none(tiny_model):
    learning = BatchSoftmaxLoss(tiny_model, learn_temperature=True, temperature_learning_rate=0.02)
    wrapped = MatryoshkaLoss(tiny_model, learning, matryoshka_dims=[64])
    assert [callback.rates for callback in temperature_callbacks(wrapped)] == [[0.02]]
    assert LearnedTemperature(wrapped, learning).logs == [learning.temperature.log]
    assert temperature_callbacks(BatchSoftmaxLoss(tiny_model)) == []
    assert temperature_callbacks(CosineSimilarityLoss(tiny_model)) == []


def test_losses_that_learn_nothing_and_rates_of_nothing_are_refused(tiny_model):
    with pytest.raises(UserError, match="make one with learn_temperature=True"):
        LearnedTemperature(BatchSoftmaxLoss(tiny_model))
    with pytest.raises(UserError, match="give a value above 0"):
        BatchSoftmaxLoss(tiny_model, learn_temperature=True, temperature_learning_rate=0)


def test_a_rate_that_is_a_tensor_leaves_a_state_that_a_file_takes(tiny_encoder, tmp_path):
    """torchao's optimizers keep it so."""
    trainer, loss = make_trainer(tiny_encoder, tmp_path)
    callback = LearnedTemperature(loss)
    callback.on_train_begin(trainer.args, trainer.state, trainer.control)
    loss.temperature.log.grad = torch.ones(())
    optimizer = SimpleNamespace(param_groups=[{"lr": torch.tensor(0.5), "initial_lr": torch.tensor(1.0)}])
    callback.on_pre_optimizer_step(trainer.args, trainer.state, trainer.control, model=trainer.model, optimizer=optimizer)
    trainer.state.save_to_json(str(tmp_path / "state.json"))
    assert loss.temperature.value == pytest.approx(0.1 * math.exp(-0.1 / 2))  # the first step of Adam is its rate
