"""Which column of a table is what: named by the user, or known by the names that people give."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from pairtune.data.table import BAD, GOOD, WORDS, Table, is_missing, names_a_column, quote, read_number
from pairtune.errors import UserError

SIDES = (  # the first that a table has both of
    ("left", "right"),
    ("anchor", "positive"),
    ("query", "positive"),
    ("question", "positive"),
    ("query", "pos"),
    ("anchor", "pos"),
    *((f"{text}1", f"{text}2") for text in ("sentence", "question", "q", "s", "text", "phrase")),
    ("texta", "textb"),
    ("sentencea", "sentenceb"),
    ("premise", "hypothesis"),
    *(("query", right) for right in ("answer", "document", "passage", "response", "text")),
    *(("question", right) for right in ("answer", "document", "passage", "response", "context", "sentence")),
    ("prompt", "response"),
    ("source", "target"),
    ("q", "a"),
    ("title", "abstract"),
    ("title", "body"),
)
LABELS = [
    "label",
    "labels",
    "score",
    "similarity",
    "similarityscore",
    "isduplicate",
    "isdup",
    "isselected",
    "relevance",
    "grade",
    "relatedness",
]
RATINGS = re.compile(  # names that people give to labels, with more words before or after
    r"(label|score|rating|stars?|similarity|relevance|relevant|relevancy|relatedness|grade|gold|judge?ments?|duplicate|match|verdict"
    r"|esci|class|choice|annotation|correct|truth|confidence|probability|logit|percent|percentage|pct|rank|ranking)s?$"
)
ID_COLUMN = re.compile(r"(^|[_\W])ids?$|[a-z]I[dD]s?$")  # names of numbers that say which thread, and nothing else
RANKS = re.compile(r"(rank|ranking|position|place|platz|rang)$")  # names of numbers that are lowest for the best
NEGATIVES = re.compile(r"(hard)?neg(ative)?s?(passages|ctxs)?\d*")
SCORE_COLUMN = re.compile(r"(left|right|(hard)?negatives?\d*)score")  # as `pairtune mine` writes them
SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("dev", "validation", "valid", "val", "eval", "evaluation", "development"), "dev"),
    **dict.fromkeys(("test", "testing"), "test"),
}
LABEL_WORDS = {*GOOD, *BAD, "contradiction"} - {"positive", "negative", "match"}
MOST_GRADES = 11  # 0 to 10: an unnamed column with more different numbers is no scale
MOST_UNUSED = 6  # unused columns that a note names
WITHOUT_BLANKS = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")  # Thai, Chinese, Japanese …
PHRASE = 5  # letters of such a script that make a text


@dataclass(frozen=True)
class Roles:
    """The columns of a table by what they hold."""

    left: str
    right: str
    label: str | None = None
    keep_together: str | None = None
    split: str | None = None
    negatives: tuple[str, ...] = ()

    @property
    def named(self) -> list[str]:
        """All of them."""
        return [name for name in (self.left, self.right, self.label, self.keep_together, self.split, *self.negatives) if name]


def find_roles(
    table: Table,
    *,
    left: str | None = None,
    right: str | None = None,
    label: str | Literal[False] | None = None,
    keep_together: str | None = None,
    split: str | Literal[False] | None = None,
    negatives: Sequence[str] | None = None,
) -> tuple[Roles, tuple[str, ...]]:
    """The columns that were named, the others by their usual names; and what to say about those.

    label: False if the pairs have none; without a name, a column that looks like labels is taken or asked about.
    split: False if the files say it.
    """
    _need_sides(table, left, right)
    sides = _find_sides(table.names, left, right) or _only_texts(table, left, right, {label, keep_together, split})
    if sides is None:
        raise UserError(_explain_columns(table, left, right))
    if sides[0] == sides[1]:
        raise UserError(f"left and right are both column {sides[0]!r}; a pair needs two columns")
    named = split if split is not None else next((name for name in table.names if _names_splits(table, name)), None)
    others = [name for name in table.names if name not in sides and name not in (keep_together, named)]
    found = tuple(negatives) if negatives is not None else tuple(name for name in others if NEGATIVES.fullmatch(plain_name(name)))
    others = [name for name in others if name not in found]
    if taken_twice := next((name for name in found if name in (*sides, label, keep_together, named)), None):
        raise UserError(f"column {taken_twice!r} cannot hold the negatives as well: name a column of its own with --negative")
    labels = label if label is not None else next((name for name in others if plain_name(name) in LABELS), None)
    roles = Roles(*sides, label=labels or None, keep_together=keep_together, split=named or None, negatives=found)
    if label is None and labels is None:
        _ask_for_labels(table, others)
    if roles.label:
        _refuse_ranks(table, roles.label)
    taken = () if split or not named else (f"splits from column {named!r}",)
    return roles, (*_say(roles, left, right, label, negatives), *taken, *_say_unused(table, roles))


def refuse_other_columns(table: Table, first: Table, roles: Roles, *, labels: bool, negatives: bool) -> None:
    """Refuse a further file of pairs that lacks a column of the first, or has labels or negatives that would not be used.

    labels, negatives: whether they are looked for, rather than named or ruled out.
    """
    if missing := next((name for name in roles.named if name not in table.names), None):
        raise UserError(
            f"{table.path}: no column {missing!r}; the columns are: {', '.join(table.names)}; "
            f"give it the columns of {first.path}: {', '.join(roles.named)}"
        )
    others = [name for name in table.names if name not in roles.named]
    if labels and not roles.label:
        if (name := next((name for name in others if plain_name(name) in LABELS), None)) is not None:
            raise UserError(_labels_in_one(table, name, first))
        _ask_for_labels(table, others)
    if negatives and not roles.negatives and (found := [name for name in others if NEGATIVES.fullmatch(plain_name(name))]):
        raise UserError(
            f"{table.path}: column {found[0]!r} holds negatives, and {first.path} has none: add such a column there, "
            f"or give --no-negatives"
        )


def _labels_in_one(table: Table, name: str, first: Table) -> str:
    return (
        f"{table.path}: labels in column {name!r}, and {first.path} has none: add such a column there (1 for pairs that go "
        f"together), or give --no-label if all pairs do"
    )


def refuse_labels_in_one(found: Sequence[tuple[Table, Roles]]) -> None:
    """Refuse splits of which some have labels and some have none: there, all pairs would count as positive."""
    bare = next((table for table, roles in found if roles.label is None), None)
    labelled = next(((table, roles.label) for table, roles in found if roles.label), None)
    if bare is not None and labelled is not None:
        raise UserError(_labels_in_one(*labelled, bare))


def _names_splits(table: Table, name: str) -> bool:
    """A column that says train, dev or test of every record, or is called split and says it of most.

    One that is not called split must name two of them. What is wrong in one that is called so is refused later, with its line.
    """
    seen = [SPLIT_NAMES.get(str(value).strip().lower()) for value in table.begin(name)]
    if plain_name(name) == "split":
        return 2 * seen.count(None) < len(seen)
    if None in seen:
        return False
    found = {SPLIT_NAMES.get(str(value).strip().lower()) for value in table.begin(name, len(table))}
    return None not in found and len(found) > 1


def _find_sides(names: Sequence[str], left: str | None, right: str | None) -> tuple[str, str] | None:
    plain = {plain_name(name): name for name in reversed(names)}
    for one, other in SIDES:
        sides = left or plain.get(one), right or plain.get(other)
        if sides[0] and sides[1]:
            return sides[0], sides[1]
    return None


def _need_sides(table: Table, left: str | None, right: str | None) -> None:
    """Refuse a side whose column is not there, with the option to type instead."""
    usual = _find_sides(table.names, None, None) or ("", "")
    for side, name, other, known in (("left", left, right, usual[0]), ("right", right, left, usual[1])):
        free = [one for one in table.names if one not in ("", other)]
        free.sort(key=lambda one: (one != known, _unlike_texts(table.begin(one))))
        if name is not None and name not in table.names and free:
            plain = {one.strip().lower(): one for one in reversed(free)}
            near = get_close_matches(name.strip().lower(), plain, 1)
            option = f"--{side} {quote(plain[near[0]] if near else free[0])}"
            unlike = f" (the first line must name the columns); say for example {option}"
            table.need(name, f"; did you mean {option}?" if near else unlike)


def _only_texts(table: Table, left: str | None, right: str | None, taken: set[Any]) -> tuple[str, str] | None:
    """The two columns of texts, in the order of the file, where no other column can be one; None where a person must say."""
    # labels are no texts, whatever their column is called, unless its name is a label too: that file has no header
    free = [name for name in table.names if name not in taken]
    free = [name for name in free if not _look_like_labels(values := table.begin(name)) or _is_one(name, values)]
    if len({*table.names}) < len(table.names) or not all(names_a_column(name) for name in free):
        return None
    kinds = {name: _unlike_texts(table.begin(name)) for name in free if not _is_known(name)}
    texts = [name for name, kind in kinds.items() if kind == 0 or name in (left, right)]
    if len(texts) != 2 or 1 in {kind for name, kind in kinds.items() if name not in texts}:
        return None
    sides = (left or texts[right == texts[0]], right or texts[left != texts[1]])
    return sides if {*sides} == {*texts} else None


def _is_one(name: str, values: Sequence[Any]) -> bool:
    return read_number(name) is not None or plain_name(name) in {plain_name(str(value)) for value in values}


def _is_known(name: str) -> bool:
    plain = plain_name(name)
    return plain in LABELS or plain == "split" or bool(NEGATIVES.fullmatch(plain) or RATINGS.search(plain))


def plain_name(name: str) -> str:
    """A name without case, blanks and signs.

    >>> plain_name("Sentence_1 ")
    'sentence1'
    """
    return re.sub(r"[\W_]", "", name.lower())


def _say(
    roles: Roles, left: str | None, right: str | None, label: str | Literal[False] | None, negatives: Sequence[str] | None
) -> Iterable[str]:
    guessed = [f"left text from column {roles.left!r}"] if left is None else []
    guessed += [f"right text from column {roles.right!r}"] if right is None else []
    guessed += [f"label from column {roles.label!r}"] if label is None and roles.label else []
    guessed += [f"negatives from {', '.join(map(repr, roles.negatives))}"] if negatives is None and roles.negatives else []
    usual = {left is None and roles.left == "left", right is None and roles.right == "right"} == {True}
    if guessed and not (usual and len(guessed) == 2):
        yield "; ".join(guessed)


def _say_unused(table: Table, roles: Roles) -> Iterable[str]:
    """What is not read: a column of labels under a name that nobody knows is seen there."""
    names = [name for name in table.names if name not in roles.named and name.strip()]
    if names:
        shown = ", ".join(map(repr, names[:MOST_UNUSED]))
        more = f" and {len(names) - MOST_UNUSED} more" if len(names) > MOST_UNUSED else ""
        yield f"not used: {'column' if len(names) == 1 else 'columns'} {shown}{more}"


def _explain_columns(table: Table, left: str | None, right: str | None) -> str:
    others = [name for name in table.names if name not in (left, right)]
    names = sorted(others, key=lambda name: _unlike_texts(table.begin(name)))
    headless = any(len(name.split()) > 3 or re.fullmatch(r"[\d.,+-]+", name) for name in table.names)
    if not headless and (twice := next((name for name in table.names if name.strip() and table.names.count(name) > 1), None)):
        return (
            f"{table.path}: {table.names.count(twice)} columns are called {twice!r}; rename all but one, such as {twice}2, and "
            f"name the two texts with --left and --right"
        )
    missing = [f"--{side} COLUMN" for side, name in (("left", left), ("right", right)) if name is None]
    shown = ", ".join(table.names)
    if len(table.names) < 2:
        sign = next((sign for sign in ",;|\t" if sign in shown), "")
        cure = f"; if {sign!r} separates them, call the file .csv" if sign else "; give a file with both texts of each pair"
        if isinstance(next(iter(table.begin(table.names[0])), None), list):
            cure = ", which holds lists: write one record for each pair of texts, in two columns"
        return f"{table.path}: a pair needs two columns, and there is one: {shown}{cure}"
    if "" in map(str.strip, table.names):
        return (
            f"{table.path}: the first line names only some of the {len(table.names)} columns ({shown[:120]}): "
            f"delete what stands above the names, and name every column"
        )
    if headless:
        return (
            f"{table.path}: the first line seems to be a pair, not the names of the columns ({shown[:120]}): "
            f"add a header line that names the {len(table.names)} columns, such as left and right, separated as the others are"
        )
    example = " ".join(f"--{side} {quote(name)}" for side, name in zip(("left", "right"), names, strict=False))
    example = example if len(missing) == 2 else missing[0].replace("COLUMN", quote(names[0]))
    lists = [name for name in names if any(isinstance(value, list) for value in table.begin(name))]
    pairs = f"; {', '.join(lists)} holds lists: write one record for each pair of texts" if lists else ""
    return f"{table.path}: which columns are the two texts? The columns are: {shown}; say for example {example}{pairs}"


def _unlike_texts(values: Sequence[Any]) -> int:
    """0 for texts of some words, 1 for single words such as names and ids, 2 for numbers, lists and the like."""
    texts = [value.strip() for value in values if isinstance(value, str) and read_number(value) is None]
    if 2 * len(texts) <= len(values):
        return 2
    # more than one word; in a script that writes no blanks, some letters
    worded = sum(len(text.split()) > 1 or len(WITHOUT_BLANKS.findall(text)) >= PHRASE for text in texts)
    return int(2 * worded <= len(texts))


def _ask_for_labels(table: Table, others: Sequence[str]) -> None:
    """Refuse to train on all pairs as positives where an unused column looks like labels; gaps in it do not matter."""
    for name in others:
        if SCORE_COLUMN.fullmatch(plain_name(name)):
            continue
        seen = table.begin(name)
        values = [value for value in seen if not is_missing(value)]
        named = RATINGS.search(plain_name(name)) is not None
        numbered = ID_COLUMN.search(name.strip()) is not None and all(read_number(value) is not None for value in values)
        marked = named and 0 < len(values) < len(seen) and len({str(value) for value in values}) == 1  # x, or nothing
        if (not numbered and _look_like_labels(values)) or (named and _look_like_ratings(values)) or marked:
            raise UserError(
                f"{table.path}: column {name!r} looks like labels: --label {quote(name)}, or --no-label if it is something else"
            )


def _refuse_ranks(table: Table, name: str) -> None:
    """Refuse whole numbers from 1 on under a name that says that 1 is the best."""
    numbers = [read_number(value) for value in table.begin(name)]
    if RANKS.search(plain_name(name)) and all(number is not None and number >= 1 and number.is_integer() for number in numbers):
        raise UserError(
            f"{table.path}: column {name!r} seems to hold ranks, of which 1 is the best, and a label is higher for a better "
            f"pair: write a grade, or give --no-label; if its highest numbers are the best, call it grade"
        )


def _look_like_labels(values: Sequence[Any]) -> bool:
    """A few different numbers from a usual scale, or truth values, many times each; or fractions from −1 to 1, or to 5.

    Or a few different words, many times each, of which some are those of labels: yes, no and maybe.
    """
    numbers = {read_number(value) for value in values}
    if None in numbers:
        return _look_like_words(values)
    known = [number for number in numbers if number is not None]
    if len(known) < 2:
        return False
    if all(-1 <= number <= 5 for number in known) and not all(number.is_integer() for number in known):
        return min(known) >= 0 or max(known) <= 1
    return len(known) <= MOST_GRADES and 2 * len(known) <= len(values) and all(-1 <= number <= 10 for number in known)


def _look_like_words(values: Sequence[Any]) -> bool:
    """Words that repeat, with both a good and a bad one among them, or one that can be nothing else than a label."""
    words = {value.strip().lower() for value in values if isinstance(value, str) and value.strip()}
    if not 2 <= len(words) <= MOST_GRADES or 2 * len(words) > len(values):
        return False
    said = {WORDS[word] for word in words & WORDS.keys()}
    return said == {0.0, 1.0} or bool(words & LABEL_WORDS)


def _look_like_ratings(values: Sequence[Any]) -> bool:
    """Different numbers, or a few different words many times each: enough for a column that is called score or rating."""
    known = {str(value) for value in values}
    if len(known) < 2:
        return False
    return all(read_number(value) is not None for value in values) or (
        len(known) <= MOST_GRADES and 2 * len(known) <= len(values)
    )
