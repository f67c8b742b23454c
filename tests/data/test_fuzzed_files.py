"""Damaged files of every format: each is read, or refused in words. Never a traceback, never a program that stands still.

A longer search: `PAIRTUNE_FUZZ=20000 python -m pytest tests/data/test_fuzzed_files.py` tries so many files of each kind, new ones
each time.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import tempfile
from functools import cache
from pathlib import Path
from random import Random
from zipfile import ZipFile

import numpy as np
import openpyxl
import pyarrow as pa
import pytest
import zstandard
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyarrow import feather, parquet

from pairtune.data.collections import read_judgements
from pairtune.data.files import read_scores
from pairtune.data.formats import read_texts
from pairtune.data.own_tables import read_pairs, read_sides
from pairtune.data.pairs import PairSet, Task
from pairtune.errors import UserError
from pairtune.runs.recipe import Recipe
from pairtune.runs.toml import read_recipe, recipe_folder

MORE = os.environ.get("PAIRTUNE_FUZZ")
fuzzed = settings(max_examples=int(MORE or 150), derandomize=MORE is None, database=None, suppress_health_check=list(HealthCheck))

ROWS = [
    {"left": f"question {row // 2}, “why”", "right": f"answer\t{row}" if row % 3 else f"a; b {row}", "label": row % 2}
    for row in range(40)
]
NASTY = [  # what a file of one format or another takes amiss
    *(b"\0", b"\xff", b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80", b"\r", b"\n", b"\r\n", b"\t", b",", b";", b'"', b"'", b"\\"),
    *(b"[", b"]", b"{", b"}", b":", b"null", b"NaN", b"Infinity", b"-1e999", b"1" * 5000, b"true", b"\\ud800", b"\\u0000"),
    *(b"left", b"right", b"label", b"split", b"negative", b'{"a":' * 50, b"[" * 3000, b"=", b"#", b'"""', b"[[stages]]\n"),
    *(b"PAR1", b"ARROW1", b"PK\x03\x04", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x80\x80\x80\x80\x10", b"<!--", b"&amp;"),
    *(b"1_000", b"0x10", "٣".encode(), b"\xe2\x80\xaf", "\u2028".encode(), b"2024-01-02", b"inf", b"-0", b"\x1b[31m"),
]


def damage(content: bytes, seed: int) -> bytes:
    """The content after an accident or a few: something inserted, overwritten, lost, repeated, cut off, or a bit turned."""
    rng = Random(seed)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        place = rng.randrange(len(content) + 1)
        before, after = content[:place], content[place:]
        piece = rng.choice((*NASTY, *[rng.randbytes(rng.randrange(1, 5))] * 10))
        accident = rng.choice(("insert", "overwrite", "lose", "repeat", "turn", "turn", "cut"))
        if accident == "insert":
            content = before + piece + after
        elif accident == "overwrite":
            content = before + piece + after[len(piece) :]
        elif accident == "lose":
            content = before + after[rng.randrange(1, 30) :]
        elif accident == "repeat":
            content = before + after[: rng.randrange(1, 30)] * 3 + after
        elif accident == "cut":
            content = before
        elif after:
            content = before + bytes([after[0] ^ (1 << rng.randrange(8))]) + after[1:]
    return content


def anything(content: bytes):
    accidents = st.integers(0, 2**32).map(lambda seed: damage(content, seed))
    return st.one_of(accidents, accidents, accidents, st.binary(max_size=200), st.lists(st.sampled_from(NASTY)).map(b"".join))


def _delimited(mark):
    def quote(value):
        return '"' + str(value).replace('"', '""') + '"'

    lines = [mark.join(ROWS[0]), *(mark.join(map(quote, row.values())) for row in ROWS)]
    return "\n".join(lines).encode()


def _written(write):
    stream = io.BytesIO()
    write(stream)
    return stream.getvalue()


def _arrow_stream(stream):
    table = pa.Table.from_pylist(ROWS)
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)


def _book(stream):
    book = openpyxl.Workbook()
    book.active.append(list(ROWS[0]))
    for row in ROWS:
        book.active.append(list(row.values()))
    book.save(stream)


@cache
def tables():
    """A good file of each format."""
    lines = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
    nested = [{"query": {"text": row["left"]}, "positive": row["right"], "negatives": ["x", "y"]} for row in ROWS]
    return {
        "csv": _delimited(","),
        "tsv": _delimited("\t"),
        "jsonl": lines,
        "json": json.dumps(ROWS).encode(),
        "nested.jsonl": "".join(json.dumps(row) + "\n" for row in nested).encode(),
        "parquet": _written(lambda stream: parquet.write_table(pa.Table.from_pylist(ROWS), stream)),
        "plain.parquet": _written(
            lambda stream: parquet.write_table(
                pa.Table.from_pylist(nested), stream, compression="none", use_dictionary=False, data_page_version="2.0"
            )
        ),
        "arrow": _written(_arrow_stream),
        "feather": _written(lambda stream: feather.write_feather(pa.Table.from_pylist(ROWS), stream, compression="uncompressed")),
        "xlsx": _written(_book),
        "csv.gz": gzip.compress(_delimited(",")),
        "jsonl.zst": zstandard.compress(lines),
    }


def words_or(kind, read):
    """The outcome is of this kind, or a refusal that says something."""
    refusal, found = "", None
    try:
        found = read()
    except UserError as error:
        refusal = str(error)
    assert refusal.strip() or isinstance(found, kind)
    return found


def in_a_file(name, content, read):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        return read(path)


@pytest.mark.parametrize("ending", tables())
def test_a_good_file_is_read(ending):
    columns = {"left": "query.text"} if ending in ("nested.jsonl", "plain.parquet") else {}
    task = in_a_file(f"pairs.{ending}", tables()[ending], lambda path: read_pairs(path, **columns))
    assert len(task.train) + len(task.dev) + len(task.test) == len(ROWS)


@pytest.mark.parametrize(
    ("ending", "content", "words"),
    [
        ("arrow", tables()["arrow"].replace(b"left", b"l\xe5ft"), "not a readable Arrow file"),
        ("plain.parquet", tables()["plain.parquet"].replace(b"positive", b"p\xe5sitive"), "not a readable Parquet file"),
        ("csv", b"\xff\xfeleft,right\n", "marked as UTF-16, but it is not"),
        ("jsonl", b'{"left": ' + b"[" * 100_000, "line 1: nested too deeply"),
        ("jsonl", b'{"left": ' + b"1" * 5000 + b"}", "a number with thousands of digits"),
    ],
)
def test_what_the_search_has_found_is_refused_in_words(ending, content, words):
    with pytest.raises(UserError, match=words):
        in_a_file(f"pairs.{ending}", content, read_pairs)


@pytest.mark.parametrize("ending", tables())
def test_a_damaged_table_is_read_or_refused_in_words(ending):
    columns = {"left": "query.text"} if ending in ("nested.jsonl", "plain.parquet") else {}

    @fuzzed
    @given(anything(tables()[ending]))
    def search(content):
        def attack(path):
            words_or(Task, lambda: read_pairs(path, **columns))
            words_or(Task, lambda: read_pairs(path, left="left", right="right", label="label", keep_together="left"))
            words_or(tuple, lambda: read_sides(path))
            words_or(list, lambda: read_texts(path))

        in_a_file(f"pairs.{ending}", content, attack)

    search()


@fuzzed
@given(st.data())
def test_a_spreadsheet_that_is_damaged_inside_its_archive_is_read_or_refused_in_words(data):
    with ZipFile(io.BytesIO(tables()["xlsx"])) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = data.draw(st.sampled_from(sorted(parts)))
    parts[name] = data.draw(anything(parts[name]))
    stream = io.BytesIO()
    with ZipFile(stream, "w") as archive:
        for part, content in parts.items():
            archive.writestr(part, content)
    in_a_file("pairs.xlsx", stream.getvalue(), lambda path: words_or(Task, lambda: read_pairs(path)))


RECIPES = [path.read_bytes() for path in sorted(recipe_folder().rglob("*.toml"))]


@fuzzed
@given(st.sampled_from(RECIPES).flatmap(anything))
@example(b"a = " + b"[" * 5000)
@example(b"a" + b".a" * 5000 + b" = 1")
def test_a_damaged_recipe_is_read_or_refused_in_words(content):
    in_a_file("own.toml", content, lambda path: words_or(Recipe, lambda: read_recipe(str(path))))


@fuzzed
@given(st.text(max_size=40), st.one_of(st.text(max_size=40), st.sampled_from(["[" * 5000, "1" * 5000, "{a=" * 2000, "1e999"])))
def test_any_setting_of_the_command_line_is_taken_or_refused_in_words(key, value):
    words_or(Recipe, lambda: read_recipe("own/labelled", [f"{key}={value}"]))
    words_or(Recipe, lambda: read_recipe("own/labelled", [f"loss.temperature={value}"]))
    words_or(Recipe, lambda: read_recipe("own/labelled", [f"stages={value}"]))


def collection():
    queries = "".join(json.dumps({"_id": f"q{row}", "text": f"question {row}"}) + "\n" for row in range(12))
    corpus = "".join(json.dumps({"_id": f"d{row}", "title": "t", "text": f"answer {row}"}) + "\n" for row in range(12))
    qrels = "query-id\tcorpus-id\tscore\n" + "".join(f"q{row}\td{row}\t1\n" for row in range(12))
    return {"queries.jsonl": queries.encode(), "corpus.jsonl": corpus.encode(), "qrels/train.tsv": qrels.encode()}


def write_folder(folder, files):
    for name, content in files.items():
        path = Path(folder) / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(content)


@pytest.mark.parametrize("name", [None, *collection()])
def test_a_damaged_collection_is_read_or_refused_in_words(name):
    files = collection()
    if name is None:
        with tempfile.TemporaryDirectory() as folder:
            write_folder(folder, files)
            assert len(read_pairs(folder).train.corpus) == 12
        return

    @fuzzed
    @given(anything(files[name]))
    def search(content):
        with tempfile.TemporaryDirectory() as folder:
            write_folder(folder, {**files, name: content})
            words_or(Task, lambda: read_pairs(folder))

    search()


@fuzzed
@given(anything(b"1 0 d1 1\n1 0 d2 0\n2 0 d1 -1\n"))
def test_damaged_judgements_are_read_or_refused_in_words(content):
    in_a_file("own.qrels", content, lambda path: words_or(list, lambda: read_judgements(path)))


@cache
def saved_dataset():
    """The files of a dataset as `save_to_disk` leaves it."""
    from datasets import Dataset

    with tempfile.TemporaryDirectory() as folder:
        Dataset.from_list(ROWS).save_to_disk(folder)
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


@fuzzed
@given(st.data())
def test_a_damaged_dataset_of_the_host_is_read_or_refused_in_words(data):
    files = saved_dataset()
    name = data.draw(st.sampled_from(sorted(files)))
    with tempfile.TemporaryDirectory() as folder:
        write_folder(folder, {**files, name: data.draw(anything(files[name]))})
        words_or(Task, lambda: read_pairs(folder))


@fuzzed
@given(st.data())
def test_damaged_scores_are_read_or_refused_in_words(data):
    pairs = PairSet.of(["a", "b"], ["x", "y"])
    good = {"scores.txt": b"0.5\n-1e-3\n", "scores.npy": _written(lambda stream: np.save(stream, np.arange(2.0)))}
    name = data.draw(st.sampled_from(sorted(good)))
    in_a_file(name, data.draw(anything(good[name])), lambda path: words_or(np.ndarray, lambda: read_scores(path, pairs)))
