"""Runs that die. A real process of the command line is stopped for real, at a known step, and the run goes on."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
from contextlib import redirect_stderr
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pairtune.cli import app, main
from pairtune.runs.record import read_records
from pairtune.sbert.optimizer import EIGHT_BIT
from small import assert_same_weights, files_of_at_most, small_pairs

STEPS = 8  # of an epoch: 64 of 80 pairs are trained on, 8 at a time


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
        "[train]\nepochs = 3\nbatch_size = 8\nlearning_rate = 1e-4\nmax_seq_length = 16\n"
    )
    return ["train", str(recipe), "--data", str(path), "--left", "q", "--right", "a", "--label", "y"]


def finish(words, out, *more):
    """The run goes to its end, in this process."""
    result = CliRunner().invoke(app, [*words, "--out", str(out), *more], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return result.stderr


def refusal(words, out):
    with redirect_stderr(io.StringIO()) as said, pytest.raises(SystemExit, match="2"):
        main([*words, "--out", str(out)])
    assert "Traceback" not in said.getvalue()
    return said.getvalue()


@pytest.fixture(scope="module")
def undisturbed(words, tmp_path_factory):
    """The model of a run that nobody stopped."""
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    finish(words, out)
    return out / "model"


@dataclass(frozen=True)
class Interrupted:
    """A run with an encoder of its own, what was refused while it went on, and how Ctrl-C ended it."""

    words: list[str]
    out: Path
    encoder: Path
    process: int
    refusals: list[str]
    exit_code: int
    said: str


@pytest.fixture(scope="module")
def interrupted(words, tmp_path_factory, tiny_encoder, commands):
    """A run that another process wanted to write, and that was then stopped by Ctrl-C in its first epoch."""
    folder = tmp_path_factory.mktemp("interrupted")
    out, encoder = folder / "run", Path(shutil.copytree(tiny_encoder, folder / "encoder"))
    (folder / "own.toml").write_text(Path(words[1]).read_text().replace(tiny_encoder, str(encoder)))
    own = [words[0], str(folder / "own.toml"), *words[2:]]
    with commands.held([*own, "--out", out], folder / "said.txt", step=1) as held:
        refusals = [refusal([*own, *more], out) for more in ([], ["--resume"], ["--overwrite"])]
        held.send(signal.SIGINT)
    return Interrupted(own, out, encoder, held.process, refusals, held.end.status, held.end.said)


def test_a_run_that_another_process_writes_is_in_use_until_that_has_ended(interrupted):
    for said in interrupted.refusals:
        assert f"seed-1 is in use: process {interrupted.process} on " in said and "stop it, or give another --out" in said
    assert "holds an unfinished run: --resume goes on with it" in refusal(interrupted.words, interrupted.out)


def test_ctrl_c_says_how_to_go_on(interrupted):
    assert interrupted.exit_code in (130, -signal.SIGINT), interrupted.said  # a shell says 130 for both
    assert "stopped; what is done is kept in" in interrupted.said and "--resume goes on" in interrupted.said
    assert "Traceback" not in interrupted.said


def test_an_encoder_that_was_replaced_is_not_gone_on_with(interrupted):
    pooling = interrupted.encoder / "1_Pooling" / "config.json"
    before = pooling.read_text()
    pooling.write_text('{"embedding_dimension": 384, "pooling_mode": "cls", "include_prompt": true}')
    said = refusal([*interrupted.words, "--resume"], interrupted.out)
    pooling.write_text(before)
    assert "holds a run with other settings (encoder is " in said


def test_to_keep_a_run_and_to_lose_it_are_not_asked_at_once(words, tmp_path):
    assert "give one of the two" in refusal([*words, "--resume", "--overwrite"], tmp_path / "run")


@pytest.fixture(scope="module")
def killed(words, tmp_path_factory, commands):
    """The folder of a run that was killed in the middle of its third epoch."""
    out = tmp_path_factory.mktemp("killed") / "run"
    with commands.held([*words, "--out", out], out.with_name("said.txt"), step=2 * STEPS + 5) as held:
        held.send(signal.SIGKILL)
    return out


@pytest.fixture
def left_behind(killed, tmp_path):
    """A copy of it, to go on with."""
    return Path(shutil.copytree(killed, tmp_path / "run"))


def newest_checkpoint(out):
    folders = (out / "seed-1" / "checkpoints" / "stage-1").glob("checkpoint-*")
    return max(folders, key=lambda path: int(path.name.rpartition("-")[2]))


@pytest.fixture(scope="module")
def resumed(killed, words, tmp_path_factory):
    """Another copy, taken to its end."""
    out = Path(shutil.copytree(killed, tmp_path_factory.mktemp("resumed") / "run"))
    finish(words, out, "--resume")
    return out


def test_a_killed_run_is_gone_on_with_only_where_that_is_asked_for(killed, words):
    assert newest_checkpoint(killed).name == f"checkpoint-{2 * STEPS}"
    assert (newest_checkpoint(killed) / "complete.json").exists()
    assert not (killed / "seed-1" / "record.json").exists()
    assert "holds an unfinished run: --resume goes on" in refusal(words, killed)


def test_a_killed_run_resumes_to_the_same_weights(resumed, undisturbed):
    from sentence_transformers import SentenceTransformer

    assert_same_weights(resumed / "model", undisturbed)
    tokenizer = SentenceTransformer(str(resumed / "model")).tokenizer
    assert tokenizer.tokenize("a stone bridge") == ["a", "bridge"]


@pytest.mark.skipif(not any(map(find_spec, EIGHT_BIT)), reason="needs bitsandbytes or torchao")
def test_a_killed_run_with_an_8_bit_optimizer_resumes_to_the_same_weights(words, tmp_path, commands):
    words = [*words, "--set", "train.optimizer=adamw-8bit", "--set", "train.epochs=2"]
    out = tmp_path / "killed"
    with commands.held([*words, "--out", out], tmp_path / "said.txt", step=STEPS + 5) as held:
        held.send(signal.SIGKILL)
    assert newest_checkpoint(out).name == f"checkpoint-{STEPS}"
    finish(words, out, "--resume")
    finish(words, tmp_path / "whole")
    assert_same_weights(out / "model", tmp_path / "whole" / "model")


def test_a_damaged_checkpoint_is_found_out_and_left_behind(left_behind, words, undisturbed):
    with (newest_checkpoint(left_behind) / "model.safetensors").open("r+b") as file:
        file.seek(100_000)
        file.write(b"rust")
    assert "is damaged or incomplete: it was removed" in finish(words, left_behind, "--resume")
    assert_same_weights(left_behind / "model", undisturbed)


def test_a_full_disk_while_saving_loses_nothing(tmp_path, words, undisturbed):
    with files_of_at_most(8_000_000):  # Python ignores the signal that the limit sends
        said = refusal(words, tmp_path / "run")
    assert "could not write to" in said and "--resume goes on" in said
    finish(words, tmp_path / "run", "--resume")
    assert_same_weights(tmp_path / "run" / "model", undisturbed)


def test_a_finished_run_is_neither_lost_nor_done_again(tmp_path, words, undisturbed):
    out = Path(shutil.copytree(undisturbed.parent, tmp_path / "run"))
    shutil.copy(undisturbed.parent.parent / "results.jsonl", tmp_path)
    before = (out / "seed-1" / "record.json").stat().st_mtime_ns
    assert "holds a finished run" in refusal(words, out)
    shutil.rmtree(out / "model")
    finish(words, out, "--resume")
    assert (out / "seed-1" / "record.json").stat().st_mtime_ns == before
    assert len(read_records(tmp_path / "results.jsonl")) == 1
    assert (out / "model" / "modules.json").exists()


@pytest.mark.parametrize("megabytes", [15, 22])
def test_a_disk_that_is_full_later_is_said_in_words_too(tmp_path, words, megabytes):
    """The weights have 12 MB and are written; the state of the optimizer has twice as much."""
    with files_of_at_most(megabytes * 1_000_000):
        assert "could not write to" in refusal(words, tmp_path / "run")


def test_a_clock_that_was_set_back_costs_nothing(left_behind, words, undisturbed):
    for checkpoint in newest_checkpoint(left_behind).parent.glob("checkpoint-*"):
        os.utime(checkpoint, (4e9, 4e9))  # a day in 2096: what is written now looks older
    finish(words, left_behind, "--resume")
    assert_same_weights(left_behind / "model", undisturbed)


def test_the_losses_of_the_epochs_are_the_same_after_a_resume(resumed, undisturbed):
    for name, part in (("record.json", "epochs"), ("evidence.json", "stages")):
        one, other = (json.loads((out / "seed-1" / name).read_text()) for out in (resumed, undisturbed.parent))
        assert one[part] == other[part]
