"""One of two processes that train together; the tests of `sbert` start them. Arguments: encoder folder, output folder."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from torch import nn

from ddp_sampler import train_three_times
from pairtune.cli import main as command_line
from pairtune.fast.packing import PackingCollator
from pairtune.fast.step import FastStep
from pairtune.sbert.losses import BatchSoftmaxLoss, ComboLoss, PearsonLoss
from pairtune.sbert.trainer import PairTrainer

LEFT = [
    "How do I sort a list?",
    "Where is the station?",
    "How do I sort a list?",
    "A cat sat there.",
    "Capital of France?",
    "Rain.",
]
RIGHT = [
    "Call sorted.",
    "Two streets down, behind the old church.",
    "Use its sort method.",
    "Call sorted.",
    "It is Paris.",
    "Sun.",
]
LABELS = [1.0, 0.8, 0.6, 1.0, 0.3, 0.9]

# name: how the six pairs are split, whether they are labelled, and the loss
CASES = {
    "duplicates masked, temperature learned": (
        3, True, lambda model: BatchSoftmaxLoss(model, duplicates="mask", learn_temperature=True)),
    "uneven, without labels, ranges of the joined batch": (
        4, False, lambda model: BatchSoftmaxLoss(model, temperature=1.2, normalize="range-batch", positive_above=3)),
    "uneven, cached, temperature learned": (
        2, True, lambda model: ComboLoss(model, mix=0.3, normalize="l2-batch", learn_temperature=True, mini_batch_size=2)),
    "uneven, correlation": (
        5, True, lambda model: PearsonLoss(model)),
    "uneven, a list in both processes": (
        2, True, lambda model: ComboLoss(model, pointwise="pearson+listwise")),
}  # fmt: skip


def load(folder: str) -> SentenceTransformer:
    """The encoder without dropout and with frozen word vectors, which are most of it."""
    model = SentenceTransformer(folder, device="cpu")
    model[0].auto_model.embeddings.word_embeddings.weight.requires_grad_(False)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def backward(folder: str, case: str, rows: slice, wrap) -> dict:
    """Loss and gradients of some rows of the batch."""
    _, labelled, make = CASES[case]
    model = load(folder)
    loss = make(model)
    loss.model = wrap(model)  # as the host's trainer does it
    features = [dict(model.preprocess(texts[rows])) for texts in (LEFT, RIGHT)]
    value = loss(features, torch.tensor(LABELS[rows]) if labelled else None)
    value.backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    if getattr(loss, "temperature", None) is not None and loss.temperature.log is not None:
        gradients["log temperature"] = loss.temperature.log.grad
    return {"loss": value.detach(), **gradients}


def train(folder: str, out: Path, batch: int, gather: bool, packed: bool = False, cut: bool = False) -> dict:
    """Three steps with a learned temperature, of the host's trainer or of ours without padding, cut up as for graphs or not."""
    model = load(folder)
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(out),
        per_device_train_batch_size=batch,
        max_steps=3,
        learning_rate=0.01,
        optim="sgd",
        max_grad_norm=0.5,
        use_cpu=True,
        ddp_backend="gloo" if dist.is_initialized() else None,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        eval_strategy="epoch",
    )
    columns = {"left": LEFT * 2, "right": RIGHT * 2, "label": LABELS * 2}
    loss = BatchSoftmaxLoss(model, learn_temperature=True, temperature_learning_rate=0.1, gather_across_devices=gather)
    kind = PairTrainer if packed else SentenceTransformerTrainer
    trainer = kind(
        model,
        arguments,
        train_dataset=Dataset.from_dict(columns),
        data_collator=PackingCollator(model, Dataset.from_dict(columns), offset=0) if packed else None,
        eval_dataset=Dataset.from_dict(columns).select(range(5)),
        loss=loss,
    )
    if cut:
        trainer.fast = FastStep(trainer, devices=("cpu",))
        trainer.fast.several = True
    trainer.train()
    weights = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    return {"temperature": loss.temperature.value, "weights": weights}


def wrap(model: nn.Module) -> nn.Module:
    """DDP as the host's trainer makes it."""
    return nn.parallel.DistributedDataParallel(model, find_unused_parameters=True, broadcast_buffers=False)


def main(folder: str, out: Path) -> None:
    """All cases on this process's part of the batch."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    found = {}
    for case, (split, _, _) in CASES.items():
        rows = slice(0, split) if rank == 0 else slice(split, None)
        found[case] = backward(folder, case, rows, wrap)
    found["trained on the joined batch"] = train(folder, out / "joined", 3, gather=True)
    found["trained on the joined batch, packed"] = train(folder, out / "packed", 3, gather=True, packed=True)
    found["trained on the joined batch, cut"] = train(folder, out / "cut", 3, gather=True, packed=True, cut=True)
    found["trained on separate batches"] = train(folder, out / "separate", 3, gather=False)
    found["hard batches"] = train_three_times(folder, out / "hard")
    for words in json.loads((out / "commands.json").read_text()):
        with suppress(SystemExit):
            command_line(words)
    torch.save(found, out / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
