"""Arrow reads text files: the same records, lines and refusals as Python's own parsers."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pairtune import read_pairs
from pairtune.data import json_tables, text_tables
from pairtune.data.files import cut_fields
from pairtune.data.formats import open_table
from pairtune.errors import UserError

SIGNS = st.text(st.sampled_from('a é🥚,;\t"\n\r \u2028'), max_size=8)
RAW = st.text(st.sampled_from('ab,\t"\n\r '), min_size=1, max_size=40)


def read_all(path: Path) -> object:
    """The names, columns and lines of a table, or the words of a refusal."""
    try:
        table = open_table(path)
        return table.names, [table.read(name) for name in dict.fromkeys(table.names)], list(table.lines)
    except UserError as problem:
        return str(problem)


def read_with_care(path: Path) -> object:
    """The same, by Python alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_tables, "_cut_quickly", lambda content, delimiter: None)
        patch.setattr(json_tables, "_read_jsonl_quickly", lambda content: None)
        return read_all(path)


@given(st.lists(RAW, min_size=1, max_size=6), st.sampled_from(["csv", "tsv"]))
@example(['a,b\n"x","y ""z"""\n'], "csv")
@example(['a\tb\n5" x\ty\n"z\tw\n'], "tsv")
@example(["a,b\r\nx,y\r\n,\r\n\r\nz,w"], "csv")
@example(["\na,b\nx,y"], "csv")
@settings(max_examples=300, deadline=None)
def test_any_text_is_cut_as_python_cuts_it(tmp_path_factory, parts, ending):
    path = tmp_path_factory.mktemp("raw") / f"pairs.{ending}"
    path.write_text("".join(parts), encoding="utf-8", newline="")
    assert read_all(path) == read_with_care(path)


@given(st.lists(st.tuples(SIGNS, SIGNS, SIGNS), min_size=1, max_size=6), st.sampled_from([",", ";", "\t"]), st.booleans())
@settings(max_examples=150, deadline=None)
def test_what_a_spreadsheet_writes_is_read_back(tmp_path_factory, rows, delimiter, windows):
    path = tmp_path_factory.mktemp("written") / "pairs.csv"
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        ending = "\r\n" if windows else "\n"
        writer = csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator=ending)
        writer.writerows([("one", "two", "three"), *rows])
    kept = [row for row in rows if any(map(str.strip, row))]
    if not kept:
        return
    names, columns, _ = read_all(path)
    assert names == ("one", "two", "three") and list(zip(*columns, strict=True)) == kept


VALUES = st.one_of(SIGNS, st.integers(-3, 3), st.booleans(), st.none(), st.floats(0, 1), st.lists(SIGNS, max_size=2))


@given(st.lists(st.dictionaries(st.sampled_from("abc"), VALUES, min_size=1), min_size=1, max_size=5), st.booleans())
@settings(max_examples=200, deadline=None)
def test_objects_are_read_as_python_reads_them(tmp_path_factory, records, uniform):
    records = [records[0]] * 3 if uniform else records
    path = tmp_path_factory.mktemp("objects") / "pairs.jsonl"
    path.write_text("\n".join(json.dumps(record, ensure_ascii=False) for record in records), encoding="utf-8")
    assert read_all(path) == read_with_care(path)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "x"}{"a": "y"}\n{"a": "z"}\n',
        '{"a": "x"}{"a": "y"}\n\n{"a": "z"}\n',
        '{"a": "x", "a": "y"}\n',
        '{"a": NaN}\n{"a": 1.5}\n',
        '{"a": "2024-01-01"}\n{"a": "2024-01-02T10:00:00"}\n',
        '{"a": "007"}\n',
        '{"a": 1}\n{"a": 99999999999999999999}\n',
        '{"a": "\\ud800"}\n',
        '{"a": "x"}\n{"a": "y", "b": 1}\n',
        '{\n"a": "x"}\n',
        ' {"a": "x"}\n',
    ],
)
def test_odd_objects_are_read_as_python_reads_them(tmp_path, text):
    (tmp_path / "pairs.jsonl").write_text(text, encoding="utf-8")
    assert repr(read_all(tmp_path / "pairs.jsonl")) == repr(read_with_care(tmp_path / "pairs.jsonl"))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
def test_a_number_as_text_an_empty_cell_and_na_stay_what_they_are(tmp_path, encoding):
    (tmp_path / "pairs.csv").write_text('left;right;note\n007;"naïve\n1,5";\nNA;1e5;null\n', encoding=encoding, newline="")
    table = open_table(tmp_path / "pairs.csv")
    found = {name: table.column(name) for name in table.names}
    assert found == {"left": ["007", "NA"], "right": ["naïve\n1,5", "1e5"], "note": ["", "null"]}
    assert list(table.lines) == [2, 4]


def test_an_error_in_a_file_that_arrow_read_names_its_line(tmp_path):
    rows = "".join(f'"question {row}\nover two lines",answer {row},{row % 2}\n' for row in range(50))
    (tmp_path / "pairs.csv").write_text(f"question,answer,label\n{rows}last question,last answer,maybe\n")
    assert text_tables._cut_quickly(text_tables.Content.of(tmp_path / "pairs.csv"), ",").num_rows == 52
    with pytest.raises(UserError, match=r"pairs\.csv line 102: the label is 'maybe'"):
        read_pairs(tmp_path / "pairs.csv")


@pytest.mark.parametrize("name", ["pairs.csv", "pairs.tsv", "pairs.jsonl"])
def test_files_as_programs_write_them_are_read_by_arrow_and_not_by_python(tmp_path, monkeypatch, name):
    from pairtune.data.formats import write_table

    write_table(tmp_path / name, {"left": ['say "no", now', "two\nlines"], "right": ["x", "y"], "label": [0, 1]})
    monkeypatch.setattr(text_tables, "cut_fields", None)
    monkeypatch.setattr(json_tables, "split_lines", None)
    assert open_table(tmp_path / name).column("left") == ['say "no", now', "two\nlines"]


def test_the_lines_of_the_careful_reader_are_those_of_the_file():
    text = 'a,b\n"x\ny",z\n,\nu,v\n'
    rows, lines = cut_fields(Path("pairs.csv"), text, ",", quoted=True)
    assert [rows[1:], lines[1:]] == [[["x\ny", "z"], ["u", "v"]], [2, 5]]
    assert io.StringIO(text).readlines()[4] == "u,v\n"
