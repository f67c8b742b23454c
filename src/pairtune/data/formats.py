"""Files as tables, whatever their format: .csv, .tsv, .jsonl, .json, .parquet, .arrow, .xlsx, plain or compressed."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pairtune.data.files import COMPRESSED, read_bytes, read_lines
from pairtune.data.json_tables import open_json, open_jsonl
from pairtune.data.roles import SPLIT_NAMES, plain_name
from pairtune.data.table import Table, is_empty
from pairtune.data.text_tables import by_header, open_csv, open_tsv
from pairtune.errors import UserError
from pairtune.progress import say
from pairtune.runs.folder import whole_file

LFS = b"version https://git-lfs"
CORPUS_COLUMNS = ("text", "passage", "document", "contents", "answer", "right")
HUB = "hub:"  # before the name of a dataset on the hub


def open_table(path: Path) -> Table:
    """The table in a file, or in a folder that `datasets.Dataset.save_to_disk` wrote."""
    if path.is_dir():
        table = _open_dataset(path)
    else:
        reader = READERS.get(ending_of(path))
        if reader is None:
            raise UserError(_explain_ending(path))
        if not path.is_file():
            raise UserError(f"{path}: there is no such file")
        with path.open("rb") as file:
            if file.read(len(LFS)) == LFS:
                raise UserError(f"{path}: a Git LFS pointer, not the file itself: `git lfs pull` downloads it")
        table = reader(path)
    if not len(table):
        raise UserError(f"{path}: there are no records in it")
    return table


def _explain_ending(path: Path) -> str:
    if path.suffix.lower() == ".zip":
        return f"{path}: unpack it, and give the file in it (or call it after that: pairs.csv.zip)"
    if path.suffix.lower() == ".txt":
        return f"{path}: is it a table? Then call it .tsv if TABs separate the columns, else .csv"
    if path.suffix.lower() in (".xls", ".ods", ".numbers"):
        return f"{path}: of spreadsheets only .xlsx is read: save the sheet as .xlsx, or as .csv (UTF-8)"
    known = f"{', '.join(READERS)} (each may be compressed: {', '.join(COMPRESSED)})"
    return f"{path}: the ending {ending_of(path)!r} is not known; give a file that ends in {known}"


def is_table(path: Path) -> bool:
    """Whether the name is that of a table, rather than of a text with one record per line."""
    return ending_of(path) in READERS or path.is_dir()


def ending_of(path: Path) -> str:
    """The ending that says the format, without that of a compression.

    >>> ending_of(Path("pairs.CSV.gz"))
    '.csv'
    """
    return (Path(path.stem) if path.suffix.lower() in COMPRESSED else path).suffix.lower()


def stem_of(path: Path) -> str:
    """The name without its endings.

    >>> stem_of(Path("data/pairs.csv.gz"))
    'pairs'
    """
    return Path(path.stem).stem if path.suffix.lower() in COMPRESSED else path.stem


def read_texts(path: Path | str, column: str | None = None) -> list[str]:
    """A corpus: a column of a table, or the lines of any other text file that are not blank."""
    path = Path(path)
    if is_table(path):
        table = open_table(path)
        name = column or _text_column(table)
        kept = [record for record, value in enumerate(table.column(name)) if not is_empty(value)]
        if 0 < len(kept) < len(table):
            say(f"{path}: {len(table) - len(kept):,} of {len(table):,} texts are empty, and left out")
            table = table.take(kept, "")
        return table.texts(name)
    texts = [text.strip() for _, text in read_lines(path)]
    if not texts:
        raise UserError(f"{path}: the file is empty; expected one text per line")
    if column is not None:
        raise UserError(f"{path}: column {column!r} is one of a table, and this file has one text per line: leave it out")
    return texts


def _text_column(table: Table) -> str:
    plain = {plain_name(name): name for name in reversed(table.names)}
    names = [plain[name] for name in CORPUS_COLUMNS if name in plain] or (list(table.names) if len(table.names) == 1 else [])
    if not names:
        shown = ", ".join(table.names)
        raise UserError(
            f"{table.path}: which column holds the texts? The columns are: {shown}; "
            f"say --column NAME (search, serve), or call it text"
        )
    return names[0]


def _open_parquet(path: Path) -> Table:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return _of_arrow(path, parquet.read_table(path if path.suffix not in COMPRESSED else pa.py_buffer(read_bytes(path))))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as problem:
        raise UserError(f"{path}: not a readable Parquet file ({_first_line(problem)})") from problem


def _first_line(problem: Exception) -> str:
    return next(iter(str(problem).splitlines()), type(problem).__name__)


def _open_arrow(path: Path) -> Table:
    """The file format (Feather) or the stream format, which Hugging Face datasets are kept in."""
    import pyarrow as pa

    content = pa.py_buffer(read_bytes(path))
    try:
        opener = pa.ipc.open_file if content.to_pybytes()[:6] == b"ARROW1" else pa.ipc.open_stream
        return _of_arrow(path, opener(content).read_all())
    except (pa.ArrowException, OSError, UnicodeDecodeError) as problem:
        raise UserError(f"{path}: not a readable Arrow file ({_first_line(problem)})") from problem


def _of_arrow(path: Path, table: Any, splits: tuple[str, ...] | None = None) -> Table:
    """An Arrow table; the fields of a struct are columns too, with a dot: `query.text`."""
    import pyarrow as pa

    table.validate(full=True)  # or damaged bytes are read as addresses, and end the process
    classes = _classes_of(table.schema)
    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()

    def head(name: str, count: int) -> list[Any]:
        values = table.column(name).slice(0, count).to_pylist()
        return [_class_name(classes[name], value) for value in values] if name in classes else values

    lines = range(1, table.num_rows + 1)
    return Table(path, tuple(table.column_names), lambda name: head(name, table.num_rows), lines, "row", splits=splits, head=head)


def _classes_of(schema: Any) -> dict[str, list[str]]:
    """The names of the classes that a Hugging Face dataset numbers in a column, as its files keep them."""
    try:
        features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
        found = {
            name: one["names"] for name, one in features.items() if isinstance(one, dict) and one.get("_type") == "ClassLabel"
        }
        return {name: names for name, names in found.items() if all(isinstance(one, str) for one in names)}
    except (KeyError, TypeError, ValueError, AttributeError):  # no such note, or not one that datasets wrote
        return {}


def _class_name(names: Sequence[str], number: Any) -> Any:
    """The name of a class; datasets write −1 where there is none."""
    return names[number] if isinstance(number, int) and 0 <= number < len(names) else None if number == -1 else number


def _open_dataset(path: Path) -> Table:
    """A Hugging Face dataset as `save_to_disk` leaves it: one split, or a folder of several."""
    from datasets import DatasetDict, load_from_disk

    if not any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
        inside = sorted(found for found in path.rglob("*") if found.is_file() and ending_of(found) in READERS)
        shown = ", ".join(map(str, inside[:3])) + (" …" if len(inside) > 3 else "")
        cure = f"name the files in it, such as {shown}, or a pattern: '{inside[0].parent}/*{inside[0].suffix}'" if inside else ""
        raise UserError(f"{path}: a folder, but not one that datasets' save_to_disk wrote; {cure or 'give a file of pairs'}")
    try:
        found = load_from_disk(str(path))
        return _of_splits(path, found) if isinstance(found, DatasetDict) else _of_arrow(path, found.with_format("arrow")[:])
    except UserError:
        raise
    except Exception as problem:  # datasets lets through what its reading of JSON, of features and of Arrow raises
        raise UserError(f"{path}: a dataset of save_to_disk that cannot be read ({_first_line(problem)})") from problem


def open_hub(name: str) -> Table:
    """A dataset of the Hugging Face hub, with its splits: hub:OWNER/NAME, or hub:OWNER/NAME:CONFIG."""
    from pairtune.data.splits import hub_splits

    repository, _, config = name.removeprefix(HUB).partition(":")
    if not repository.strip("/"):
        raise UserError(f"{name}: name a dataset of the hub, such as {HUB}OWNER/NAME")
    how = "download the dataset elsewhere, write it with save_to_disk, and give the folder"
    return _of_splits(Path(repository), hub_splits(repository, config or None, how))


def _of_splits(path: Path, found: Any) -> Table:
    import pyarrow as pa

    tables = {name: part.with_format("arrow")[:] for name, part in found.items()}
    first = next(iter(tables.values())).schema
    if other := next((name for name, part in tables.items() if part.schema.remove_metadata() != first.remove_metadata()), None):
        columns = "; ".join(f"{name}: {', '.join(tables[name].schema.names)}" for name in (next(iter(tables)), other))
        raise UserError(
            f"{path}: its splits have different columns ({columns}): write them to files of their own, "
            f"and give --train, --dev, --test"
        )
    splits = tuple(name for name, part in tables.items() for _ in range(part.num_rows))
    return _of_arrow(path, pa.concat_tables(tables.values()), splits)


def _open_xlsx(path: Path) -> Table:
    """A sheet of a workbook, its cells as texts, as a .csv would have them; or the sheets train, dev and test."""
    try:
        import openpyxl
    except ImportError as problem:
        raise UserError(
            f"{path}: spreadsheets need a package: pip install 'pairtune[xlsx]', or save the sheet as CSV (UTF-8)"
        ) from problem
    from io import BytesIO

    try:
        book = openpyxl.load_workbook(BytesIO(read_bytes(path)), read_only=True, data_only=True)
        sheets = {sheet.title: _filled_rows(sheet) for sheet in book.worksheets}
    except UserError:
        raise
    except Exception as problem:  # openpyxl lets through what zipfile, its XML parser and its own checks raise
        raise UserError(f"{path}: not a readable .xlsx file ({problem})") from problem
    return _of_sheets(path, sheets)


Rows = list[tuple[list[str], int]]  # cells, and the number of the row


def _filled_rows(sheet: Any) -> Rows:
    """The rows of a sheet that are not empty, without the columns that are."""
    found = [["" if cell is None else str(cell) for cell in row] for row in sheet.iter_rows(values_only=True)]
    kept = [(row, line) for line, row in enumerate(found, start=1) if any(map(str.strip, row))]
    width = max((len(row) for row, _ in kept), default=0)
    used = [place for place in range(width) if any(len(row) > place and row[place].strip() for row, _ in kept)]
    return [([row[place] if place < len(row) else "" for place in used], line) for row, line in kept]


def _of_sheets(path: Path, sheets: Mapping[str, Rows]) -> Table:
    """The sheets that are called after splits, or the first one with two columns of records."""
    full = {title: rows for title, rows in sheets.items() if len(rows) > 1}
    if len(full) > 1 and all(title.strip().lower() in SPLIT_NAMES for title in full):
        return _of_split_sheets(path, full)
    title = next((title for title, rows in full.items() if len(rows[0][0]) > 1), next(iter(full), next(iter(sheets))))
    names = ", ".join(map(repr, sheets))
    if len(sheets) > 1 and title not in full:
        raise UserError(f"{path}: no records in the sheets {names}: give a header and a row for each pair")
    note = (f"read the sheet {title!r} of {names}",) if len(sheets) > 1 else ()
    return by_header(path, [row for row, _ in sheets[title]], [line for _, line in sheets[title]], note, unit="row")


def _of_split_sheets(path: Path, sheets: Mapping[str, Rows]) -> Table:
    first, header = next((title, rows[0][0]) for title, rows in sheets.items())
    for title, rows in sheets.items():
        if rows[0][0] != header:
            raise UserError(f"{path}: the sheets {first!r} and {title!r} have different columns: give all the same header")
    records = [(row, f"{line} of sheet {title!r}", title) for title, rows in sheets.items() for row, line in rows[1:]]
    note = f"splits from the sheets {', '.join(map(repr, sheets))}"
    table = by_header(path, [header, *(row for row, _, _ in records)], [1, *(line for _, line, _ in records)], (note,), "row")
    return replace(table, splits=tuple(split for _, _, split in records))


READERS: dict[str, Callable[[Path], Table]] = {
    ".csv": open_csv,
    ".tsv": open_tsv,
    ".jsonl": open_jsonl,
    ".ndjson": open_jsonl,
    ".json": open_json,
    ".parquet": _open_parquet,
    ".arrow": _open_arrow,
    ".feather": _open_arrow,
    ".xlsx": _open_xlsx,
}


def check_target(path: Path) -> None:
    """Refuse a name that no table can be written to: before the work, not after it."""
    if path.suffix.lower() not in WRITERS:
        raise UserError(f"{path}: tables are written as {', '.join(WRITERS)}; give a name that ends so")
    if path.is_dir():
        raise UserError(f"{path} is a folder; give the name of a file")


def write_table(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """The columns as a .csv, .tsv, .jsonl or .parquet file, whole."""
    check_target(path)
    writer = WRITERS[path.suffix.lower()]
    with whole_file(path) as aside:
        writer(aside, columns)


def _write_delimited(path: Path, columns: Mapping[str, Sequence[Any]], delimiter: str = ",") -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        rows.writerow(columns)
        rows.writerows(zip(*columns.values(), strict=True))


def _write_jsonl(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        for row in zip(*columns.values(), strict=True):
            file.write(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n")


def _write_parquet(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table({name: list(values) for name, values in columns.items()}), path)


WRITERS: dict[str, Callable[[Path, Mapping[str, Sequence[Any]]], None]] = {
    ".csv": _write_delimited,
    ".tsv": partial(_write_delimited, delimiter="\t"),
    ".jsonl": _write_jsonl,
    ".parquet": _write_parquet,
}
