"""Counts what a search that goes back looks at, in an expression as Python reads it: a time that no machine changes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any


class Counting:
    """A search in one text; `steps` is the characters and places that it looked at."""

    def __init__(self, expression: str, text: str) -> None:
        self.tree, self.text, self.steps = parser.parse(expression, re.MULTILINE), text, 0
        self.known: dict[Any, bool] = {}

    def matches(self) -> list[tuple[int, int]]:
        """All of them, from left to right, as a replacement finds them."""
        found, start = [], 0
        while start <= len(self.text):
            end = next(self.ends(list(self.tree), start), None)
            if end is not None:
                found.append((start, end))
            start = max(start + 1, end or 0)
        return found

    def ends(self, nodes: list[Any], at: int) -> Iterator[int]:
        """Where a match of these parts that begins here may end, the wanted one first."""
        if not nodes:
            yield at
            return
        for end in self.ends_of_one(*nodes[0], at):
            yield from self.ends(nodes[1:], end)

    def ends_of_one(self, kind: Any, given: Any, at: int) -> Iterator[int]:
        match str(kind):
            case "BRANCH":
                for branch in given[1]:
                    yield from self.ends(list(branch), at)
            case "SUBPATTERN":
                yield from self.ends(list(given[3]), at)
            case "ATOMIC_GROUP":
                yield from [end for end in [next(self.ends(list(given), at), None)] if end is not None]
            case "ASSERT" | "ASSERT_NOT":
                start = at if given[0] > 0 else at - given[1].getwidth()[0]
                seen = start >= 0 and next(self.ends(list(given[1]), start), None) is not None
                yield from [at] if seen == (str(kind) == "ASSERT") else []
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                yield from self.repeated(str(kind), *given, at)
            case "AT":
                self.steps += 1
                yield from [at] if self.is_place(str(given), at) else []
            case _:
                self.steps += 1
                yield from [at + 1] if at < len(self.text) and self.fits(str(kind), given, self.text[at]) else []

    def repeated(self, kind: str, least: int, most: Any, part: Any, at: int) -> Iterator[int]:
        nodes, ends = list(part), [at]
        if [str(kind) for kind, _ in nodes] not in (["LITERAL"], ["NOT_LITERAL"], ["IN"], ["ANY"]):
            yield from self.turns(nodes, least, most, at)
            return
        while True:
            if kind == "MIN_REPEAT" and len(ends) > least:
                yield ends[-1]
            if len(ends) > most or (end := next(self.ends(nodes, ends[-1]), None)) is None:
                break
            ends.append(end)
        if kind != "MIN_REPEAT":
            yield from ends[least:][-1:] if kind == "POSSESSIVE_REPEAT" else reversed(ends[least:])

    def turns(self, nodes: list[Any], least: int, most: Any, at: int) -> Iterator[int]:
        """A group that repeats, as often as it can first."""
        if most > 0:
            for end in self.ends(nodes, at):
                yield from self.turns(nodes, max(0, least - 1), most - 1, end)
        if least == 0:
            yield at

    def fits(self, kind: str, given: Any, character: str) -> bool:
        key = (kind, id(given) if kind == "IN" else given, character)
        if key not in self.known:
            self.known[key] = fits(kind, given, character)
        return self.known[key]

    def is_place(self, place: str, at: int) -> bool:
        before, behind = self.text[at - 1 : at] if at else "", self.text[at : at + 1]
        edge = bool(re.match(r"\w", before)) != bool(re.match(r"\w", behind))
        return {
            "AT_BEGINNING": before in ("", "\n"),
            "AT_END": behind in ("", "\n"),
            "AT_BEGINNING_STRING": at == 0,
            "AT_END_STRING": at == len(self.text),
            "AT_BOUNDARY": edge,
            "AT_NON_BOUNDARY": not edge,
        }[place]


CATEGORIES = {"WORD": r"\w", "NOT_WORD": r"\W", "SPACE": r"\s", "NOT_SPACE": r"\S", "DIGIT": r"\d", "NOT_DIGIT": r"\D"}


def fits(kind: str, given: Any, character: str) -> bool:
    """Whether a character is this one, or in this set."""
    match kind:
        case "LITERAL" | "NOT_LITERAL":
            return (ord(character) == given) == (kind == "LITERAL")
        case "ANY":
            return character != "\n"
        case "RANGE":
            return bool(given[0] <= ord(character) <= given[1])
        case "CATEGORY":
            return bool(re.match(CATEGORIES[str(given).removeprefix("CATEGORY_")], character))
        case "IN":
            negated = str(given[0][0]) == "NEGATE"
            return negated != any(fits(str(kind), value, character) for kind, value in given[negated:])
    raise AssertionError(f"no {kind} here")
