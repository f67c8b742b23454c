"""Where we stand in somebody's day: TensorBoard, other runtimes, shells, terminals, logs and scripts."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pairtune.cli import app
from pairtune.data.pairs import PairSet, Task
from pairtune.encoders import export
from pairtune.errors import UserError
from pairtune.runs.recipe import make_recipe
from pairtune.training import run

COLOUR = re.compile(r"\x1b\[[0-9;]*(?:3[0-7]|38|9[0-7])[0-9;]*m")
PROGRAM = [sys.executable, "-m", "pairtune"]


def small_task() -> Task:
    left = [f"a sentence about number {number}" for number in range(16)]
    pairs = PairSet.of(left, [text.upper() for text in reversed(left)], np.linspace(0, 1, 16))
    return Task("small", "regression", pairs, pairs, pairs, "Spearman", ("Spearman",))


def small_recipe(tiny_encoder, *report_to):
    train = {"epochs": 2, "batch_size": 8, "max_seq_length": 8, "report_to": list(report_to)}
    return make_recipe({"name": "small", "encoder": tiny_encoder, "train": train})


def in_a_terminal(command: list[str], **environment: str) -> str:
    """What a command shows on a terminal of 100 columns."""
    ours, theirs = pty.openpty()
    clean = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR", "CI")}
    variables = {**clean, "TERM": "xterm-256color", "COLUMNS": "100", **environment}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=variables, close_fds=True)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert process.wait() == 0, shown
    return shown.decode()


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


@pytest.mark.skipif(find_spec("optimum") is None, reason="needs Optimum Intel: pip install 'pairtune[export]'")
def test_an_exported_model_encodes_as_before(tiny_encoder, tmp_path):
    from sentence_transformers import SentenceTransformer

    assert export.export_model(tiny_encoder, tmp_path / "out", "openvino") >= 0.9999
    texts = ["another text", "than the ones that were checked " * 30]
    before = SentenceTransformer(tiny_encoder, device="cpu").encode(texts, normalize_embeddings=True)
    after = SentenceTransformer(str(tmp_path / "out"), backend="openvino").encode(texts, normalize_embeddings=True)
    assert (before * after).sum(1).min() >= 0.9999


def test_an_export_without_its_packages_says_what_to_install(tiny_encoder, tmp_path, monkeypatch):
    monkeypatch.setitem(export.PACKAGES, "openvino", ("numpy", "no_such_package.part"))
    with pytest.raises(UserError, match=r"needs no_such_package\.part: pip install 'pairtune\[export\]'"):
        export.export_model(tiny_encoder, tmp_path / "out", "openvino")
    monkeypatch.setitem(export.PACKAGES, "openvino", ())
    with pytest.raises(UserError, match="is there already"):
        export.export_model(tiny_encoder, tmp_path, "openvino")


@pytest.mark.parametrize("flags", [[], ["--onnx", "--openvino"]])
def test_an_export_is_for_one_runtime(flags, tmp_path):
    result = subprocess.run([*PROGRAM, "export", "minilm", str(tmp_path), *flags], capture_output=True, text=True)
    assert result.returncode == 2 and "--onnx or --openvino, one of them" in result.stderr


def test_the_shell_completes_commands():
    shown = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m pairtune --show-completion; true"], capture_output=True, text=True, check=True
    ).stdout
    assert "complete -o default -F" in shown and "COMP_WORDS" in shown
    script = Path(sys.executable).with_name("pairtune")
    asked = {**os.environ, "_PAIRTUNE_COMPLETE": "complete_bash", "COMP_WORDS": "pairtune se", "COMP_CWORD": "1"}
    words = subprocess.run([script], env=asked, capture_output=True, text=True).stdout.split()
    assert words == ["search", "serve"]


def test_no_color_is_respected_in_a_terminal():
    assert COLOUR.search(in_a_terminal([*PROGRAM, "--help"]))
    assert not COLOUR.search(in_a_terminal([*PROGRAM, "--help"], NO_COLOR="1"))


@pytest.mark.skipif(sys.platform != "linux", reason="torch has GNU's OpenMP on Linux")
def test_threads_that_wait_for_each_other_leave_the_cores_to_others_unless_the_user_says_otherwise(tiny_encoder):
    def waiting(**given):
        clean = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
        command = [*PROGRAM, "score", tiny_encoder, "--left", "a", "--right", "b"]
        asked = {**clean, "OMP_DISPLAY_ENV": "VERBOSE", **given}
        said = subprocess.run(command, env=asked, capture_output=True, text=True, check=True).stderr
        return re.findall(r"GOMP_SPINCOUNT = '(\d+)'", said)[0]

    assert waiting() == "1000"
    assert waiting(GOMP_SPINCOUNT="77") == "77"
    assert waiting(OMP_WAIT_POLICY="PASSIVE") == "0"


def test_a_name_that_nobody_can_look_up_is_told_at_once():
    unset = ("hf_hub_offline", "https_proxy", "all_proxy")
    reached = {name: value for name, value in os.environ.items() if name.lower() not in unset}
    command = [*PROGRAM, "score", "minilmm", "--left", "a", "--right", "b"]
    ran = subprocess.run(command, env={**reached, "HF_ENDPOINT": "https://hub.invalid"}, capture_output=True, text=True)
    assert ran.returncode == 2 and "encoder 'minilmm' could not be loaded" in ran.stderr
    assert "Retrying" not in ran.stderr  # it took a minute and a page of such lines


SLOW = """
import pairtune.progress as progress, time
progress.QUIET_SECONDS = progress.LOG_EVERY_SECONDS = 0.05
for _ in progress.track(range(10), "counting"): time.sleep(0.03)
"""


def test_progress_is_a_bar_in_a_terminal_and_lines_in_a_log():
    shown = in_a_terminal([sys.executable, "-c", SLOW])
    assert "━" in shown and "counting" in shown
    logged = subprocess.run([sys.executable, "-c", SLOW], capture_output=True, text=True, check=True)
    assert logged.stdout == "" and "\x1b" not in logged.stderr and "\r" not in logged.stderr
    assert re.fullmatch(r"(counting: \d+ of 10, \d+ s left\n)+", logged.stderr)


def test_figures_come_as_one_json_object(tiny_encoder, tmp_path):
    def figures(*words: str) -> dict:
        result = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
        assert result.exit_code == 0
        return json.loads(result.stdout)

    corpus = tmp_path / "corpus.txt"
    corpus.write_text("a cat\na dog\nan aeroplane\n")
    (score,) = figures("score", tiny_encoder, "--left", "a kitten", "--right", "a cat")["scores"]
    found = figures("search", tiny_encoder, str(corpus), "a kitten", "--top", "2")
    assert found["query"] == "a kitten" and found["matches"][0] == {"score": pytest.approx(score, abs=1e-5), "text": "a cat"}
    assert len(found["matches"]) == 2
