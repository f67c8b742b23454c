"""A step that is cut where several processes join their embeddings: here in one process, on a CPU, so without graphs."""

from __future__ import annotations

import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments

from ddp_worker import LABELS, LEFT, RIGHT
from pairtune.fast.captured import JoinedSteps
from pairtune.fast.packing import PackingCollator
from pairtune.fast.step import FastStep
from pairtune.sbert.losses import BatchSoftmaxLoss
from pairtune.sbert.trainer import PairTrainer


class CutStep(FastStep):
    """As several processes compute a step."""

    joined, several = True, True


class HostStep(FastStep):
    """As a single process without a GPU does: by the host's trainer."""

    def captures(self, batch):
        return False


def train(folder, out, step, half=False):
    """The weights and the temperature after four steps with dropout, and what computed the steps."""
    torch.manual_seed(3)
    model = SentenceTransformer(folder, device="cpu")
    data = Dataset.from_dict({"left": LEFT * 2, "right": RIGHT * 2, "label": LABELS * 2})
    loss = BatchSoftmaxLoss(model, learn_temperature=True, temperature_learning_rate=0.1, duplicates="mask")
    how = {"per_device_train_batch_size": 3, "max_steps": 4, "learning_rate": 0.1, "optim": "sgd", "max_grad_norm": 0.5}
    quiet = {"report_to": [], "disable_tqdm": True, "save_strategy": "no", "use_cpu": True}
    arguments = SentenceTransformerTrainingArguments(output_dir=str(out), bf16=half, **how, **quiet)
    collate = PackingCollator(model, data, offset=0)
    trainer = PairTrainer(model, arguments, train_dataset=data, data_collator=collate, loss=loss)
    trainer.fast = step(trainer, devices=("cpu",))
    seen = []
    begin = trainer.fast._begin
    trainer.fast._begin = lambda: seen.append(begin()) or seen[0]
    trainer.train()
    return weights_of(model), loss.temperature.value, seen


def weights_of(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


class WholeStep(FastStep):
    """As a single process with a GPU computes a step."""

    def captures(self, batch):
        return True


@pytest.mark.parametrize("half", [False, True])
def test_a_step_that_is_cut_trains_as_the_whole_one_does(tiny_encoder, tmp_path, half):
    cut, temperature, (steps,) = train(tiny_encoder, tmp_path, CutStep, half)
    whole, expected, others = train(tiny_encoder, tmp_path, WholeStep if half else HostStep, half)
    assert isinstance(steps, JoinedSteps) and steps.buffer is not None and len(others) == half
    assert steps.halves.half[0].dtype == (torch.bfloat16 if half else torch.float32)
    before = weights_of(SentenceTransformer(tiny_encoder, device="cpu"))
    assert (whole - before).norm() > 0.05 and (cut - whole).norm() < 1e-5 * (whole - before).norm()
    assert abs(temperature - 0.1) > 1e-3 and abs(temperature - expected) < 1e-6
