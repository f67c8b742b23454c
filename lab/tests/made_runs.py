"""Records that tests make up, and the book of them."""

from __future__ import annotations

from lab.agenda import record_key
from lab.book import Book
from lab.guises import base_task
from lab.queries import append_queries
from lab.rows import read_row

from pairtune.data.datasets import TASKS
from pairtune.runs.record import Epoch, Run, append_record

TODAY = "2026-11-18T12:00:00+00:00"
BEFORE = "2026-11-15T00:00:00+00:00"  # trained through a final Normalize


def make_run(name, seed, test, dev, encoder="minilm", overrides=(), temperature=None, finished=TODAY):
    """A record; `test` and `dev` are the main metric, and every other metric is a tenth lower."""
    recipe = read_row(name, overrides).model_copy(update={"encoder": encoder})
    task = TASKS[base_task(recipe.task)]
    scores = {
        split: {metric: value - 0.1 * (metric != task.metric) for metric in (*task.metrics, "F1@best")}
        for split, value in (("dev", dev), ("test", test))
    }
    before = {split: dict.fromkeys(values, 0.25) for split, values in scores.items()}
    epochs = [Epoch(stage=1, epoch=1, dev=scores["dev"], temperature=temperature)]
    return Run(
        name=name,
        task=task.name,
        encoder=encoder,
        seed=seed,
        metric=task.metric,
        recipe=recipe.model_dump(mode="json"),
        before=before,
        after=scores,
        epochs=epochs,
        best_epoch=1,
        pairs={"train": 1, "dev": 1, "test": 1},
        seconds=1,
        pairs_per_second=1,
        device="cpu",
        versions={},
        finished=finished,
        model="m",
    )


def write(folder, runs, queries=None):
    for run in runs:
        append_record(folder / f"{run.encoder}.jsonl", run)
        if queries is not None:
            append_queries(folder / "queries" / f"{run.encoder}.jsonl", record_key(run), run.metric, queries[run.name, run.seed])
    return Book(folder)
