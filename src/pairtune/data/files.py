"""Files of texts, found by name, decoded, cut into fields; scores of other systems; errors name the file and the line."""

from __future__ import annotations

import codecs
import csv
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile, ZipFile

import numpy as np

from pairtune.data.pairs import PairSet
from pairtune.errors import UserError
from pairtune.progress import say

COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".zip": "zip"}
BEYOND_ASCII = bytes(range(128, 256))
FOREIGN_WORDS = re.compile(  # three signs beyond ASCII in a row, no dashes or quotation marks: Cyrillic, Greek, Chinese …
    rb"[\x81-\x84\x86-\x90\x98-\x9f\xa1-\xb6\xb8-\xff]{3,}"
)
SAMPLE = 2000  # letters that are looked at for the zeros of UTF-16
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


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked if its name says that it is compressed."""
    try:
        if path.suffix.lower() not in COMPRESSED:
            return path.read_bytes()
        if path.suffix.lower() == ".zip":
            return _read_zip(path)
        import pyarrow as pa

        with pa.input_stream(str(path), compression=COMPRESSED[path.suffix.lower()]) as stream:
            return stream.read()
    except OSError as problem:
        reason = problem.strerror or str(problem).splitlines()[0]
        raise UserError(f"{path}: could not be read ({reason}); give the path of a file") from problem


def _read_zip(path: Path) -> bytes:
    """The only file in an archive, such as Kaggle's train.csv.zip; what a Mac puts beside it does not count."""
    try:
        with ZipFile(path) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX/")]
            if len(names) == 1:
                return archive.read(names[0])
    except (BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error) as problem:
        raise UserError(f"{path}: could not be unpacked ({problem}); unpack it yourself, and give the file in it") from problem
    raise UserError(f"{path}: {len(names)} files in it ({', '.join(names[:5])}); unpack it, and give the one with the pairs")


def decode(path: Path, content: bytes) -> tuple[str, tuple[str, ...]]:
    """The content as text, and what to say of its encoding: UTF-8, UTF-16 with a byte-order mark, or Windows-1252 (Latin-1)."""
    if content.startswith(b"PK\x03\x04"):
        raise UserError(f"{path}: a spreadsheet or an archive, whatever its name says; save the sheet as CSV (UTF-8)")
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            return content.decode("utf-16"), ("read as UTF-16",)
        except UnicodeDecodeError as problem:
            raise UserError(f"{path}: marked as UTF-16, but it is not ({problem.reason}); save the file as UTF-8") from problem
    if any(content[place : 2 * SAMPLE : 2].count(0) > 0.4 * len(content[place : 2 * SAMPLE : 2]) for place in (0, 1)):
        kind = "utf-16-le" if content[1 : 2 * SAMPLE : 2].count(0) > content[: 2 * SAMPLE : 2].count(0) else "utf-16-be"
        return content.decode(kind, "replace"), ("read as UTF-16",)
    try:
        return content.decode("utf-8-sig"), ()
    except UnicodeDecodeError as problem:
        return _decode_western(path, problem, marked=content.startswith(codecs.BOM_UTF8))


def _decode_western(path: Path, problem: UnicodeDecodeError, *, marked: bool) -> tuple[str, tuple[str, ...]]:
    """What is not UTF-8, as Windows-1252; but a file that mostly is, or is marked so, is damaged UTF-8, and would be misread."""
    content, line = problem.object, problem.object.count(b"\n", 0, problem.start) + 1
    found = f"{path} line {line}: not valid UTF-8 (byte 0x{content[problem.start]:02x})"
    valid = content.decode("utf-8", "ignore")
    if marked or len(valid) - len(valid.encode("ascii", "ignore")) > content.decode("utf-8", "replace").count("\ufffd"):
        raise UserError(f"{found}, though most of the file is; some bytes are damaged: save it as UTF-8") from problem
    if 2 * sum(map(len, FOREIGN_WORDS.findall(content))) > len(content) - len(content.translate(None, BEYOND_ASCII)):
        raise UserError(
            f"{found}, and no text in a Western language (Windows-1252) either: save the file as UTF-8, or convert it, "
            f"as in: iconv -f ENCODING -t UTF-8 {path.name} > utf-8-{path.name}"
        ) from problem
    try:
        return content.decode("cp1252"), (f"read as Windows-1252 (Latin-1): line {line} is not valid UTF-8",)
    except UnicodeDecodeError:
        raise UserError(f"{found}, and no Windows-1252 or UTF-16 either; save the file as UTF-8") from problem


def read_text(path: Path) -> str:
    """The whole file as text; an encoding other than UTF-8 is said."""
    text, notes = decode(path, read_bytes(path))
    for note in notes:
        say(f"{path}: {note}")
    return text


def split_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, with their numbers. Only a line feed ends a line: U+2028 and others are text."""
    for line, content in enumerate(text.split("\n"), start=1):
        if content.strip():
            yield line, content.removesuffix("\r")


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file that are not blank, with their numbers."""
    return split_lines(read_text(path))


def read_delimited(path: Path, delimiter: str = "\t", *, quoted: bool = False) -> list[Row]:
    """All records of a delimited file. Unquoted: a line is a record and a quotation mark a character like any other."""
    rows, lines = cut_fields(path, read_text(path), delimiter, quoted=quoted)
    return [Row(line, fields) for line, fields in zip(lines, rows, strict=True)]


def cut_fields(path: Path, text: str, delimiter: str, *, quoted: bool = False) -> tuple[list[list[str]], list[int]]:
    """The fields of each record, and the line on which each begins. Rows of nothing but delimiters are left out."""
    if not quoted:
        numbered = list(split_lines(text))
        return [content.split(delimiter) for _, content in numbered], [line for line, _ in numbered]
    rows: list[list[str]] = []
    lines: list[int] = []
    start = 1
    with _long_fields():
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        try:
            for fields in reader:
                if any(map(str.strip, fields)):  # spreadsheets leave rows of nothing but delimiters
                    rows.append(fields)
                    lines.append(start)
                start = reader.line_num + 1
        except csv.Error as problem:
            raise UserError(
                f"{path} line {start}: {problem}; put a text that holds quotation marks, {delimiter!r} or a line break "
                f"in quotation marks, and double the ones inside"
            ) from problem
    return rows, lines


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
        raise UserError(f"{path}: no column {name!r}; the columns are: {', '.join(header)}")
    if len(found) > 1:
        raise UserError(f"{path}: {len(found)} columns are called {name!r}; rename all but one")
    return found[0]


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
        if values.ndim > 1 and len(values) != values.size:
            raise UserError(f"{path}: an array of shape {values.shape}; give one score per pair, in the split's order")
        return values.ravel()
    queries = len(set(pairs.query.tolist()))
    if values.ndim > 1 and values.shape != (queries, len(pairs.corpus)):
        expected = f"({queries}, {len(pairs.corpus)}): a row for each query, a column for each candidate"
        raise UserError(f"{path}: an array of shape {values.shape}, expected {expected}")
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
        found = np.load(path, allow_pickle=False)
        if np.iscomplexobj(found):
            raise TypeError("its numbers are complex")
        return np.asarray(found, np.float64)
    except Exception as problem:  # NumPy lets through what Python's parser says of a damaged header
        raise UserError(f"{path}: not a NumPy array of numbers: {problem}") from problem
