"""From each format that pairs come in, a user trains, evaluates, searches and mines."""

from __future__ import annotations

import json

import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pytest
from datasets import Dataset
from typer.testing import CliRunner

from pairtune import read_pairs, training
from pairtune.cli import app
from small import WORDS, small_recipe

FRAME = pd.DataFrame(
    [(f"{one} {other}", f"the {one} and the {other}, “naïve”") for one in WORDS for other in WORDS[:2] if one != other],
    columns=["question", "answer"],
)
NESTED = [{"query": {"text": left}, "hits": {"best": right}} for left, right in FRAME.itertuples(index=False)]
LISTS = [{"query": left, "positives": [right]} for left, right in FRAME.itertuples(index=False)]
WRITERS = {
    "pairs.csv": lambda path: FRAME.to_csv(path, index=False),
    "semicolons.csv": lambda path: FRAME.to_csv(path, index=False, sep=";"),
    "utf-16.csv": lambda path: FRAME.to_csv(path, index=False, encoding="utf-16"),
    "latin-1.csv": lambda path: FRAME.to_csv(path, index=False, encoding="cp1252"),
    "pairs.tsv": lambda path: FRAME.to_csv(path, index=False, sep="\t"),
    "pairs.csv.gz": lambda path: FRAME.to_csv(path, index=False),
    "pairs.jsonl.zst": lambda path: FRAME.to_json(path, orient="records", lines=True),
    "pairs.jsonl": lambda path: FRAME.to_json(path, orient="records", lines=True),
    "pairs.json": lambda path: FRAME.to_json(path, orient="records"),
    "pairs.parquet": lambda path: FRAME.to_parquet(path, index=False),
    "pairs.arrow": lambda path: pa.feather.write_feather(FRAME, path),
    "pairs.xlsx": lambda path: FRAME.to_excel(path, index=False),
    "saved": lambda path: Dataset.from_pandas(FRAME, preserve_index=False).save_to_disk(path),
    "nested.jsonl": lambda path: path.write_text("\n".join(map(json.dumps, NESTED))),
    "lists.jsonl": lambda path: path.write_text("\n".join(map(json.dumps, LISTS))),
    "collection": lambda path: write_collection(path),
}
NAMES = {"nested.jsonl": ["--left", "query.text", "--right", "hits.best"]}
CORPORA = {"nested.jsonl": ("", "hits.best"), "collection": ("corpus.jsonl", "text"), "lists.jsonl": ("", "query")}


def write_collection(path):
    (path / "qrels").mkdir(parents=True)
    for name, column in (("queries", "question"), ("corpus", "answer")):
        rows = [{"_id": str(row), "text": text} for row, text in enumerate(FRAME[column])]
        (path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (path / "qrels" / "train.tsv").write_text("".join(f"{row} 0 {row} 1\n" for row in range(len(FRAME))))


def run(*words):
    result = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return json.loads(result.stdout)


@pytest.mark.parametrize("name", WRITERS)
def test_a_user_trains_evaluates_searches_and_mines(tmp_path, tiny_encoder, name):
    path = tmp_path / name
    WRITERS[name](path)
    data, model = ["--data", path, *NAMES.get(name, [])], tmp_path / "run" / "model"
    recipe = small_recipe(tiny_encoder, loss={"kind": "bsc"}, train={"epochs": 1, "batch_size": 32})
    task = read_pairs(path, **dict(zip(("left", "right"), NAMES.get(name, [])[1::2], strict=False)))
    trained = training.run(recipe, 1, out=tmp_path / "run", task=task, checkpoints=False)
    test = run("evaluate", model, *data, "--split", "test")
    assert trained.after["test"][trained.metric] == pytest.approx(test[trained.metric], abs=1e-5)
    inside, column = CORPORA.get(name, ("", "answer"))
    text = FRAME["question" if column == "query" else "answer"][7]
    assert run("search", model, path / inside if inside else path, text, "--column", column)["matches"][0]["text"] == text
    assert run("mine", "bm25", tmp_path / "mined.jsonl", *data, "--count", "1", "--margin", "-1")["pairs"] > 0
    mined = [json.loads(line) for line in (tmp_path / "mined.jsonl").read_text().splitlines()]
    assert all(row["negative_1"] in set(FRAME["answer"]) - {row["right"]} for row in mined)
