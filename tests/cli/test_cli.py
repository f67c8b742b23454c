"""The command line as a user meets it: figures on standard output, everything else on standard error, no tracebacks."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from pairtune.cli import app, main
from pairtune.cli.preparing import estimate_seconds
from pairtune.data.datasets import TASKS, load_task
from pairtune.errors import UserError
from pairtune.runs.toml import read_recipe
from pairtune.tune.rules import choose

runner = CliRunner()


def call(*words, **options):
    result = runner.invoke(app, [str(word) for word in words], **options)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def run_process(*words):
    return subprocess.run([sys.executable, "-m", "pairtune", *words], capture_output=True, text=True, check=False)


def refusal(capfd, *words):
    """What the command line says to words that it refuses, on standard error alone."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    printed = capfd.readouterr()
    assert ended.value.code == 2, printed.err
    assert "pairtune: " in printed.err and "Traceback" not in printed.err and printed.out == ""
    return printed.err


@pytest.fixture
def pairs_csv(tmp_path):
    path = tmp_path / "pairs.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["question", "answer", "score"])
        for number in range(60):
            table.writerow([f"how much is {number} plus {number}", f"it is {2 * number}", 5])
            table.writerow([f"how much is {number} plus {number}", f"the color of paint {number}", number % 3])
    return path


def test_every_task_is_listed_with_its_state():
    listed = json.loads(call("tasks", "--json"))
    assert set(listed) == set(TASKS)
    assert listed["stdlib"]["rows"]["train"] > 1000
    assert "stdlib" in call("tasks", env={"COLUMNS": "200"})


def test_chronological_order_scores_the_known_map_on_cqa_a(tmp_path, real_data):
    pairs = load_task("cqa-a").test
    first = {query: row for row, query in reversed(list(enumerate(pairs.query)))}
    scores = tmp_path / "scores.txt"
    scores.write_text("\n".join(str(first[query] - row) for row, query in enumerate(pairs.query)))
    assert json.loads(call("metrics", "cqa-a", "--scores", scores, "--json"))["MAP"] == pytest.approx(0.7261, abs=5e-5)


@pytest.mark.parametrize(
    ("task", "split", "known"), [("cqa-a", "test2016", 0.5953), ("cqa-b", "test", 0.4185), ("cqa-b", "test2016", 0.7475)]
)
def test_file_order_scores_the_known_map(tmp_path, real_data, task, split, known):
    pairs = load_task(task).split(split)
    scores = tmp_path / "scores.npy"
    np.save(scores, -np.arange(len(pairs)))
    assert json.loads(call("metrics", task, "--scores", scores, "--split", split, "--json"))["MAP"] == pytest.approx(
        known, abs=5e-5
    )


def test_scores_of_a_search_are_read_query_by_query(tmp_path):
    pairs = load_task("stdlib").dev
    column = {text: place for place, text in enumerate(pairs.corpus)}
    queries = list(dict.fromkeys(pairs.query))
    perfect = np.zeros((len(queries), len(pairs.corpus)))
    for query, right in zip(pairs.query, pairs.right, strict=True):
        perfect[queries.index(query), column[right]] = 1
    np.save(tmp_path / "scores.npy", perfect)
    found = json.loads(call("metrics", "stdlib", "--split", "dev", "--scores", tmp_path / "scores.npy", "--json"))
    assert found["HP@1"] == 1.0


def test_f1_wants_a_threshold_from_dev(tmp_path, real_data):
    task = load_task("mrpc")
    for split in ("dev", "test"):
        (tmp_path / split).write_text("\n".join(map(str, task.split(split).label)))
    alone = runner.invoke(app, ["metrics", "mrpc", "--scores", str(tmp_path / "test"), "--json"])
    assert "F1" not in json.loads(alone.stdout) and "give --dev-scores" in alone.stderr
    both = json.loads(call("metrics", "mrpc", "--scores", tmp_path / "test", "--dev-scores", tmp_path / "dev", "--json"))
    assert both["F1"] == 1.0


def test_train_evaluate_score_and_search_in_a_row(tmp_path, pairs_csv, tiny_encoder):
    columns = ["--data", pairs_csv, "--left", "question", "--right", "answer", "--label", "score"]
    quick = [
        "--set",
        "train.epochs=3",
        "--set",
        "train.learning_rate=1e-3",
        "--set",
        "train.max_seq_length=16",
        "--model",
        tiny_encoder,
    ]
    summary = json.loads(call("train", *columns, *quick, "--out", tmp_path / "run", "--json"))
    assert summary["metric"] == "Spearman" and summary["mean"] > 0
    model = tmp_path / "run" / "model"
    scores = json.loads(call("evaluate", model, *columns, "--split", "test", "--json"))
    assert scores["Spearman"] == pytest.approx(summary["mean"], abs=1e-4)
    near, far = (
        float(call("score", model, "--left", "how much is 3 plus 3", "--right", right))
        for right in ("it is 6", "the color of paint 3")
    )
    assert near > far
    printed = call("score", model, pairs_csv, "--left", "question", "--right", "answer").split()
    assert len(printed) == 120 and all(-1.001 <= float(value) <= 1.001 for value in printed)
    found = call("search", model, pairs_csv, "how much is 7 plus 7", "--column", "answer", "--top", "3").splitlines()
    assert len(found) == 3
    assert (tmp_path / "pairs.csv.index" / "vectors.faiss").exists()
    asked = call("search", model, pairs_csv, "--top", "1", input="it is 8\n\n")
    assert "it is 8" in asked


def test_an_index_is_kept_until_the_corpus_or_the_model_changes(tmp_path, tiny_encoder, tiny_model):
    from pairtune.encoders.index import fingerprint_model

    corpus, kept = tmp_path / "texts.txt", tmp_path / "texts.txt.index" / "vectors.faiss"
    corpus.write_text("a green apple\na red engine\n")
    assert "a green apple" in call("search", tiny_encoder, corpus, "green apple", "--top", "1")
    made = kept.stat().st_mtime_ns
    call("search", tiny_encoder, corpus, "red engine")
    assert kept.stat().st_mtime_ns == made
    kept.write_bytes(b"half an index")  # its key still fits: a damaged index is built again
    assert "a green apple" in call("search", tiny_encoder, corpus, "green apple", "--top", "1")
    corpus.write_text("a red engine\na ripe pear\n")
    assert "1.0000  a ripe pear" in call("search", tiny_encoder, corpus, "a ripe pear", "--top", "1")
    before = fingerprint_model(tiny_model)
    next(tiny_model.parameters()).data[0, 0] += 1
    assert fingerprint_model(tiny_model) != before


def test_inspect_shows_that_neighbors_make_harder_batches(tmp_path, tiny_encoder):
    words = ["--set", f'encoder="{tiny_encoder}"', "--set", "order.group=4", "--pairs", "300"]
    found = json.loads(call("inspect", "stdlib/demo", *words, "--json"))
    assert found["orders"]["examples"]["negative_similarity"] > found["orders"]["uniform"]["negative_similarity"]
    assert "group of" in call("inspect", "stdlib/demo", *words, env={"COLUMNS": "200"})


def test_the_folder_of_a_run_is_no_encoder_but_says_where_it_is(tmp_path, tiny_encoder):
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "model" / "modules.json").write_text("[]")
    result = CliRunner().invoke(app, ["score", str(tmp_path / "run"), "--left", "a", "--right", "b"])
    assert f"is the folder of a run: give its model, {tmp_path / 'run' / 'model'}" in str(result.exception)
    shutil.copytree(tiny_encoder, tmp_path / "run", dirs_exist_ok=True)  # an encoder that has a folder of that name in it
    assert float(call("score", tmp_path / "run", "--left", "a", "--right", "a")) == pytest.approx(1)


def test_evaluate_scores_the_whole_file_and_says_what_it_saw(tmp_path, tiny_encoder):
    path = tmp_path / "mine.csv"
    rows = [f"question {row},answer {row % 7},{row % 2 + 1}\r\n" for row in range(60)]
    path.write_text("left,right,label\r\n" + "".join(rows) + ",,\r\n  \r\n", newline="")  # as spreadsheets leave it
    result = CliRunner().invoke(app, ["evaluate", tiny_encoder, "--data", str(path), "--json"])
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["pairs"] == 60 and "F1" not in found and "F1@best" in found
    assert "mine: labels" in result.stderr and "mine: all 60 pairs, not split" in result.stderr
    held_out = CliRunner().invoke(app, ["evaluate", tiny_encoder, "--data", str(path), "--split", "test", "--json"])
    assert json.loads(held_out.stdout)["pairs"] == 6
    assert "mine: split by left text: 48 train, 6 dev, 6 test" in held_out.stderr
    both = json.loads(call("evaluate", tiny_encoder, "--test", path, "--dev", path, "--json"))
    same = json.loads(call("evaluate", tiny_encoder, "--test", path, "--dev", path, "--split", "dev", "--json"))
    assert 0 < both["F1"] == same["F1"] <= both["F1@best"], "the threshold comes from --dev, here the same pairs"


def test_a_file_to_train_on_goes_with_ones_own_dev_and_test(tmp_path, tiny_encoder):
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name in ("train", "dev", "test"):
        texts = [f"{name} {row}" for row in range(20)]
        pq.write_table(pa.table({"left": texts, "right": [f"a {text}" for text in texts]}), tmp_path / f"{name}.parquet")
    file = ["--set", f"train.file={tmp_path / 'train.parquet'}", "--set", "train.columns=['left', 'right']"]
    held_out = ["--dev", tmp_path / "dev.parquet", "--test", tmp_path / "test.parquet", "--model", tiny_encoder]
    quick = ["--set", "train.epochs=1", "--out", tmp_path / "run", "--json"]
    found = json.loads(call("train", "own/positives", *file, *held_out, *quick))
    record = json.loads((tmp_path / "run" / "seed-1" / "record.json").read_text())
    assert record["task"] == "dev" and record["pairs"] == {"train": 20, "dev": 20, "test": 20} and found["metric"] == "HP@1"
    result = CliRunner().invoke(app, ["train", *map(str, held_out), "--out", str(tmp_path / "none")])
    assert "task dev has no pairs to train on: give them with --train FILE" in str(result.exception)


def test_several_files_of_data_are_all_scored(tmp_path, tiny_encoder):
    for name in ("one", "two"):
        (tmp_path / f"{name}.csv").write_text("left,right\n" + "".join(f"{name} {i},a {name} {i}\n" for i in range(9)))
    words = ["evaluate", tiny_encoder, "--data", tmp_path / "one.csv", "--data", tmp_path / "two.csv", "--json"]
    assert json.loads(call(*words))["queries"] == 18
    assert json.loads(call("evaluate", tiny_encoder, "--data", tmp_path / "*.csv", "--json"))["pairs"] == 18


def test_whoever_scores_texts_hears_how_many_are_longer_than_the_model_reads(tmp_path, tiny_encoder):
    long = "word " * 600
    rows = [f"question {row},{long if row == 3 else f'answer {row}'},{row % 2}\n" for row in range(6)]
    (tmp_path / "pairs.csv").write_text("left,right,label\n" + "".join(rows))
    (tmp_path / "texts.txt").write_text(f"a text\n{long}\n")
    for words, of in (
        (["evaluate", tiny_encoder, "--data", tmp_path / "pairs.csv"], 12),
        (["score", tiny_encoder, tmp_path / "pairs.csv"], 12),
        (["search", tiny_encoder, tmp_path / "texts.txt", "a text"], 2),
    ):
        result = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
        assert f"1 of {of} texts have more than 256 tokens and are cut (the longest has 602)" in result.stderr
        assert "are cut" not in result.stdout


def test_metrics_take_a_file_of_ones_own(tmp_path):
    (tmp_path / "p.csv").write_text("query,answer,relevance\n" + "".join(f"q{i // 2},a{i},{i % 2}\n" for i in range(40)))
    (tmp_path / "scores.txt").write_text("\n".join(str(i % 2) for i in range(40)))
    found = json.loads(call("metrics", "--data", tmp_path / "p.csv", "--scores", tmp_path / "scores.txt", "--json"))
    assert found == {"pairs": 40, "queries": 20, "MAP": 1.0, "MRR": 1.0, "P@1": 1.0}


def test_inspect_looks_at_ones_own_pairs_without_a_recipe(tmp_path, tiny_encoder):
    path = tmp_path / "mine.csv"
    path.write_text("left,right\n" + "".join(f"question {word},answer {word}\n" for word in range(60)))
    words = ["--model", tiny_encoder]
    said = call("inspect", "--data", path, *words, env={"COLUMNS": "200"})
    summary = json.loads(call("inspect", "--data", path, *words, "--no-trial", "--json"))
    assert (summary["recipe"], summary["encoder"]) == ("own/positives", tiny_encoder)
    assert "own/positives: 48 pairs in batches of" in said
    for finding in ("every pair is positive", "0 pairs of test are in train too", "tokens (95 %", "to train here"):
        assert finding in said
    assert "to train here" not in call("inspect", "--data", path, *words, "--no-trial")
    result = CliRunner().invoke(app, ["inspect"])
    assert isinstance(result.exception, UserError) and "nothing to inspect: name a recipe" in str(result.exception)


def test_the_time_of_a_training_is_told_for_all_that_are_averaged(monkeypatch, small_task):
    monkeypatch.setattr("pairtune.tune.plan.estimate_training", lambda task, recipe, scratch: 7.0)
    assert estimate_seconds(small_task, choose(small_task, ["average_of=3"]).recipe) == 21.0


def test_shuffle_writes_every_row_once(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [f"word{row % 7} and other{row % 5} things" for row in range(200)]
    pq.write_table(pa.table({"question": texts, "number": range(200)}), tmp_path / "in.parquet")
    call("shuffle", tmp_path / "in.parquet", tmp_path / "out.parquet", "--by", "words", "--column", "question", "--seed", 7)
    found = pq.read_table(tmp_path / "out.parquet")
    assert sorted(found["number"].to_pylist()) == list(range(200))
    assert found["number"].to_pylist() != list(range(200))


def test_recipes_are_listed_with_a_whole_sentence_each(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    listed = call("recipes")
    says = dict(entry.split(maxsplit=1) for entry in listed.replace("\n" + 15 * " ", " ").splitlines())
    assert {"own/labelled", "own/positives"} <= set(says) and max(map(len, listed.splitlines())) <= 80
    assert all(len(text.split()) > 3 and text.endswith(".") for text in says.values())
    assert says["own/positives"].endswith("two hard negatives that are mined before every epoch.")


def test_tasks_can_be_read_at_80_columns():
    result = subprocess.run(
        [sys.executable, "-m", "pairtune", "tasks"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "80"},
    )
    table, _, rest = result.stdout.partition("stsb: ")
    assert "…" not in table and max(map(len, table.splitlines())) <= 80 and "stdlib: found in" in rest


def test_a_shipped_recipe_is_printed_as_a_file_to_change(tmp_path):
    (tmp_path / "mine.toml").write_text(call("recipes", "own/labelled"))
    mine, shipped = read_recipe(str(tmp_path / "mine.toml")), read_recipe("own/labelled")
    assert mine.model_copy(update={"name": shipped.name}) == shipped


def test_settings_are_printed_with_what_they_are_however_narrow_the_terminal_is():
    rows = [line.split("│")[1:5] for line in call("recipes", "--settings").splitlines() if line.count("│") == 5]
    names, _, values, _ = ("".join(cell.strip() for cell in column) for column in zip(*rows, strict=True))
    assert "loss.temperature" in names and "order.skip_nearest" in names and "…" not in names
    assert "anumberabove0" in values.replace(" ", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "own/label"], "unknown recipe 'own/label'; did you mean own/labelled?"),
        (["train"], "nothing to train: name a recipe"),
        (["train", "own/labelled", "--set", "loss.heat=3"], "loss.heat is not a setting; known here: kind, temperature"),
        (
            ["train", "own/labelled", "--set", "train.learnin_rate=3"],
            "train.learnin_rate is not a setting; did you mean train.learning_rate?",
        ),
        (["train", "own/labelled", "--seeds", "one"], "--seeds 'one': expected whole numbers"),
        (["evaluate", "minilm", "stbs"], "unknown task 'stbs'; known: stsb, mrpc"),
        (["evaluate", "minilm"], "give either the name of a task"),
        (["evaluate", "no/such/folder", "stdlib"], "encoder 'no/such/folder' could not be loaded: there is no such folder"),
        (["train", "own/labelled", "--seeds", "1,,2"], "--seeds '1,,2': expected whole numbers from 0 on, separated by commas"),
        (["train", "own/labelled", "--seeds", "1,1"], "each once"),
        (["train", "own/labelled", "--seeds", "-1"], "--seeds '-1': expected whole numbers from 0"),
        (["evaluate", "minilm", "stdlib", "--left", "q"], "--left works with your own pairs only: give them with --data FILE"),
        (["evaluate", "minilm", "--data", "a.csv", "--test", "b.csv"], "--data and --test both name the pairs to score"),
        (
            ["train", "own/positives", "--set", "train.file=pairs.parquet"],
            "train.file pairs.parquet holds pairs to train on, and dev and test would be those of stdlib: give your own",
        ),
        (["train", "--data", "a.csv", "--train", "b.csv"], "--data and --train both name the pairs to train on"),
        (["score", "minilm"], "nothing to score: give both --left TEXT and --right TEXT, or a file"),
        (["score", "minilm", "--left", "a"], "nothing to score"),
        (["metrics", "stdlib", "--scores", "none.txt"], "none.txt: could not be read"),
        (
            ["metrics", "stdlib", "--split", "tset", "--scores", "none.txt"],
            "task stdlib has no split 'tset'; known: train, dev, test",
        ),
        (["shuffle", "none.parquet", "out.parquet", "--column", "q"], "none.parquet"),
    ],
)
def test_a_mistake_gets_one_message_and_no_traceback(capfd, words, message):
    assert message in refusal(capfd, *words)


def test_a_process_ends_with_the_message_and_debug_shows_where_an_error_came_from():
    result = run_process("train", "stsb/comb")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("pairtune: unknown recipe 'stsb/comb'") and "Traceback" not in result.stderr
    result = run_process("--debug", "train", "stsb/comb")
    assert "Traceback" in result.stderr and "UserError: unknown recipe" in result.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "bad.csv"),
        (b"question,reply\na,b\n", "answer"),
        (b"question,answer,score\na,b,high\n", "line 2"),
        (b"question,answer,score\na,b,nan\n", "line 2"),
        (b"question,answer,score\na\x81,b,1\n", "line 2"),
        (b"question,answer,score\n" + b"".join(b"q%d,a%d,0\n" % (n, n) for n in range(30)), "positive"),
    ],
)
def test_bad_data_is_named_by_file_and_line(tmp_path, capfd, content, message):
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    columns = ["--left", "question", "--right", "answer", "--label", "score"]
    said = refusal(capfd, "train", "--data", path, *columns, "--out", tmp_path / "r")
    assert "bad.csv" in said and message in said
    assert not (tmp_path / "r").exists()


def test_a_text_of_a_hundred_thousand_characters_is_scored(tiny_encoder):
    value = float(call("score", tiny_encoder, "--left", "word " * 20_000, "--right", "word"))
    assert -1 <= value <= 1.001


def test_the_version_is_printed():
    assert call("--version").strip().count(".") == 2


def test_mined_negatives_train_and_the_model_is_evaluated_and_searched(tmp_path, tiny_encoder):
    """From a spreadsheet of positive pairs to a model, by four commands."""
    import pandas as pd

    words = ["stone", "river", "cloud", "engine", "garden", "paper", "silver", "window", "forest", "needle", "bridge", "candle"]
    rows = [{"Question": f"where is the {word} {i}", "Answer": f"{word} number {i}"} for i in range(4) for word in words]
    pd.DataFrame(rows).to_excel(tmp_path / "faq.xlsx", index=False)
    mined = tmp_path / "mined.parquet"
    found = json.loads(
        call("mine", tiny_encoder, mined, "--data", tmp_path / "faq.xlsx", "--count", "2", "--margin", "0", "--json")
    )
    assert found["pairs"] + found["short"] == 48 and found["pairs"] > 30
    quick = ["--model", tiny_encoder, "--set", "train.epochs=1", "--out", tmp_path / "run", "--json"]
    summary = json.loads(call("train", "own/positives", "--data", mined, *quick))
    assert summary["scores"]["1"]["after"]["test"]["MRR"] > 0 and summary["task"] == "mined"
    assert any("negatives from 'negative_1', 'negative_2'" in note for note in read_notes(tmp_path / "run"))
    asked = json.loads((tmp_path / "run" / "seed-1" / "record.json").read_text())["recipe"]
    assert (
        asked["name"] == "own/positives" and asked["stages"][0]["train"]["negatives"] == "given"
    )  # it mines where there are none
    model = tmp_path / "run" / "model"
    scored = json.loads(call("evaluate", model, "--data", tmp_path / "faq.xlsx", "--json"))
    assert scored["queries"] == 48
    first = call("search", model, tmp_path / "faq.xlsx", "where is the needle 2", "--column", "Answer", "--top", "1")
    assert "needle" in first
    call("train", "own/positives", "--data", mined, "--no-negatives", *quick[:-3], "--out", tmp_path / "without")
    assert not any("negatives from" in note for note in read_notes(tmp_path / "without"))


def mine_by_words(tmp_path, *words):
    """The table that `mine` writes by BM25, as records."""
    call("mine", "bm25", tmp_path / "mined.jsonl", "--count", "1", "--margin", "-1", *words)
    return [json.loads(line) for line in (tmp_path / "mined.jsonl").read_text().splitlines()]


def test_pairs_of_all_splits_are_mined_and_keep_their_split(tmp_path):
    import pandas as pd

    parts = ["train"] * 24 + ["dev"] * 3 + ["test"] * 3
    rows = [(f"where is {n}", f"it is in street {n}", f"area {n % 15}") for n in range(30)]
    table = pd.DataFrame(rows, columns=["question", "answer", "area"])
    table.assign(split=parts).to_csv(tmp_path / "split.csv", index=False)
    table.to_csv(tmp_path / "plain.csv", index=False)
    given = dict(zip(table["question"], parts, strict=True))
    assert {row["left"]: row["split"] for row in mine_by_words(tmp_path, "--data", tmp_path / "split.csv")} == given
    files = []
    for name in ("train", "dev", "test"):
        table[[part == name for part in parts]].to_csv(tmp_path / f"{name}.csv", index=False)
        files += [f"--{name}", tmp_path / f"{name}.csv"]
    assert {row["left"]: row["split"] for row in mine_by_words(tmp_path, *files)} == given
    plain = mine_by_words(tmp_path, "--data", tmp_path / "plain.csv")
    assert len(plain) == 30 and "split" not in plain[0]
    area, split_of = dict(zip(table["question"], table["area"], strict=True)), {}
    for row in mine_by_words(tmp_path, "--data", tmp_path / "plain.csv", "--keep-together", "area"):
        assert split_of.setdefault(area[row["left"]], row["split"]) == row["split"], "a group is in one split"
    assert set(split_of.values()) == {"train", "dev", "test"}


def test_own_negatives_that_mining_replaces_are_said(tmp_path):
    rows = "\n".join(f"where is {n},it is in street {n},no" for n in range(30))
    (tmp_path / "pairs.csv").write_text(f"anchor,positive,negative\n{rows}")
    result = runner.invoke(
        app, ["mine", "bm25", str(tmp_path / "mined.csv"), "--data", str(tmp_path / "pairs.csv"), "--margin", "-1"]
    )
    assert result.exit_code == 0 and "its own negatives are left out: the mined ones replace them" in result.stderr
    with pytest.raises(UserError, match="not at columns of negatives: give --no-negatives"):
        call("review", tmp_path / "doubts.csv", "--data", tmp_path / "pairs.csv")


def read_notes(folder):
    return json.loads((folder / "seed-1" / "record.json").read_text())["notes"]
