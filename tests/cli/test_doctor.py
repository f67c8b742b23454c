"""What a bug report needs."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import torch
from typer.testing import CliRunner

from pairtune.cli import app
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
