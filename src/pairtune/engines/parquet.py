"""Parquet in and out: which files, what is in them, an output that appears whole or not at all, and streaming into training."""

from __future__ import annotations

import glob
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from pairtune.errors import UserError
from pairtune.runs.lock import LOCK, check_free, hold_folder

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import IterableDataset


OURS = "_pairtune"  # in a folder that a shuffle wrote; readers of Parquet pass over what begins so


@dataclass(frozen=True)
class ParquetFiles:
    """Parquet files in the order of their paths: a row's number is its position in all of them together."""

    name: str
    files: tuple[str, ...]
    counts: tuple[int, ...]
    schema: pa.Schema
    size: int = 0  # in bytes, uncompressed

    @property
    def rows(self) -> int:
        """How many rows there are in all."""
        return sum(self.counts)

    @property
    def offsets(self) -> list[int]:
        """The number of each file's first row."""
        return list(accumulate(self.counts, initial=0))[:-1]

    @property
    def stamp(self) -> list[list[int]]:
        """Rows and bytes of each file: enough to see that a prepared file belongs to another source."""
        return [[count, Path(file).stat().st_size] for file, count in zip(self.files, self.counts, strict=True)]


def open_source(name: str) -> ParquetFiles:
    """The Parquet files that a path, a folder or a glob names; every footer is read, and all must have the same columns."""
    import pyarrow.parquet as pq

    if not name.strip():  # it would be the folder that we are in
        raise UserError("the input has no name: give a Parquet file, a folder or a glob")
    files = _find_parquet(name)
    counts, schemas, size = [], [], 0
    for file in files:
        try:
            footer = pq.read_metadata(file)
        except (OSError, ValueError) as problem:
            hint = "it may be half-written: write it again, or leave it out"
            raise UserError(f"{file} is not a whole Parquet file ({problem}); {hint}") from problem
        counts.append(footer.num_rows)
        size += sum(footer.row_group(i).total_byte_size for i in range(footer.num_row_groups))
        schemas.append(footer.schema.to_arrow_schema())
        if (schemas[-1].names, schemas[-1].types) != (schemas[0].names, schemas[0].types):
            raise UserError(f"{file} has other columns than {files[0]}:\n{_difference(schemas[0], schemas[-1])}")
    if not sum(counts):
        raise UserError(f"{name} holds no rows: there is nothing to shuffle")
    return ParquetFiles(name, tuple(files), tuple(counts), schemas[0], size)


def _find_parquet(name: str) -> list[str]:
    if "://" in name:
        raise UserError(f"{name}: DuckDB reads local files here; for files elsewhere use engine spark")
    path = Path(name)
    if path.is_dir():
        found = [file for file in path.rglob("*.parquet") if not _hidden(file.relative_to(path))]
    elif path.is_file():
        found = [path]
    else:
        matches = glob.glob(name, recursive=True)  # noqa: PTH207  (Path.glob takes no absolute pattern)
        found = [Path(match) for match in matches if Path(match).is_file()]
    if not found:
        raise UserError(f"no Parquet files at {name}: give a file, a folder with *.parquet in it, or a glob in quotes")
    return sorted(file.absolute().as_posix() for file in found)


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def _difference(first: pa.Schema, other: pa.Schema) -> str:
    mine, theirs = ({f"{field.name}: {field.type}" for field in schema} for schema in (first, other))
    lines = [f"  only in the first: {field}" for field in sorted(mine - theirs)]
    lines += [f"  only in this one: {field}" for field in sorted(theirs - mine)]
    return "\n".join(lines or ["  the same ones in another order"])


@contextmanager
def written_aside(target: str, source: str, overwrite: bool, *, read: Sequence[str] = ()) -> Iterator[Path]:
    """A scratch folder beside the target; what lies there as `result` when the block ends well becomes the target.

    Whatever goes wrong, a full disk or Ctrl-C, nothing is left: neither the folder nor half a target. What a process that was
    killed has left is removed by the next one. read: files whose rows are not in the result, which must not replace them.
    """
    final = Path(target).absolute()
    _refuse_target(final, source, overwrite)
    if any(final.exists() and final.samefile(file) for file in read):
        raise UserError(f"{final} is the input, and its rows would be lost: choose another output")
    _sweep(final)
    try:
        scratch = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=final.parent))
    except OSError as problem:
        raise UserError(f"cannot write to {final.parent}: {problem.strerror}; choose another output") from problem
    try:
        with hold_folder(scratch):
            yield scratch
        result = scratch / "result"
        if result.is_dir():
            (result / OURS).touch()
        if final.exists() and (final.is_dir() or result.is_dir()):  # a file takes a file's place at once, a folder does not
            final.rename(scratch / "replaced")
        result.replace(final)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


OTHER_FORMATS = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".ndjson", ".xlsx", ".arrow", ".feather")


def _refuse_target(final: Path, source: str, overwrite: bool) -> None:
    if final.suffix.lower() in OTHER_FORMATS:
        raise UserError(f"{final} would hold Parquet, whatever its name says: give a name that ends in .parquet")
    if final.exists() and not overwrite:
        raise UserError(f"{final} is there already: choose another output, or allow it to be overwritten")
    if final.is_dir() and any(final.iterdir()) and not _is_ours(final):
        raise UserError(f"{final} is a folder with files that no shuffle wrote, and is not overwritten: choose another output")
    if Path(source).is_dir() and Path(source).absolute() in final.parents:
        raise UserError(f"{final} lies in the input folder {source}: it would be read as input the next time; choose another")


def _is_ours(folder: Path) -> bool:
    """Whether a shuffle on Spark wrote this folder, and nothing was put into it since."""
    names = [path.name for path in folder.iterdir()]
    return OURS in names and all(name.startswith(("part-", ".part-", "_SUCCESS", "._SUCCESS", OURS)) for name in names)


def _sweep(final: Path) -> None:
    """Remove the scratch folders for this target whose processes were killed."""
    for scratch in final.parent.glob(f".{glob.escape(final.name)}.????????"):
        if (scratch / LOCK).exists():
            with suppress(UserError):  # it is at work
                check_free(scratch)
                shutil.rmtree(scratch, ignore_errors=True)


def stream(source: str, columns: Sequence[str] | None = None) -> IterableDataset:
    """The rows of Parquet files, in their order, read when they are needed: a `train_dataset` for the host's trainer.

    columns: which columns, in this order; default: all. The host puts consecutive rows into a batch. With such a dataset it takes
    no batch sampler, and it cannot count the rows: give `max_steps`, rows // batch for one epoch.
    `datasets.Dataset.from_parquet` can be counted and sampled, but first copies the whole file into its cache.
    """
    from datasets import IterableDataset

    opened = open_source(source)
    for column in columns or ():
        if column not in opened.schema.names:
            raise UserError(f"{source} has no column {column!r}; there are: {', '.join(opened.schema.names)}")
    chosen = list(columns) if columns is not None else None
    return IterableDataset.from_parquet(list(opened.files), columns=chosen)
