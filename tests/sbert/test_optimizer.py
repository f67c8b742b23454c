"""AdamW without bias correction, against torch's own and against a plain loop."""

from __future__ import annotations

import io
import math

import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

from pairtune.errors import UserError
from pairtune.sbert.losses import BatchSoftmaxLoss
from pairtune.sbert.optimizer import LATE_STEP, UncorrectedAdamW, without_bias_correction


def parameters(dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in ((3, 4), (5,), ())]


def give_gradients(params, step, dtype=torch.float32):
    generator = torch.Generator().manual_seed(step)
    for index, parameter in enumerate(params):
        gradient = torch.randn(parameter.shape, generator=generator, dtype=dtype)
        parameter.grad = None if (index, step) == (1, 2) else gradient  # one is missing once: its steps lag behind


@pytest.mark.parametrize("how", [{"fused": True}, {"foreach": True}, {"foreach": False}])
def test_without_bias_correction_it_is_the_loop_of_the_original(how):
    lr, (beta1, beta2), eps, decay = 0.01, (0.9, 0.999), 1e-6, 0.1
    params = parameters(torch.float64)
    flat = [value for parameter in params for value in parameter.flatten().tolist()]
    mean, square = [0.0] * len(flat), [0.0] * len(flat)
    optimizer = UncorrectedAdamW(params, lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=decay, **how)
    for step in range(3, 8):
        give_gradients(params, step, torch.float64)
        for i, g in enumerate(value for parameter in params for value in parameter.grad.flatten().tolist()):
            mean[i] = beta1 * mean[i] + (1 - beta1) * g
            square[i] = beta2 * square[i] + (1 - beta2) * g * g
            flat[i] -= lr * (mean[i] / (math.sqrt(square[i]) + eps) + decay * flat[i])
        optimizer.step()
    assert [value for parameter in params for value in parameter.flatten().tolist()] == pytest.approx(flat, abs=1e-12)


def test_the_first_step_without_bias_correction_is_the_larger_one():
    sizes = []
    for optimizer_class in (torch.optim.AdamW, UncorrectedAdamW):
        parameter = torch.ones(1, requires_grad=True)
        optimizer = optimizer_class([parameter], lr=0.01, eps=0, weight_decay=0)
        parameter.grad = torch.full((1,), 0.7)
        optimizer.step()
        sizes.append(1 - parameter.item())
    assert sizes[0] == pytest.approx(0.01, rel=1e-3)
    assert sizes[1] == pytest.approx(0.01 * 0.1 / math.sqrt(0.001), rel=1e-3)


def test_its_state_survives_a_save():
    whole, parted = parameters(), parameters()
    first = UncorrectedAdamW(whole)
    second = UncorrectedAdamW(parted)
    for step in range(4):
        give_gradients(whole, step)
        first.step()
    for step in range(4):
        if step == 2:
            file = io.BytesIO()
            torch.save(second.state_dict(), file)
            file.seek(0)
            second = UncorrectedAdamW(parted, lr=9.0)
            second.load_state_dict(torch.load(file, weights_only=True))
        give_gradients(parted, step)
        second.step()
    assert all(torch.equal(a, b) for a, b in zip(whole, parted, strict=True))


def test_a_state_that_counted_its_steps_goes_on_without_correction():
    params = parameters()
    counted = torch.optim.AdamW(params)
    give_gradients(params, 3)
    counted.step()
    resumed = UncorrectedAdamW(params)
    resumed.load_state_dict(counted.state_dict())
    assert len(resumed.state) == 3 and all(one["step"] == LATE_STEP for one in resumed.state.values())


def test_a_closure_gives_its_loss_back():
    parameter = torch.ones(1, requires_grad=True)
    optimizer = UncorrectedAdamW([parameter])

    def closure():
        optimizer.zero_grad()
        loss = (parameter**2).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 1.0
    assert parameter.item() < 1


def test_the_hosts_trainer_takes_it_with_its_own_settings(tiny_model, tmp_path):
    class Trainer(SentenceTransformerTrainer):
        def get_optimizer_cls_and_kwargs(self, args, model=None):
            return without_bias_correction(super().get_optimizer_cls_and_kwargs(args, model))

    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path),
        per_device_train_batch_size=2,
        max_steps=2,
        learning_rate=3e-5,
        adam_beta1=0.85,
        adam_epsilon=1e-7,
        weight_decay=0.02,
        lr_scheduler_type="constant",
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
    )
    dataset = Dataset.from_dict({"left": ["a cat", "rain"], "right": ["a feline", "wet weather"]})
    trainer = Trainer(tiny_model, arguments, train_dataset=dataset, loss=BatchSoftmaxLoss(tiny_model))
    trainer.train()
    optimizer = trainer.optimizer.optimizer
    assert type(optimizer) is UncorrectedAdamW
    for group, decay in zip(optimizer.param_groups, (0.02, 0.0), strict=True):
        assert (group["lr"], group["betas"], group["eps"], group["weight_decay"]) == (3e-5, (0.85, 0.999), 1e-7, decay)
        assert group["fused"]  # what the host would have taken
    assert all(state["step"] == LATE_STEP for state in optimizer.state.values())


def test_what_it_cannot_do_is_refused():
    with pytest.raises(UserError, match="bias_correction = false works with AdamW only, not with SGD"):
        without_bias_correction((torch.optim.SGD, {"lr": 1}))
