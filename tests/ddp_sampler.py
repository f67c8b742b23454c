"""What a process sees of hard batches when two train together; `ddp_worker.py` asks for it."""

from __future__ import annotations

from pathlib import Path

from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from pairtune.runs.recipe import OrderSettings
from pairtune.sbert.hard_batches import HardBatches

PAIRS, BATCH, STEPS = 32, 4, 4  # eight batches, four of them for each process
SEED = 5
LEFT = [f"{noun} {number}" for noun in ("cat", "tree", "king", "bread") for number in range(PAIRS // 4)]


def order_settings(by):
    return OrderSettings(by=by, group=3, neighbors=10, encode="reuse")


def train(encoder, folder, by, resume=None):
    seen, orders = [], []

    class Notes(SentenceTransformerDataCollator):
        def __call__(self, features):
            seen.append([LEFT.index(row["left"]) for row in features])
            return super().__call__(features)

    class Watched(HardBatches):
        def on_epoch_begin(self, *args, **kwargs):
            super().on_epoch_begin(*args, **kwargs)
            orders.append(self.samplers[0].order_of_epoch().rows.tolist())

    model = SentenceTransformer(encoder, device="cpu")
    arguments = SentenceTransformerTrainingArguments(
        output_dir=folder,
        num_train_epochs=3,
        per_device_train_batch_size=BATCH,
        batch_sampler=Watched(**order_settings(by).model_dump()),
        learning_rate=1e-3,
        save_strategy="no" if resume else "steps",
        save_steps=STEPS + 1,
        seed=SEED,
        report_to=[],
        use_cpu=True,
        ddp_backend="gloo",
        disable_tqdm=True,
        logging_strategy="no",
    )
    trainer = SentenceTransformerTrainer(
        model,
        arguments,
        Dataset.from_dict({"left": LEFT, "right": [f"the {text}" for text in LEFT]}),
        loss=MultipleNegativesRankingLoss(model),
        data_collator=Notes(preprocess_fn=model.preprocess),
    )
    trainer.train(resume_from_checkpoint=resume)
    return {"seen": seen, "orders": orders, "weight": float(sum(p.detach().double().sum() for p in model.parameters()))}


def train_three_times(encoder: str, folder: Path) -> dict:
    """A whole training, the same resumed, and one by words resumed in the same epoch."""
    checkpoint = str(folder / f"checkpoint-{STEPS + 1}")  # one step into the second epoch
    return {
        "whole": train(encoder, folder, "examples"),
        "resumed": train(encoder, folder, "examples", resume=checkpoint),
        "words": train(encoder, folder, "words", resume=checkpoint),
    }
