"""Tables in text files: .csv, .tsv, .jsonl, .json.

Arrow reads them, a million records in about a second, wherever it must read the same as Python's own parsers do. Python reads the
others (stray quotation marks, records of unequal length, nested values), and finds the line of an error.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from pairtune.data.files import cut_fields, decode, read_bytes, split_lines
from pairtune.data.table import Table
from pairtune.errors import UserError

SEEN_KEYS = 10_000  # records that are asked for their keys
BLOCK = 2**25  # bytes that Arrow parses at a time; a longer record is read by Python
QUOTE, LINE_FEED, RETURN, BRACE = (ord(sign) for sign in '"\n\r{')
MARK = b"\xef\xbb\xbf"  # of UTF-8


class Lines(Sequence[int]):
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

        content = read_bytes(path).removeprefix(MARK)
        ends = pa.array([0, len(content)], pa.int64()).buffers()[1]
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
    if content.head.lower().startswith("sep="):
        raise UserError(f"{path} line 1: {content.head.strip()!r} is a note for a spreadsheet program: delete the line")
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
    from pyarrow import csv as arrow

    plain = content.plain
    quoted = None if plain is None else _is_quoted(plain, delimiter)
    if plain is None or quoted is None:
        return None
    try:
        first = next(csv.reader([content.head], delimiter=delimiter))
        if not first:
            return None
        names = [str(place) for place in range(len(first))]
        found = arrow.read_csv(
            pa.py_buffer(plain),
            arrow.ReadOptions(column_names=names, block_size=BLOCK),
            arrow.ParseOptions(delimiter=delimiter, quote_char='"' if quoted else False, newlines_in_values=quoted),
            arrow.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
        )
    except (pa.ArrowException, csv.Error):  # records of unequal length, say
        return None
    blank = [row for row, text in enumerate(found.column(0).to_pylist()) if not text.strip()]
    return found if not blank else _drop_blank(found, blank)


def _is_quoted(content: bytes, delimiter: str) -> bool | None:
    """Whether fields are in quotation marks; None where that can be read in two ways, or a carriage return stands alone.

    In a quoted file every other mark opens a field or doubles the one before, and the ones between close or are doubled.
    """
    if content.count(b"\r") != content.count(b"\r\n"):
        return None
    signs = np.frombuffer(content, np.uint8)
    marks = _places(signs, QUOTE)
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


def _places(signs: np.ndarray, sign: int) -> np.ndarray:
    """Where a sign stands; block by block, to hold little."""
    blocks = range(0, max(len(signs), 1), BLOCK)
    return np.concatenate([start + np.flatnonzero(signs[start : start + BLOCK] == sign) for start in blocks])


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

    def read(name: str) -> list[str]:
        return found.column(header.index(name)).slice(1).to_pylist()

    return Table(
        path, header, read, Lines(found.num_rows - 1, lambda: cut(decode(path, read_bytes(path))[0])[1][1:]), notes=notes
    )


def by_header(path: Path, rows: list[list[str]], lines: list[int], notes: Sequence[str] = (), unit: str = "line") -> Table:
    """A table of records whose first one names the columns."""
    if not rows:
        raise UserError(f"{path}: the file is empty; expected a header line with the names of the columns")
    header, width = tuple(rows[0]), len(rows[0])
    for row, line in zip(rows, lines, strict=True):
        if len(row) != width:
            raise UserError(
                f"{path} {unit} {line}: {len(row)} fields, but the header has {width}; "
                f"give every line the same number (quote a text that holds the delimiter)"
            )

    def read(name: str) -> list[str]:
        place = header.index(name)
        return [row[place] for row in rows[1:]]

    return Table(path, header, read, lines[1:], unit, tuple(notes))


def open_jsonl(path: Path) -> Table:
    """One object per line."""
    content = Content.of(path)
    return _read_jsonl_quickly(content) or _read_jsonl(path, *content.text)


def open_json(path: Path) -> Table:
    """A list of objects; or lines, which many call .json too."""
    content = Content.of(path)
    if content.head.lstrip()[:1] == "{" and (quick := _read_jsonl_quickly(content)) is not None:
        return quick
    text, notes = content.text
    records = _parse_json(path, text) if text.lstrip()[:1] == "[" else _find_list(text)
    if records is None:
        return _read_jsonl(path, text, notes)
    return _by_key(path, records, range(1, len(records) + 1), "record", notes)


def _find_list(text: str) -> list[Any] | None:
    """The only list of objects in an object that fills a file: `{"version": 1, "data": [{…}, …]}`; None for other files."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return None
    lists = [value for value in whole.values() if isinstance(value, list)] if isinstance(whole, dict) else []
    return lists[0] if len(lists) == 1 and lists[0] and all(isinstance(one, dict) for one in lists[0]) else None


def _read_jsonl(path: Path, text: str, notes: tuple[str, ...]) -> Table:
    records, lines = [], []
    for line, content in split_lines(text):
        records.append(_parse_json(path, content, line))
        lines.append(line)
    return _by_key(path, records, lines, "line", notes)


def _read_jsonl_quickly(content: Content) -> Table | None:
    """Objects with the same keys, and values of one plain type under each; None for others."""
    import pyarrow as pa
    from pyarrow import json as arrow

    plain = content.plain
    if plain is None or (schema := _seen_schema(plain)) is None:
        return None
    signs = np.frombuffer(plain, np.uint8)
    starts = np.append(0, _places(signs, LINE_FEED) + 1)
    starts = starts[starts < len(signs)]
    if not (signs[starts] == BRACE).all():  # blank lines, or values over several
        return None
    try:
        parse = arrow.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
        found = arrow.read_json(pa.py_buffer(plain), arrow.ReadOptions(block_size=BLOCK), parse)
    except pa.ArrowException:
        return None
    if found.num_rows != len(starts) or any(column.null_count for column in found.columns):  # two in a line; a key is missing
        return None
    names = tuple(found.column_names)
    return Table(content.path, names, lambda name: found.column(name).to_pylist(), range(1, found.num_rows + 1))


def _seen_schema(content: bytes) -> Any | None:
    """The keys of the first records with their types, where each key has one."""
    import pyarrow as pa

    types = {str: pa.string(), bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
    try:
        first = [json.loads(line) for line in islice(io.BytesIO(content), SEEN_KEYS)]
        keys = first[0].keys()
        found = {key: {type(record[key]) for record in first} for key in keys}
        same = all(record.keys() == keys for record in first)
    except (ValueError, AttributeError, TypeError, KeyError, IndexError, RecursionError):
        return None
    if not same or not all(len(seen) == 1 and seen <= types.keys() for seen in found.values()):
        return None
    return pa.schema([(key, types[seen.pop()]) for key, seen in found.items()])


def _parse_json(path: Path, text: str, line: int = 1) -> Any:
    """What the text says; line: on which it begins."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as problem:
        where = f"{path} line {line + problem.lineno - 1}"
        raise UserError(f"{where}: not valid JSON ({problem.msg} at column {problem.colno})") from problem
    except RecursionError as problem:
        raise UserError(f"{path} line {line}: nested too deeply to be read; give rows of plain values") from problem
    except ValueError as problem:  # Python reads no whole number of more than 4,300 digits
        raise UserError(f"{path} line {line}: a number of thousands of digits; write it shorter") from problem


def _by_key(path: Path, records: list[Any], lines: Sequence[int], unit: str, notes: tuple[str, ...]) -> Table:
    for record, line in zip(records, lines, strict=True):
        if not isinstance(record, dict):
            raise UserError(f'{path} {unit} {line}: expected a JSON object such as {{"left": …}}, found {str(record)[:40]}')
    names = tuple(dict.fromkeys(chain.from_iterable(map(_paths, records[:SEEN_KEYS]))))

    def read(name: str) -> list[Any]:
        found = [_at_path(record, name) for record in records]
        for record, (there, _) in enumerate(found):
            if not there:
                raise UserError(f"{path} {unit} {lines[record]}: no {name!r}; the keys are: {', '.join(_paths(records[record]))}")
        return [value for _, value in found]

    return Table(path, names, read, lines, unit, notes)


def _paths(record: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The keys of an object; those of an object inside it with a dot: `query.text`."""
    for key, value in record.items():
        if isinstance(value, dict) and value:
            yield from _paths(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _at_path(record: Any, name: str) -> tuple[bool, Any]:
    """Whether the object has this key, or this path of keys, and its value.

    >>> _at_path({"query": {"text": "why"}}, "query.text")
    (True, 'why')
    """
    if not isinstance(record, dict):
        return False, None
    if name in record:
        return True, record[name]
    key, dot, rest = name.partition(".")
    return _at_path(record[key], rest) if dot and key in record else (False, None)
