"""Two real processes whose weights are spread by FSDP, against one that trains alone; and a pair of which one is killed."""

from __future__ import annotations

import json
import os

import pytest
import torch
from datasets import Dataset
from typer.testing import CliRunner

import ddp_fsdp
from pairtune.cli import app
from pairtune.errors import UserError
from pairtune.sbert.trainer import make_trainer
from ranks import STEPS, kill_one_rank, run_two_ranks, write_training
from sbert.test_processes import assert_trained_alike
from small import assert_same_weights, small_recipe

TOLD = {  # what `accelerate launch --use_fsdp …` puts into the environment
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_TRANSFORMER_CLS_TO_WRAP": "BertLayer",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",
}


@pytest.fixture(scope="module")
def spread(tiny_encoder, plain_encoder, tmp_path_factory):
    """The folder of runs with FSDP: one that was killed in epoch 2 and resumed, one undisturbed, one without dropout."""
    out = tmp_path_factory.mktemp("fsdp")
    words = [*write_training(out, tiny_encoder), "--set", "loss.learn_temperature=false"]
    runs = {
        "killed": [[*words, "--out", str(out / "killed")]],
        "rest": [
            [*words, "--out", str(out / "killed"), "--resume"],
            [*words, "--out", str(out / "undisturbed")],
            [*words, "--out", str(out / "plain"), "--model", plain_encoder],
        ],
    }
    for name, commands in runs.items():
        (out / f"{name}.json").write_text(json.dumps(commands))
    before = dict(os.environ)
    os.environ.update(TOLD)
    try:
        killed = kill_one_rank(1, STEPS + 2, [str(out / "killed.json")], ddp_fsdp.__file__)
        run_two_ranks(ddp_fsdp.__file__, 0, out / "rest.json", logs=out)
    finally:
        os.environ.clear()
        os.environ.update(before)
    assert killed == ([0, 1], 1)
    return out, words


def test_spread_weights_train_as_those_of_one_process_do(spread, plain_encoder, tmp_path):
    out, words = spread
    alone = [*words, "--model", plain_encoder, "--out", str(tmp_path / "alone")]
    assert CliRunner().invoke(app, alone, catch_exceptions=False).exit_code == 0
    assert "training with padding, the slower way: FSDP" in (out / "rank-0.log").read_text()
    assert_trained_alike(tmp_path / "alone", out / "plain", plain_encoder)


def test_a_killed_run_with_spread_weights_resumes_to_the_same_weights(spread):
    out, _ = spread
    assert_same_weights(out / "killed" / "model", out / "undisturbed" / "model")


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_weights_spread_over_two_processes_on_one_gpu_train_as_those_of_one_do(plain_encoder, tmp_path, monkeypatch):
    words = [*write_training(tmp_path, plain_encoder), "--set", "loss.learn_temperature=false"]
    alone = [*words, "--out", str(tmp_path / "alone")]
    assert CliRunner().invoke(app, alone, catch_exceptions=False).exit_code == 0
    (tmp_path / "spread.json").write_text(json.dumps([[*words, "--out", str(tmp_path / "spread")]]))
    for name, value in TOLD.items():
        monkeypatch.setenv(name, value)
    run_two_ranks(ddp_fsdp.__file__, 0, tmp_path / "spread.json", logs=tmp_path, one_device=True)
    assert_trained_alike(tmp_path / "alone", tmp_path / "spread", plain_encoder, rel=1e-3)


def test_a_model_that_was_spread_loads_anywhere_and_is_what_was_scored(spread):
    from sentence_transformers import SentenceTransformer

    out, _ = spread
    vectors = SentenceTransformer(str(out / "undisturbed" / "model"), device="cpu").encode(["a stone", "a river"])
    assert vectors.shape == (2, 384) and abs((vectors**2).sum(1) - 1).max() < 1e-5  # the final Normalize is there again


def test_weights_that_accelerate_does_not_spread_are_told_so(monkeypatch, tiny_model, small_task, tmp_path):
    for name, value in TOLD.items():
        monkeypatch.setenv(name, value)  # which accelerate follows on GPUs only
    dataset = Dataset.from_dict({"left": small_task.train.left, "right": small_task.train.right})
    stage = small_recipe("minilm", loss={"kind": "bsc"}).stages[0]
    trainer = make_trainer(tiny_model, dataset, stage, small_task, 1, tmp_path / "stages" / "1", [], select="last")
    with pytest.raises(UserError, match="FSDP, and accelerate has spread no weights"):
        trainer.train()


@pytest.mark.parametrize(
    ("told", "tables", "message"),
    [
        ({"FSDP_VERSION": "1"}, {}, "start with --fsdp_version 2"),
        ({}, {"loss": {"learn_temperature": True}}, "does not go with loss.learn_temperature: train without"),
        ({}, {"train": {"optimizer": "adamw-8bit"}}, 'does not go with train.optimizer = "adamw-8bit"'),
    ],
)
def test_what_does_not_go_with_fsdp_is_refused(monkeypatch, tiny_encoder, told, tables, message):
    from pairtune import training

    for name, value in {**TOLD, **told}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=message):
        training.check_shares(small_recipe(tiny_encoder, **tables))
