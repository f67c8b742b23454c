"""Files of JSON as tables: an object or a list of texts per line, a list of them, or an object of columns or of splits.

Arrow reads lines of objects with the same plain fields, as `text_tables` says; Python reads the others.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from pairtune.data.files import split_lines
from pairtune.data.roles import SPLIT_NAMES
from pairtune.data.table import Table
from pairtune.data.text_tables import LINE_FEED, PARSED_AT_ONCE, Content, find_sign
from pairtune.errors import UserError

SEEN_KEYS = 10_000  # records that are asked for their keys
BRACE = ord("{")


def open_jsonl(path: Path) -> Table:
    """One object per line."""
    content = Content.of(path)
    return _read_jsonl_quickly(content) or _read_jsonl(path, *content.text)


def open_json(path: Path) -> Table:
    """A list of objects, an object of columns or of splits; or lines, which many call .json too."""
    content = Content.of(path)
    if content.head.lstrip()[:1] == "{" and (quick := _read_jsonl_quickly(content)) is not None and len(quick) > 1:
        return quick
    text, notes = content.text
    if text.lstrip()[:1] == "[":
        return _of_list(path, _parse_json(path, text), notes)
    whole = _parse_whole(text)
    return (whole and (_of_columns(path, whole, notes) or _of_lists(path, whole, notes))) or _read_jsonl(path, text, notes)


def _of_list(path: Path, records: list[Any], notes: tuple[str, ...]) -> Table:
    if records and all(isinstance(one, dict) and isinstance(one.get("paragraphs"), list) for one in records):
        return _of_articles(path, records, notes)
    return _by_key(path, records, range(1, len(records) + 1), "record", notes)


def _of_articles(path: Path, articles: list[Any], notes: tuple[str, ...]) -> Table:
    """SQuAD's layout: articles of paragraphs, of which each has a context and the questions about it."""
    records, lines, bare = [], [], 0
    for article, content in enumerate(articles, start=1):
        for paragraph in content["paragraphs"]:
            if not isinstance(paragraph, dict) or not isinstance(paragraph.get("qas"), list) or "context" not in paragraph:
                raise UserError(f"{path} article {article}: expected paragraphs with 'context' and 'qas', as SQuAD has them")
            answered = [one for one in paragraph["qas"] if isinstance(one, dict) and not one.get("is_impossible")]
            bare += len(paragraph["qas"]) - len(answered)
            records += [{"question": one.get("question"), "context": paragraph["context"]} for one in answered]
            lines += [article] * len(answered)
    without = f"; {bare:,} questions that nothing there answers are left out" if bare else ""
    return _by_key(path, records, lines, "article", (*notes, f"questions and their paragraphs, as SQuAD has them{without}"))


def _parse_whole(text: str) -> dict[str, Any] | None:
    """The object that fills a file; None for other files."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return whole if isinstance(whole, dict) else None


def _of_columns(path: Path, whole: dict[str, Any], notes: tuple[str, ...]) -> Table | None:
    """Columns: `{"left": […], "right": […]}`, or as pandas writes them, `{"left": {"0": …}, "right": {"0": …}}`."""
    columns = list(whole.values())
    if isinstance(columns[0], dict):
        numbered = list(map(str, range(len(columns[0]))))
        if not all(isinstance(one, dict) and list(one) == numbered for one in columns):
            return None
        columns = [list(one.values()) for one in columns]
    if len(columns) < 2 or not all(isinstance(one, list) and len(one) == len(columns[0]) for one in columns):
        return None
    if not columns[0] or all(isinstance(one[0], dict) for one in columns):
        return None
    named = dict(zip(whole, columns, strict=True))
    return Table(path, tuple(named), named.__getitem__, range(1, len(columns[0]) + 1), "record", notes)


def _of_lists(path: Path, whole: dict[str, Any], notes: tuple[str, ...]) -> Table | None:
    """The only list of objects: `{"version": 1, "data": [{…}, …]}`; or one for each split: `{"train": [{…}, …], "test": …}`."""
    lists = {name: value for name, value in whole.items() if isinstance(value, list) and value and isinstance(value[0], dict)}
    if len(lists) == 1 and sum(isinstance(value, list) for value in whole.values()) == 1:
        return _of_list(path, next(iter(lists.values())), notes)
    if not any(isinstance(value, list) for value in whole.values()) and len(inside := [*_lists_inside(whole)]) == 1:
        return _of_list(path, inside[0], notes)
    if len(lists) == len(whole) > 1 and all(name.lower() in SPLIT_NAMES for name in lists):
        splits = tuple(name for name, records in lists.items() for _ in records)
        return replace(_of_list(path, [*chain(*lists.values())], notes), splits=splits)
    if (
        len(whole) > 1
        and all(isinstance(value, str) for value in whole.values())
        and any(len(name.split()) > 2 for name in whole)
    ):
        raise UserError(f'{path}: an object from texts to texts; write a list of pairs: [{{"left": …, "right": …}}, …]')
    return None


def _lists_inside(whole: Mapping[str, Any]) -> Iterator[list[Any]]:
    """The lists of objects in an object, and in those inside it: `{"response": {"items": [{…}, …]}}`."""
    for value in whole.values():
        if isinstance(value, dict):
            yield from _lists_inside(value)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield value


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
    starts = np.append(0, find_sign(signs, LINE_FEED) + 1)
    starts = starts[starts < len(signs)]
    if not (signs[starts] == BRACE).all():  # blank lines, or values over several
        return None
    try:
        parse = arrow.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
        found = arrow.read_json(pa.py_buffer(plain), arrow.ReadOptions(block_size=PARSED_AT_ONCE), parse)
    except pa.ArrowException:
        return None
    if found.num_rows != len(starts) or any(column.null_count for column in found.columns):  # two in a line; a key is missing
        return None
    names = tuple(found.column_names)

    def head(name: str, count: int) -> list[Any]:
        return found.column(name).slice(0, count).to_pylist()

    return Table(content.path, names, lambda name: head(name, found.num_rows), range(1, found.num_rows + 1), head=head)


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
        raise UserError(f"{path} line {line}: a number with thousands of digits; shorten it") from problem


def _by_key(path: Path, records: list[Any], lines: Sequence[int], unit: str, notes: tuple[str, ...]) -> Table:
    if records and isinstance(records[0], list):
        records, note = _name_texts(path, records, lines, unit)
        notes = (*notes, note)
    for record, line in zip(records, lines, strict=True):
        if not isinstance(record, dict):
            raise UserError(f'{path} {unit} {line}: expected a JSON object such as {{"left": …}}, found {str(record)[:40]}')
    names = tuple(dict.fromkeys(chain.from_iterable(map(_paths, records[:SEEN_KEYS]))))

    return Table(path, names, lambda name: [_at_path(record, name) for record in records], lines, unit, notes)


def _name_texts(path: Path, records: list[Any], lines: Sequence[int], unit: str) -> tuple[list[Any], str]:
    """Objects of lists such as `["a question", "its answer"]`: of the two texts, then a label or negatives; and what to say."""
    first = records[0]
    more = len(first) - 2
    texts, numbers = (all(isinstance(value, kind) for value in first[2:]) for kind in (str, (int, float)))
    if more < 0 or not all(isinstance(value, str) for value in first[:2]) or not (texts or (numbers and more == 1)):
        raise UserError(
            f"{path} {unit} {lines[0]}: a list, expected two texts, and then a label or negatives, found {str(first)[:60]}; "
            f'write objects with names: {{"left": …, "right": …}}'
        )
    others = [f"negative_{number}" for number in range(1, more + 1)] if texts else ["label"]
    for record, line in zip(records, lines, strict=True):
        if not isinstance(record, list) or len(record) != len(first):
            raise UserError(f"{path} {unit} {line}: expected a list of {len(first)}, as the first one, found {str(record)[:40]}")
    names = ("left", "right", *others)
    return [dict(zip(names, record, strict=True)) for record in records], f"lists of {', '.join(names)}"


def _paths(record: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The keys of an object; those of an object inside it with a dot: `query.text`."""
    for key, value in record.items():
        if isinstance(value, dict) and value:
            yield from _paths(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _at_path(record: Any, name: str) -> Any:
    """The value under this key, or this path of keys; None where there is no such key, as where nothing is written.

    >>> _at_path({"query": {"text": "why"}}, "query.text")
    'why'
    """
    if not isinstance(record, dict):
        return None
    if name in record:
        return record[name]
    key, dot, rest = name.partition(".")
    return _at_path(record[key], rest) if dot and key in record else None
