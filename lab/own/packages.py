"""Four files of a user, made of the descriptions of Debian's packages: texts on which no recipe of the product was designed.

`packages-search` finds a description by its summary. `packages-grades` has the share of tags that two packages have in common.
`packages-yes-no` asks if two packages stand in one section. `packages-answers` asks which of eight summaries of a section belongs
to a description. The packages of train, dev and test are different ones. On Debian 12 the lists come with
`apt-get update -o Acquire::Languages=en`.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pairtune import UserError

LISTS, READER = Path("/var/lib/apt/lists"), Path("/usr/lib/apt/apt-helper")
SHARES = {"train": (0.0, 0.6, 1.0), "dev": (0.6, 0.75, 0.4), "test": (0.75, 1.0, 1.0)}  # from, to, size of the files
HEADERS: dict[str, tuple[str, ...]] = {
    "packages-search": ("query", "text"),
    "packages-grades": ("first", "second", "similarity"),
    "packages-yes-no": ("a", "b", "same"),
    "packages-answers": ("question", "answer", "right"),
}
TOPICS = frozenset(  # facets of tags that say what a package is about, and not how it is built
    [
        "use",
        "works-with",
        "field",
        "network",
        "security",
        "sound",
        "web",
        "game",
        "devel",
        "admin",
        "hardware",
        "mail",
        "science",
        "culture",
        "implemented-in",
        "protocol",
        "works-with-format",
        "biology",
    ]
)
NO_TOPIC = ("libs", "libdevel", "oldlibs", "misc", "devel", "utils")  # sections
CHARACTERS = 160  # of a description, where its first ones are enough


@dataclass(frozen=True)
class Package:
    """A package, by the first paragraph of its description and the line above it."""

    section: str
    summary: str
    text: str
    tags: frozenset[str]


def can_read() -> bool:
    """Whether this is a Debian with the lists of its packages, in English."""
    return bool(shutil.which("apt-cache") and READER.exists() and list(LISTS.glob("*Translation-en*")))


@cache
def make_files() -> dict[str, dict[str, list[tuple[Any, ...]]]]:
    """The rows of each file of each split, the same ones on every machine with the same lists."""
    if not can_read():
        raise UserError("the lists of Debian's packages are not here: on Debian, run apt-get update -o Acquire::Languages=en")
    draw = random.Random(7)
    packages = list(read_packages())
    draw.shuffle(packages)
    found: dict[str, dict[str, list[tuple[Any, ...]]]] = {}
    for split, (begin, end, size) in SHARES.items():
        part = packages[int(len(packages) * begin) : int(len(packages) * end)]
        found[split] = {
            "packages-search": [(one.summary, one.text) for one in part[: int(800 * size)]],
            "packages-grades": list(grades(part, int(800 * size), draw)),
            "packages-yes-no": list(same_section(part, int(600 * size), draw)),
            "packages-answers": list(answers(part, int(100 * size), draw)),
        }
    return found


def read_packages() -> Iterator[Package]:
    """One package of each source that has a real description, which no other one has."""
    texts = dict(read_descriptions())
    seen: set[str] = set()
    for block in run("apt-cache", "dumpavail").split("\n\n"):
        fields = dict(re.findall(r"^([\w-]+): (.*(?:\n .*)*)", block, re.MULTILINE))
        source, known = fields.get("Source", "").split(" ")[0] or fields.get("Package", ""), fields.get("Description-md5", "")
        if f"source {source}" in seen or known not in texts or "transitional" in block or "dummy" in block:
            continue
        summary, *lines = (line.strip() for line in texts[known].split("\n"))
        paragraph = " ".join(lines[: lines.index(".") if "." in lines else None])
        shown = {summary.casefold(), paragraph.casefold(), paragraph[:CHARACTERS].casefold()}
        if len(paragraph) >= 60 and len(summary) >= 12 and not shown & seen:
            seen |= {f"source {source}", *shown}
            tags = {tag.strip() for tag in fields.get("Tag", "").replace("\n", " ").split(",")}
            topics = frozenset(tag for tag in tags if tag.split("::")[0] in TOPICS)
            yield Package(fields.get("Section", ""), summary, paragraph, topics)


def read_descriptions() -> Iterator[tuple[str, str]]:
    """The English description of each package, by the digest that the list of packages has."""
    for path in LISTS.glob("*Translation-en*"):
        for block in run(str(READER), "cat-file", str(path)).split("\n\n"):
            digest = re.search(r"^Description-md5: (\w+)", block, re.MULTILINE)
            text = re.search(r"^Description-en: (.*?)(?=^\S|\Z)", block, re.MULTILINE | re.DOTALL)
            if digest and text:
                yield digest[1], text[1]


def run(*command: str) -> str:
    """What a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def grades(part: list[Package], count: int, draw: random.Random) -> Iterator[tuple[Any, ...]]:
    """Pairs of summaries: two thirds share a tag at least."""
    tagged = [one for one in part if len(one.tags) >= 2]
    by_tag = group((tag, one) for one in tagged for tag in one.tags)
    while count:
        one = draw.choice(tagged)
        other = draw.choice(tagged) if draw.random() < 0.35 else draw.choice(by_tag[draw.choice(sorted(one.tags))])
        if one is not other:
            count -= 1
            yield one.summary, other.summary, round(5 * len(one.tags & other.tags) / len(one.tags | other.tags), 1)


def same_section(part: list[Package], count: int, draw: random.Random) -> Iterator[tuple[Any, ...]]:
    """Pairs of descriptions from sections with a topic, about four of ten from the same one."""
    sections = {name: found for name, found in by_section(part).items() if len(found) >= 30 and name not in NO_TOPIC}
    packages = [one for found in sections.values() for one in found]
    while count:
        one, same = draw.choice(packages), draw.random() < 0.4
        other = draw.choice(sections[one.section] if same else packages)
        if one is not other:
            count -= 1
            yield one.text[:CHARACTERS], other.text[:CHARACTERS], "yes" if one.section == other.section else "no"


def answers(part: list[Package], count: int, draw: random.Random) -> Iterator[tuple[Any, ...]]:
    """A description, its own summary and seven others of its section, in any order."""
    sections = by_section(part)
    for one in draw.sample([one for one in part if len(sections[one.section]) > 20], count):
        others = draw.sample([other for other in sections[one.section] if other is not one], 7)
        shown = [(one, 1), *((other, 0) for other in others)]
        draw.shuffle(shown)
        yield from ((one.text[:CHARACTERS], other.summary, right) for other, right in shown)


def by_section(part: list[Package]) -> dict[str, list[Package]]:
    """The packages of each section."""
    return group((one.section, one) for one in part)


def group(pairs: Iterable[tuple[str, Package]]) -> dict[str, list[Package]]:
    """The packages of each key, in order."""
    found: dict[str, list[Package]] = defaultdict(list)
    for key, one in pairs:
        found[key].append(one)
    return found
