"""The pairs of some tables with the same columns: texts, grades and negatives, record by record."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from glob import glob, has_magic
from itertools import chain
from pathlib import Path
from typing import Any

from pairtune.data.formats import HUB, open_hub, open_table
from pairtune.data.pairs import SPLITS
from pairtune.data.roles import LABELS, SPLIT_NAMES, Roles, plain_name
from pairtune.data.table import Grades, Table, grade_of, is_empty, is_missing
from pairtune.errors import UserError
from pairtune.progress import say

LISTS = {  # columns that may hold lists of right texts, and what a column of single ones is called
    **dict.fromkeys(("positives", "pos", "positive", "positivepassages", "positivectxs"), "positive"),
    **dict.fromkeys(("candidates", "documents", "docs", "passages", "answers", "results"), "document"),
}
TEXTS = ("text", "passage", "document", "contents", "content", "answer", "passagetext")
SEEN = 100  # records that are asked for lists

Files = str | Path | Sequence[str | Path]


@dataclass(frozen=True)
class Records:
    """N pairs as given. grade, together, split, negatives: of each pair, or None. where: names the file and line of a pair.

    together: a name for each pair; pairs with the same name stay in one split.
    """

    left: list[str]
    right: list[str]
    where: Callable[[int], str]
    grade: list[float] | None = None
    together: list[str] | None = None
    split: list[str] | None = None
    negatives: list[tuple[str, ...]] | None = None

    def __len__(self) -> int:
        return len(self.left)


def open_tables(files: Files, hub_split: Mapping[str, str] | None = None) -> list[Table]:
    """The tables of one or more files; a name may be a pattern such as `pairs-*.csv`. hub_split: see `choose_splits`."""
    names = [files] if isinstance(files, (str, Path)) else list(files)
    paths = [path for name in names for path in expand_pattern(str(name))]
    twice = next((path for place, path in enumerate(paths) if path in paths[:place]), None)
    if twice is not None:
        raise UserError(f"{twice} is given twice; give each file once")
    tables = [unfold(open_hub(str(path)) if str(path).startswith(HUB) else open_table(path)) for path in paths]
    return [choose_splits(table, hub_split) for table in tables] if hub_split else tables


def unfold(table: Table) -> Table:
    """One record for each right text, where a column holds lists of them.

    `{"query": …, "candidates": [{"text": …, "label": …}, …]}` becomes records of query, document and label, and
    `{"query": …, "positives": […], "negatives": […]}` records of query, positive and negatives.
    """
    for whole in dict.fromkeys(name.partition(".")[0] for name in table.names if "." in name):
        table = _zip_lists(table, whole)
    names = [name for name in table.names if plain_name(name) in LISTS and _holds(table, name, list)]
    if not names:
        return table
    name = min(names, key=lambda one: _rank_lists(table, one))
    lists = table.read(name)
    for record, found in enumerate(lists):
        if not isinstance(found, list):
            raise UserError(
                f"{table.where(record)}: column {name!r} holds {str(found)[:40]}, expected a list of texts; leave it out"
            )
    if not any(lists):
        raise UserError(f"{table.path}: all lists in column {name!r} are empty: there are no pairs")
    right = LISTS[plain_name(name)]
    records = [record for record, found in enumerate(lists) for _ in found]
    values = [value for found in lists for value in found]
    columns = _fields(table, name, values, records) if isinstance(values[0], dict) else {right: values}
    others = tuple(other for other in table.names if other != name and other not in columns)

    def read(other: str) -> list[Any]:
        if other in columns:
            return columns[other]
        whole = table.read(other)
        return [whole[record] for record in records]

    bare = sum(not found for found in lists)
    without = f"; {bare:,} of {len(lists):,} records have an empty list, and give none" if bare else ""
    notes = (*table.notes, f"{len(values):,} pairs from the lists in column {name!r}{without}")
    lines = [table.lines[record] for record in records]
    splits = None if table.splits is None else tuple(table.splits[record] for record in records)
    return Table(table.path, (*others, *columns), read, lines, table.unit, notes, splits)


def _rank_lists(table: Table, name: str) -> tuple[bool, bool]:
    """Positives first, then labelled candidates: beside them, answers are a few words each."""
    labelled = any(isinstance(value, list) and value and isinstance(value[0], dict) for value in table.begin(name, SEEN))
    return LISTS[plain_name(name)] != "positive", not labelled


def _zip_lists(table: Table, whole: str) -> Table:
    """A list of objects where a record has lists of their texts and labels: `{"passages": {"text": […], "is_selected": […]}}`."""
    fields = {plain_name(name.removeprefix(f"{whole}.")): name for name in table.names if name.startswith(f"{whole}.")}
    text, label = (next((fields[key] for key in keys if key in fields), None) for keys in (TEXTS, LABELS))
    if plain_name(whole) not in LISTS or not text or not label or not all(_holds(table, name, list) for name in (text, label)):
        return table

    def zipped() -> list[Any]:
        rows = zip(table.column(text), table.column(label), strict=True)
        return [
            [{"text": one, "label": other} for one, other in zip(texts or (), labels or (), strict=False)]
            for texts, labels in rows
        ]

    names = tuple(name for name in table.names if name not in fields.values())
    return replace(table, names=(*names, whole), read=lambda name: zipped() if name == whole else table.read(name), head=None)


def _holds(table: Table, name: str, kind: type) -> bool:
    return any(isinstance(value, kind) for value in table.begin(name, SEEN))


def _fields(table: Table, name: str, values: Sequence[Any], records: Sequence[int]) -> dict[str, list[Any]]:
    """The texts of a list of objects, and their labels where they have any; a title stands before its text."""
    right = LISTS[plain_name(name)]
    keys = values[0].keys()
    text = next((key for key in keys if plain_name(key) in TEXTS), None)
    rated = right != "positive"  # the scores of texts that are all right are those of whoever found them
    label = next((key for key in keys if plain_name(key) in LABELS), None) if rated else None
    if text is None:
        raise UserError(f"{table.where(0)}: the objects in {name!r} have the keys {', '.join(keys)}; call the text {TEXTS[0]!r}")
    for value, record in zip(values, records, strict=True):
        if not isinstance(value, dict) or text not in value or (label and label not in value):
            expected = " and ".join(repr(key) for key in (text, label) if key)
            raise UserError(f"{table.where(record)}: {name!r} holds {str(value)[:60]}, expected an object with {expected}")
    return {right: [_titled(value, text) for value in values], **({"label": [value[label] for value in values]} if label else {})}


def _titled(value: dict[str, Any], text: str) -> Any:
    """The text of an object, after its title if it has one."""
    return f"{value['title']} {value[text]}" if value.get("title") else value.get(text)


def expand_pattern(name: str) -> list[Path]:
    """The files that a name or a pattern stands for."""
    if name.startswith(HUB) or not has_magic(name) or Path(name).exists():
        return [Path(name)]
    found = sorted(map(Path, glob(name, recursive=True)))  # noqa: PTH207 (a pattern may begin at the root)
    if not found:
        raise UserError(f"{name}: no file has such a name")
    return found


def refuse_unused_grades(tables: Mapping[str, Sequence[Table]], roles_of: Mapping[str, Roles], grades: Grades) -> None:
    """Refuse what is said of a label that no pair has: it would do nothing, and was meant for another one."""
    labels = [(table, roles_of[name].label) for name, found in tables.items() for table in found] if grades else []
    values = [value for table, label in labels if label for value in table.column(label)]
    for word, grade in grades.items():
        if all(grade_of(value, {word: grade}) is value for value in values):
            known = ", ".join(list(dict.fromkeys(str(value) for value in values))[:10])
            raise UserError(f"--grade {word}: no pair has that label; the labels are {known or 'none'}")


def leave_out(table: Table, roles: Roles, grades: Grades, *, skip_empty: bool) -> Table:
    """The table without pairs whose label is said to be out, and, if asked, without those that lack a text or the label."""
    out = [False] * len(table)
    if roles.label and None in grades.values():
        out = [grade_of(value, grades) is None for value in table.column(roles.label)]
    if skip_empty:
        texts = (table.column(name) for name in (roles.left, roles.right))
        out = [one or any(map(is_empty, both)) for one, *both in zip(out, *texts, strict=True)]
        labels = table.column(roles.label) if roles.label else [1] * len(table)
        out = [one or is_missing(grade_of(label, grades)) for one, label in zip(out, labels, strict=True)]
    if not any(out):
        return table
    kept = [record for record, left_out in enumerate(out) if not left_out]
    if not kept:
        raise UserError(f"{table.path}: no pair is left: each lacks a text or its label, or is left out")
    return table.take(kept, f"{len(table) - len(kept):,} of {len(table):,} pairs are left out, as asked")


def choose_splits(table: Table, chosen: Mapping[str, str]) -> Table:
    """The records of the named splits alone, as train, dev and test. chosen: for each of these, its name in a dataset."""
    if unknown := next((part for part in chosen if part not in SPLITS), None):
        raise UserError(f"hub_split: {unknown!r} is none of {', '.join(SPLITS)}; say for example test=validation_matched")
    if table.splits is None:
        raise UserError(
            f"{table.path}: --hub-split works with datasets that have named splits, and this one has none: leave it out"
        )
    known = list(dict.fromkeys(table.splits))
    if unknown := next((name for name in chosen.values() if name not in known), None):
        raise UserError(f"{table.path}: no split {unknown!r}; the splits are: {', '.join(known)}")
    parts = {name: part for part, name in chosen.items()}
    taken = table.take([record for record, name in enumerate(table.splits) if name in parts], "")
    used = ", ".join(f"{part} is {name!r}" for part, name in chosen.items())
    return replace(taken, splits=tuple(parts[name] for name in taken.splits or ()), notes=(*table.notes, f"splits: {used}"))


def collect_records(tables: Sequence[Table], roles: Roles, grades: Grades | None = None) -> Records:
    """The pairs of the tables, one after the other."""
    return join_records([_read_one(table, roles, grades or {}) for table in tables])


def join_records(parts: Sequence[Records]) -> Records:
    """All pairs, in order; a column is there where all parts have it, and negatives where one of them has."""
    ends, begin = [], 0
    for part in parts:
        begin += len(part)
        ends.append(begin)

    def where(record: int) -> str:
        place = bisect_right(ends, record)
        return parts[place].where(record - (ends[place - 1] if place else 0))

    def joined(name: str) -> list | None:
        columns = [getattr(part, name) for part in parts]
        return None if any(column is None for column in columns) else [value for column in columns for value in column]

    if any(part.negatives is not None for part in parts):
        parts = [part if part.negatives is not None else replace(part, negatives=[()] * len(part)) for part in parts]
    names = ("left", "right", "grade", "together", "split", "negatives")
    return Records(where=where, **{name: joined(name) for name in names})  # type: ignore[arg-type]


def _read_one(table: Table, roles: Roles, grades: Grades) -> Records:
    for name in roles.named:
        table.need(name)
    return Records(
        table.texts(roles.left),
        table.texts(roles.right),
        table.where,
        grade=table.numbers(roles.label, grades) if roles.label else None,
        together=_read_names(table, roles.keep_together) if roles.keep_together else None,
        split=_read_splits(table, roles.split),
        negatives=_read_negatives(table, roles.negatives),
    )


def _read_names(table: Table, column: str) -> list[str]:
    return ["" if is_empty(value) else str(value) for value in table.column(column)]


def _read_splits(table: Table, column: str | None) -> list[str] | None:
    values = table.splits if column is None else table.column(column)
    if values is None:
        return None
    found = [SPLIT_NAMES.get(str(value).strip().lower(), "") for value in values]
    if "" in found:
        place = found.index("")
        raise UserError(
            f"{table.where(place)}: the split is {str(values[place])!r}; known names: {', '.join(SPLIT_NAMES)}"
            + ("; leave out the pairs that belong to none" if column else "; say which is which, as in --hub-split test=NAME")
        )
    return found


def _read_negatives(table: Table, columns: Sequence[str]) -> list[tuple[str, ...]] | None:
    """The negatives of each pair: of columns of texts, or of lists, put together and all cut to the shortest list."""
    if not columns:
        return None
    found = [table.column(name) for name in columns]
    kinds = {type(value) for values in found for value in values}
    if list in kinds and kinds <= {list, type(None)}:
        found = [[value or [] for value in values] for values in found]
        return _read_lists(table, " + ".join(columns), [[*chain(*lists)] for lists in zip(*found, strict=True)])
    for name, values in zip(columns, found, strict=True):
        empty = next((record for record, value in enumerate(values) if value is None or not str(value).strip()), None)
        if empty is not None and len(columns) > 1:
            others = " ".join(f"--negative {other}" for other in columns if other != name)
            raise UserError(
                f"{table.where(empty)}: column {name!r} is empty, and every pair needs as many negatives: fill it in, leave the "
                f"pair out, or use the other columns only: {others}"
            )
    return list(zip(*(table.texts(name) for name in columns), strict=True))


def _read_lists(table: Table, name: str, found: Sequence[list]) -> list[tuple[str, ...]]:
    lists: list[list[Any]] = [
        [_titled(one, "text") if isinstance(one, dict) and "text" in one else one for one in values] for values in found
    ]
    shortest = min(range(len(lists)), key=lambda place: len(lists[place]))
    for place, values in enumerate(lists):
        if not values or not all(isinstance(text, str) and text.strip() for text in values):
            raise UserError(
                f"{table.where(place)}: column {name!r} holds {values!r}, expected a list of texts; leave the pair out, "
                f"or the column: --no-negatives"
            )
    used, most = len(lists[shortest]), max(map(len, lists))
    if used < most:
        say(f"{table.path}: {used} of up to {most} negatives of each pair are used, as {table.where(shortest)} has no more")
    return [tuple(values[:used]) for values in lists]
