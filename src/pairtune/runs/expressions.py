"""Regular expressions as trees: reads the part of Oniguruma's language that `ignore` takes, and writes it anew."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True)
class One:
    """One character; `literal` where no other fits."""

    source: str
    literal: str = ""


@dataclass(frozen=True)
class Mark:
    """A place between characters: `^`, `$`, `\\b`."""

    source: str


@dataclass(frozen=True)
class Choice:
    """A group."""

    branches: tuple[Nodes, ...]


@dataclass(frozen=True)
class Look:
    """What must stand, or not stand, before or behind a place; `opening` is (?=, (?!, (?<= or (?<!."""

    opening: str
    body: Choice


@dataclass(frozen=True)
class Repeat:
    """most: None where there is no end. how: "" takes as many as it can, "?" as few, "+" as many and gives none back."""

    item: One | Choice
    least: int
    most: int | None
    how: str = ""


Node = One | Mark | Look | Choice | Repeat
Nodes = tuple[Node, ...]

ANY, WORD = One("(?m:.)"), One(r"\w")
CONTROLS = dict(zip("tnrfvae", "\t\n\r\f\v\a\x1b", strict=True))
PIECE = re.compile(
    r"(?P<mark>\\[bBAzZ]|[$^])|(?P<any>\.)|(?P<kind>\\[dDwWsShH]|\\[pP]\{\^?\w+\})"
    r"|\\x\{(?P<long>[0-9a-fA-F]{1,6})\}|\\x(?P<two>[0-9a-fA-F]{2})|\\u(?P<four>[0-9a-fA-F]{4})"
    r"|\\(?:(?P<control>[tnrfvae])|(?P<escaped>\W|_))"
    r"|(?P<set>\[\^?(?:\[:\^?\w+:\]|\\(?:x\{[0-9a-fA-F]+\}|.)|[^\[\]\\])+\])"
    r"|\(\?(?P<options>[imx]+)(?P<scope>[:)])|(?P<look>\(\?<?[=!])|(?P<open>\((?:\?(?::|<\w+>)|(?!\?)))"
    r"|(?P<plain>[^\\\[(*+?])",
    re.DOTALL,
)
TIMES = re.compile(r"(?:(?P<sign>[*+?])|\{(?P<least>\d*)(?P<comma>,?)(?P<most>\d*)\}(?<!\{\})(?<!\{,\}))(?P<how>[?+]?)")
COMMENT, BLANK = re.compile(r"\(\?#[^)]*\)"), re.compile(r"\s+|#[^\n]*\n?")
BOUNDS = {"*": (0, None), "+": (1, None), "?": (0, 1)}


@dataclass
class Reader:
    """Reads an expression from left to right. Raises ValueError, with words, at what it does not know."""

    text: str
    at: int = 0
    flags: frozenset[str] = field(default=frozenset())

    def read(self) -> Choice:
        """The whole expression."""
        expression = self.choice()
        if self.at < len(self.text):
            raise ValueError(f"has a bracket too many: {self.text[self.at :]!r}")
        return expression

    def choice(self) -> Choice:
        """Up to the bracket that closes it, or the end."""
        branches = [self.branch()]
        while self.text.startswith("|", self.at):
            self.at += 1
            branches.append(self.branch())
        return Choice(tuple(branches))

    def branch(self) -> Nodes:
        """One alternative of a group."""
        nodes: list[Node] = []
        begun = self.at
        self.pass_over()
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            nodes += self.repeated(self.part(nodes, begun))
            self.pass_over()
        return tuple(nodes)

    def part(self, before: list[Node], begun: int) -> Node | None:
        """One part without its repeat; None for options, which hold for all that follows."""
        piece = PIECE.match(self.text, self.at)
        if piece is None:
            raise ValueError(
                f"has {self.text[self.at :][:8]!r}, which ignore does not take: use characters, sets, groups, repeats"
            )
        self.at = piece.end()
        if piece["options"] and piece["scope"] == ")":
            if before or begun:
                raise ValueError(f"has {piece[0]!r} in the middle: write it at the beginning, or (?{piece['options']}:…)")
            self.flags = self.flags | set(piece["options"])
            return None
        if piece["options"] or piece["look"] or piece["open"]:
            outer, self.flags = self.flags, self.flags | set(piece["options"] or "")
            body, self.flags = self.choice(), outer
            self.at += 1  # the bracket: the engine has seen that none is missing
            return Look(piece["look"], body) if piece["look"] else body
        return Mark(piece["mark"]) if piece["mark"] else self.one(piece)

    def one(self, piece: re.Match[str]) -> One:
        """A character, or a set."""
        if piece["any"]:
            return ANY if "m" in self.flags else One(".")
        if piece["kind"]:
            return One(piece["kind"])
        if piece["set"]:
            return One(f"(?i:{piece['set']})" if "i" in self.flags else piece["set"])
        code = piece["long"] or piece["two"] or piece["four"]
        character = chr(int(code, 16)) if code else CONTROLS.get(piece["control"], piece["escaped"] or piece["plain"])
        source = character if character.isalnum() else f"\\{character}"
        if "i" in self.flags and character.lower() != character.upper():
            return One(f"(?i:[{source}])")
        return One(source, literal=character)

    def repeated(self, part: Node | None) -> Nodes:
        """The part, as often as what follows says; once, the parts of a group without alternatives."""
        if part is None:
            return ()
        self.pass_over()
        times = TIMES.match(self.text, self.at)
        if times is None:
            return part.branches[0] if isinstance(part, Choice) and len(part.branches) == 1 else (part,)
        self.at = times.end()
        least, most = BOUNDS.get(times["sign"]) or bounds(times["least"], times["comma"], times["most"])
        if times["how"] and not times["sign"] and not (times["how"] == "?" and times["comma"]):
            raise ValueError(f"has {times[0]!r}: write {times[0][:-1]} alone")
        self.pass_over()
        if not isinstance(part, One | Choice) or TIMES.match(self.text, self.at):
            raise ValueError(f"repeats what does not repeat: {self.text[: self.at]!r}")
        return (Repeat(part, least, most, times["how"]),)

    def pass_over(self) -> None:
        """Comments; and blanks where (?x) allows them."""
        while gap := COMMENT.match(self.text, self.at) or ("x" in self.flags and BLANK.match(self.text, self.at)):
            self.at = gap.end()


def bounds(least: str, comma: str, most: str) -> tuple[int, int | None]:
    """As numbers.

    >>> bounds("2", "", ""), bounds("2", ",", ""), bounds("", ",", "5")
    ((2, 2), (2, None), (0, 5))
    """
    return int(least or 0), int(most) if most else None if comma else int(least)


def write(nodes: Nodes) -> str:
    """The expression of this tree. A part without an end never gives back what it took.

    >>> write(Reader("(?x) <[^<>]+>  # a tag").read().branches[0])
    '\\\\<[^<>]++\\\\>'
    """
    return "".join(map(write_one, nodes))


def write_one(node: Node) -> str:
    """One part; a group where it may be repeated."""
    match node:
        case One() | Mark():
            return node.source
        case Choice():
            return f"(?:{write_branches(node)})"
        case Look():
            return f"{node.opening}{write_branches(node.body)})"
        case Repeat(item, least, most, how):
            part = write_one(item)
            times = "?" if (least, most) == (0, 1) else f"{{{least}}}" if least == most else f"{{{least},{most}}}"
            if most is None:
                return f"{part}++" if least == 1 else f"{part}{{{least}}}{part}*+" if least else f"{part}*+"
            return f"(?>{part}{times})" if how == "+" else f"{part}{times}{how if least < most else ''}"


def write_branches(choice: Choice) -> str:
    """What stands in the brackets of a group."""
    return "|".join(map(write, choice.branches))
