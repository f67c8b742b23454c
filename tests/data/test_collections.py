"""Collections: queries, a corpus and judgements, as BEIR and TREC write them."""

from __future__ import annotations

import gzip
import json

import pytest
from typer.testing import CliRunner

from pairtune.cli import app
from pairtune.data.collections import read_judgements
from pairtune.data.own_tables import read_pairs
from pairtune.errors import UserError
from small import WORDS


@pytest.fixture
def beir(tmp_path):
    """A folder with 30 queries, 40 texts, and judgements of all queries for train; the last three for test."""
    folder = tmp_path / "fruit"
    (folder / "qrels").mkdir(parents=True)
    texts = [{"_id": f"d{i}", "title": f"About {WORDS[i % 12]}", "text": f"number {i}"} for i in range(40)]
    queries = [{"_id": f"q{i}", "text": f"{WORDS[i % 12]} {i}"} for i in range(30)]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, texts)))
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
    judge(folder, "train", [(f"q{i}", f"d{i}", 1) for i in range(27)])
    judge(folder, "test", [("q27", "d27", 2), ("q28", "d28", 1), ("q28", "d1", 0), ("q29", "d29", 1)])
    return folder


def judge(folder, split, rows):
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in rows)]
    (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")


def test_every_split_searches_the_whole_corpus(beir):
    task = read_pairs(beir)
    assert task.kind == "retrieval" and task.name == "fruit"
    assert (len(task.train), len(task.dev), len(task.test)) == (25, 2, 4), "a tenth of the train queries is dev"
    assert all(len(part.corpus) == 40 for part in (task.train, task.dev, task.test))
    assert task.test.right[0] == f"About {WORDS[27 % 12]} number 27", "title and text"
    assert task.test.label.tolist() == [1, 1, 0, 1] and task.test.grade.tolist() == [2, 1, 0, 1]
    assert "retrieval: a collection of 30 queries and 40 texts" in task.notes


def test_a_collection_with_test_alone_can_be_scored(beir, tiny_encoder):
    (beir / "qrels" / "train.tsv").unlink()
    packed = gzip.compress((beir / "corpus.jsonl").read_bytes())
    (beir / "corpus.jsonl").unlink()
    (beir / "corpus.jsonl.gz").write_bytes(packed)
    result = CliRunner().invoke(app, ["evaluate", tiny_encoder, "--data", str(beir), "--json"])
    found = json.loads(result.stdout)
    assert list(found) == ["pairs", "queries", "MRR@10", "nDCG@10", "Recall@100", "MAP"]
    assert (found["pairs"], found["queries"]) == (4, 3) and 0 < found["nDCG@10"] <= 1 == found["Recall@100"]


def test_a_collection_trains_and_has_a_report(beir, tmp_path, tiny_encoder):
    words = [
        "train",
        "own/positives",
        "--data",
        beir,
        "--model",
        tiny_encoder,
        "--set",
        "train.epochs=1",
        "--out",
        tmp_path / "run",
    ]
    result = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["metric"] == "MRR@10" and (tmp_path / "run" / "seed-1" / "report.html").exists()


def test_judgements_of_trec_are_read_too(tmp_path):
    (tmp_path / "trec.txt").write_text("q1 0 d7 2\nq1\t0\td8\t0\n")
    assert read_judgements(tmp_path / "trec.txt") == [("q1", "d7", 2.0), ("q1", "d8", 0.0)]
    (tmp_path / "bad.txt").write_text("q1 0 d7 2\nq1 d8 good\n")
    with pytest.raises(UserError, match=r"bad\.txt line 2: 'q1 d8 good', expected a query, a text and a grade"):
        read_judgements(tmp_path / "bad.txt")


def test_what_is_missing_or_does_not_fit_is_said(beir):
    with pytest.raises(UserError, match="is a collection, which names its own texts and splits"):
        read_pairs(beir, left="query")
    judge(beir, "dev", [("q1", "d99", 1)])
    with pytest.raises(UserError, match="text d99 has a judgement but is not in the collection"):
        read_pairs(beir)
    for name in ("train", "dev", "test"):
        (beir / "qrels" / f"{name}.tsv").unlink()
    with pytest.raises(UserError, match="no judgements in it; a collection has"):
        read_pairs(beir)
