"""The host's trainer, set up from one stage of a recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from datasets import Dataset, DatasetDict
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from torch import Tensor
from transformers import PrinterCallback, ProgressCallback, TrainerCallback
from transformers.integrations.integration_utils import (
    INTEGRATION_TO_CALLBACK,
    TensorBoardCallback,
    get_available_reporting_integrations,
)
from transformers.training_args import ParallelMode

from pairtune.data.material import count_rows, texts_of
from pairtune.data.pairs import Task
from pairtune.encoders.adapters import has_adapter, restore_weights
from pairtune.errors import UserError
from pairtune.fast.architectures import first_position, lengths_to_capture, why_padded
from pairtune.fast.packing import PackingCollator
from pairtune.fast.step import FastStep
from pairtune.processes import process_place, spreads_weights, world_size
from pairtune.progress import say
from pairtune.runs.recipe import Select, Stage
from pairtune.sbert.averaging import Average, Blend
from pairtune.sbert.callbacks import KeepBest, StopDropout
from pairtune.sbert.checkpoints import Seal
from pairtune.sbert.evaluator import CHOICE, PairEvaluator
from pairtune.sbert.hard_batches import HardBatches, read_settings
from pairtune.sbert.losses import build_loss
from pairtune.sbert.mined import mine_each_epoch
from pairtune.sbert.optimizer import find_8bit_optimizer, without_bias_correction
from pairtune.sbert.raw import PairLoss, raw_embeddings
from pairtune.sbert.sampler import SharedSources
from pairtune.sbert.temperature import temperature_callbacks

LOG_STEPS = 10


class PairTrainer(SentenceTransformerTrainer):
    """The host's trainer with AdamW's bias correction as a choice, and with a fast step for batches that are packed.

    `FastStep` computes the batches of a `PackingCollator`. Everything else, resuming, several processes, logging and
    evaluation, is the host's.
    """

    bias_correction = True
    batches: HardBatches | None = None

    @cached_property
    def fast(self) -> FastStep:
        """What computes packed batches."""
        return FastStep(self)

    def get_optimizer_cls_and_kwargs(  # type: ignore[override]  # a static method in transformers, the host overrides it so too
        self, args: Any, model: Any = None
    ) -> tuple[Any, Any]:
        """The host's groups and rates, with our AdamW where the recipe turns bias correction off."""
        chosen = super().get_optimizer_cls_and_kwargs(args, model)
        return chosen if self.bias_correction else without_bias_correction(chosen)

    def training_step(self, model: torch.nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """The host's, or a captured one."""
        if "packed" not in inputs or not self.fast.captures(inputs["packed"]):
            return super().training_step(model, inputs, num_items_in_batch)
        if not self.model.training:  # to say it to each of its modules takes longer than it should
            self.model.train()
        loss, embeddings = self.fast.run(inputs["packed"], self._weigh_share(self.loss))
        self._show(embeddings)
        return loss

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
        """The host's, or that of a packed batch; of several processes each computes the loss of all, or its part of it."""
        weight = self._weigh_share(self.loss[inputs["dataset_name"]] if isinstance(self.loss, dict) else self.loss)
        if "packed" not in inputs:
            found: Any = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
            loss, *more = found if return_outputs else (found,)
        else:
            loss, embeddings = self.fast.compute(inputs["packed"], inputs.get("dataset_name"))
            self._show(embeddings.detach())
            more = [{}]
        loss = loss * weight
        return (loss, *more) if return_outputs else loss

    def get_multi_dataset_batch_sampler(self, *args: Any, **kwargs: Any) -> Any:
        """The host's mixture of sources; several processes share each of its batches."""
        mixture = super().get_multi_dataset_batch_sampler(*args, **kwargs)
        if self.batches is None or self.batches.shares == 1:
            return mixture
        self.batches.mixture = SharedSources(mixture, self.batches.shares)
        return self.batches.mixture

    def _weigh_share(self, loss: Any) -> float:
        """The weight of this process's loss; tells the loss whether the process has pairs in this step at all."""
        own, pairs = self._share()
        if isinstance(loss, PairLoss):
            loss.filler = not own
        joins = getattr(loss, "gather_across_devices", False)
        # a mean over the rows of this process, averaged with the others': as one over all rows
        return own * world_size() / pairs if pairs and not joins else 1.0

    def _share(self) -> tuple[int, int]:
        """How many pairs of the step's batch this process has, and how many all have; (1, 0) where batches are not shared."""
        if self.batches is None or not self.model.training:
            return 1, 0
        samplers = [one for one in (self.batches.mixture, *self.batches.samplers) if one is not None and one.shares > 1]
        return samplers[0].own_share(self.state.global_step, process_place()[0]) if samplers else (1, 0)

    def log(self, logs: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        """The host's, with numbers only: torchao's optimizers keep the learning rate as a tensor, which no file of JSON takes."""
        super().log({name: one.item() if isinstance(one, Tensor) else one for name, one in logs.items()}, *args, **kwargs)

    def _clip_grad_norm(self, model: torch.nn.Module) -> Any:
        """The host's, or the same of the one buffer that a captured step keeps all gradients in."""
        norm = self.fast.clip(self.args.max_grad_norm)
        return super()._clip_grad_norm(model) if norm is None else norm

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """The host's, on embeddings before a final `Normalize`; captured steps, and the memory they hold, end with it."""
        try:
            with raw_embeddings(self.model):
                self.model.train()  # as the host loads an encoder, it says that it trains while its modules do not
                return super().train(*args, **kwargs)
        finally:
            self.fast.close()
            for callback in self.callback_handler.callbacks:  # an exception may have kept them from it
                if isinstance(callback, (HardBatches, StopDropout)):
                    callback.undo()

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:  # type: ignore[override]  # as the host has it
        """The host's; of an adapter, its own weights only."""
        if has_adapter(self.model):
            restore_weights(self.model, Path(checkpoint_path))
        else:
            super()._load_from_checkpoint(checkpoint_path)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """A checkpoint, without the host's model card: nobody reads it, and writing it takes longer than saving a small model."""
        self.model.save_pretrained(str(output_dir or self.args.output_dir), create_model_card=False)

    def _show(self, embeddings: Tensor) -> None:
        """The embeddings of the step, column by column, to whoever keeps them for the next epoch's order."""
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, HardBatches) and callback.kept is not None:
                callback.kept.see(embeddings.flatten(0, 1))


class PackingCollators:
    """Rows of one of several datasets, which each row names, by the collator of that dataset."""

    def __init__(self, collators: Mapping[str, PackingCollator]) -> None:
        self.collators = dict(collators)
        self.valid_label_columns = next(iter(self.collators.values())).valid_label_columns

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """The batch, and the name of its dataset."""
        name = rows[0]["dataset_name"]
        return {**self.collators[name](rows), "dataset_name": name}


Stages = Mapping[str, Stage]  # of each dataset, by its name; of one alone under ""


def packing_collator(
    model: SentenceTransformer, dataset: Dataset | DatasetDict, stages: Stages, arguments: SentenceTransformerTrainingArguments
) -> PackingCollator | PackingCollators | None:
    """The collator of the fast step, or None, having said why, where the stage or the model cannot use it."""
    stage = next(iter(stages.values()))
    if not stage.train.fast:
        return None
    reason = why_padded(model)
    part = stage.loss.mini_batch_size
    if stage.train.gradient_checkpointing:
        reason = "train.gradient_checkpointing; loss.mini_batch_size saves memory too, and is faster"
    if part and arguments.parallel_mode != ParallelMode.NOT_PARALLEL:
        reason = "loss.mini_batch_size with several processes"
    if spreads_weights():
        reason = "FSDP"
    if arguments.parallel_mode == ParallelMode.NOT_DISTRIBUTED:
        reason = "several GPUs in one process; start it with torchrun"
    if reason:
        say(f"training with padding, the slower way: {reason}")
        return None
    static = lengths_to_capture(model, stage.train.precision) if model.device.type == "cuda" else 0
    how: Any = {"offset": first_position(model), "static": static, "part": part}
    if isinstance(dataset, dict):
        return PackingCollators({name: PackingCollator(model, one, **how) for name, one in dataset.items()})
    return PackingCollator(model, dataset, **how)


def make_trainer(
    model: SentenceTransformer,
    dataset: Dataset | DatasetDict,
    stage: Stage | Stages,
    task: Task,
    seed: int,
    folder: Path,
    callbacks: list[TrainerCallback],
    *,
    select: Select,
    checkpoints: bool = True,
    share: Literal["size", "equal"] = "size",
) -> PairTrainer:
    """A trainer that follows one stage of a recipe, quiet but for our own progress.

    dataset: of one, or of several sources, which differ in loss and order alone. share: of the batches, see the recipe.
    checkpoints: after each epoch, to resume from; without them the best epoch's weights are held in memory.
    """
    stages = {"": stage} if isinstance(stage, Stage) else stage
    stage = next(iter(stages.values()))
    check_reporters(stage.train.report_to)
    evaluator = PairEvaluator.of_task(task)
    several = dataset if isinstance(dataset, dict) else {}
    batches = batches_of(stages, several)
    arguments = training_arguments(
        stage,
        seed,
        folder,
        **epochs_to_keep(select, checkpoints=checkpoints),
        batch_sampler=batches,
        logging_steps=min(LOG_STEPS, max(1, count_rows(dataset) // stage.train.batch_size)),  # every epoch has a loss to show
        multi_dataset_batch_sampler={"size": "proportional", "equal": "round_robin"}[share],
    )
    first, second, *_ = (next(iter(several.values())) if several else dataset)[0].values()
    example: Any = {"source_sentence": first, "sentences": [second]}
    model.model_card_data.widget = [example]  # or the host looks for some, noisily
    losses = losses_of(model, stages, dataset)
    mined = mine_each_epoch(dataset, stages, batches, task, seed)
    keep = KeepBest(arguments.metric_for_best_model or "") if select == "best" and not checkpoints else None
    held = [one for one in (mined, keep) if one]
    own = [*temperature_callbacks(*losses.values()), *held, *asked_callbacks(model, stage, select)]
    trainer = trainer_class()(
        model=model,
        args=arguments,
        train_dataset=dataset,
        loss=losses if several else losses[""],
        evaluator=evaluator,
        callbacks=[*callbacks, batches, *own, Seal()],  # sealed when all others have written
        data_collator=packing_collator(model, dataset, stages, arguments),  # type: ignore[arg-type]  # the host only calls it
    )
    trainer.bias_correction, trainer.batches = stage.train.bias_correction, batches
    if mined is not None:
        trainer.data_collator = mined.filling(trainer.data_collator)  # type: ignore[assignment]  # the host only calls it
    if place := process_place()[0]:
        torch.manual_seed(seed + place)  # dropout differs from process to process
    keep_logs(trainer, folder.parents[1] / "logs" / folder.name)
    return trainer


def trainer_class() -> type[PairTrainer]:
    """The trainer, or the one whose weights are spread over the processes."""
    if not spreads_weights():
        return PairTrainer
    from pairtune.sbert.sharded import ShardedTrainer  # it is one of these

    return ShardedTrainer


def batches_of(stages: Stages, sources: Mapping[str, Dataset]) -> HardBatches:
    """The batches of a stage, which processes share; each of several sources has an order of its own."""
    batches = HardBatches(**next(iter(stages.values())).order.model_dump())
    batches.shares = world_size()
    batches.sources = {name: read_settings(stages[name].order.model_dump()) for name in sources}
    return batches


def losses_of(model: SentenceTransformer, stages: Stages, dataset: Dataset | DatasetDict) -> dict[str, torch.nn.Module]:
    """The loss of each source, by its name."""
    return {
        name: build_loss(
            model,
            one.loss,
            texts=lambda: texts_of(dataset),
            dimensions=one.train.dimensions,
            fused=None if one.train.fast else False,
        )
        for name, one in stages.items()
    }


def asked_callbacks(model: SentenceTransformer, stage: Stage, select: Select) -> list[TrainerCallback]:
    """What a recipe asks to be done between epochs or at the end."""
    asked: list[TrainerCallback] = [StopDropout()] if stage.train.dropout == "first-epoch" else []
    if select == "average":
        asked.append(Average())
    if stage.train.blend:
        asked.append(Blend(model, stage.train.blend))
    return asked


def training_arguments(stage: Stage, seed: int, folder: Path, **more: Any) -> SentenceTransformerTrainingArguments:
    """The recipe's settings in the host's words: evaluate after each epoch."""
    settings = stage.train
    if settings.optimizer == "adamw-8bit":
        more["optim"] = find_8bit_optimizer()
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.batch_size // world_size(),
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        warmup_steps=settings.warmup,
        lr_scheduler_type="linear",
        max_grad_norm=settings.clip,
        adam_epsilon=settings.epsilon,
        gradient_checkpointing=settings.gradient_checkpointing,
        bf16=settings.precision == "bf16",
        # or the host refuses bf16, and lets each process train alone
        use_cpu=(settings.precision == "bf16" or world_size() > 1) and not torch.cuda.is_available(),
        seed=seed,
        eval_strategy="epoch",
        report_to=list(settings.report_to),
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available(),
        logging_nan_inf_filter=False,  # it waits for the device at every step, and hides what a user should see
        dataloader_drop_last=world_size() > 1,
        **more,
    )
    arguments.dataloader_drop_last = False  # the host, which cannot share the last batch, would set it noisily; ours can
    return arguments


def check_reporters(names: Sequence[str]) -> None:
    """The host knows each of them, and it is installed."""
    for name in names:
        if name not in INTEGRATION_TO_CALLBACK:
            raise UserError(f"train.report_to names {name!r}; sentence-transformers knows {', '.join(INTEGRATION_TO_CALLBACK)}")
        if name not in get_available_reporting_integrations():
            raise UserError(f"train.report_to names {name}, which is not installed here: pip install {name}")


def epochs_to_keep(select: Select, *, checkpoints: bool) -> dict[str, Any]:
    """In the host's words: checkpoints after each epoch, or none, and which of them it ends with."""
    return {
        "save_strategy": "epoch" if checkpoints else "no",
        "load_best_model_at_end": select == "best" and checkpoints,
        "metric_for_best_model": f"eval_{CHOICE}",
        "greater_is_better": True,
    }


def keep_logs(trainer: PairTrainer, folder: Path) -> None:
    """TensorBoard's files go beside the checkpoints, not among them: those are dropped when the run is done.

    The host's own printing goes: `Progress` says the same.
    """
    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, TensorBoardCallback) and callback.logging_dir is None:
            callback.logging_dir = str(folder)
