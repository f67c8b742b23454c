"""Who is told of a training: TensorBoard, and reporters that are not there."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from pairtune.data.pairs import PairSet, Task
from pairtune.errors import UserError
from pairtune.runs.toml import make_recipe
from pairtune.training import run


def small_task() -> Task:
    left = [f"a sentence about number {number}" for number in range(16)]
    pairs = PairSet.of(left, [text.upper() for text in reversed(left)], np.linspace(0, 1, 16))
    return Task("small", "regression", pairs, pairs, pairs, "Spearman", ("Spearman",))


def small_recipe(tiny_encoder, *report_to):
    train = {"epochs": 2, "batch_size": 8, "max_seq_length": 8, "report_to": list(report_to)}
    return make_recipe({"name": "small", "encoder": tiny_encoder, "train": train})


def test_tensorboard_gets_the_loss_and_the_dev_scores_and_keeps_them(tiny_encoder, tmp_path):
    pytest.importorskip("tensorboard", reason="pip install 'pairtune[dev]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    record = run(small_recipe(tiny_encoder, "tensorboard"), 1, out=tmp_path / "run", task=small_task())
    (folder,) = {path.parent for path in (tmp_path / "run").rglob("events.out.tfevents.*")}
    events = EventAccumulator(str(folder)).Reload()
    assert "train/loss" in events.Tags()["scalars"]
    scores = [event.value for event in events.Scalars("eval/dev_Spearman")]
    np.testing.assert_allclose(scores, [epoch.dev["Spearman"] for epoch in record.epochs], rtol=1e-5)


def test_a_reporter_that_is_not_there_is_named(tiny_encoder, tmp_path):
    with pytest.raises(UserError, match=r"train\.report_to names 'paper'; sentence-transformers knows .*tensorboard"):
        run(small_recipe(tiny_encoder, "paper"), 1, out=tmp_path / "a", task=small_task())
    if find_spec("neptune") is None:
        with pytest.raises(UserError, match=r"train\.report_to names neptune, which is not installed here"):
            run(small_recipe(tiny_encoder, "neptune"), 1, out=tmp_path / "b", task=small_task())
