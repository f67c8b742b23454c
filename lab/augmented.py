"""Augmented SBERT (Thakur et al., 2021): a cross-encoder learns the gold pairs and labels new ones for the bi-encoder.

Its own score on test is a row too: what a bi-encoder can hardly exceed. PFCC-S, a search without labelled negatives, has neither.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lab.baselines import bm25
from lab.lines import append_line, read_entries
from pairtune import Task, load_task
from pairtune.metrics import best_threshold, score_split
from pairtune.progress import say
from pairtune.tune.worker import encoder_name

AUGMENTED = ("cqa-b", "antique", "mrpc", "stsb", "qqp", "cqa-a")  # small ones first
SAMPLINGS = ("bm25", "semantic")
NEAREST = 3  # right texts that are labelled for each left text
EPOCHS, BATCH, RATE, LENGTH = 3, 32, 2e-5, 180
FOLDER = "cross_encoders"
Silver = tuple[list[str], list[str], np.ndarray]  # left, right, label


def augment(name: str, seed: int, *, encoder: str, silver: Path, results: Path) -> None:
    """Train a cross-encoder on a task, file its score on test, and write the pairs that it labels."""
    task = load_task(name)
    model = train_cross_encoder(task, seed, encoder)
    scores = score_test(model, task)
    append_line(results / FOLDER / f"{encoder_name(encoder)}.jsonl", {"task": name, "seed": seed, "test": scores})
    say(f"{name}: cross-encoder, seed {seed}: {task.metric} {scores[task.metric]:.4f}")
    for sampling in SAMPLINGS:
        left, right = sample_pairs(task, sampling)
        write_silver(silver, name, sampling, (left, right, predict(model, left, right)))


def train_cross_encoder(task: Task, seed: int, encoder: str) -> Any:
    """The host's cross-encoder from the weights of an encoder, with the settings of its documentation."""
    import torch
    from datasets import Dataset
    from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
    from transformers import PrinterCallback, set_seed

    from pairtune import load_encoder

    set_seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        source = load_encoder(encoder)
        source[0].auto_model.save_pretrained(folder)
        source.tokenizer.save_pretrained(folder)
        model = CrossEncoder(folder, num_labels=1, max_length=LENGTH)
        pairs = task.train
        trainer = CrossEncoderTrainer(
            model=model,
            args=CrossEncoderTrainingArguments(
                output_dir=folder,
                num_train_epochs=EPOCHS,
                per_device_train_batch_size=BATCH,
                learning_rate=RATE,
                warmup_steps=0.1,
                bf16=torch.cuda.is_available(),
                seed=seed,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
            ),
            train_dataset=Dataset.from_dict({"left": pairs.left, "right": pairs.right, "label": pairs.label.astype(float)}),
            loss=BinaryCrossEntropyLoss(model),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return model


def score_test(model: Any, task: Task) -> dict[str, float]:
    """The task's metrics on test; the threshold of F1 is that of dev."""
    threshold = None
    if "F1" in task.metrics:
        threshold = best_threshold(predict(model, task.dev.left, task.dev.right), task.dev.positives(task.positive_above))
    found = predict(model, task.test.left, task.test.right)
    return score_split(task.test.gold(task.positive_above), found, task.metrics, threshold=threshold)


def predict(model: Any, left: Sequence[str], right: Sequence[str]) -> np.ndarray:
    """(N,) from 0 to 1."""
    found = model.predict(list(zip(left, right, strict=True)), batch_size=256, show_progress_bar=False)
    return np.clip(np.asarray(found, np.float64), 0, 1)


def sample_pairs(task: Task, sampling: str) -> tuple[list[str], list[str]]:
    """Left texts with the NEAREST right texts that they do not stand with in train, by words or by MiniLM as it comes."""
    left, right = (list(dict.fromkeys(side)) for side in (task.train.left, task.train.right))
    there = set(zip(task.train.left, task.train.right, strict=True))
    found = [
        (text, right[place])
        for text, places in zip(left, nearest_places(left, right, sampling), strict=True)
        for place in [place for place in places if right[place] != text and (text, right[place]) not in there][:NEAREST]
    ]
    return [one for one, _ in found], [other for _, other in found]


def nearest_places(left: list[str], right: list[str], sampling: str, count: int = 64) -> np.ndarray:
    """(L, count) the places of the right texts nearest to each left one, best first, a block at a time."""
    if sampling == "semantic":
        from pairtune import load_encoder
        from pairtune.encoders.embedding import encode

        model = load_encoder("minilm")
        one, other = encode(model, left), encode(model, right)
    blocks = [slice(start, start + 1024) for start in range(0, len(left), 1024)]
    scores = (one[block] @ other.T if sampling == "semantic" else bm25(left[block], right) for block in blocks)
    return np.concatenate([np.argsort(-some, axis=1, kind="stable")[:, :count] for some in scores])


def write_silver(folder: Path, task: str, sampling: str, found: Silver) -> None:
    """One file for each task and sampling."""
    folder.mkdir(parents=True, exist_ok=True)
    left, right, label = found
    with gzip.open(folder / f"{task}-{sampling}.json.gz", "wt", encoding="utf-8") as file:
        json.dump({"left": left, "right": right, "label": label.round(4).tolist()}, file)


def read_silver(folder: Path, task: str, sampling: str) -> Silver | None:
    """What `write_silver` wrote, if it did."""
    path = folder / f"{task}-{sampling}.json.gz"
    if not path.exists():
        return None
    with gzip.open(path, "rt", encoding="utf-8") as file:
        found = json.load(file)
    return found["left"], found["right"], np.array(found["label"], np.float32)


def read_cross_encoders(results: Path, encoder: str) -> list[dict[str, Any]]:
    """The scores that were filed of those that began as this encoder: task, seed, test; of two for a seed the later one."""
    found = read_entries(results / FOLDER, f"{encoder}.jsonl")
    return list({(entry["task"], entry["seed"]): entry for entry in found}.values())
