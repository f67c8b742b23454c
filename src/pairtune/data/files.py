"""Files of texts, found by name, decoded, cut into fields; scores of other systems; errors name the file and the line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pairtune.data.pairs import PairSet
from pairtune.errors import UserError
from pairtune.progress import track

LONGEST_FIELD = 2**31 - 1  # csv stops at 131,072 characters, and one long text is no mistake


@dataclass(frozen=True)
class Row:
    """The fields of one record, and the line of the file on which it starts."""

    line: int
    fields: list[str]


def find_file(folder: Path, *names: str) -> Path | None:
    """The first of these names that is in the folder or below it (the originals come in folders of their own)."""
    for name in names:
        for path in (folder / name, *sorted(folder.rglob(name))):
            if path.is_file():
                return path
    return None


def need_file(folder: Path, *names: str) -> Path:
    """Like `find_file`, but the file must be there."""
    path = find_file(folder, *names)
    if path is None:
        raise UserError(f"{folder}: no file {' or '.join(names)} in it; put the original file there")
    return path


def read_text(path: Path) -> str:
    """The whole file as text: UTF-8, with or without a byte-order mark."""
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise UserError(f"{path}: could not be read ({problem.strerror}); give the path of a file") from problem
    if content.startswith(b"PK\x03\x04"):
        raise UserError(f"{path}: a spreadsheet or an archive, whatever its name says; save the sheet as CSV (UTF-8)")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = problem.object.count(b"\n", 0, problem.start) + 1
        byte = problem.object[problem.start]
        raise UserError(f"{path} line {line}: not valid UTF-8 (byte 0x{byte:02x}); save the file as UTF-8") from problem


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, with their numbers. Only a line feed ends a line: U+2028 and others are text."""
    for line, text in enumerate(read_text(path).split("\n"), start=1):
        if text.strip():
            yield line, text.removesuffix("\r")


def read_delimited(path: Path, delimiter: str = "\t", *, quoted: bool = False) -> list[Row]:
    """All records of a delimited file. Unquoted: a line is a record and a quotation mark a character like any other."""
    if not quoted:
        return [Row(line, text.split(delimiter)) for line, text in read_lines(path)]
    rows: list[Row] = []
    start = 1
    with _long_fields():
        reader = csv.reader(io.StringIO(read_text(path), newline=""), delimiter=delimiter, strict=True)
        try:
            for fields in track(reader, f"reading {path.name}"):
                if any(field.strip() for field in fields):  # spreadsheets leave rows of nothing but delimiters
                    rows.append(Row(start, fields))
                start = reader.line_num + 1
        except csv.Error as problem:
            raise UserError(
                f"{path} line {start}: {problem}; put a text that holds quotation marks, {delimiter!r} or a line break "
                f"in quotation marks, and double the ones inside"
            ) from problem
    return rows


def pick_columns(path: Path, rows: Sequence[Row], names: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """The line and the named fields of every record after the header; every record has as many fields as the header."""
    if not rows:
        raise UserError(f"{path}: the file is empty; expected a header line with the columns {', '.join(names)}")
    header = rows[0].fields
    places = [place_of(path, header, name) for name in names]
    for row in rows[1:]:
        if len(row.fields) != len(header):
            raise UserError(
                f"{path} line {row.line}: {len(row.fields)} fields, but the header has {len(header)}; "
                f"give every line the same number (quote a text that holds the delimiter)"
            )
        yield row.line, [row.fields[place] for place in places]


def place_of(path: Path, header: Sequence[str], name: str) -> int:
    """Where the column stands; it must be there, once."""
    found = [place for place, column in enumerate(header) if column == name]
    if not found:
        raise UserError(f"{path}: no column {name!r}; the columns are: {', '.join(header)}{_hint(header, name)}")
    if len(found) > 1:
        raise UserError(f"{path}: {len(found)} columns are called {name!r}; rename all but one")
    return found[0]


def _hint(header: Sequence[str], name: str) -> str:
    """What may have happened to a column that is not found."""
    alike = next((column for column in header if column.strip().lower() == name.strip().lower()), None)
    if alike is not None:
        return f" ({alike!r} is written differently)"
    if len(header) == 1 and name in header[0].split(";"):
        return " (the file is separated by semicolons: save it with commas, or as .tsv with TABs)"
    return " (the first line must name the columns)"


@contextmanager
def _long_fields() -> Iterator[None]:
    before = csv.field_size_limit(LONGEST_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def read_scores(path: Path, pairs: PairSet) -> np.ndarray:
    """Scores in the shape that the split asks for: (N,) one per pair or, in retrieval, (Q, C) query by query.

    path: a text file with one number per line, or a NumPy .npy file.
    """
    values = _read_npy(path) if path.suffix == ".npy" else _read_numbers(path)
    if pairs.corpus is None:
        return values.ravel()
    queries = len(set(pairs.query.tolist()))
    if values.size != queries * len(pairs.corpus):
        raise UserError(
            f"{path}: {values.size} scores for {queries} queries and {len(pairs.corpus)} candidates: "
            f"give {queries * len(pairs.corpus)}, all candidates of the first query first"
        )
    return values.reshape(queries, len(pairs.corpus))


def _read_numbers(path: Path) -> np.ndarray:
    values = []
    for number, line in read_lines(path):
        try:
            values.append(float(line))
        except ValueError:
            raise UserError(f"{path}, line {number}: {line.strip()[:40]!r} is not a number; give one score per line") from None
    return np.array(values)


def _read_npy(path: Path) -> np.ndarray:
    try:
        return np.asarray(np.load(path, allow_pickle=False), np.float64)
    except (OSError, ValueError) as problem:
        raise UserError(f"{path}: not a NumPy array of numbers: {problem}") from problem
