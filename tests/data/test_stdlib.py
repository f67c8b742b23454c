"""The built-in task: real docstrings, nothing run, no module in two splits."""

from __future__ import annotations

import inspect
import sys
import textwrap

import pytest

from pairtune.data.datasets import load_task, task_status
from pairtune.data.datasets.stdlib import load_stdlib
from pairtune.errors import UserError


def modules(pairs):
    return {call.split(".")[0] for call in pairs.right}


def test_the_standard_library_gives_some_thousand_pairs_split_by_module():
    task = load_task("stdlib")
    total = len(task.train) + len(task.dev) + len(task.test)
    assert 3000 < total < 6000
    assert len(task.dev) > 0.04 * total and len(task.test) > 0.08 * total
    train, dev, test = map(modules, (task.train, task.dev, task.test))
    assert not train & dev and not train & test and not dev & test


def test_each_split_is_searched_among_its_own_modules():
    task = load_task("stdlib")
    for part in (task.train, task.dev, task.test):
        assert set(part.corpus) == set(part.right) and len(part.corpus) == len(set(part.corpus))
    assert (task.kind, task.metric, task.metrics) == ("retrieval", "HP@1", ("HP@1", "HP@5", "MRR"))


def test_a_pair_is_what_inspect_sees_in_the_running_function():
    task = load_task("stdlib")
    found = dict(zip(task.test.right, task.test.left, strict=True))
    call = next(call for call in found if call.startswith("textwrap.indent("))
    assert found[call] == " ".join(inspect.getdoc(textwrap.indent).split("\n\n")[0].split())
    assert call == f"textwrap.indent{inspect.signature(textwrap.indent)}"


def test_status_knows_the_rows_without_any_file():
    status = task_status("stdlib")
    assert status.found and set(status.rows) == {"train", "dev", "test"} and min(status.rows.values()) > 100


SOURCE = '''
raise SystemExit("nothing may run")

def open_door(door, *, slowly=False) -> None:
    """Open a  door
    without a noise.

    Second paragraph.
    """

def short():
    """Two words."""

def told():
    """told() says its own name here."""

def _private():
    """Nobody looks for this one."""

class Door:
    """Something that opens and closes."""

    def __init__(self, width=1):
        """Made of wood, as doors are."""

    @classmethod
    async def knock(cls, /, times: int):
        """Knock at the door politely."""

    @staticmethod
    def count(self_made):
        """Count all the doors there are."""
'''


def test_functions_classes_and_methods_are_written_as_they_are_called(tmp_path):
    for number in range(40):  # enough modules for all three splits
        (tmp_path / f"house{number}.py").write_text(SOURCE)
    (tmp_path / "_hidden.py").write_text(SOURCE)
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "doors.py").write_text(SOURCE)
    (tmp_path / "template.py").write_text("def {{ name }}")
    splits = load_stdlib(tmp_path)
    pairs = {
        call: text for part in (splits.train, splits.dev, splits.test) for text, call in zip(part.left, part.right, strict=True)
    }
    assert {call: text for call, text in pairs.items() if call.startswith("house0.")} == {
        "house0.open_door(door, *, slowly=False)": "Open a door without a noise.",
        "house0.Door(width=1)": "Something that opens and closes.",
        "house0.Door.knock(times: int)": "Knock at the door politely.",
        "house0.Door.count(self_made)": "Count all the doors there are.",
    }
    assert len(pairs) == 4 * 40 and "house0" not in sys.modules


def test_a_python_without_sources_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"no sources of the standard library there"):
        load_stdlib(tmp_path)
