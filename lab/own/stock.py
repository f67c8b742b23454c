"""The stock losses of sentence-transformers in its own trainer: what a user would take without pairtune."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.util import mine_hard_negatives
from transformers import PrinterCallback

from pairtune import PairEvaluator, Task, load_encoder
from pairtune.sbert.callbacks import Clock, KeepBest
from pairtune.sbert.evaluator import evaluate_task

if TYPE_CHECKING:
    from torch import nn

EPOCHS, BATCH, RATE = 3, 32, 5e-5  # the rate is the host's default; so are the sampler and all settings of the losses


@dataclass(frozen=True)
class Stock:
    """A loss as it ships, and how a dataset for it is made of a task's training pairs."""

    loss: Callable[[SentenceTransformer], nn.Module]
    dataset: Callable[[Task, SentenceTransformer], Dataset]


def scored(task: Task, model: SentenceTransformer) -> Dataset:
    """Pairs with their labels."""
    return Dataset.from_dict({"left": task.train.left, "right": task.train.right, "label": task.train.label.astype(float)})


def yes_no(task: Task, model: SentenceTransformer) -> Dataset:
    """Pairs with labels 0 and 1."""
    label = task.train.positives(task.positive_above).astype(int)
    return Dataset.from_dict({"left": task.train.left, "right": task.train.right, "label": label})


def positives(task: Task, model: SentenceTransformer) -> Dataset:
    """The positive pairs alone."""
    kept = task.train.take(task.train.positives(task.positive_above))
    return Dataset.from_dict({"anchor": kept.left, "positive": kept.right})


def labelled_negatives(task: Task, model: SentenceTransformer) -> Dataset:
    """Each positive pair with a labelled negative of the same left text, where there is one."""
    wrong: dict[str, list[str]] = defaultdict(list)
    positive = task.train.positives(task.positive_above)
    for left, right, good in zip(task.train.left, task.train.right, positive, strict=True):
        wrong[left] += [] if good else [right]
    rng = np.random.default_rng(0)
    rows = [
        (left, right, str(rng.choice(wrong[left])))
        for left, right, good in zip(task.train.left, task.train.right, positive, strict=True)
        if good and wrong[left]
    ]
    return Dataset.from_dict(dict(zip(("anchor", "positive", "negative"), map(list, zip(*rows, strict=True)), strict=True)))


def mined_negatives(task: Task, model: SentenceTransformer) -> Dataset:
    """The positive pairs with one negative each, mined by the encoder as it comes, 5 % below the positive."""
    return mine_hard_negatives(
        positives(task, model),
        model,
        num_negatives=1,
        relative_margin=0.05,
        batch_size=128,
        verbose=False,
        output_format="triplet",
    )


LABELLED = {
    "CosineSimilarityLoss": Stock(losses.CosineSimilarityLoss, scored),
    "CoSENTLoss": Stock(losses.CoSENTLoss, scored),
    "AnglELoss": Stock(losses.AnglELoss, scored),
    "OnlineContrastiveLoss": Stock(losses.OnlineContrastiveLoss, yes_no),
}
POSITIVES = {
    "MultipleNegativesRankingLoss": Stock(losses.MultipleNegativesRankingLoss, positives),
    "MultipleNegativesRankingLoss, mined": Stock(losses.MultipleNegativesRankingLoss, mined_negatives),
}
WITH_NEGATIVES = {"MultipleNegativesRankingLoss, labelled": Stock(losses.MultipleNegativesRankingLoss, labelled_negatives)}
STOCK = LABELLED | POSITIVES | WITH_NEGATIVES


def stock_losses(task: Task) -> list[str]:
    """The stock losses that this task's labels allow."""
    if task.kind == "retrieval":
        return list(POSITIVES)
    several = len(set(task.train.left)) * 2 < len(task.train)
    return [*LABELLED, "MultipleNegativesRankingLoss", *(WITH_NEGATIVES if several else ())]


def train_stock(task: Task, name: str, encoder: str, seed: int, *, bf16: bool = False) -> dict[str, Any]:
    """Train as the host's documentation shows it, keep the best epoch on dev, and score it."""
    model = load_encoder(encoder)
    dataset = STOCK[name].dataset(task, model)
    clock, evaluator = Clock(len(dataset)), PairEvaluator.of_task(task)
    with tempfile.TemporaryDirectory() as folder:
        trainer = SentenceTransformerTrainer(
            model=model,
            args=SentenceTransformerTrainingArguments(
                output_dir=folder,
                num_train_epochs=EPOCHS,
                per_device_train_batch_size=BATCH,
                learning_rate=RATE,
                warmup_steps=0.1,
                bf16=bf16,
                use_cpu=bf16 and not torch.cuda.is_available(),
                seed=seed,
                eval_strategy="epoch",
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
            ),
            train_dataset=dataset,
            loss=STOCK[name].loss(model),
            evaluator=evaluator,
            callbacks=[clock, KeepBest(f"eval_{evaluator.primary_metric}")],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return {"scores": evaluate_task(model, task), "seconds": clock.seconds, "pairs": len(dataset)}
