"""Files as tables, whatever their format: .csv, .tsv, .jsonl, .json, .parquet, .arrow, .xlsx, plain or compressed."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pairtune.data.files import COMPRESSED, read_bytes
from pairtune.data.table import Table
from pairtune.data.text_tables import by_header, open_csv, open_json, open_jsonl, open_tsv
from pairtune.errors import UserError

HUB = "hub:"  # before the name of a dataset on the hub


def open_table(path: Path) -> Table:
    """The table in a file, or in a folder that `datasets.Dataset.save_to_disk` wrote."""
    if path.is_dir():
        table = _open_dataset(path)
    else:
        reader = READERS.get(ending_of(path))
        if reader is None:
            raise UserError(
                f"{path}: the ending {path.suffix!r} is not known; give a file that ends in {', '.join(READERS)} "
                f"(each may be compressed: {', '.join(COMPRESSED)})"
            )
        if not path.is_file():
            raise UserError(f"{path}: there is no such file")
        table = reader(path)
    if not len(table):
        raise UserError(f"{path}: there are no records in it")
    return table


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
    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    lines = range(1, table.num_rows + 1)
    return Table(path, tuple(table.column_names), lambda name: table.column(name).to_pylist(), lines, "row", splits=splits)


def _open_dataset(path: Path) -> Table:
    """A Hugging Face dataset as `save_to_disk` leaves it: one split, or a folder of several."""
    from datasets import DatasetDict, load_from_disk

    if not any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
        raise UserError(f"{path}: a folder, but not one that datasets' save_to_disk wrote; give a file of pairs")
    try:
        found = load_from_disk(str(path))
        return _of_splits(path, found) if isinstance(found, DatasetDict) else _of_arrow(path, found.with_format("arrow")[:])
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
    splits = tuple(name for name, part in tables.items() for _ in range(part.num_rows))
    return _of_arrow(path, pa.concat_tables(tables.values()), splits)


def _open_xlsx(path: Path) -> Table:
    """The first sheet of a workbook, its cells as texts, as a .csv would have them."""
    try:
        import openpyxl
    except ImportError as problem:
        raise UserError(
            f"{path}: spreadsheets need a package: pip install 'pairtune[xlsx]', or save the sheet as CSV (UTF-8)"
        ) from problem
    from io import BytesIO

    try:
        book = openpyxl.load_workbook(BytesIO(read_bytes(path)), read_only=True, data_only=True)
        sheet = book.worksheets[0]
        found = [["" if cell is None else str(cell) for cell in row] for row in sheet.iter_rows(values_only=True)]
    except UserError:
        raise
    except Exception as problem:  # openpyxl lets through what zipfile, its XML parser and its own checks raise
        raise UserError(f"{path}: not a readable .xlsx file ({problem})") from problem
    kept = [(row, line) for line, row in enumerate(found, start=1) if any(map(str.strip, row))]
    others = (f"read the sheet {sheet.title!r}, the first of {len(book.worksheets)}",) if len(book.worksheets) > 1 else ()
    return by_header(path, [row for row, _ in kept], [line for _, line in kept], others, unit="row")


READERS: dict[str, Callable[[Path], Table]] = {
    ".csv": open_csv,
    ".tsv": open_tsv,
    ".jsonl": open_jsonl,
    ".json": open_json,
    ".parquet": _open_parquet,
    ".arrow": _open_arrow,
    ".feather": _open_arrow,
    ".xlsx": _open_xlsx,
}


def write_table(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """The columns as a .csv, .tsv, .jsonl or .parquet file, whole."""
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise UserError(f"{path}: tables are written as {', '.join(WRITERS)}; give a name that ends so")
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.part")
    writer(aside, columns)
    aside.replace(path)


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
