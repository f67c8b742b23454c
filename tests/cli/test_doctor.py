"""What a bug report needs."""

from __future__ import annotations

import io
import json
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from rich.table import Table
from typer.testing import CliRunner

from pairtune.cli import app, main
from pairtune.cli.common import screen
from pairtune.cli.sharing import describe_folder, installed


def test_the_doctor_names_versions_and_passes_its_own_test():
    result = CliRunner().invoke(app, ["doctor", "--json"], catch_exceptions=False)
    found = json.loads(result.stdout)
    assert found["torch"] == torch.__version__ and found["transformers"] == version("transformers")
    assert found["self-test"].startswith("passed: a near pair scores 0.6")
    assert "CPU only" in found["device"] or torch.cuda.is_available()


def test_a_folder_that_is_not_there_is_told_by_the_one_above_it(tmp_path):
    assert describe_folder(tmp_path / "a" / "b").startswith(f"{tmp_path}/a/b, can be written, ")
    assert describe_folder(Path("/proc/1/fd")).count(",") == 2
    assert installed("no-such-package") == "not installed"


def test_a_user_without_a_home_is_told_the_whole_path(tmp_path, monkeypatch):
    """As in a container that runs under a number: the system knows no such user."""

    def unknown(number):
        raise KeyError(number)

    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", unknown)
    with pytest.raises(RuntimeError):
        Path.home()
    assert describe_folder(tmp_path).startswith(f"{tmp_path}, can be written, ")


def test_a_terminal_that_is_not_utf_8_gets_escapes(monkeypatch):
    shown = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", shown)
    with pytest.raises(SystemExit, match="0"):
        main(["recipes", "--markdown"])
    shown.flush()
    assert b"\\u03c4" in shown.buffer.getvalue()  # τ


def test_names_of_files_are_no_markup_in_tables():
    table = Table("runs/[/x] :smile: of several words", title="[red][/y].csv")  # a narrow table would wrap its title
    with screen.capture() as printed:
        screen.print(table)
    assert "runs/[/x] :smile:" in printed.get() and "[red][/y].csv" in printed.get()


def test_a_cache_that_cannot_be_written_is_told_in_words(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PAIRTUNE_CACHE", str(tmp_path / "file" / "cache"))  # root, too, can write nothing there
    with pytest.raises(SystemExit) as end:
        main(["score", "minilm", "--left", "a", "--right", "b"])
    assert end.value.code == 2 and "pairtune: Not a directory: " in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["doctor", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert "CANNOT be written" in found["cache"] and found["self-test"].startswith("FAILED: NotADirectoryError")
