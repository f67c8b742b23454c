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
    assert (len(task.train), len(task.dev), len(task.test)) == (24, 3, 4), "a tenth of the train queries is dev"
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
    for further in ({"corpus": ["corpus.txt"]}, {"negatives": ["negative"]}):
        with pytest.raises(UserError, match="is a collection, which names its own texts and splits"):
            read_pairs(beir, **further)
    judge(beir, "dev", [("q1", "d99", 1)])
    with pytest.raises(UserError, match="text d99 has a judgement but is not in the collection"):
        read_pairs(beir)
    for name in ("train", "dev", "test"):
        (beir / "qrels" / f"{name}.tsv").unlink()
    with pytest.raises(UserError, match="no judgements in it; a collection has"):
        read_pairs(beir)


@pytest.fixture
def run_file(beir):
    """What another system found: q27 first, q28 second, nothing for q29."""
    rows = [
        ("q27", "d27", 9.5),
        ("q27", "d1", 9.0),
        ("q28", "d5", 3.0),
        ("q28", "d28", 2.5),
        ("q3", "d3", 2.0),
        ("q3", "d7", 1.0),
    ]
    rows += [(f"q{i}", f"d{i + 1}", 1.0) for i in range(4, 27)]
    path = beir.parent / "bm25.trec"
    path.write_text("".join(f"{query} Q0 {text} 1 {score} bm25\n" for query, text, score in rows))
    return path


def test_a_run_has_the_scores_that_ir_measures_gives_it(beir, run_file):
    import ir_measures

    result = CliRunner().invoke(app, ["metrics", "--scores", str(run_file), "--data", str(beir), "--json"])
    assert result.exit_code == 0, result.output
    qrels = [ir_measures.Qrel(*row) for row in (("q27", "d27", 2), ("q28", "d28", 1), ("q28", "d1", 0), ("q29", "d29", 1))]
    found = [ir_measures.ScoredDoc(line.split()[0], line.split()[2], float(line.split()[4])) for line in run_file.open()]
    names = {"MRR@10": "RR@10", "nDCG@10": "nDCG@10", "Recall@100": "R@100", "MAP": "AP"}
    theirs = ir_measures.calc_aggregate([ir_measures.parse_measure(name) for name in names.values()], qrels, found)
    ours = json.loads(result.stdout)
    assert {name: ours[name] for name in names} == pytest.approx(
        {name: theirs[ir_measures.parse_measure(names[name])] for name in names}
    )
    assert ours["queries"] == 3


def test_a_run_gives_the_candidates_of_mining_and_the_test_queries_are_left_alone(beir, run_file, tmp_path):
    out = tmp_path / "mined.jsonl"
    words = ["mine", str(run_file), str(out), "--data", str(beir), "--count", "1", "--margin", "-1", "--json"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    found = {row["left"].split()[1]: row["negative_1"].split()[-1] for row in rows}
    assert found["3"] == "7" and all(found[query] == str(int(query) + 1) for query in found if query != "3")
    assert not {"27", "28", "29"} & found.keys(), "they are test"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q27 Q0 d27 1 high bm25", r"bm25\.trec line 1: .* expected a query, Q0, a text"),
        ("q27 Q0 d99 1 2.0 bm25", r"text 'd99' of query q27 is not in the collection"),
        ("x Q0 d1 1 2.0 bm25", "none of its queries is judged"),
    ],
)
def test_a_run_that_does_not_fit_is_refused(beir, run_file, line, message):
    run_file.write_text(line + "\n")
    with pytest.raises(UserError, match=message):
        CliRunner().invoke(app, ["metrics", "--scores", str(run_file), "--data", str(beir)], catch_exceptions=False)


def test_a_run_needs_the_collection_that_it_searched(run_file, tmp_path):
    (tmp_path / "pairs.csv").write_text("left,right\n" + "".join(f"q{i},a{i}\n" for i in range(20)))
    with pytest.raises(UserError, match="is a TREC run, which names texts by id"):
        CliRunner().invoke(
            app, ["metrics", "--scores", str(run_file), "--data", str(tmp_path / "pairs.csv")], catch_exceptions=False
        )


def test_a_collection_of_ir_datasets_is_the_same_as_its_folder(beir, tmp_path):
    ir_datasets = pytest.importorskip("ir_datasets")
    texts = [json.loads(line) for line in (beir / "corpus.jsonl").read_text().splitlines()]
    queries = [json.loads(line) for line in (beir / "queries.jsonl").read_text().splitlines()]
    (tmp_path / "docs.tsv").write_text("".join(f"{one['_id']}\t{one['title']} {one['text']}\n" for one in texts))
    (tmp_path / "queries.tsv").write_text("".join(f"{one['_id']}\t{one['text']}\n" for one in queries))
    for split in ("train", "test"):
        lines = (beir / "qrels" / f"{split}.tsv").read_text().splitlines()[1:]
        (tmp_path / f"{split}.qrels").write_text("".join("{} 0 {} {}\n".format(*line.split()) for line in lines))
        made = ir_datasets.create_dataset(tmp_path / "docs.tsv", tmp_path / "queries.tsv", tmp_path / f"{split}.qrels")
        ir_datasets.registry.register(f"fruit-of-{tmp_path.name}/{split}", made)
    ir_datasets.registry.register(
        f"fruit-of-{tmp_path.name}", ir_datasets.create_dataset(tmp_path / "docs.tsv", tmp_path / "queries.tsv")
    )
    ours, theirs = read_pairs(beir), read_pairs(f"ir:fruit-of-{tmp_path.name}")
    for split in ("train", "dev", "test"):
        one, other = ours.split(split), theirs.split(split)
        assert (one.left, one.right, one.corpus) == (other.left, other.right, other.corpus)
        assert one.grade.tolist() == other.grade.tolist()
    with pytest.raises(UserError, match="ir:nothing/here: ir_datasets knows no such collection"):
        read_pairs("ir:nothing/here")


def test_without_ir_datasets_it_is_said_how_to_have_it(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(UserError, match=r"ir:beir/scifact: collections by name need a package: pip install 'pairtune\[ir\]'"):
        read_pairs("ir:beir/scifact")
