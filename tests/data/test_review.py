"""Doubtful labels as a table that a person fills in."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from typer.testing import CliRunner

from pairtune import read_pairs
from pairtune.cli import app
from pairtune.data.pairs import PairSet
from pairtune.data.review import find_suspects
from pairtune.errors import UserError
from small import WORDS

FIRST = "stone river"


def run(*words):
    result = CliRunner().invoke(app, ["review", *map(str, words)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


@pytest.fixture
def pairs(tmp_path):
    """Texts that share their words are right and others wrong, but for two labels; one pair has both labels."""
    path, rows = tmp_path / "pairs.csv", []
    for one, other in zip(WORDS, [*WORDS[1:], WORDS[0]], strict=True):
        rows += [(f"{one} {other}", f"{one} the {other}", 5), (f"{one} {other}", "nothing at all", 1)]
    rows[0] = (*rows[0][:2], 1)
    rows[3] = (*rows[3][:2], 5)
    rows.append((*rows[4][:2], 1))
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("left", "right", "label"), *rows])
    return path


def answer(path, answers):
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["correct"] = answers.get((row["left"], row["right"]), "")
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return rows


def test_wrong_labels_are_listed_and_corrections_make_a_file_to_train_on(tmp_path, pairs, tiny_encoder):
    table, out = tmp_path / "doubts.csv", tmp_path / "corrected.csv"
    run(table, "--data", pairs, "--model", tiny_encoder, "--kind", "classification")
    first, torn = (FIRST, "stone the river"), ("cloud engine", "cloud the engine")
    rows = answer(table, {first: "5", torn: "remove"})
    found = {(row["left"], row["right"]): row for row in rows}
    assert found[first]["label"] == "1" and "of the pairs of the other kind" in found[first]["why"]
    assert found[torn]["why"] == "it has the labels 1, 5"
    assert "2 removed" in run(table, "--data", pairs, "--kind", "classification", "--out", out)
    with out.open(newline="") as file:
        after = {(row["left"], row["right"]): row["label"] for row in csv.DictReader(file)}
    assert after[first] == "5" and torn not in after
    task = read_pairs(out, kind="classification")
    assert len(task.train) + len(task.dev) + len(task.test) == 23


def test_a_right_answer_that_nobody_marked_becomes_a_pair(tmp_path):
    (tmp_path / "pairs.csv").write_text("left,right\n" + "".join(f"question {n},answer {n}\n" for n in range(12)))
    doubts = "left,right,label,why,correct\nquestion 1, answer 5,,near,yes\nquestion 2,answer 6,,near,\n"
    (tmp_path / "doubts.csv").write_text(doubts)
    out = tmp_path / "corrected.jsonl"
    assert "0 corrected, 0 removed, 1 added" in run(tmp_path / "doubts.csv", "--data", tmp_path / "pairs.csv", "--out", out)
    assert '{"left": "question 1", "right": " answer 5", "label": 1}' in out.read_text().splitlines()


def test_a_closer_right_text_of_another_pair_is_suspected():
    vectors = np.eye(4)
    pairs = PairSet.of(["a", "b", "c"], ["x", "y", "z"])
    left = vectors[:3]
    right = np.stack([vectors[0], vectors[0] + 2 * vectors[1], vectors[1]])  # z is nearer to b than y
    found = find_suspects(pairs, left, right, graded=False)
    assert ("b", "z", "") in [(one.left, one.right, one.label) for one in found]
    assert "a" not in [one.left for one in found]


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("maybe", r"doubts\.csv line 2: correct is 'maybe', expected a label from 1 to 5, or remove"),
        ("7", r"doubts\.csv line 2: correct is 7, and the labels of the data lie in 1 to 5"),
        ("", r"doubts\.csv: the column correct is empty"),
    ],
)
def test_an_answer_that_cannot_be_meant_is_refused_with_its_line(tmp_path, pairs, cell, message):
    (tmp_path / "doubts.csv").write_text(f"left,right,label,why,correct\nstone river,stone the river,1,near,{cell}\n")
    with pytest.raises(UserError, match=message):
        run(tmp_path / "doubts.csv", "--data", pairs, "--out", tmp_path / "corrected.csv")


def test_a_table_with_answers_is_not_written_over(tmp_path, pairs):
    (tmp_path / "doubts.csv").write_text("mine")
    with pytest.raises(UserError, match="may hold your answers"):
        run(tmp_path / "doubts.csv", "--data", pairs)
    assert (tmp_path / "doubts.csv").read_text() == "mine"
