"""The host's trainer, set up from one stage of a recipe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from transformers import PrinterCallback, ProgressCallback, TrainerCallback
from transformers.integrations.integration_utils import (
    INTEGRATION_TO_CALLBACK,
    TensorBoardCallback,
    get_available_reporting_integrations,
)

from pairtune.errors import UserError
from pairtune.pairs import Task
from pairtune.recipe import Stage
from pairtune.sbert.callbacks import Seal
from pairtune.sbert.evaluator import PairEvaluator
from pairtune.sbert.loss import build_loss
from pairtune.sbert.optimiser import without_bias_correction
from pairtune.sbert.reorder import Reorder
from pairtune.sbert.sampler import HardBatches
from pairtune.sbert.temperature import temperature_callbacks

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

LOG_STEPS = 10


class PairTrainer(SentenceTransformerTrainer):
    """The host's trainer with AdamW's bias correction as a choice; everything else is the host's."""

    bias_correction = True

    def get_optimizer_cls_and_kwargs(  # type: ignore[override]  # a static method in transformers, the host overrides it so too
        self, args: Any, model: Any = None
    ) -> tuple[Any, Any]:
        """The host's groups and rates, with our AdamW where the recipe turns bias correction off."""
        chosen = super().get_optimizer_cls_and_kwargs(args, model)
        return chosen if self.bias_correction else without_bias_correction(chosen)


def make_trainer(
    model: SentenceTransformer,
    dataset: Dataset,
    stage: Stage,
    task: Task,
    seed: int,
    folder: Path,
    callbacks: list[TrainerCallback],
    *,
    keep_best: bool,
) -> PairTrainer:
    """A trainer that follows one stage of a recipe, quiet but for our own progress."""
    check_reporters(stage.train.report_to)
    evaluator = PairEvaluator.of_task(task)
    arguments = training_arguments(
        stage,
        seed,
        folder,
        batch_sampler=HardBatches(stage.order),
        load_best_model_at_end=keep_best,
        metric_for_best_model=f"eval_{evaluator.primary_metric}",
        greater_is_better=True,
        logging_steps=min(LOG_STEPS, max(1, len(dataset) // stage.train.batch)),  # every epoch has a loss to show
    )
    first, second, *_ = dataset[0].values()
    example: Any = {"source_sentence": first, "sentences": [second]}
    model.model_card_data.widget = [example]  # or the host looks for some, noisily
    loss = build_loss(model, stage.loss)
    learned = temperature_callbacks(loss, stage.loss.temperature_rate)
    trainer = PairTrainer(
        model=model,
        args=arguments,
        train_dataset=dataset,
        loss=loss,
        evaluator=evaluator,
        callbacks=[*callbacks, Reorder(), *learned, Seal()],
    )
    trainer.bias_correction = stage.train.bias_correction
    keep_logs(trainer, folder.parents[1] / "logs" / folder.name)
    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    return trainer


def training_arguments(stage: Stage, seed: int, folder: Path, **more: Any) -> SentenceTransformerTrainingArguments:
    """The recipe's settings in the host's words: evaluate and save after each epoch."""
    settings = stage.train
    return SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.batch,
        learning_rate=settings.rate,
        weight_decay=settings.weight_decay,
        warmup_steps=settings.warmup,
        lr_scheduler_type="linear",
        max_grad_norm=settings.clip,
        adam_epsilon=settings.epsilon,
        bf16=settings.precision == "bf16",
        seed=seed,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        report_to=list(settings.report_to),
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available(),
        **more,
    )


def check_reporters(names: Sequence[str]) -> None:
    """The host knows each of them, and it is installed."""
    for name in names:
        if name not in INTEGRATION_TO_CALLBACK:
            raise UserError(f"train.report_to names {name!r}; sentence-transformers knows {', '.join(INTEGRATION_TO_CALLBACK)}")
        if name not in get_available_reporting_integrations():
            raise UserError(f"train.report_to names {name}, which is not installed here: pip install {name}")


def keep_logs(trainer: PairTrainer, folder: Path) -> None:
    """TensorBoard's files go beside the checkpoints, not among them: those are dropped when the run is done."""
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, TensorBoardCallback) and callback.logging_dir is None:
            callback.logging_dir = str(folder)
