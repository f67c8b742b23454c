"""A table as read from a file, with the line of each record; and labels as people write them, made numbers from 0 to 1."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pairtune.errors import UserError
from pairtune.runs.evidence import shorten

Grades = Mapping[str, float | None]  # what a label is worth, by how it is written; None: its pairs are left out
PEEK = 2000  # records that are looked at to see what a column holds


@dataclass(frozen=True)
class Table:
    """The columns of a file.

    names: in file order. read: the values of a column. lines: where each record begins; unit: line, or row where there are none.
    notes: what a user should know of how it was read. splits: for each record the name of its split, where the source has any.
    head: the first values of a column, where that is quicker than reading all.
    """

    path: Path
    names: tuple[str, ...]
    read: Callable[[str], Sequence[Any]]
    lines: Sequence[Any]
    unit: str = "line"
    notes: tuple[str, ...] = ()
    splits: tuple[str, ...] | None = None
    head: Callable[[str, int], Sequence[Any]] | None = None

    def __len__(self) -> int:
        return len(self.lines)

    def where(self, record: int) -> str:
        """The file and the line of a record."""
        return f"{self.path} {self.unit} {self.lines[record]}"

    def column(self, name: str) -> list[Any]:
        """The values of a column; it must be there, once."""
        self.need(name)
        return list(self.read(name))

    def begin(self, name: str, count: int = PEEK) -> Sequence[Any]:
        """The first values of a column; an empty one where none or several have this name."""
        if self.names.count(name) != 1:
            return ("",)
        return self.head(name, count) if self.head else self.read(name)[:count]

    def need(self, name: str, cure: str = "") -> None:
        """Refuse a column that is not there, or more than once. cure: what to do, where that is known."""
        if self.names.count(name) > 1:
            raise UserError(f"{self.path}: {self.names.count(name)} columns are called {name!r}; rename all but one")
        if name not in self.names:
            shown = ", ".join(self.names)
            raise UserError(f"{self.path}: no column {name!r}; the columns are: {shown}{cure or _hint(self.names, name)}")

    def _refuse_mixed_percentages(self, values: Sequence[Any]) -> None:
        marked = [isinstance(value, str) and value.strip().endswith("%") for value in values]
        if any(marked):
            for record, (value, percent) in enumerate(zip(values, marked, strict=True)):
                if not percent and read_number(value) not in (0, None):
                    raise UserError(
                        f"{self.where(record)}: the label is {value!r}, and {self.where(marked.index(True))} has a percentage: "
                        f"write all of them with a %, or none"
                    )

    def take(self, records: Sequence[int], note: str) -> Table:
        """The table with these records alone, and what to say of it."""

        def read(name: str) -> list[Any]:
            values = self.read(name)
            return [values[record] for record in records]

        splits = None if self.splits is None else tuple(self.splits[record] for record in records)
        lines = [self.lines[record] for record in records]
        return replace(self, read=read, head=None, lines=lines, splits=splits, notes=(*self.notes, note))

    def _refuse_words(self, name: str, values: Sequence[Any], grades: Grades) -> None:
        """Name all labels, where some are words that say nothing of how well the texts go together. values: after the grades."""
        record = next((record for record, value in enumerate(values) if _is_word(value)), None)
        if record is None:
            return
        known = sorted({str(value) for value in self.column(name) if not is_empty(value)})
        shown = ", ".join(map(repr, known)) if len(known) <= MOST_WORDS else f"{len(known):,} different texts"
        worth = {word: _worth_of(word, grades) for word in known[:3]}
        example = " ".join(f"--grade {quote(word)}={value}" for word, value in worth.items())
        cure = f"say what each is worth: {example} and so on, higher for better pairs; =out leaves its pairs out"
        cure = cure if len(known) <= MOST_WORDS else "these are no labels"
        raise UserError(
            f"{self.where(record)}: the label is {values[record]!r}, expected a number, a percentage, true/false, yes/no or "
            f"duplicate/different. Column {name!r} holds {shown}: {cure}; or name another column with "
            f"--label, or give --no-label"
        )

    def texts(self, name: str) -> list[str]:
        """A column of texts; none may be empty."""
        values = self.column(name)
        if not _all_texts(values):
            for record, value in enumerate(values):
                if is_empty(value):
                    raise UserError(f"{self.where(record)}: column {name!r} is empty{_say_more(values[record + 1 :])}")
                _check_text(value, name, self.where(record))
        return values

    def numbers(self, name: str, grades: Grades | None = None) -> list[float]:
        """A column of labels as numbers. grades: what a word is worth."""
        values = self.column(name)
        if grades:
            values = [grade_of(value, grades) for value in values]
        try:
            quick = np.array([float(value) for value in values])
        except (TypeError, ValueError, OverflowError):
            quick = np.array([np.nan])
        if np.isfinite(quick).all():
            return quick.tolist()
        self._refuse_words(name, values, grades or {})
        self._refuse_mixed_percentages(values)
        commas = any(isinstance(value, str) and re.match(CLEAR_COMMA, value.strip()) for value in values)
        return [parse_label(value, partial(self.where, record), commas) for record, value in enumerate(values)]


def _all_texts(values: Sequence[Any]) -> bool:
    """Whether there is nothing to complain about; quick, for millions."""
    try:
        if not all(map(str.strip, values)):
            return False
        "".join(values).encode()
    except (TypeError, UnicodeEncodeError):
        return False
    return True


def is_empty(value: Any) -> bool:
    """Whether nothing was written: no value, or white space."""
    return value is None or value != value or (isinstance(value, str) and not value.strip())


def _say_more(values: Sequence[Any]) -> str:
    more = sum(map(is_empty, values))
    others = f", and so are {more:,} more" if more else ""
    return f"{others}; fill it in, or leave such pairs out: --skip-empty"


def _is_word(value: Any) -> bool:
    """A label that no number can be read from, and that is not missing."""
    return isinstance(value, str) and not is_missing(value) and not re.search(r"\d", value) and read_number(value) is None


def is_missing(label: Any) -> bool:
    """Whether there is no label, or a word such as n/a in its place."""
    return is_empty(label) or (isinstance(label, str) and label.strip().lower() in MISSING)


def quote(name: str) -> str:
    """A name as a shell takes it."""
    return f'"{name}"' if re.search(r"\s", name) else name


def grade_of(value: Any, grades: Grades) -> Any:
    """What a label is worth, where that was said; otherwise the label.

    >>> [grade_of(value, {"E": 1.0, "2": None}) for value in (" e ", 2.0, "3")]
    [1.0, None, '3']
    """
    text = f"{value:g}" if isinstance(value, float) else str(value).strip()
    found = {word.strip().lower(): grade for word, grade in grades.items()}
    return found.get(text.lower(), value)


def _worth_of(word: str, grades: Grades) -> str:
    """What a word is worth, as `--grade` takes it: what was given, or is known; N where nobody has said it."""
    grade = grade_of(word, grades)
    grade = WORDS.get(word.lower()) if grade == word else grade
    return "N" if grade is None else f"{grade:g}"


def _check_text(value: Any, name: str, where: str) -> None:
    if not isinstance(value, str):
        cure = "; write one record for each pair of texts" if isinstance(value, (list, dict)) else ""
        raise UserError(f"{where}: column {name!r} holds {shorten(repr(value), 60)}, expected a text{cure}")
    try:
        value.encode()
    except UnicodeEncodeError as problem:
        raise UserError(f"{where}: column {name!r} holds half of a surrogate pair, which is not text") from problem


def _hint(names: Sequence[str], name: str) -> str:
    """What may have happened to a column that is not found."""
    plain = {column.strip().lower(): column for column in names}
    if name.strip().lower() in plain:
        return f" ({plain[name.strip().lower()]!r} is written differently)"
    near = get_close_matches(name, names, 1)
    return f"; did you mean {near[0]}?" if near else " (the first line must name the columns)"


GOOD = ("duplicate", "same", "match", "relevant", "positive", "paraphrase", "equivalent", "similar", "entailment")
BAD = ("different", "irrelevant", "negative", "dissimilar", "unrelated")
NOT_GOOD = [f"{sign}{gap}{word}" for word in GOOD for sign in ("not", "non", "no") for gap in (" ", "", " a ", " an ")]
YES = ("true", "t", "yes", "y", "ja", "wahr", "oui", "vrai", "sí", "si", "sì", "sim", "да", "是", "はい")
NO = ("false", "f", "no", "n", "nein", "falsch", "non", "faux", "não", "нет", "否", "いいえ")
WORDS = {**dict.fromkeys((*YES, *GOOD), 1.0), **dict.fromkeys((*NO, *BAD, *NOT_GOOD), 0.0)}
MOST_WORDS = 12  # different labels that a message names
MISSING = ("", "na", "n/a", "nan", "null", "none", "-")
CLEAR_COMMA = r"^[+-]?(0,\d+|\d+,(\d{1,2}|\d{4,}))$"  # 0,75 as spreadsheets of many countries write it
UNCLEAR_COMMA = r"^[+-]?\d+,\d{3}$"  # 1,000 may be a thousand
FRACTION = re.compile(r"(\d+(?:\.\d+)?) ?(?:/|of|out of) ?(5|10|100)")
STARS = re.compile(r"(\d+(?:[.,]\d+)?) ?stars?|([★⭐]+)☆*")
TOPS = (1, 2, 3, 4, 5, 7, 10, 100)  # where the scales in use end
ROUNDING = 1e-6  # a cosine of 1.0000002 is a 1
STRAY_SHARE = 0.05  # fewer labels than this above 10 are typing errors, not a scale up to 100; above 1, they may be


@dataclass(frozen=True)
class Scaled:
    """label: (N,) float32 in [0, 1]; grade: (N,) float32, as given; note: how one became the other, or empty."""

    label: np.ndarray
    grade: np.ndarray
    note: str


def binary_label(path: Path, line: int, field: str) -> float:
    """A label of a classification dataset: 0 or 1."""
    if field.strip() not in ("0", "1"):
        raise UserError(f"{path} line {line}: the label is {field!r}, expected 0 or 1")
    return float(field)


def parse_label(value: object, where: Callable[[], str], commas: bool = False) -> float:
    """A finite number from a number, a percentage, a truth value, or their spelling; `where` names the file and the line.

    commas: other labels show that a comma is a decimal sign.
    """
    number = read_number(value, commas)
    if number is not None and math.isfinite(number):
        return number
    if value is None or str(value).strip().lower() in MISSING:
        raise UserError(f"{where()}: the label is missing ({value!r}); fill it in, or leave such pairs out: --skip-empty")
    if number is not None:
        raise UserError(f"{where()}: the label is {number}, expected a finite number; fill it in or leave the pair out")
    if re.match(UNCLEAR_COMMA, str(value).strip()):
        point = str(value).strip().replace(",", ".")
        raise UserError(f"{where()}: the label is {value!r}, which may be {point} or a thousand; write it without a comma")
    raise UserError(
        f"{where()}: the label is {value!r}, expected a number, a percentage, true/false, yes/no or duplicate/different; "
        f"write 1 for a pair that goes together and 0 for one that does not"
    )


def rescale(values: Sequence[float], where: Callable[[int], str]) -> Scaled:
    """Labels on the scale that the data shows, laid linearly on [0, 1].

    Within 0–1 they stay. −1–1 (a cosine) becomes (label + 1) / 2. Above 1 the scale ends at the first of TOPS that
    holds all labels, and starts at 1 where no label is lower (1–4, 1–5), else at 0 (0–5, 0–100).
    Refused: labels below −1 or above 100, negative ones beside ones above 1, a few stray ones far above all others.
    where: names the file and the line of a label, for the refusal.
    """
    grade = np.asarray(values, np.float64)
    low, high = _scale(grade, where)
    label = np.clip((grade - low) / (high - low), 0, 1).astype(np.float32)
    note = "" if (low, high) == (0, 1) else f"labels: {low:g} to {high:g} mapped to 0 to 1, as (label − {low:g}) / {high - low:g}"
    return Scaled(label, grade.astype(np.float32), note.replace("− -", "+ ") + _doubt_few(grade, where))


def _doubt_few(grade: np.ndarray, where: Callable[[int], str]) -> str:
    """Point to the few labels without which all would be 0 or 1: they change the kind of the task."""
    others = np.flatnonzero(grade > 1 + ROUNDING)
    if not 0 < len(others) < STRAY_SHARE * len(grade) or set(grade[grade <= 1]) != {0, 1}:
        return ""
    first = others[0]
    return f"; all but {len(others):,} of {len(grade):,} are 0 or 1: is the {grade[first]:g} of {where(first)} a mistake?"


def read_number(value: object, commas: bool = False) -> float | None:
    """The number that a label says, if it says one.

    >>> [read_number(value) for value in ("80 %", "0,75", "Not_Duplicate", "4 stars", "3/5", "1,000", "maybe")]
    [0.8, 0.75, 0.0, 4.0, 0.6, None, None]
    """
    if not isinstance(value, (str, bool, int, float, Decimal)):
        return None
    text = value.strip().lower() if isinstance(value, str) else ""
    if (word := re.sub(r"[\s_-]+", " ", text)) in WORDS:
        return WORDS[word]
    if (fraction := FRACTION.fullmatch(text)) and float(fraction[1]) <= float(fraction[2]):
        return float(fraction[1]) / float(fraction[2])
    if stars := STARS.fullmatch(text.replace("\ufe0f", "")):  # the sign that asks for a coloured star
        return float(stars[1].replace(",", ".")) if stars[1] else float(len(stars[2]))
    plain = text.removesuffix("%").strip() if isinstance(value, str) else value
    if isinstance(plain, str) and (re.match(CLEAR_COMMA, plain) or (commas and re.match(UNCLEAR_COMMA, plain))):
        plain = plain.replace(",", ".")
    try:
        return float(plain) / (100 if text.endswith("%") else 1)
    except (ValueError, OverflowError):
        return None


def _scale(grade: np.ndarray, where: Callable[[int], str]) -> tuple[float, float]:
    least, most = int(grade.argmin()), int(grade.argmax())
    low, high = float(grade[least]), float(grade[most])
    scales = "known scales: 0–1, −1–1, 0–5, 1–4, 1–5, 0–10, 0–100 and the like; rescale the labels"
    if low < -1 - ROUNDING:
        raise UserError(f"{where(least)}: the label is {low:g}, below every scale; {scales}")
    if high > TOPS[-1]:
        raise UserError(f"{where(most)}: the label is {high:g}, above every scale; {scales}")
    if high <= 1 + ROUNDING:
        return (-1, 1) if low < -ROUNDING else (0, 1)
    if low < 0:
        raise UserError(f"{where(least)}: the label is {low:g}, and {high:g} at {where(most)}: no scale has both; {scales}")
    top = next(top for top in TOPS if top >= high)
    if top == 100:
        _refuse_strays(grade, where, most)
    return (1 if low >= 1 and top <= 10 else 0), top


def _refuse_strays(grade: np.ndarray, where: Callable[[int], str], most: int) -> None:
    others = grade[grade <= 10]
    if 0 < len(grade) - len(others) < STRAY_SHARE * len(grade):
        raise UserError(
            f"{where(most)}: the label is {grade[most]:g}, while {len(others):,} of {len(grade):,} lie in "
            f"{others.min():g} to {others.max():g}; correct it (or divide all labels by 100 if that is their scale)"
        )


def names_a_column(name: str) -> bool:
    """A word or two, and no sentence or number, as in a file without a header."""
    return 0 < len(name.split()) <= 2 and name.strip()[-1] not in ".,!?" and read_number(name) is None
