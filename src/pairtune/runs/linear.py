"""Judges whether a regular expression reads any text in time that grows with its length, and no faster.

A search tries an expression at each place of a text. It is slow where many tries read the same long stretch, or where one try
reads it in many ways. So a part that repeats without end must be the last that can fail, or both of these must hold:

* what follows cannot begin with a character that the part takes: it takes all it can, and never has to give back;
* something before it is a character that it does not take: only a few tries come to the same stretch.

All else has an end, and the steps of a try are counted. What runs is written from the tree that was judged. In it a character
stands for itself: without case, Oniguruma would also take `ß` for `ss`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from pairtune.runs.expressions import ANY, WORD, Choice, Look, Mark, Node, Nodes, One, Reader, Repeat, write, write_one

STEPS = 2000  # that an expression may take for each character of a text
CODES = 0x110000  # numbers of characters
NEWLINE = One("\n", "\n")
NEXT = {"$": (NEWLINE,), r"\Z": (NEWLINE,), r"\z": ()}  # the characters that may stand behind such a place


@dataclass(frozen=True)
class Rest:
    """What is left of an expression from one place on.

    steps: at most, where a stretch without end is counted once for each try that may read it. first: what it may begin with.
    sure: it cannot fail. edge: it begins at the edge of a word.
    """

    steps: int
    first: tuple[One, ...]
    sure: bool = False
    edge: bool = False


END = Rest(0, (ANY,), sure=True)


@cache
def write_rule(pattern: str) -> str:
    """What runs in place of a rule of `ignore`. ValueError, in words, where it is no expression or could be slow."""
    from tokenizers import Regex

    try:
        Regex(pattern)
    except Exception as problem:  # tokenizers has no narrower one
        raise ValueError(f"{pattern!r} is not a regular expression as Oniguruma has them ({problem}): mend it") from problem
    try:
        return written_linear(pattern)
    except ValueError as problem:
        raise ValueError(f"{pattern!r} {problem}") from problem
    except RecursionError:
        raise ValueError(f"{pattern[:80]!r}… has too many groups within groups: write fewer") from None


def written_linear(pattern: str) -> str:
    """An equal expression that takes linear time. ValueError, in words, where the pattern would have to be another one.

    >>> written_linear(r"(?x) [#] \\w+ | <[^<>]+>  # tags")
    '(?:[#]\\\\w++|\\\\<[^<>]++\\\\>)'
    """
    expression = Reader(pattern).read()
    for one in characters(expression):
        if one.source.startswith("(?i:") and (pair := _pair_for_one(one)):
            raise ValueError(f"has {one.source!r}, which also matches the characters {pair!r}: write it without (?i)")
    if least_width(expression) == 0:
        raise ValueError("also matches where there is nothing: have it match one character at least")
    judge((expression,), END, ())
    return write((expression,))


def judge(nodes: Nodes, rest: Rest, before: Nodes) -> Rest:
    """These parts and what follows them; before: what stands before them."""
    for place in reversed(range(len(nodes))):
        if nodes[place] == Mark("$") and place and takes_a_line(nodes[place - 1]):
            continue  # a line ends where `.*` does
        rest = judge_part(nodes[place], rest, (*before, *nodes[:place]))
        if rest.steps > STEPS:
            raise ValueError(
                f"may take more than {STEPS:,} steps from one place of a text, from {shortened(write(nodes[place:]))!r} on: "
                f"give what repeats smaller bounds, write fewer alternatives, or have what follows begin with another character"
            )
    return rest


def takes_a_line(node: Node) -> bool:
    """Whether it takes all that is left of a line."""
    return isinstance(node, Repeat) and node.item == One(".") and node.most is None and node.how != "?"


def shortened(expression: str) -> str:
    """At most its first 80 characters."""
    return expression if len(expression) <= 80 else f"{expression[:80]}…"


def judge_part(node: Node, rest: Rest, before: Nodes) -> Rest:
    """One part and what follows it."""
    match node:
        case One():
            return Rest(1 + rest.steps, (node,))
        case Mark(source):
            return Rest(1 + rest.steps, NEXT.get(source, rest.first), edge=source == r"\b")
        case Look(opening, body):
            if is_endless(body):
                raise ValueError(f"looks without end, in {write_one(node)!r}: bound it, as in {{1,200}}")
            seen = judge((body,), END, ())
            return Rest(1 + seen.steps + rest.steps, seen.first if opening == "(?=" else rest.first)
        case Choice(branches):
            return either([judge(branch, rest, before) for branch in branches])
        case Repeat(One() as item, least, None, how):
            return judge_run(item, least, how, rest, before)
        case Repeat(One() as item, least, int(most), how):
            ways = 1 if rest.sure or how == "+" or are_apart(item, least, rest) else most - least + 1
            first = (item, *(rest.first if least == 0 else ()))
            return Rest(2 * most + ways * rest.steps, first, sure=least == 0 and rest.sure)
        case Repeat(Choice() as item, least, most, how):
            return judge_group(item, least, most, how, rest, before)
    raise AssertionError(node)


def judge_run(item: One, least: int, how: str, rest: Rest, before: Nodes) -> Rest:
    """A character that repeats without end."""
    part = write_one(item)
    bounded = f"{part}{{{least},{max(200, least)}}}{how if how == '?' else ''}"
    if how == "?" and rest.sure:
        raise ValueError(f"takes as few of {part!r} as it can at its end: leave the `?` or the repeat out")
    if not (rest.sure or how == "+" or are_apart(item, least, rest)):
        raise ValueError(
            f"repeats {part!r} without end, and what follows may begin with the same character: bound it, as in {bounded}"
        )
    if not (rest.sure or is_guarded(item, least, before)):
        raise ValueError(
            f"repeats {part!r} without end, may then fail, and would read the same again from the next place: bound it, as in "
            f"{bounded}, or have it not match a character that always stands before it (<[^<>]+> for <[^>]+>)"
        )
    tries = 1 if rest.sure else 1 + sum(map(most_width, before))
    return Rest(least + tries + rest.steps, (item, *(rest.first if least == 0 else ())), sure=least == 0 and rest.sure)


def judge_group(item: Choice, least: int, most: int | None, how: str, rest: Rest, before: Nodes) -> Rest:
    """A group that may come several times: each turn is followed by the next, or by what is behind them all."""
    part = write_one(item)
    if most is None or (most > 1 and is_endless(item)):
        raise ValueError(
            f"repeats a group without end, {part!r}: leave the repeat out (matches side by side are ignored one after "
            f"the other), repeat one set ([\\d,]+ for (\\d|,)+), or bound all in it"
        )
    if how == "+":
        raise ValueError(f"has a group that gives nothing back, {part}{{…}}+: leave out the +")
    behind = rest
    for turn in range(most, 0, -1):
        once = judge((item,), behind, before)
        behind = once if turn <= least else either([once, rest])
    return behind


def either(ways: Sequence[Rest]) -> Rest:
    """One of several: those are tried that may begin with the same character."""
    first = tuple(dict.fromkeys(one for way in ways for one in way.first))
    steps = max(sum(other.steps for other in ways if may_begin_alike(way, other)) for way in ways)
    return Rest(len(ways) + steps, first, sure=any(way.sure for way in ways))


def may_begin_alike(way: Rest, other: Rest) -> bool:
    """Whether a character may begin both."""
    return way is other or any(meet(one, another) for one in way.first for another in other.first)


def are_apart(item: One, least: int, rest: Rest) -> bool:
    """Whether what follows a run of the item cannot match before the end of that run."""
    if rest.edge and least and (is_within(item, WORD) or not meet(item, WORD)):
        return True  # there is no edge between two letters, nor between two blanks
    return not any(meet(item, one) for one in rest.first)


def is_guarded(item: One, least: int, before: Nodes) -> bool:
    """Whether a character that the item does not match always stands before the run, and only what has an end between them."""
    for distance, node in enumerate(reversed(before)):
        match node:
            case Mark(r"\A"):
                return True
            case Mark("^") if not meet(item, NEWLINE):
                return True
            case Mark(r"\b") if distance == 0 and least and is_within(item, WORD):
                return True
            case Look("(?<!", Choice(((One() as one,),))) if is_within(item, one):
                return True
            case Look("(?<=", Choice(((One() as one,),))) if not meet(item, one):
                return True
            case One() | Choice() | Repeat():
                clear = not any(meet(item, one) for one in characters(node))
                if clear and least_width(node):
                    return True
                if not clear and is_endless(node):
                    return False
    return False


def characters(node: Node) -> list[One]:
    """All that a part may take."""
    match node:
        case One():
            return [node]
        case Choice(branches):
            return [one for branch in branches for part in branch for one in characters(part)]
        case Repeat(item):
            return characters(item)
    return []


def is_endless(node: Node) -> bool:
    """Whether something in it repeats without end."""
    match node:
        case Choice(branches):
            return any(is_endless(part) for branch in branches for part in branch)
        case Look(_, body):
            return is_endless(body)
        case Repeat(item, _, most):
            return most is None or is_endless(item)
    return False


def least_width(node: Node) -> int:
    """How many characters it takes at least."""
    match node:
        case One():
            return 1
        case Choice(branches):
            return min(sum(map(least_width, branch)) for branch in branches)
        case Repeat(item, least):
            return least * least_width(item)
    return 0


def most_width(node: Node) -> int:
    """Of what has an end; a run without one counts as one character."""
    match node:
        case One():
            return 1
        case Choice(branches):
            return max(sum(map(most_width, branch)) for branch in branches)
        case Repeat(item, least, most):
            return (least + 1 if most is None else most) * most_width(item)
    return 0


@cache
def meet(one: One, other: One) -> bool:
    """Whether a character matches both."""
    if one.literal and other.literal:
        return one.literal == other.literal
    return bool((_members(one) & _members(other)).any())


@cache
def is_within(one: One, other: One) -> bool:
    """Whether all characters that match one match the other."""
    return not (_members(one) & ~_members(other)).any()


def _members(one: One) -> np.ndarray:
    """For each character by its number, whether it matches. (1,114,112) bool."""
    if not one.literal:
        return _members_of(one.source)
    members = np.zeros(CODES, bool)
    members[ord(one.literal)] = True
    return members


@cache
def _members_of(source: str) -> np.ndarray:
    """The engine is asked, which knows its sets best; without case, where it is slow, only about characters that have one."""
    members = np.zeros(CODES, bool)
    without_case = source.startswith("(?i:")
    if without_case and len(letter := source.removeprefix("(?i:[").removesuffix("])")) == 1:
        members[ord(letter)] = True
    elif without_case:
        members |= _members_of(source[4:-1])
    asked = _with_case() if without_case else _every_character()
    members[_numbers(asked)] = True
    members[_numbers(_without(asked, f"(?:{source})++"))] = False
    return members


def _without(text: str, expression: str) -> str:
    from tokenizers import Regex, normalizers

    return str(normalizers.Replace(Regex(expression), "").normalize_str(text))


def _numbers(characters: str) -> np.ndarray:
    return np.frombuffer(characters.encode("utf-32-le"), np.uint32)


@cache
def _every_character() -> str:
    return "".join(chr(code) for code in range(CODES) if not 0xD800 <= code < 0xE000)


@cache
def _with_case() -> str:
    return "".join(one for one in _every_character() if {one} != {one.lower(), one.upper(), one.title(), one.casefold()})


@cache
def _pair_for_one(one: One) -> str:
    """Characters that count as one where case does not: `ss` for `ß`. Empty where there are none."""
    return next((pair for pair in _pairs() if not _without(pair, rf"\A{one.source}\z")), "")


@cache
def _pairs() -> list[str]:
    return sorted({folded for character in _every_character() if len(folded := character.casefold()) > 1})
