"""Five files of a user, made of WordNet and of Perl's list of questions: texts on which no recipe of the product was designed.

`senses-answers` asks which definition of a word a sentence uses. `senses-yes-no` asks if two sentences use a word in the same
sense. `senses-grades` has the similarity of two definitions: how near they stand in WordNet. `senses-search` finds a word's
definition by its synonyms. `faq-search` finds an answer by its question. No word and no question is in two splits.
On Debian the texts come with `apt-get install wordnet-base perl-doc`.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from pairtune import UserError

WORDNET, PERL = Path("/usr/share/wordnet"), Path("/usr/share/perl")
SHARES = {"train": (0.0, 0.6, 1.0), "dev": (0.6, 0.75, 0.4), "test": (0.75, 1.0, 1.0)}  # from, to, size of the files
HEADERS: dict[str, tuple[str, ...]] = {
    "senses-answers": ("sentence", "definition", "right"),
    "senses-yes-no": ("first", "second", "same"),
    "senses-grades": ("a", "b", "nearness"),
    "senses-search": ("synonyms", "definition"),
    "faq-search": ("question", "answer"),
}
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Sense:
    """A synset: its words, its definition, sentences that use one of them, and the synset above it."""

    key: str
    words: tuple[str, ...]
    definition: str
    examples: tuple[str, ...]
    above: str | None


def can_read() -> bool:
    """Whether WordNet and Perl's questions are installed."""
    return (WORDNET / "data.noun").exists() and bool(find_questions())


def find_questions() -> list[Path]:
    """The parts of Perl's list of questions."""
    return sorted({path.resolve() for path in PERL.glob("*/pod/perlfaq[1-9].pod")})


@cache
def make_files() -> dict[str, dict[str, Rows]]:
    """By split, the rows of each file."""
    if not can_read():
        raise UserError("WordNet and Perl's questions are not here: on Debian, run apt-get install wordnet-base perl-doc")
    draw = random.Random(7)
    senses = {sense.key: sense for part in ("noun", "verb", "adj") for sense in read_senses(part)}
    words = sorted({word for sense in senses.values() for word in sense.words})
    questions = [row for path in find_questions() for row in read_questions(path.read_text(encoding="utf-8"))]
    draw.shuffle(words)
    draw.shuffle(questions)
    place = {word: number / len(words) for number, word in enumerate(words)}
    found: dict[str, dict[str, Rows]] = {}
    for split, (begin, end, size) in SHARES.items():
        inside = [one for one in senses.values() if all(begin <= place[word] < end for word in one.words)]
        draw.shuffle(inside)
        found[split] = {
            "senses-answers": list(which_sense(inside, int(200 * size), draw)),
            "senses-yes-no": list(same_sense(inside, int(800 * size), draw)),
            "senses-grades": list(nearness(inside, senses, int(800 * size), draw)),
            "senses-search": [(", ".join(one.words), one.definition) for one in inside if len(one.words) > 1][: int(800 * size)],
            "faq-search": questions[int(len(questions) * begin) : int(len(questions) * end)],
        }
    return found


def read_senses(part: str) -> Iterator[Sense]:
    """The synsets of a part of speech."""
    for line in (WORDNET / f"data.{part}").read_text(encoding="utf-8").splitlines():
        if line.startswith("  "):  # the licence
            continue
        facts, _, gloss = line.partition(" | ")
        fields = facts.split()
        count = int(fields[3], 16)
        words = (fields[4 + 2 * number] for number in range(count))
        pointers = fields[5 + 2 * count :]
        above = next((f"{part}-{key}" for sign, key in pairwise(pointers) if sign == "@"), None)
        definition, *examples = (text.strip(' ;"') for text in re.split(r'(?:;\s*)(?=")', gloss.strip()))
        names = tuple(dict.fromkeys(re.sub(r"\(.*\)$", "", word).replace("_", " ").lower() for word in words))
        yield Sense(
            f"{part}-{fields[0]}", names, definition, tuple(dict.fromkeys(text for text in examples if len(text) > 15)), above
        )


def which_sense(senses: list[Sense], count: int, draw: random.Random) -> Iterator[tuple[Any, ...]]:
    """A word in a sentence, the definition that fits, and up to seven others of the word."""
    known = by_word(senses)
    asked = [(word, one) for word, found in known.items() for one in found if len(found) > 2 and uses(one, word)]
    for word, one in draw.sample(asked, count):
        others = [other for other in known[word] if other is not one]
        shown = [(one, 1), *((other, 0) for other in draw.sample(others, min(7, len(others))))]
        draw.shuffle(shown)
        sentence = draw.choice(uses(one, word))
        yield from ((f"{word}: {sentence}", other.definition, right) for other, right in shown)


def same_sense(senses: list[Sense], count: int, draw: random.Random) -> Iterator[tuple[Any, ...]]:
    """Two sentences with the same word, half of them in the same sense."""
    known = by_word(senses)
    same = [(word, one, one) for word, found in known.items() for one in found if len(uses(one, word)) > 1]
    other = [
        (word, one, two)
        for word, found in known.items()
        for one in found
        for two in found
        if one is not two and set(uses(two, word)) - set(uses(one, word)) and uses(one, word)
    ]
    for number in range(count):
        word, one, two = draw.choice(same if number % 2 else other)
        first = draw.choice(uses(one, word))
        second = draw.choice([text for text in uses(two, word) if text != first and (one is two or text not in uses(one, word))])
        yield f"{word}: {first}", f"{word}: {second}", number % 2


def nearness(senses: list[Sense], all_senses: dict[str, Sense], count: int, draw: random.Random) -> Iterator[tuple[Any, ...]]:
    """Two definitions of nouns and how near they stand: 2 × the depth of what is above both / the sum of their depths."""
    nouns = [one for one in senses if one.key.startswith("noun")]
    below = defaultdict(list)
    for one in nouns:
        for key in path_up(one, all_senses)[1:5]:
            below[key].append(one)
    while count:
        one = draw.choice(nouns)
        family = below[draw.choice(path_up(one, all_senses)[1:5] or [one.key])]
        other = draw.choice(family) if family and draw.random() < 0.7 else draw.choice(nouns)
        if one is other:
            continue
        count -= 1
        up, above = path_up(one, all_senses), path_up(other, all_senses)
        shared = next((key for key in up if key in above), None)
        depth = 0 if shared is None else len(up) - up.index(shared)
        yield one.definition, other.definition, round(2 * depth / (len(up) + len(above)), 2)


def path_up(sense: Sense, senses: dict[str, Sense]) -> list[str]:
    """A synset and all above it."""
    path = [sense.key]
    while (above := senses[path[-1]].above) is not None:
        path.append(above)
    return path


def by_word(senses: list[Sense]) -> dict[str, list[Sense]]:
    """The synsets of each word."""
    found: dict[str, list[Sense]] = defaultdict(list)
    for one in senses:
        for word in one.words:
            found[word].append(one)
    return found


def uses(sense: Sense, word: str) -> list[str]:
    """The examples that have the word itself."""
    return [text for text in sense.examples if word in text.lower()]


def read_questions(text: str) -> Iterator[tuple[str, str]]:
    """Each question and the first paragraphs of its answer, without Perl's marks of format."""
    for block in re.split(r"^=head2 ", text, flags=re.MULTILINE)[1:]:
        question, _, answer = block.partition("\n\n")
        paragraphs = [one for one in answer.split("\n\n") if one and not one.startswith((" ", "=", "(contributed"))]
        shown = " ".join(plain(one) for one in paragraphs[:3])
        if len(shown) > 40:
            yield plain(question), shown[:600]


def plain(text: str) -> str:
    """A paragraph on one line.

    >>> plain("How do I use C<sort>? See L<perlfunc/sort>. X<sort> X<sort, a list>")
    'How do I use sort? See perlfunc/sort.'
    """
    text = re.sub(r"X<[^>]*>", "", text)  # entries of an index
    return " ".join(re.sub(r"[A-Z]<+\s*([^<>]*?)\s*>+", r"\1", text).split())
