"""A user's own data: read in every format, labels understood, split without leaks, mistakes named with their line."""

from __future__ import annotations

import csv
import json
import socket
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from datasets import Dataset, DatasetDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pairtune.data.formats import read_texts
from pairtune.data.own_tables import read_sides, read_table
from pairtune.data.splits import split_by_key, split_by_left
from pairtune.data.table import rescale
from pairtune.errors import UserError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(lambda text: text.strip())
QUICK = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def write_csv(path: Path, rows: list[dict], **options) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), **options)
        writer.writeheader()
        writer.writerows(rows)
    return path


def labelled(labels, each: int = 1) -> list[dict]:
    return [{"q": f"question {i // each}", "a": f"answer {i}", "y": label} for i, label in enumerate(labels)]


def everything(task):
    parts = (task.train, task.dev, task.test)
    return {
        (left, right): (float(label), float(grade))
        for part in parts
        for left, right, label, grade in zip(part.left, part.right, part.label, part.grade, strict=True)
    }


# formats


def write_as(ending: str, frame: pd.DataFrame, folder: Path) -> Path:
    path = folder / f"pairs.{ending}"
    {
        "csv": lambda: frame.to_csv(path, index=False),
        "csv.gz": lambda: frame.to_csv(path, index=False),
        "csv.zst": lambda: frame.to_csv(path, index=False),
        "tsv": lambda: frame.to_csv(path, index=False, sep="\t"),
        "tsv.gz": lambda: frame.to_csv(path, index=False, sep="\t"),
        "jsonl": lambda: frame.to_json(path, orient="records", lines=True),
        "jsonl.zst": lambda: frame.to_json(path, orient="records", lines=True),
        "json": lambda: frame.to_json(path, orient="records"),
        "json.gz": lambda: frame.to_json(path, orient="records"),
        "parquet": lambda: frame.to_parquet(path, index=False),
        "arrow": lambda: pa.feather.write_feather(frame, path),
        "xlsx": lambda: frame.to_excel(path, index=False),
        "dataset": lambda: Dataset.from_pandas(frame, preserve_index=False).save_to_disk(path),
    }[ending]()
    return path


PLAIN = ["csv", "tsv", "jsonl", "json", "parquet", "arrow", "xlsx", "dataset"]
FORMATS = [*PLAIN, "csv.gz", "csv.zst", "tsv.gz", "jsonl.zst", "json.gz"]


@pytest.mark.parametrize("ending", FORMATS)
def test_all_formats_give_the_same_task(tmp_path, ending):
    frame = pd.DataFrame(labelled([i % 2 for i in range(60)], each=2))
    path = write_as(ending, frame, tmp_path)
    task = read_table(path, "q", "a", "y")
    assert (len(task.train), len(task.dev), len(task.test)) == (48, 6, 6)
    assert everything(task)["question 3", "answer 7"] == (1, 1)
    assert task.name == "pairs" and task.kind == "ranking" and task.metric == "MAP" and task.source == str(path)


def test_the_stream_format_of_arrow_is_read_too(tmp_path):
    table = pa.table({"left": ["a", "b"], "right": ["x", "y"]})
    with pa.ipc.new_stream(tmp_path / "p.arrow", table.schema) as stream:
        stream.write_table(table)
    assert read_sides(tmp_path / "p.arrow") == (["a", "b"], ["x", "y"])


def test_a_folder_of_several_splits_is_split_as_it_says(tmp_path):
    parts = {
        name: Dataset.from_dict({"left": [f"{name} {i}" for i in range(4)], "right": ["x"] * 4})
        for name in ("train", "validation", "test")
    }
    DatasetDict(parts).save_to_disk(tmp_path / "mine")
    task = read_table(tmp_path / "mine")
    assert [part.left[0] for part in (task.train, task.dev, task.test)] == ["train 0", "validation 0", "test 0"]
    (tmp_path / "other").mkdir()
    with pytest.raises(UserError, match="other: a folder, but not one that datasets' save_to_disk wrote"):
        read_table(tmp_path / "other")


def test_a_dataset_of_the_hub_that_cannot_be_had_is_named_and_the_way_out_too():
    with pytest.raises(UserError, match=r"the hub gave no nobody/nothing: .*write it with save_to_disk, and give the folder"):
        read_table("hub:nobody/nothing")


def test_without_a_network_a_dataset_of_the_hub_is_looked_for_once(monkeypatch):
    asked = []

    def look_up(host, *rest, **options):
        asked.append(host)
        raise socket.gaierror("no address")

    for name in ("https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(UserError, match="the hub gave no nobody/nothing"):
        read_table("hub:nobody/nothing")
    assert len(asked) == 1


@pytest.mark.parametrize("ending", ["jsonl", "json", "parquet"])
def test_nested_fields_are_named_by_their_path(tmp_path, ending):
    records = [{"query": {"text": f"q{i}", "id": i}, "hit": {"doc": {"body": f"a{i}"}}} for i in range(3)]
    path = tmp_path / f"p.{ending}"
    if ending == "parquet":
        pa.parquet.write_table(pa.Table.from_pylist(records), path)
    else:
        path.write_text("\n".join(map(json.dumps, records)) if ending == "jsonl" else json.dumps(records))
    assert read_sides(path, "query.text", "hit.doc.body") == (["q0", "q1", "q2"], ["a0", "a1", "a2"])
    with pytest.raises(
        UserError, match=r"which columns .* query\.text, query\.id, hit\.doc\.body; say for example --left query\.text"
    ):
        read_sides(path)


@pytest.mark.parametrize(
    ("encoding", "note"),
    [("utf-16", "p.csv: read as UTF-16"), ("latin-1", "p.csv: read as Windows-1252 (Latin-1): line 2 is not valid UTF-8")],
)
def test_other_encodings_are_recognized_and_said(tmp_path, encoding, note):
    path = tmp_path / "p.csv"
    path.write_text("left,right\n" + "".join(f"café {i},été {i}\n" for i in range(20)), encoding=encoding)
    task = read_table(path)
    assert task.notes[0] == note and "café 3" in {left for left, _ in everything(task)}


def test_semicolons_and_decimal_commas_are_understood_and_said(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("left;right;score\n" + "".join(f"a{i}, b;x{i};0,{i % 4 * 25:02}\n" for i in range(40)))
    task = read_table(path)
    assert task.notes[0] == "p.csv: fields are separated by ;"
    assert everything(task)["a3, b", "x3"] == (0.75, 0.75)


def test_one_sheet_of_several_is_read_and_said(tmp_path):
    with pd.ExcelWriter(tmp_path / "p.xlsx") as book:
        for name in ("mine", "other"):
            pd.DataFrame({"left": [f"{name} {i}" for i in range(20)], "right": range(20)}).to_excel(
                book, sheet_name=name, index=False
            )
    task = read_table(tmp_path / "p.xlsx", label=False)
    assert task.notes[0] == "p.xlsx: read the sheet 'mine' of 'mine', 'other'" and ("mine 3", "3") in everything(task)


@QUICK
@given(texts=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=8))
def test_any_text_survives_csv(tmp_path, texts):
    path = write_csv(tmp_path / "any.csv", [{"left": left, "right": right} for left, right in texts])
    assert read_sides(path, "left", "right") == ([left for left, _ in texts], [right for _, right in texts])


@QUICK
@given(texts=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=8))
def test_any_text_survives_jsonl(tmp_path, texts):
    path = tmp_path / "any.jsonl"
    lines = [json.dumps({"left": left, "right": right}, ensure_ascii=False) for left, right in texts]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
    assert read_sides(path, "left", "right") == ([left for left, _ in texts], [right for _, right in texts])


@pytest.mark.parametrize(
    ("text", "lefts"),
    [
        ('l\tr\n"said ""no"""\tx\n"two\nlines"\ty\n', ['said "no"', "two\nlines"]),  # quoted, as spreadsheets write it
        ('l\tr\n"the witness" said\tx\nhe said "no"\ty\n', ['"the witness" said', 'he said "no"']),  # not quoted
        ('l\tr\n"open\tx\nplain\ty\nclose"\tz\n', ['"open', "plain", 'close"']),  # stray quotes that would swallow lines
        ('l\tr\n5" disk\tx\n"never closed\ty\n', ['5" disk', '"never closed']),
    ],
)
def test_a_tsv_is_read_with_quoting_only_where_that_makes_sense(tmp_path, text, lefts):
    path = tmp_path / "pairs.tsv"
    path.write_text(text)
    assert read_sides(path, "l", "r")[0] == lefts


def test_a_text_of_100_000_characters_is_accepted_and_so_is_a_longer_one(tmp_path):
    rows = [{"q": "x" * 200_000 if i == 3 else f"q{i}", "a": "y" * 100_000 if i == 4 else f"a{i}"} for i in range(20)]
    task = read_table(write_csv(tmp_path / "long.csv", rows), "q", "a")
    lengths = {len(text) for part in (task.train, task.dev, task.test) for text in (*part.left, *part.right)}
    assert {200_000, 100_000} <= lengths and csv.field_size_limit() == 131_072


def test_a_byte_order_mark_and_blank_lines_are_no_columns(tmp_path):
    path = tmp_path / "excel.csv"
    path.write_bytes("\ufeffq,a\r\n\r\nhello,world\r\n\r\n".encode())
    assert read_sides(path, "q", "a") == (["hello"], ["world"])


def test_a_corpus_is_lines_or_a_column(tmp_path):
    (tmp_path / "corpus.txt").write_text("one\n\n two \n", encoding="utf-8")
    (tmp_path / "corpus.csv").write_text("id,text\n1,one\n2,two\n", encoding="utf-8")
    (tmp_path / "answers.csv").write_text("question,answer\nq,one\nq,two\n")
    assert read_texts(tmp_path / "answers.csv") == ["one", "two"]
    (tmp_path / "notes.csv").write_text("id,note\n1,one\n")
    with pytest.raises(UserError, match=r"The columns are: id, note; say --column NAME"):
        read_texts(tmp_path / "notes.csv")
    assert read_texts(tmp_path / "corpus.txt") == read_texts(tmp_path / "corpus.csv", "text") == ["one", "two"]
    with pytest.raises(UserError, match=r"column 'text' is one of a table, and this file has one text per line"):
        read_texts(tmp_path / "corpus.txt", "text")
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(UserError, match=r"empty\.txt: the file is empty"):
        read_texts(tmp_path / "empty.txt")
    with pytest.raises(UserError, match=r"none\.txt: could not be read \(No such file"):
        read_texts(tmp_path / "none.txt")


def test_pairs_that_occur_again_are_counted_and_contradictions_too(tmp_path):
    path = tmp_path / "p.csv"
    once = [f"q{row},a{row},{row % 2}\n" for row in range(40)]
    path.write_text("q,a,y\n" + "".join([*once, "q0,a0,0\n", "q1,a1,1\n", "q2,a2,1\n"]))
    assert "3 pairs occur more than once, 1 of them with different labels" in read_table(path, "q", "a", "y").notes


# mistakes


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.csv", b"", r"p\.csv: the file is empty; expected a header line with the names of the columns"),
        ("p.csv", b"q,a,y\n", r"p\.csv: there are no records in it"),
        ("p.csv", b"q,answer,y\n1,2,1\n", r"p\.csv: no column 'a'; the columns are: q, answer, y"),
        ("p.csv", b"Q, a ,y\n1,2,1\n", r"no column 'q'; .* did you mean --left Q\?"),
        (
            "p.csv",
            b"how,so,1\n1,2,1\n",
            r"the columns are: how, so, 1 \(the first line must name the columns\); say for example --left how",
        ),
        ("p.csv", b"note,question,answer\n1,2,1\n", r"no column 'q'; .*; say for example --left question"),
        (
            "p.csv",
            b"PK\x03\x04\x14\x00\x06\x00",
            r"p\.csv: a spreadsheet or an archive, .*; save the sheet as CSV",
        ),
        ("p.csv", b"q,a,a,y\n1,2,3,1\n", r"p\.csv: 2 columns are called 'a'"),
        ("p.csv", b"q,a,y\nx,y,1\nx,y\n", r"p\.csv line 3: 2 fields, but the header has 3"),
        ("p.csv", b"q,a,y\nx,y, z,1\n", r"p\.csv line 2: 4 fields, but the header has 3"),
        ("p.csv", b'q,a,y\n"two\nlines",y,1\nx,y,good\n', r"p\.csv line 4: the label is 'good', expected a number"),
        ("p.csv", b"q,a,y\nx,y,\n", r"p\.csv line 2: the label is missing"),
        ("p.csv", b"q,a,y\nx,y,1\nx,y,NaN\n", r"p\.csv line 3: the label is missing \('NaN'\)"),
        ("p.csv", b"q,a,y\nx,y,-inf\n", r"p\.csv line 2: the label is -inf"),
        ("p.csv", b"q,a,y\nx,y,1\nx,  ,1\n", r"p\.csv line 3: column 'a' is empty"),
        (
            "p.csv",
            "q,a,y\nö,ü,1\nx,caf".encode() + b"\xe9,1\n",
            r"p\.csv line 3: not valid UTF-8 \(byte 0xe9\), though most of the file is; some bytes are damaged: save it as UTF-8",
        ),
        ("p.csv", b"q,a,y\nx,caf\x81,1\n", r"p\.csv line 2: not valid UTF-8 \(byte 0x81\), and no Windows-1252"),
        ("p.csv", b'q,a,y\nx,y,1\n"never closed,y,1\n', r"p\.csv line 3: unexpected end of data"),
        ("p.csv", b'q,a,y\n"a" b,y,1\n', r"p\.csv line 2: ',' expected after '\"'"),
        ("p.tsv", b"q\ta\ty\nx\ty\t1\nx\ty\n", r"p\.tsv line 3: 2 fields, but the header has 3"),
        ("p.jsonl", b'{"q": "x", "a": "y", "y": 1}\n\n{"q": "x"\n', r"p\.jsonl line 3: not valid JSON"),
        ("p.jsonl", b'{"q": "x", "a": "y", "y": 1}\n[1]\n', r"p\.jsonl line 2: expected a JSON object"),
        (
            "p.jsonl",
            b'{"q": "x", "a": "y", "y": 1}\n{"q": "x", "y": 1}\n',
            r"p\.jsonl line 2: column 'a' is empty; .* --skip-empty",
        ),
        ("p.jsonl", b'{"q": "x", "a": 5, "y": 1}\n', r"p\.jsonl line 1: column 'a' holds 5, expected a text"),
        ("p.jsonl", b'{"q": "x", "a": "\\ud800", "y": 1}\n', r"p\.jsonl line 1: column 'a' holds half of a surrogate pair"),
        ("p.jsonl", b'{"q": "x", "a": "y", "y": null}\n', r"p\.jsonl line 1: the label is missing \(None\)"),
        ("p.jsonl", b"", r"p\.jsonl: there are no records"),
        ("p.parquet", b"PAR1 not really", r"p\.parquet: not a readable Parquet file"),
        (
            "p.json",
            b'[{"q": "x", "a": "y", "y": 1},\n {"q": "x", "a": "z"}]',
            r"p\.json record 2: the label is missing .* --skip-empty",
        ),
        ("p.json", b'[{"q": "x",\n "a" "y"}]', r"p\.json line 2: not valid JSON"),
        ("p.arrow", b"ARROW1 not really", r"p\.arrow: not a readable Arrow file"),
        ("p.xlsx", b"", r"p\.xlsx: not a readable \.xlsx file"),
        ("p.doc", b"", r"p\.doc: the ending '\.doc' is not known; give a file that ends in \.csv, \.tsv, \.jsonl"),
    ],
)
def test_a_mistake_is_named_with_its_file_and_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_table(tmp_path / name, "q", "a", "y")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match=r"none\.csv: there is no such file"):
        read_table(tmp_path / "none.csv", "q", "a")


def test_parquet_names_the_row_and_the_columns(tmp_path):
    path = tmp_path / "p.parquet"
    pd.DataFrame({"q": ["x", None], "a": ["y", "z"]}).to_parquet(path)
    with pytest.raises(
        UserError, match=r"p\.parquet row 2: column 'q' is empty; fill it in, or leave such pairs out: --skip-empty"
    ):
        read_table(path, "q", "a")
    with pytest.raises(UserError, match=r"p\.parquet: no column 'label'; the columns are: q, a"):
        read_table(path, "q", "a", "label")


def test_a_pair_needs_two_columns(tmp_path):
    with pytest.raises(UserError, match=r"left and right are both column 'q'"):
        read_table(write_csv(tmp_path / "p.csv", labelled([1, 0])), "q", "q")


# labels


def scaled(values):
    return rescale(values, lambda record: f"line {record + 2}")


@pytest.mark.parametrize(
    ("values", "labels", "note"),
    [
        ([0, 1, 1], [0, 1, 1], ""),
        ([0.2, 0.4, 0.9], [0.2, 0.4, 0.9], ""),
        ([0.5, 1.0000002], [0.5, 1], ""),
        ([0, 2.5, 5], [0, 0.5, 1], "labels: 0 to 5 mapped to 0 to 1, as (label − 0) / 5"),
        ([0.4, 4.8], [0.08, 0.96], "labels: 0 to 5 mapped to 0 to 1, as (label − 0) / 5"),
        ([1, 2, 3, 4], [0, 1 / 3, 2 / 3, 1], "labels: 1 to 4 mapped to 0 to 1, as (label − 1) / 3"),
        ([1, 3, 5], [0, 0.5, 1], "labels: 1 to 5 mapped to 0 to 1, as (label − 1) / 4"),
        ([1, 2], [0, 1], "labels: 1 to 2 mapped to 0 to 1, as (label − 1) / 1"),
        ([3, 50, 97], [0.03, 0.5, 0.97], "labels: 0 to 100 mapped to 0 to 1, as (label − 0) / 100"),
        ([-1, 0, 1], [0, 0.5, 1], "labels: -1 to 1 mapped to 0 to 1, as (label + 1) / 2"),
        ([-0.2, 0.6], [0.4, 0.8], "labels: -1 to 1 mapped to 0 to 1, as (label + 1) / 2"),
    ],
)
def test_the_scale_of_the_labels_is_seen_and_said(values, labels, note):
    result = scaled(values)
    assert result.label.tolist() == pytest.approx(labels) and result.note == note
    assert result.grade.tolist() == pytest.approx(values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0, 1, 250], r"line 4: the label is 250, above every scale; known scales: 0–1"),
        ([0, -3, 1], r"line 3: the label is -3, below every scale"),
        ([-1, 0, 5], r"line 2: the label is -1, and 5 at line 4: no scale has both"),
        ([0, 5] * 30 + [55], r"line 62: the label is 55, while 60 of 61 lie in 0 to 5; correct it"),
    ],
)
def test_labels_on_no_scale_are_refused_with_their_line(values, message):
    with pytest.raises(UserError, match=message):
        scaled(values)


@pytest.mark.parametrize(("yes", "no"), [("true", "false"), ("Yes", "NO"), ("1.0", "0"), (True, False)])
def test_truth_values_are_labels(tmp_path, yes, no):
    task = read_table(write_csv(tmp_path / "p.csv", labelled([yes, no] * 30)), "q", "a", "y")
    assert set(everything(task).values()) == {(1, 1), (0, 0)} and task.kind == "classification"


def test_only_negative_labels_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"p\.csv: every label is 0: training needs positive pairs"):
        read_table(write_csv(tmp_path / "p.csv", labelled([0] * 30)), "q", "a", "y")


def test_only_positive_labels_make_a_search(tmp_path):
    task = read_table(write_csv(tmp_path / "p.csv", labelled([5] * 30)), "q", "a", "y")
    assert task.kind == "retrieval" and task.notes[0] == "every label is 5: every pair is positive"
    assert set(task.test.corpus) == set(task.test.right) and (task.train.label == 1).all()


def test_labels_that_are_never_positive_are_pointed_out(tmp_path):
    task = read_table(write_csv(tmp_path / "p.csv", labelled([0.1, 0.2, 0.3] * 20)), "q", "a", "y")
    assert "no label lies above 0.5: no pair counts as positive" in task.notes


# kinds


@pytest.mark.parametrize(
    ("labels", "each", "kind", "metrics"),
    [
        (None, 1, "retrieval", ("HP@1", "HP@5", "MRR")),
        ([1, 0] * 30, 1, "classification", ("F1", "F1@best", "AP")),
        ([1, 0, 0] * 20, 3, "ranking", ("MAP", "MRR", "P@1")),
        ([1, 0, 2, 3, 4, 5] * 10, 1, "regression", ("Spearman", "Pearson")),
    ],
)
def test_the_kind_follows_from_the_labels(tmp_path, labels, each, kind, metrics):
    path = write_csv(tmp_path / "p.csv", labelled(labels or [1] * 60, each))
    task = read_table(path, "q", "a", "y" if labels else None)
    assert (task.kind, task.metrics, task.metric) == (kind, metrics, metrics[0])


def test_the_kind_can_be_given(tmp_path):
    path = write_csv(tmp_path / "p.csv", labelled([1, 0] * 30))
    assert read_table(path, "q", "a", "y", kind="regression").metric == "Spearman"
    assert read_table(path, "q", "a", "y", kind="retrieval", seed=1).test.corpus
    with pytest.raises(UserError, match=r"a classification task needs labels of both kinds"):
        read_table(path, "q", "a", False, kind="classification")
    with pytest.raises(UserError, match=r"unknown kind 'rank'; known: classification, ranking, regression, retrieval"):
        read_table(path, "q", "a", "y", kind="rank")


# split


@QUICK
@given(
    lefts=st.lists(TEXT, min_size=10, max_size=60, unique_by=lambda text: " ".join(text.split())),
    repeats=st.integers(1, 3),
    seed=st.integers(0, 5),
)
def test_no_left_text_is_in_two_splits_and_none_is_empty(lefts, repeats, seed):
    which = split_by_left(lefts * repeats, seed)
    assert set(which) == {0, 1, 2}
    first = which[: len(lefts)]
    assert all((which[start : start + len(lefts)] == first).all() for start in range(0, len(which), len(lefts)))
    assert (first == 1).sum() == (first == 2).sum() == round(len(lefts) / 10)


def test_white_space_does_not_hide_that_two_left_texts_are_the_same():
    lefts = [f"text {i}" for i in range(300)]
    np.testing.assert_array_equal(split_by_left(lefts, 0), split_by_left([f" text\t{i}\n" for i in range(300)], 0))


def test_new_pairs_leave_the_split_of_the_old_ones_alone():
    lefts = [f"text {i}" for i in range(2000)]
    before, after = split_by_left(lefts[:1000], 7), split_by_left(lefts, 7)
    np.testing.assert_array_equal(before, after[:1000])
    shares = [(after == part).mean() for part in range(3)]
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.04)
    assert (split_by_left(lefts, 8) != after).any()


@QUICK
@given(st.integers(10, 300), st.integers(3, 60), st.integers(0, 5))
def test_of_few_left_texts_dev_and_test_get_a_tenth_with_positives_and_without(others, good, seed):
    keys, positive = [f"text {i}" for i in range(others + good)], np.arange(others + good) >= others
    which = split_by_key(keys, seed, "the data", positive=positive)
    for part in (1, 2):
        assert ((which == part) & positive).sum() == max(1, round(good / 10))
        assert ((which == part) & ~positive).sum() == round(others / 10)
    later = split_by_key([*keys, *keys[-good:]], seed, "the data", positive=np.append(positive, np.zeros(good, bool)))
    np.testing.assert_array_equal(later[: len(keys)], which)  # one positive pair is enough


def test_five_positive_pairs_among_many_can_be_split(tmp_path):
    task = read_table(write_csv(tmp_path / "p.csv", labelled([1] * 5 + [0] * 195)), "q", "a", "y")
    assert [int(part.positives().sum()) for part in (task.train, task.dev, task.test)] == [3, 1, 1]
    assert [len(part) for part in (task.train, task.dev, task.test)] == [158, 21, 21]


def test_few_left_texts_are_refused_with_advice(tmp_path):
    path = write_csv(tmp_path / "p.csv", [{"q": f"q{i % 4}", "a": f"a{i}"} for i in range(50)])
    with pytest.raises(UserError, match=r"p\.csv: 4 different left texts, .* give at least 10, or swap left and right"):
        read_table(path, "q", "a")


def test_a_split_without_both_classes_is_refused(tmp_path):
    rows = labelled([1] + [0] * 59)
    with pytest.raises(UserError, match=r"the (train|dev|test) split \(\d+ pairs\) has no positive pair: give more pairs"):
        read_table(write_csv(tmp_path / "p.csv", rows), "q", "a", "y")


def test_what_was_done_is_noted(tmp_path):
    task = read_table(write_csv(tmp_path / "p.csv", labelled(list(range(1, 6)) * 12)), "q", "a", "y")
    assert task.notes == (
        "labels: 1 to 5 mapped to 0 to 1, as (label − 1) / 4",
        "regression: 5 different labels, and only 0 of 60 left texts have a list of grades",
        "split by left text: 48 train, 6 dev, 6 test",
    )
