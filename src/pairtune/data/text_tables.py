"""Tables in text files: .csv, .tsv, .jsonl, .json.

Arrow reads them, a million records in about a second, wherever it must read the same as Python's own parsers do. Python reads the
others (stray quotation marks, records of unequal length, nested values), and finds the line of an error.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from pairtune.data.files import cut_fields, decode, read_bytes
from pairtune.data.table import Table, names_a_column
from pairtune.errors import UserError

PARSED_AT_ONCE = 2**25  # bytes that Arrow parses at a time; a longer record is read by Python
QUOTE, LINE_FEED, RETURN = (ord(sign) for sign in '"\n\r')
BLANK = r"\A[\s\v\x1c-\x1f\x{85}\pZ]*\z"  # what Python's strip leaves nothing of
SEPARATOR = re.compile(r"sep=(.)\s*$", re.IGNORECASE)  # the first line of what some spreadsheet programs write
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # of UTF-8


class LineNumbers(Sequence[int]):
    """Where each record begins, found when someone asks: for an error, as a rule. find: reads the file again, with care."""

    def __init__(self, count: int, find: Callable[[], Sequence[int]]) -> None:
        self._count, self._find = count, find

    @cached_property
    def _found(self) -> Sequence[int]:
        return self._find()

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: Any) -> Any:
        return self._found[place]


@dataclass(frozen=True)
class Content:
    """A text file. plain: its bytes, where they are UTF-8, without a mark."""

    path: Path
    plain: bytes | None

    @classmethod
    def of(cls, path: Path) -> Content:
        """The file, unpacked."""
        import pyarrow as pa

        content = read_bytes(path).removeprefix(BYTE_ORDER_MARK)
        ends = pa.py_buffer(np.array([0, len(content)], np.int64))  # pa.array would import pandas, which takes its time
        whole = pa.Array.from_buffers(pa.large_string(), 1, [None, ends, pa.py_buffer(content)])
        try:
            whole.validate(full=True)  # a check for UTF-8 that copies nothing
        except pa.ArrowInvalid:
            return cls(path, None)
        return cls(path, None if content.startswith(b"PK\x03\x04") or b"\0" in content else content)

    @property
    def head(self) -> str:
        """The first line."""
        if self.plain is None:
            return self.text[0].partition("\n")[0]
        return io.BytesIO(self.plain).readline().decode()

    @cached_property
    def text(self) -> tuple[str, tuple[str, ...]]:
        """All of it, and what to say of its encoding."""
        return decode(self.path, read_bytes(self.path))


def open_csv(path: Path) -> Table:
    """With a header, separated by commas, semicolons, TABs or bars, quoted where need be."""
    content = Content.of(path)
    if (told := SEPARATOR.match(content.head)) is not None:
        text, notes = content.text
        rows, lines = cut_fields(path, text, told[1], quoted=True)
        return by_header(path, rows[1:], lines[1:], (*notes, f"fields are separated by {told[1]!r}, as its first line says"))
    delimiter = max((",", ";", "\t", "|"), key=content.head.count)
    said = () if delimiter == "," else (f"fields are separated by {'TABs' if delimiter == chr(9) else delimiter}",)
    if (quick := _cut_quickly(content, delimiter)) is not None:
        return _of_columns(path, quick, lambda text: cut_fields(path, text, delimiter, quoted=True), said)
    text, notes = content.text
    return by_header(path, *cut_fields(path, text, delimiter, quoted=True), (*notes, *said))


def open_tsv(path: Path) -> Table:
    """With quoting where that makes sense of every record, else without: both kinds of .tsv are common."""
    content = Content.of(path)
    quick = _cut_quickly(content, "\t")
    if quick is not None and not any(_hold_records(column) for column in quick.columns):
        return _of_columns(path, quick, partial(_cut_tsv, path))
    text, notes = content.text
    return by_header(path, *_cut_tsv(path, text), notes)


def _cut_tsv(path: Path, text: str) -> tuple[list[list[str]], list[int]]:
    try:
        rows, lines = cut_fields(path, text, "\t", quoted=True)
        quoted = all(len(row) == len(rows[0]) and not any(map(_swallowed, row)) for row in rows)
    except UserError:
        quoted = False
    return (rows, lines) if quoted else cut_fields(path, text, "\t")


def _swallowed(field: str) -> bool:
    """A stray quotation mark that joins records with the right number of fields leaves a TAB and a line break inside one."""
    return "\t" in field and "\n" in field


def _hold_records(column: Any) -> bool:
    """Whether a field of an Arrow column is `_swallowed`."""
    import pyarrow.compute as pc

    tabs, breaks = (pc.match_substring(column, sign) for sign in ("\t", "\n"))
    return bool(pc.any(pc.and_(tabs, breaks)).as_py())


def _cut_quickly(content: Content, delimiter: str) -> Any | None:
    """All records as an Arrow table of texts, the header first; None where Python might cut them otherwise."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv as arrow

    plain = content.plain
    quoted = None if plain is None else _is_quoted(plain, delimiter)
    if plain is None or quoted is None:
        return None
    try:
        first = next(csv.reader([content.head], delimiter=delimiter))
        if not first or _is_alone(first):
            return None
        names = [str(place) for place in range(len(first))]
        found = arrow.read_csv(
            pa.py_buffer(plain),
            arrow.ReadOptions(column_names=names, block_size=PARSED_AT_ONCE),
            arrow.ParseOptions(delimiter=delimiter, quote_char='"' if quoted else False, newlines_in_values=quoted),
            arrow.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
        )
    except (pa.ArrowException, csv.Error):  # records of unequal length, say
        return None
    blank = np.flatnonzero(pc.match_substring_regex(found.column(0), BLANK).to_numpy())
    return found if not len(blank) else _drop_blank(found, blank.tolist())


def _is_quoted(content: bytes, delimiter: str) -> bool | None:
    """Whether fields are in quotation marks; None where that can be read in two ways, or a carriage return stands alone.

    In a quoted file every other mark opens a field or doubles the one before, and the ones between close or are doubled.
    """
    if content.count(b"\r") != content.count(b"\r\n"):
        return None
    signs = np.frombuffer(content, np.uint8)
    marks = find_sign(signs, QUOTE)
    before = np.where(marks > 0, signs[marks - 1], LINE_FEED)
    begins = np.isin(before, (ord(delimiter), LINE_FEED))
    if not begins.any():
        return False
    if len(marks) % 2:
        return None
    after = np.where(marks + 1 < len(signs), signs[(marks + 1) % len(signs)], LINE_FEED)
    ends = np.isin(after, (ord(delimiter), LINE_FEED, RETURN))
    doubled = marks[2::2] == marks[1:-1:2] + 1
    opened, closed = begins[2::2] | doubled, ends[1:-1:2] | doubled
    return True if begins[0] and ends[-1] and opened.all() and closed.all() else None


def find_sign(signs: np.ndarray, sign: int) -> np.ndarray:
    """Where a sign stands; block by block, to hold little."""
    blocks = range(0, max(len(signs), 1), PARSED_AT_ONCE)
    return np.concatenate([start + np.flatnonzero(signs[start : start + PARSED_AT_ONCE] == sign) for start in blocks])


def _drop_blank(found: Any, blank: Sequence[int]) -> Any:
    """Without rows of nothing but delimiters, which spreadsheets leave. blank: those whose first field is."""
    rows = found.take(blank).to_pylist()
    empty = [place for place, row in zip(blank, rows, strict=True) if not any(text.strip() for text in row.values())]
    kept = np.ones(found.num_rows, bool)
    kept[empty] = False
    return found.filter(kept)


def _of_columns(
    path: Path, found: Any, cut: Callable[[str], tuple[list[list[str]], list[int]]], notes: tuple[str, ...] = ()
) -> Table:
    """A table of Arrow columns whose first row is the header. cut: the records and their lines, by Python."""
    header = tuple(column[0].as_py() for column in found.columns) if found.num_rows else ()
    if not header:
        return by_header(path, [], [], notes)

    def head(name: str, count: int) -> list[str]:
        return found.column(header.index(name)).slice(1, count).to_pylist()

    lines = LineNumbers(found.num_rows - 1, lambda: cut(decode(path, read_bytes(path))[0])[1][1:])
    return Table(path, header, lambda name: head(name, found.num_rows), lines, notes=notes, head=head)


def by_header(path: Path, rows: list[list[str]], lines: list[Any], notes: Sequence[str] = (), unit: str = "line") -> Table:
    """A table of records whose first one names the columns; titles above it are left out, and said."""
    if not rows:
        raise UserError(f"{path}: the file is empty; expected a header line with the names of the columns")
    titles = _count_titles(rows)
    notes = (*notes, *(f"{unit} {lines[row]} is a title, and left out: {rows[row][0][:60]!r}" for row in range(titles)))
    rows, lines = rows[titles:], lines[titles:]
    header, width = tuple(rows[0]), len(rows[0])
    for row, line in zip(rows, lines, strict=True):
        if len(row) != width:
            raise UserError(
                f"{path} {unit} {line}: {len(row)} fields, but the header has {width} ({', '.join(header)[:60]}); "
                f"{_explain_width(row, width)}"
            )

    def read(name: str) -> list[str]:
        place = header.index(name)
        return [row[place] for row in rows[1:]]

    return Table(path, header, read, lines[1:], unit, tuple(notes))


def _count_titles(rows: Sequence[Sequence[str]]) -> int:
    """How many rows stand above the names of the columns: each has a first cell alone, which is no name if it is the only one."""
    titles = len([*takewhile(lambda row: _is_alone(row) or (len(row) == 1 and not names_a_column(row[0])), rows)])
    below = [cell.strip() for cell in rows[titles]] if titles < len(rows) else []
    return titles if len(below) > 1 and all(name and names_a_column(name) for name in below) else 0


def _is_alone(row: Sequence[str]) -> bool:
    """Whether the first cell of several has the only text."""
    return len(row) > 1 and bool(row[0].strip()) and not any(map(str.strip, row[1:]))


def _explain_width(row: Sequence[str], width: int) -> str:
    """What may be wrong with a record that has another number of fields than the header."""
    if width == 1:
        return "the first line must name the columns: delete what stands above them"
    if any(re.match(r"\s+[\"']", field) for field in row):
        return "a quotation mark must follow the delimiter at once: delete the blank between them"
    if row[0].startswith("'"):
        return "texts are quoted with double quotation marks: write \" for '"
    return "give every line the same number (quote a text that holds the delimiter)"
