"""Two real processes train together; this file is also the script that each of them runs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

PAIRS, BATCH, STEPS = 32, 4, 4  # eight batches, four of them for each process
SEED = 5
LEFT = [f"{noun} {number}" for noun in ("cat", "tree", "king", "bread") for number in range(PAIRS // 4)]


def order_settings(by):
    from pairtune.runs.recipe import OrderSettings

    return OrderSettings(by=by, group=3, neighbors=10, encode="reuse")


def train(encoder, folder, by, resume=None):
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    from pairtune.sbert.hard_batches import HardBatches

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


def main(encoder, folder):
    checkpoint = str(Path(folder) / f"checkpoint-{STEPS + 1}")  # one step into the second epoch
    found = {
        "whole": train(encoder, folder, "examples"),
        "resumed": train(encoder, folder, "examples", resume=checkpoint),
        "words": train(encoder, folder, "words", resume=checkpoint),
    }
    (Path(folder) / f"rank-{os.environ['RANK']}.json").write_text(json.dumps(found))


@pytest.fixture(scope="module")
def ranks(tiny_encoder, tmp_path_factory):
    from ranks import run_two_ranks

    folder = tmp_path_factory.mktemp("ddp")
    run_two_ranks(__file__, tiny_encoder, folder, logs=folder)
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(2)]


def share(order, rank):
    """Every other batch of an order."""
    return [order[start : start + BATCH] for start in range(rank * BATCH, PAIRS, 2 * BATCH)]


def test_two_processes_share_each_epochs_order_between_them(ranks):
    orders = ranks[0]["whole"]["orders"]
    assert ranks[1]["whole"]["orders"] == orders
    assert len({tuple(order) for order in orders}) == 3  # a new one each epoch
    for rank in range(2):
        assert ranks[rank]["whole"]["seen"] == [batch for order in orders for batch in share(order, rank)]
    assert ranks[0]["whole"]["weight"] == ranks[1]["whole"]["weight"]


def test_two_processes_resume_to_the_same_orders_and_batches(ranks):
    for rank in ranks:
        assert rank["resumed"]["orders"] == rank["whole"]["orders"][1:]
        assert rank["resumed"]["seen"] == rank["whole"]["seen"][STEPS + 1 :]
        assert rank["resumed"]["weight"] == pytest.approx(rank["whole"]["weight"], rel=1e-9)


def test_two_processes_know_the_epoch_that_they_resume_in(ranks):
    from pairtune.ordering import Side, epoch_seed, order_pairs

    orders = [order_pairs(Side.of(LEFT), order_settings("words"), epoch_seed(SEED, epoch)).rows.tolist() for epoch in (1, 2)]
    for rank in range(2):
        assert ranks[rank]["words"]["seen"] == [batch for order in orders for batch in share(order, rank)][1:]


if __name__ == "__main__":
    main(*sys.argv[1:])
