"""The trained half of benchmarks/ordering.py: what re-ordering costs against an epoch of training."""

from __future__ import annotations

import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np

TOKENS, EPOCHS = 24, 3


class Stopwatch:
    """Seconds of processor and of wall clock, added up over the blocks that it was running in."""

    def __init__(self):
        self.cpu = self.wall = 0.0

    @contextmanager
    def running(self):
        """Count this block."""
        cpu, wall = time.process_time(), time.perf_counter()
        yield
        self.cpu, self.wall = self.cpu + time.process_time() - cpu, self.wall + time.perf_counter() - wall


def training_arguments(folder, batches, device):
    """Three epochs in the order by examples, with nothing saved and nothing said."""
    from sentence_transformers import SentenceTransformerTrainingArguments

    return SentenceTransformerTrainingArguments(
        output_dir=folder,
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=32,
        batch_sampler=batches,
        save_strategy="no",
        logging_strategy="no",
        logging_nan_inf_filter=False,
        report_to=[],
        disable_tqdm=True,
        bf16=device != "cpu",
        use_cpu=device == "cpu",
    )


def timed_batches(encode, device, reordering, epoch):
    """Batches whose ordering is on one stopwatch, and a callback with epochs on the other; the first epoch only warms up."""
    import torch
    from transformers import TrainerCallback

    from pairtune.sbert.hard_batches import HardBatches

    wait = torch.cuda.synchronize if device != "cpu" else lambda: None

    class Timed(HardBatches):
        def on_epoch_begin(self, args, state, control, **kwargs):
            wait()
            watch = reordering if state.global_step else Stopwatch()  # the first epoch encodes in either case
            with watch.running():
                super().on_epoch_begin(args, state, control, **kwargs)
                wait()

        def on_step_end(self, args, state, control, **kwargs):
            watch = reordering if state.epoch > 1 else Stopwatch()
            with watch.running():
                super().on_step_end(args, state, control, **kwargs)

    class Epochs(TrainerCallback):
        def on_epoch_begin(self, args, state, control, **kwargs):
            wait()
            self.block = (epoch if state.global_step else Stopwatch()).running()
            self.block.__enter__()

        def on_epoch_end(self, *args, **kwargs):
            wait()
            self.block.__exit__(None, None, None)

    return Timed(by="examples", encode=encode), Epochs()


def time_training(count, encode, name, device):
    """An epoch's steps, and what was spent on the orders of later epochs and on keeping the vectors."""
    from datasets import Dataset
    from training import load
    from transformers import PrinterCallback

    from pairtune.data.datasets import load_task
    from pairtune.fast.architectures import first_position, lengths_to_capture
    from pairtune.fast.packing import PackingCollator
    from pairtune.sbert.losses import BatchSoftmaxLoss
    from pairtune.sbert.trainer import PairTrainer

    reordering, epoch = Stopwatch(), Stopwatch()
    pairs = load_task("stdlib").train
    model = load(name, device)
    model.max_seq_length = TOKENS if device == "cpu" else 128
    model.model_card_data.generate_widget_examples = False
    static = lengths_to_capture(model, "bf16") if device != "cpu" else 0
    batches, epochs = timed_batches(encode, device, reordering, epoch)
    with tempfile.TemporaryDirectory() as folder:
        data = Dataset.from_dict({"left": pairs.left[:count], "right": pairs.right[:count]})
        trainer = PairTrainer(
            model,
            training_arguments(folder, batches, device),
            data,
            loss=BatchSoftmaxLoss(model, temperature=0.05),
            callbacks=[epochs, batches],
            data_collator=PackingCollator(model, data, offset=first_position(model), static=static),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    watches = {clock: (getattr(reordering, clock), getattr(epoch, clock)) for clock in ("cpu", "wall")}
    order, whole = watches["cpu" if device == "cpu" else "wall"]
    per_epoch = {clock: value / (EPOCHS - 1) for clock, (_, value) in watches.items()}
    return {
        f"an epoch of {len(data):,} pairs, {name}, {encode}": per_epoch,
        f"re-ordering it, {encode}": {**vars(reordering), "share of an epoch": order / whole},
    }


def measure_recipes(given):
    """Of each recipe: an epoch, the order that it begins with, and the callback of its steps, which keeps the embeddings."""
    from training import load

    model = given.model
    with tempfile.TemporaryDirectory() as folder:
        if model == "bert-base":
            model = f"{folder}/bert-base"
            load("bert-base", "cpu").save_pretrained(model)
        return {f"an epoch of {name}, {given.model}": time_recipe(name, model, given.set, folder) for name in given.recipe}


def time_recipe(name, model, changes, folder):
    """Trained by `train.run`, its callback timed, and the device waited for before and after each order."""
    from unittest.mock import patch

    import torch

    from pairtune.runs.toml import read_recipe
    from pairtune.sbert import trainer
    from pairtune.training import run

    cuda = torch.cuda.is_available()
    wait = torch.cuda.synchronize if cuda else lambda: None
    begins, orders, steps, ends = [], [], [], []

    class Timed(trainer.HardBatches):
        def on_epoch_begin(self, args, state, control, **kwargs):
            wait()
            begins.append(time.perf_counter())
            super().on_epoch_begin(args, state, control, **kwargs)
            wait()
            orders.append(time.perf_counter() - begins[-1])

        def on_step_end(self, args, state, control, **kwargs):
            start = time.perf_counter()
            super().on_step_end(args, state, control, **kwargs)
            steps.append(time.perf_counter() - start)

        def on_epoch_end(self, args, state, control, **kwargs):
            wait()
            ends.append(time.perf_counter())

    settings = ["order.encode=reuse", "train.epochs=5", f'encoder="{model}"', *changes]
    recipe = read_recipe(name, ["train.precision=bf16", *settings] if cuda else settings)
    out, cpu = Path(tempfile.mkdtemp(dir=folder)), time.process_time()
    with patch.object(trainer, "HardBatches", Timed):
        run(recipe, 1, out=out / "run", results=out / "results.jsonl", checkpoints=False, keep_model=False)
    epochs = np.subtract(ends, begins)[1:]  # the first encodes
    order, keeping = np.array(orders[1:]), sum(steps) / len(begins)
    return {
        "cpu": time.process_time() - cpu,
        "wall": float(epochs.mean()),
        "order share": float(order.sum() / epochs.sum()),
        "least": float((order / epochs).min()),
        "most": float((order / epochs).max()),
        "with keeping": float((order + keeping).sum() / epochs.sum()),
    }
