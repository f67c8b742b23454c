"""Runs that die. A real process of the command line is stopped for real, at a known step, and the run goes on."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

import held
from interrupts import heed_interrupts
from pairtune.cli import app, main
from pairtune.runs.record import read_records
from small import assert_same_weights, small_pairs

STEPS = 16  # of an epoch: 64 of 80 pairs are trained on, 4 at a time


@pytest.fixture(scope="module")
def words(tmp_path_factory, tiny_encoder):
    """The command line of a training of three epochs."""
    folder = tmp_path_factory.mktemp("own")
    pairs, path, recipe = small_pairs(80, 7), folder / "pairs.jsonl", folder / "small.toml"
    rows = ({"q": left, "a": right, "y": float(y)} for left, right, y in zip(pairs.left, pairs.right, pairs.label, strict=True))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe.write_text(
        f'encoder = "{tiny_encoder}"\nignore = ["stone"]\nkeep_original = false\n'
        '[loss]\nkind = "combo"\nlearn_temperature = true\n'
        "[train]\nepochs = 3\nbatch_size = 4\nlearning_rate = 1e-4\nmax_seq_length = 16\n"
    )
    return ["train", str(recipe), "--data", str(path), "--left", "q", "--right", "a", "--label", "y"]


def finish(words, out, *more):
    """The run goes to its end, in this process."""
    result = CliRunner().invoke(app, [*words, "--out", str(out), *more], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return result.stderr


def refusal(words, out, capfd):
    with pytest.raises(SystemExit, match="2"):
        main([*words, "--out", str(out)])
    said = capfd.readouterr().err
    assert "Traceback" not in said
    return said


def start_and_hold(words, out, step):
    """A process that has made so many steps and waits for a signal."""
    command = [sys.executable, held.__file__, str(step), *words, "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts)
    for line in process.stdout:
        if line.startswith(held.HELD):
            return process
    raise AssertionError(process.stderr.read())


@pytest.fixture(scope="module")
def undisturbed(words, tmp_path_factory):
    """The model of a run that nobody stopped."""
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    finish(words, out)
    return out / "model"


def test_a_run_that_another_process_writes_is_in_use_until_that_has_died(words, tmp_path, capfd):
    out = tmp_path / "run"
    process = start_and_hold(words, out, step=1)
    for more in ([], ["--resume"], ["--overwrite"]):
        said = refusal([*words, *more], out, capfd)
        assert f"seed-1 is in use: process {process.pid} on " in said and "stop it, or give another --out" in said
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert "holds an unfinished run: --resume goes on with it" in refusal(words, out, capfd)


def test_to_keep_a_run_and_to_lose_it_are_not_asked_at_once(words, tmp_path, capfd):
    assert "give one of the two" in refusal([*words, "--resume", "--overwrite"], tmp_path / "run", capfd)


@pytest.fixture(scope="module")
def killed(words, tmp_path_factory):
    """The folder of a run that was killed in the middle of its third epoch."""
    out = tmp_path_factory.mktemp("killed") / "run"
    process = start_and_hold(words, out, step=2 * STEPS + 5)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return out


@pytest.fixture
def left_behind(killed, tmp_path):
    """A copy of it, to go on with."""
    return Path(shutil.copytree(killed, tmp_path / "run"))


def newest_checkpoint(out):
    folders = (out / "seed-1" / "checkpoints" / "stage-1").glob("checkpoint-*")
    return max(folders, key=lambda path: int(path.name.rpartition("-")[2]))


def test_a_killed_run_resumes_to_the_same_weights(left_behind, words, undisturbed, capfd):
    from sentence_transformers import SentenceTransformer

    assert newest_checkpoint(left_behind).name == f"checkpoint-{2 * STEPS}"
    assert (newest_checkpoint(left_behind) / "complete.json").exists()
    assert not (left_behind / "seed-1" / "record.json").exists()
    assert "holds an unfinished run: --resume goes on" in refusal(words, left_behind, capfd)
    finish(words, left_behind, "--resume")
    assert_same_weights(left_behind / "model", undisturbed)
    assert SentenceTransformer(str(left_behind / "model")).tokenizer.tokenize("a stone bridge") == [
        "a",
        "bridge",
    ]


def test_a_damaged_checkpoint_is_found_out_and_left_behind(left_behind, words, undisturbed):
    with (newest_checkpoint(left_behind) / "model.safetensors").open("r+b") as file:
        file.seek(100_000)
        file.write(b"rust")
    assert "is damaged or half-written: removed" in finish(words, left_behind, "--resume")
    assert_same_weights(left_behind / "model", undisturbed)


def test_ctrl_c_says_how_to_go_on(tmp_path, words):
    process = start_and_hold(words, tmp_path / "run", step=1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert "stopped; what is done is kept in" in errors and "--resume goes on" in errors
    assert "Traceback" not in errors


def test_ctrl_c_while_a_class_is_being_made_ends_as_any_other(tmp_path):
    (tmp_path / "interrupted.py").write_text(
        "from pairtune.cli.common import stop\n"
        "try:\n    exec('raise KeyboardInterrupt')\n"
        "except KeyboardInterrupt:\n    raise SystemExit(stop('said').exit_code)\n"
    )
    process = subprocess.run([sys.executable, "-m", "interrupted"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stderr) == (130, "\nsaid\n")


@contextmanager
def files_of_at_most(size):
    """A limit on the size of files fails a write like a full disk does, without filling this one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_while_saving_loses_nothing(tmp_path, words, undisturbed, capfd):
    with files_of_at_most(20_000_000):  # Python ignores the signal that the limit sends
        said = refusal(words, tmp_path / "run", capfd)
    assert "could not write to" in said and "--resume goes on" in said
    finish(words, tmp_path / "run", "--resume")
    assert_same_weights(tmp_path / "run" / "model", undisturbed)


def test_a_finished_run_is_neither_lost_nor_done_again(tmp_path, words, undisturbed, capfd):
    out = Path(shutil.copytree(undisturbed.parent, tmp_path / "run"))
    shutil.copy(undisturbed.parent.parent / "results.jsonl", tmp_path)
    before = (out / "seed-1" / "record.json").stat().st_mtime_ns
    assert "holds a finished run" in refusal(words, out, capfd)
    shutil.rmtree(out / "model")
    finish(words, out, "--resume")
    assert (out / "seed-1" / "record.json").stat().st_mtime_ns == before
    assert len(read_records(tmp_path / "results.jsonl")) == 1
    assert (out / "model" / "modules.json").exists()


@pytest.mark.parametrize("megabytes", [50, 60, 100])
def test_a_disk_that_is_full_later_is_said_in_words_too(tmp_path, words, capfd, megabytes):
    """The weights have 53 MB, the state of the optimizer twice as much: either fails, or neither."""
    with files_of_at_most(megabytes * 1_000_000):
        assert "could not write to" in refusal(words, tmp_path / "run", capfd)


def test_a_clock_that_was_set_back_costs_nothing(left_behind, words, undisturbed):
    for checkpoint in newest_checkpoint(left_behind).parent.glob("checkpoint-*"):
        os.utime(checkpoint, (4e9, 4e9))  # a day in 2096: what is written now looks older
    finish(words, left_behind, "--resume")
    assert_same_weights(left_behind / "model", undisturbed)


def test_the_losses_of_the_epochs_are_the_same_after_a_resume(left_behind, words, undisturbed):
    finish(words, left_behind, "--resume")
    resumed, whole = (json.loads((out / "seed-1" / "record.json").read_text()) for out in (left_behind, undisturbed.parent))
    assert resumed["epochs"] == whole["epochs"]
    resumed, whole = (json.loads((out / "seed-1" / "evidence.json").read_text()) for out in (left_behind, undisturbed.parent))
    assert resumed["stages"] == whole["stages"]


def test_an_encoder_that_was_replaced_is_not_gone_on_with(left_behind, words, tiny_encoder, tmp_path, capfd):
    recipe = Path(words[1])
    copy = shutil.copytree(tiny_encoder, tmp_path / "encoder")
    own = [words[0], str(tmp_path / "own.toml"), *words[2:]]
    (tmp_path / "own.toml").write_text(recipe.read_text().replace(tiny_encoder, str(copy)))
    process = start_and_hold(own, tmp_path / "out", step=1)
    process.kill()
    process.communicate()
    (copy / "1_Pooling" / "config.json").write_text('{"embedding_dimension": 384, "pooling_mode": "cls", "include_prompt": true}')
    said = refusal([*own, "--resume"], tmp_path / "out", capfd)
    assert "holds a run with other settings (encoder is " in said
