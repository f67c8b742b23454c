"""Columns of a user's own file, whatever its format; errors name the file and the line."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairtune.data.files import Row, pick_columns, place_of, read_delimited, read_lines
from pairtune.data.labels import parse_label
from pairtune.errors import UserError


@dataclass(frozen=True)
class Columns:
    """Some columns of a table, and where each record stands: on which line, or in Parquet which row."""

    path: Path
    values: dict[str, list[Any]]
    lines: Sequence[int]
    unit: str = "line"

    def where(self, record: int) -> str:
        """The file and the line of a record."""
        return f"{self.path} {self.unit} {self.lines[record]}"

    def texts(self, name: str) -> list[str]:
        """A column of texts; none may be empty."""
        for record, value in enumerate(self.values[name]):
            if not isinstance(value, str):
                raise UserError(f"{self.where(record)}: column {name!r} holds {value!r}, expected a text")
            if not value.strip():
                raise UserError(f"{self.where(record)}: column {name!r} is empty; fill it in or leave the pair out")
            try:
                value.encode()
            except UnicodeEncodeError as problem:
                raise UserError(f"{self.where(record)}: column {name!r} holds half of a surrogate pair, no text") from problem
        return self.values[name]

    def numbers(self, name: str) -> list[float]:
        """A column of labels as numbers."""
        return [parse_label(value, self.where(record)) for record, value in enumerate(self.values[name])]


def read_columns(path: Path, names: Sequence[str]) -> Columns:
    """The named columns of a .csv, .tsv, .jsonl or .parquet file."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise UserError(f"{path}: the ending {path.suffix!r} is not known; give a file that ends in {', '.join(READERS)}")
    if not path.is_file():
        raise UserError(f"{path}: there is no such file")
    columns = reader(path, list(dict.fromkeys(names)))
    if not columns.lines:
        raise UserError(f"{path}: there are no records in it; expected the columns {', '.join(names)}")
    return columns


def _read_csv(path: Path, names: Sequence[str]) -> Columns:
    return _by_header(path, read_delimited(path, ",", quoted=True), names)


def _read_tsv(path: Path, names: Sequence[str]) -> Columns:
    """With quoting where that makes sense of every record, else without: both kinds of .tsv are common."""
    try:
        rows = read_delimited(path, "\t", quoted=True)
        quoted = all(len(row.fields) == len(rows[0].fields) and not any(map(_swallowed, row.fields)) for row in rows)
    except UserError:
        quoted = False
    return _by_header(path, rows if quoted else read_delimited(path, "\t"), names)


def _swallowed(field: str) -> bool:
    """A stray quotation mark that joins records with the right number of fields leaves a TAB and a line break inside one."""
    return "\t" in field and "\n" in field


def _by_header(path: Path, rows: Sequence[Row], names: Sequence[str]) -> Columns:
    records = list(pick_columns(path, rows, names))
    values = {name: [fields[place] for _, fields in records] for place, name in enumerate(names)}
    return Columns(path, values, [line for line, _ in records])


def _read_jsonl(path: Path, names: Sequence[str]) -> Columns:
    columns = Columns(path, {name: [] for name in names}, lines := [])
    for line, text in read_lines(path):
        try:
            record = json.loads(text)
        except json.JSONDecodeError as problem:
            raise UserError(f"{path} line {line}: not valid JSON ({problem.msg} at column {problem.colno})") from problem
        if not isinstance(record, dict):
            raise UserError(f"{path} line {line}: expected a JSON object such as {{{names[0]!r}: …}}")
        for name in names:
            if name not in record:
                raise UserError(f"{path} line {line}: no {name!r}; the keys are: {', '.join(record)}")
            columns.values[name].append(record[name])
        lines.append(line)
    return columns


def _read_parquet(path: Path, names: Sequence[str]) -> Columns:
    import pyarrow
    from pyarrow import parquet

    try:
        header = parquet.read_schema(path).names
        for name in names:
            place_of(path, header, name)
        table = parquet.read_table(path, columns=list(names))
    except (pyarrow.ArrowException, OSError) as problem:
        raise UserError(f"{path}: not a readable Parquet file ({str(problem).splitlines()[0]})") from problem
    values = {name: table.column(name).to_pylist() for name in names}
    return Columns(path, values, range(1, table.num_rows + 1), unit="row")


READERS: dict[str, Callable[[Path, Sequence[str]], Columns]] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
}
