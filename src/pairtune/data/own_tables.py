"""A user's own data: tables of pairs, in one file or in one for each split, made a task."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pairtune.data.collections import is_collection, read_collection
from pairtune.data.formats import open_table, read_texts, stem_of
from pairtune.data.pairs import SPLITS, Kind, PairSet, Task
from pairtune.data.profile import check_kind, metrics_of, see_kind
from pairtune.data.records import (
    Files,
    Records,
    collect_records,
    join_records,
    leave_out,
    open_tables,
    refuse_unused_grades,
)
from pairtune.data.roles import Roles, find_roles, plain_name, refuse_labels_in_one, refuse_other_columns
from pairtune.data.splits import distinct, single_spaces, split_by_key
from pairtune.data.table import PEEK, Grades, Table, rescale
from pairtune.errors import UserError
from pairtune.ordering.order import number_texts

NO_TEXTS = {"nan", "NaN", "NULL", "null", "None", "NA", "N/A", "#N/A"}
ID_TEXT = re.compile(r"\s*(#?\d[\d.,:/-]*|[A-Za-z]{1,8}[-_#:]?\d+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})\s*")
MOSTLY = 0.9


def read_pairs(
    train: Files | None = None,
    dev: Files | None = None,
    test: Files | None = None,
    *,
    left: str | None = None,
    right: str | None = None,
    label: str | Literal[False] | None = None,
    keep_together: str | None = None,
    split_column: str | None = None,
    negatives: Sequence[str] | None = None,
    corpus: Files | None = None,
    kind: str | None = None,
    grades: Grades | None = None,
    skip_empty: bool = False,
    hub_split: Mapping[str, str] | None = None,
    seed: int = 0,
) -> Task:
    """A task from files of pairs: .csv, .tsv, .jsonl, .json, .parquet, .arrow, .xlsx, or folders of `save_to_disk`.

    A folder as BEIR has them (corpus.jsonl, queries.jsonl, qrels/) is a task by itself: see `read_collection`.

    train, dev, test: one file each, several with the same columns, or patterns such as `pairs-*.csv`. If dev or test is missing,
    it is split from train, a tenth each, by left text: no left text is in two splits, and pairs that are added later do not move
    others. Without train, the files are only scored, as a whole.
    left, right, label, negatives: names of columns. By default usual names are recognized; the task's notes say which were taken.
    label: False if the pairs have none. keep_together: a column of names; pairs with the same name stay in one split.
    split_column: a column that says train, dev (validation) or test of each pair.
    corpus: a file of texts; positives are searched in it. kind: overrides the one seen from labels and left texts.
    grades: what a label is worth, such as {"exact": 1, "partial": 0.5}; None leaves its pairs out. skip_empty: leave out pairs
    that lack a text or their label. hub_split: which splits of a dataset are train, dev and test: {"test": "validation_matched"}.
    """
    given = {name: files for name, files in zip(SPLITS, (train, dev, test), strict=True) if files is not None}
    if not given:
        raise UserError("no pairs: give at least one file, such as read_pairs(train='pairs.csv')")
    if (folder := _find_collection(given)) is not None:
        columns = [left, right, label, keep_together, split_column, negatives, corpus, kind]
        if columns != [None] * len(columns) or grades or skip_empty or hub_split:
            raise UserError(f"{folder} is a collection, which names its own texts and splits: give no options about columns")
        return read_collection(folder, seed)
    tables = {name: open_tables(files, hub_split) for name, files in given.items()}
    first = next(iter(tables.values()))[0]
    origin = str(first.path)
    split = False if split_column is None and len(tables) > 1 else split_column  # False: the files say it already
    named = {"left": left, "right": right, "label": label, "keep_together": keep_together, "split": split}
    roles_of, said = _find_roles(tables, named, negatives)
    roles = next(iter(roles_of.values()))
    refuse_unused_grades(tables, roles_of, grades or {})
    for name, found in tables.items():
        tables[name] = [leave_out(table, roles_of[name], grades or {}, skip_empty=skip_empty) for table in found]
    parts = {name: collect_records(found, roles_of[name], grades) for name, found in tables.items()}
    notes = [f"{table.path.name}: {note}" for found in tables.values() for table in found for note in table.notes] + said
    notes += [said for part in parts.values() for said in _doubt_texts(part)] + _doubt_ids(parts, roles_of)
    pairs, which, remarks = _put_together(parts, roles, seed, origin)
    task = _make_task(pairs, which, check_kind(kind), corpus, roles, origin)
    notes += [*remarks, *task.notes, *_say_splits(task, parts, roles)]
    return replace(task, name=stem_of(first.path), notes=tuple(notes), source=origin)


def _find_roles(
    tables: Mapping[str, Sequence[Table]], named: Mapping[str, Any], negatives: Sequence[str] | None
) -> tuple[dict[str, Roles], list[str]]:
    """The columns of each split, by those of its first file, and what to say of them. Only train needs columns of negatives."""
    roles_of: dict[str, Roles] = {}
    said: list[str] = []
    for name, (first, *others) in tables.items():
        own = [one for one in negatives if one in first.names] if negatives is not None and roles_of else negatives
        roles_of[name], notes = find_roles(first, **named, negatives=own)
        said += [note if len(roles_of) == 1 else f"{name}: {note}" for note in notes if note not in said]
        for other in others:
            refuse_other_columns(other, first, roles_of[name], labels=named["label"] is None, negatives=negatives is None)
    refuse_labels_in_one([(found[0], roles_of[name]) for name, found in tables.items()])
    return roles_of, said


def _find_collection(given: Mapping[str, Files]) -> Path | None:
    """The folder of a collection, where that is what was given; it comes alone."""
    paths = [Path(path) for files in given.values() for path in ([files] if isinstance(files, (str, Path)) else files)]
    found = next((path for path in paths if is_collection(path)), None)
    if found is not None and len(paths) > 1:
        raise UserError(f"{found} is a collection with splits of its own: give it alone")
    return found


def read_table(
    path: Path | str,
    left: str | None = None,
    right: str | None = None,
    label: str | Literal[False] | None = None,
    *,
    seed: int = 0,
    kind: Kind | None = None,
) -> Task:
    """`read_pairs` of one file, of which dev and test are split by left text, a tenth each."""
    return read_pairs(path, left=left, right=right, label=label, seed=seed, kind=kind)


def read_sides(path: Path | str, left: str | None = None, right: str | None = None) -> tuple[list[str], list[str]]:
    """The two columns of a file of pairs, in file order, not split."""
    table = open_table(Path(path))
    roles, _ = find_roles(table, left=left, right=right, label=False, negatives=())
    return table.texts(roles.left), table.texts(roles.right)


def _put_together(parts: Mapping[str, Records], roles: Roles, seed: int, origin: str) -> tuple[PairSet, np.ndarray, list[str]]:
    """All pairs on one scale of labels, the split of each, (N,) 0 train, 1 dev, 2 test, and what there is to say."""
    records = join_records(list(parts.values()))
    pairs, remarks = _label(records, roles, origin)
    which = np.repeat([SPLITS.index(name) for name in parts], [len(part) for part in parts.values()])
    if records.split is not None:
        if len(parts) > 1:
            named = f"the column {roles.split!r}" if roles.split else "the folder"
            raise UserError(f"{origin}: {named} names splits, and so do the files of {', '.join(parts)}: give one of the two")
        which = np.array([SPLITS.index(name) for name in records.split])
    missing = [place for place in (1, 2) if not (which == place).any()]
    if missing and (which == 0).any():
        rows = np.flatnonzero(which == 0)
        names, what = pairs.query.tolist(), "left texts"
        if records.together is not None:  # pairs without a name are split by left text, or all of them would stay together
            names = [f"group {name}" if name else left for name, left in zip(records.together, names, strict=True)]
            what = f"names in column {roles.keep_together!r}"
        drawn = split_by_key([names[row] for row in rows], seed, origin, what, pairs.positives()[rows])
        which[rows] = np.where(np.isin(drawn, missing), drawn, 0)
    return pairs, which, remarks


def _label(records: Records, roles: Roles, origin: str) -> tuple[PairSet, list[str]]:
    """All pairs with their labels, and what there is to say about these."""
    query = [single_spaces(text) for text in records.left]
    if records.grade is None:
        said = "no labels: every pair is positive"
        return PairSet.of(records.left, records.right, query=query, negatives=records.negatives), [said]
    if len(set(records.grade)) == 1:
        grade = records.grade[0]
        if grade <= 0:
            raise UserError(
                f"{origin}: every label is {grade:g}: training needs positive pairs; name another column with "
                f"--label, or give --no-label if all pairs go together"
            )
        said = f"every label is {grade:g}: every pair is positive"
        return PairSet.of(records.left, records.right, query=query, negatives=records.negatives), [said]
    scaled = rescale(records.grade, records.where)
    pairs = PairSet.of(records.left, records.right, scaled.label, query=query, grade=scaled.grade, negatives=records.negatives)
    if set(scaled.grade.tolist()) == {0, 1, 2}:
        note = "; if they are classes and no grades, say so, as in --grade 0=1 --grade 1=0 --grade 2=0"
        scaled = replace(scaled, note=scaled.note + note)
    none = "" if (scaled.label > 0.5).any() else "no label lies above 0.5: no pair counts as positive"
    return pairs, [*filter(None, (scaled.note, none)), *_repetitions(pairs)]


def _refuse_classes(pairs: PairSet, roles: Roles, origin: str) -> None:
    """Refuse the numbers of the classes of entailment as grades: there 2 means contradiction, and would be the best."""
    sides = plain_name(roles.left), plain_name(roles.right)
    if roles.label and sides == ("premise", "hypothesis") and set(pairs.grade.tolist()) == {0, 1, 2}:
        raise UserError(
            f"{origin}: the labels of premise and hypothesis are 0, 1 and 2, usually entailment, neutral and contradiction, "
            f"and no grades: --grade 0=1 --grade 1=0 --grade 2=0 makes them labels, or --kind regression if 2 is the best"
        )


def _doubt_texts(records: Records) -> list[str]:
    """Texts that a program may have written for a missing one."""
    if NO_TEXTS.isdisjoint(records.left) and NO_TEXTS.isdisjoint(records.right):
        return []
    found = [row for row, both in enumerate(zip(records.left, records.right, strict=True)) if NO_TEXTS.intersection(both)]
    shown = next(text for text in (records.left[found[0]], records.right[found[0]]) if text in NO_TEXTS)
    return [f"{len(found):,} pairs have a text such as {shown!r} ({records.where(found[0])}): leave them out if it was missing"]


def _doubt_ids(parts: Mapping[str, Records], roles_of: Mapping[str, Roles]) -> list[str]:
    """Columns of numbers or ids where texts should be: an encoder learns nothing from them."""
    notes = []
    for name, part in parts.items():
        for side, column in (("left", roles_of[name].left), ("right", roles_of[name].right)):
            texts = getattr(part, side)[:PEEK]
            if sum(ID_TEXT.fullmatch(text) is not None for text in texts) > MOSTLY * len(texts):
                notes.append(
                    f"column {column!r} holds numbers or ids such as {texts[0]!r}: if texts belong to them, give a file with the "
                    f"texts, or another column with --{side}"
                )
    return list(dict.fromkeys(notes))


def _repetitions(pairs: PairSet) -> tuple[str, ...]:
    """How many pairs occur again, and how many of those contradict themselves."""
    left, right = number_texts(pairs.left)[1], number_texts(pairs.right)[1]
    _, same, count = np.unique(left * (right.max() + 1) + right, return_inverse=True, return_counts=True)
    low, high = np.ones(len(count)), np.zeros(len(count))
    np.minimum.at(low, same, pairs.label)
    np.maximum.at(high, same, pairs.label)
    repeated, torn = int((count > 1).sum()), int((high > low).sum())
    return (f"{repeated:,} pairs occur more than once, {torn:,} of them with different labels",) if repeated else ()


def _make_task(pairs: PairSet, which: np.ndarray, kind: Kind | None, corpus: Files | None, roles: Roles, origin: str) -> Task:
    seen, reason = see_kind(pairs)
    if kind is None:
        _refuse_classes(pairs, roles, origin)
    else:
        seen, reason = kind, "as asked"
    if kind is None and corpus is not None:
        seen, reason = "retrieval", "a corpus is given to search in"
    if seen in ("classification", "regression") and len(np.unique(pairs.label)) < 2:
        raise UserError(f"{origin}: a {seen} task needs labels of both kinds, and all pairs here are positive")
    texts = _read_corpus(corpus) if corpus is not None else ()
    parts = {name: _part(pairs.take(which == place), seen, texts) for place, name in enumerate(SPLITS)}
    for name, part in parts.items():
        if len(part):
            _check(part, seen, f"{origin}: the {name} split ({len(part)} pairs)")
    metrics = metrics_of(seen, pairs)
    if seen == "classification" and not len(parts["dev"]):
        metrics = tuple(name for name in metrics if name != "F1")  # there is no dev to choose its threshold on
    notes = (f"{seen}: {reason}", *_say_corpus(parts, texts), *_doubt_sides(pairs, seen, texts))
    return Task("", seen, parts["train"], parts["dev"], parts["test"], metrics[0], metrics, notes=notes)


def _doubt_sides(pairs: PairSet, kind: Kind, corpus: Sequence[str]) -> list[str]:
    """Sides that say nothing: one right text for all pairs, or the left text again."""
    if kind == "retrieval" and len({*pairs.right, *corpus, *chain.from_iterable(pairs.negatives or ())}) == 1 < len(pairs):
        shown = repr(pairs.right[0][:40])
        return [f"all right texts are the same, {shown}, so every search finds it: is it the right column? If so, give a corpus"]
    same = sum(left == right for left, right in zip(pairs.left, pairs.right, strict=True))
    return [f"{same:,} of {len(pairs):,} pairs have the same text on both sides"] if 2 * same > len(pairs) else []


def _part(pairs: PairSet, kind: Kind, corpus: Sequence[str]) -> PairSet:
    if pairs.negatives is not None and not any(pairs.negatives):
        pairs = replace(pairs, negatives=None)  # those of train alone
    if kind != "retrieval":
        return pairs
    negatives = (text for texts in pairs.negatives or () for text in texts)
    return replace(pairs, corpus=distinct((*corpus, *pairs.right, *negatives)))


def _read_corpus(files: Files) -> tuple[str, ...]:
    names = [files] if isinstance(files, (str, Path)) else files
    return distinct(text for name in names for text in read_texts(name))


def _say_corpus(parts: Mapping[str, PairSet], corpus: Sequence[str]) -> list[str]:
    if not corpus:
        return []
    known = set(corpus)
    outside = len({text for part in parts.values() for text in part.right} - known)
    added = f"; {outside:,} right texts were not in it and are added" if outside else ""
    return [f"positives are searched among {len(known):,} texts{added}"]


def _say_splits(task: Task, parts: Mapping[str, Records], roles: Roles) -> list[str]:
    """How many pairs each split has, where it came from, and what it has in common with train."""
    sizes = ", ".join(f"{len(task.split(name)):,} {name}" for name in SPLITS if len(task.split(name)))
    by = f"column {roles.keep_together!r}" if roles.keep_together else "left text"
    given = {*parts, *(name for part in parts.values() for name in part.split or ())}
    missing = [name for name in SPLITS if name not in given and len(task.split(name))]
    if [*parts] == ["test"] and not given - {"test"}:  # the whole file, to be scored, mined or reviewed: it has no splits
        return [f"all {len(task.test):,} pairs, not split"]
    if missing and not roles.keep_together and given == {"train"}:
        return [f"split by left text: {sizes}"]  # which keeps them apart
    said = [f"split by {by}: {sizes}" if missing else f"as given: {sizes}"]
    if empty := sum(not name for part in parts.values() for name in part.together or ()):
        said.append(f"{empty:,} pairs have nothing in column {roles.keep_together!r}, and are split by left text")
    both = (("train", "dev"), ("train", "test"), ("dev", "test"))
    return said + [note for one, other in both for note in _overlap(task.split(one), task.split(other), one, other)]


def _overlap(known: PairSet, held_out: PairSet, other: str, name: str) -> list[str]:
    lefts, pairs = set(known.query), set(zip(known.query, known.right, strict=True))
    again = len(lefts & set(held_out.query))
    same = len(pairs & set(zip(held_out.query, held_out.right, strict=True)))
    if not again:
        return []
    return [
        f"{name}: {again:,} of {len(set(held_out.query)):,} left texts ({same:,} whole pairs) are in {other} too: "
        f"its scores may be too good"
    ]


def _check(pairs: PairSet, kind: Kind, which: str) -> None:
    """Every split must be worth a metric."""
    if kind == "regression" and len(np.unique(pairs.label)) < 2:
        raise UserError(f"{which} has one label only: give more pairs, or splits of your own (--train, --dev, --test)")
    positive = pairs.positives()
    if kind != "regression" and not positive.any():
        raise UserError(f"{which} has no positive pair: give more pairs, or splits of your own (--train, --dev, --test)")
    if kind == "classification" and positive.all():
        raise UserError(f"{which} has no negative pair: give more pairs, or splits of your own (--train, --dev, --test)")
