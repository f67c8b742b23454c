"""Two real processes train with the command line, against one that trains alone; and pairs of them of which one fails."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import ddp_gpu
import failing
from pairtune.cli import app
from pairtune.errors import UserError
from pairtune.runs.recipe import OrderSettings
from pairtune.runs.record import read_records
from pairtune.sbert.sampler import OrderedBatchSampler
from ranks import FAST, PADDED, run_two_ranks, write_training
from small import assert_same_weights, weights


def record_of(folder):
    return json.loads((folder / "seed-1" / "record.json").read_text())


@pytest.mark.parametrize(("name", "more"), [("fast", FAST), ("padded", PADDED), ("mixed", FAST), ("sources", [])])
def test_two_processes_train_what_one_trains(shared, plain_encoder, tmp_path, name, more):
    words = {"mixed": shared.mixed, "sources": shared.sources}.get(name, shared.words)
    words = [*words, "--model", plain_encoder, *more, "--out", str(tmp_path / "alone")]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    assert_trained_alike(tmp_path / "alone", shared.folder / name, plain_encoder, pairs=33 if name == "sources" else 17)


def assert_trained_alike(alone, shared, encoder, rel=1e-4, pairs=17):
    one, two = record_of(alone), record_of(shared)
    assert one["pairs"] == two["pairs"] and one["pairs"]["train"] == pairs
    two["recipe"]["stages"][0]["train"]["fast"] = one["recipe"]["stages"][0]["train"]["fast"]  # one may be padded
    assert one["recipe"] == two["recipe"]
    for mine, theirs in zip(one["epochs"], two["epochs"], strict=True):
        assert theirs["loss"] == pytest.approx(mine["loss"], rel=rel)
        assert theirs["dev"] == pytest.approx(mine["dev"], abs=rel)
    before, mine, theirs = (
        np.concatenate([value.ravel() for value in weights(folder).values()])
        for folder in (Path(encoder), alone / "model", shared / "model")
    )
    assert np.linalg.norm(theirs - mine) < 0.02 * np.linalg.norm(mine - before)


def test_accelerate_starts_the_training_that_torchrun_starts(shared, plain_encoder, tmp_path):
    launch = [
        sys.executable,
        "-m",
        "accelerate.commands.launch",
        "--multi_gpu",
        "--num_processes",
        "2",
        "--main_process_port",
        "0",
    ]
    launch += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--num_cpu_threads_per_process", "1"]
    words = [*shared.words, "--model", plain_encoder, *FAST, "--out", str(tmp_path / "launched")]
    subprocess.run([*launch, "-m", "pairtune", *words], check=True)
    assert_same_weights(tmp_path / "launched" / "model", shared.folder / "fast" / "model")


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("loss", ["combo", "mse"])  # of the joined batch; of each row
def test_two_processes_on_one_gpu_capture_their_steps_and_train_what_one_trains_with_padding(plain_encoder, tmp_path, loss):
    words = [*write_training(tmp_path, plain_encoder), "--set", "train.epochs=5", "--set", f"loss.kind={loss}"]
    words += ["--set", "loss.learn_temperature=false"] if loss == "mse" else []
    alone = [*words, "--set", "train.fast=false", "--out", str(tmp_path / "alone")]
    assert CliRunner().invoke(app, alone, catch_exceptions=False).exit_code == 0
    run_two_ranks(ddp_gpu.__file__, *words, "--out", tmp_path / "both", logs=tmp_path, one_device=True)
    said = [(tmp_path / f"rank-{rank}.log").read_text() for rank in range(2)]
    played = [int(text.split(ddp_gpu.PLAYED)[1].split()[0]) for text in said]
    assert min(played) >= 2 and "cannot be captured" not in "".join(said)  # a step is two graphs
    assert_trained_alike(tmp_path / "alone", tmp_path / "both", plain_encoder, rel=1e-3)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_two_processes_on_one_gpu_train_in_bf16_nearly_what_one_trains(plain_encoder, tmp_path):
    words = [*write_training(tmp_path, plain_encoder), "--set", "train.epochs=5", "--set", "train.precision=bf16"]
    assert CliRunner().invoke(app, [*words, "--out", str(tmp_path / "alone")], catch_exceptions=False).exit_code == 0
    run_two_ranks(ddp_gpu.__file__, *words, "--out", tmp_path / "both", logs=tmp_path, one_device=True)
    one, two = record_of(tmp_path / "alone"), record_of(tmp_path / "both")
    for mine, theirs in zip(one["epochs"], two["epochs"], strict=True):
        assert theirs["loss"] == pytest.approx(mine["loss"], rel=0.02)


@pytest.mark.parametrize("rank", range(2))
def test_a_run_of_two_processes_of_which_one_was_killed_resumes_to_the_same_weights(shared, rank):
    assert shared.killed[rank] == ([0, 1], 1)  # both were at work, and torchrun ended the other one
    assert_same_weights(shared.folder / f"killed-{rank}" / "model", shared.folder / "undisturbed" / "model")
    killed, undisturbed = record_of(shared.folder / f"killed-{rank}"), record_of(shared.folder / "undisturbed")
    assert killed["epochs"] == undisturbed["epochs"] and killed["after"] == undisturbed["after"]


def test_only_the_first_process_speaks_and_writes(shared):
    first, second = ((shared.folder / f"rank-{rank}.log").read_text() for rank in range(2))
    assert first.count("scoring") == 7 and "scoring" not in second and "report:" not in second
    assert len(read_records(shared.folder / "results.jsonl")) == 7


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    """How two processes end and what they say, where one of them fails."""
    out = tmp_path_factory.mktemp("failed")
    subprocess.run([sys.executable, failing.__file__, str(out)], check=True)
    said = {case: [(out / f"{case}.{rank}").read_text() for rank in range(2)] for case in failing.CASES}
    threads = {path.stem: json.loads(path.read_text()) for path in out.glob("*.threads")}
    return json.loads((out / "ended.json").read_text()), said, threads


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("first refuses", "pairtune: give a multiple of 2"),
        ("second refuses", "pairtune: process 1: give a multiple of 2"),
        ("both refuse", "give a multiple of 2"),
        ("second breaks down", "ZeroDivisionError: a mistake of ours"),
        ("second dies", "another process of this training has ended without a message"),
    ],
)
def test_an_error_of_one_process_ends_both_and_the_first_says_it_once(failed, case, message):
    ended, said, _ = failed
    assert 0 not in ended[case]
    assert said[case][0].count(message) == 1, said[case]
    # where the first is gone already, the second says itself what it knows
    assert case == "both refuse" or ("give a multiple" not in said[case][1] and "Traceback" not in said[case][1])


@pytest.mark.parametrize("who", ["all goes well.0", "all goes well.1", "first refuses.0", "second breaks down.1"])
def test_no_thread_of_a_group_outlives_it(failed, who):
    """One that still has a tensor when Python ends aborts the process, whose training was done."""
    ended, _, threads = failed
    inside, after = threads[who]
    assert inside > 0 == after and ended["all goes well"] == [0, 0]


def test_a_batch_size_that_processes_cannot_share_is_refused(monkeypatch, tiny_encoder):
    from pairtune import processes, training
    from small import small_recipe

    monkeypatch.setattr(processes, "world_size", lambda: 3)
    with pytest.raises(UserError, match="batch_size is 8, and 3 processes share each batch: give a multiple of 3, such as 9"):
        training.check_shares(small_recipe(tiny_encoder))


def test_the_parts_of_a_batch_are_the_batch_whatever_its_size():
    from datasets import Dataset

    dataset = Dataset.from_dict({"left": list("abcdefghij"), "right": list("abcdefghij")})
    alone = OrderedBatchSampler(dataset, 8, False, settings=OrderSettings())
    shared = OrderedBatchSampler(dataset, 2, False, settings=OrderSettings(), shares=4)
    alone.training = shared.training = True
    parts = list(shared)
    assert len(parts) == len(shared) == 8
    for batch, rows in enumerate(alone):
        own = [shared.own_share(batch, place)[0] for place in range(4)]
        counted = [part[:count] for part, count in zip(parts[4 * batch : 4 * batch + 4], own, strict=True)]
        assert [row for part in counted for row in part] == rows
    assert own == [1, 1, 0, 0] and all(parts)  # a process without pairs has a row to go on with


def test_other_commands_do_not_start_several_times(monkeypatch):
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match="only `pairtune train` uses them"):
        CliRunner().invoke(app, ["recipes"], catch_exceptions=False)
