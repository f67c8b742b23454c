"""Where the command line stands in somebody's day: shells, terminals, cores that others want, a hub that is away, scripts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pairtune.cli import app
from terminals import in_a_terminal

COLOR = re.compile(r"\x1b\[[0-9;]*(?:3[0-7]|38|9[0-7])[0-9;]*m")
PROGRAM = [sys.executable, "-m", "pairtune"]


def test_the_shell_completes_commands():
    command = ["bash", "-c", f"{sys.executable} -m pairtune --show-completion; true"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "complete -o default -F" in shown and "COMP_WORDS" in shown
    script = Path(sys.executable).with_name("pairtune")
    asked = {**os.environ, "_PAIRTUNE_COMPLETE": "complete_bash", "COMP_WORDS": "pairtune se", "COMP_CWORD": "1"}
    words = subprocess.run([script], env=asked, capture_output=True, text=True).stdout.split()
    assert words == ["search", "serve"]


def test_no_color_is_respected_in_a_terminal():
    assert COLOR.search(in_a_terminal([*PROGRAM, "--help"]))
    assert not COLOR.search(in_a_terminal([*PROGRAM, "--help"], NO_COLOR="1"))


@pytest.mark.skipif(sys.platform != "linux", reason="torch has GNU's OpenMP on Linux")
def test_threads_that_wait_for_each_other_leave_the_cores_to_others_unless_the_user_says_otherwise(tiny_encoder):
    def waiting(*command, **given):
        clean = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
        asked = {**clean, "OMP_DISPLAY_ENV": "VERBOSE", **given}
        said = subprocess.run([sys.executable, *command], env=asked, capture_output=True, text=True, check=True).stderr
        return re.findall(r"GOMP_SPINCOUNT = '(\d+)'", said)[0]

    assert waiting("-m", "pairtune", "score", tiny_encoder, "--left", "a", "--right", "b") == "1000"
    alone = f"from pairtune.cli.common import share_cores; share_cores(); import ctypes; ctypes.CDLL({gnu_openmp()!r})"
    assert waiting("-c", alone) == "1000"
    assert waiting("-c", alone, GOMP_SPINCOUNT="77") == "77"
    assert waiting("-c", alone, OMP_WAIT_POLICY="PASSIVE") == "0"


def gnu_openmp():
    """The library that torch waits with: loading it alone is enough for it to say what it was told."""
    import torch

    return str(next((Path(torch.__file__).parent / "lib").glob("libgomp*")))


@pytest.mark.parametrize(
    "command",
    ["train --data", "inspect --data", "tune --data", "evaluate minilm --data", "mine minilm out.csv --data", "search minilm"],
)
def test_a_mistake_in_the_data_is_told_before_torch_is_loaded(tmp_path, command):
    (tmp_path / "p.csv").touch()
    program = (
        "import sys; from typer.testing import CliRunner; from pairtune.cli import app; "
        "print(CliRunner().invoke(app, sys.argv[1:]).exception, 'torch' in sys.modules)"
    )
    asked = [sys.executable, "-c", program, *command.split(), str(tmp_path / "p.csv")]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert "p.csv: the file is empty" in said and said.endswith("False\n")


def test_a_name_that_nobody_can_look_up_is_told_at_once():
    unset = ("hf_hub_offline", "https_proxy", "all_proxy")
    reached = {name: value for name, value in os.environ.items() if name.lower() not in unset}
    command = [*PROGRAM, "score", "minilmm", "--left", "a", "--right", "b"]
    ran = subprocess.run(command, env={**reached, "HF_ENDPOINT": "https://hub.invalid"}, capture_output=True, text=True)
    assert ran.returncode == 2 and "encoder 'minilmm' could not be loaded" in ran.stderr
    assert "Retrying" not in ran.stderr  # it took a minute and a page of such lines


def test_figures_come_as_one_json_object(tiny_encoder, tmp_path):
    def figures(*words: str) -> dict:
        result = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
        assert result.exit_code == 0
        return json.loads(result.stdout)

    corpus = tmp_path / "corpus.txt"
    corpus.write_text("a cat\na dog\nan aeroplane\n")
    (score,) = figures("score", tiny_encoder, "--left", "the cat", "--right", "a cat")["scores"]
    found = figures("search", tiny_encoder, str(corpus), "the cat", "--top", "2")
    assert found["query"] == "the cat" and found["matches"][0] == {"score": pytest.approx(score, abs=1e-5), "text": "a cat"}
    assert len(found["matches"]) == 2


def test_texts_that_would_steer_a_terminal_are_shown_as_escapes(tiny_encoder, tmp_path):
    corpus, pairs = tmp_path / "corpus.txt", tmp_path / "pairs.csv"
    corpus.write_text("\x1b[31ma red cat\na dog\n")
    rows = [f"\x1b[31mquestion {row},\x1b]0;answer\x07 {row},{row % 2}\n" for row in range(40)]
    pairs.write_text("left,right,label\n" + "".join([*rows, rows[1].replace(",1", ",0")]))  # one pair contradicts itself
    asked = ["inspect", "own/labelled", "--data", str(pairs), "--set", f"encoder={tiny_encoder}", "--no-trial"]
    for words in (["search", tiny_encoder, str(corpus), "a cat"], asked):
        result = CliRunner().invoke(app, words, catch_exceptions=False)
        assert result.exit_code == 0 and "\\x1b[31m" in result.stdout
        assert "\x1b" not in result.output and "\x07" not in result.output
