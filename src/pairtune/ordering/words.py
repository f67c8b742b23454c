"""Algorithm 2 by words: pairs whose texts share a word come together."""

from __future__ import annotations

import regex

from pairtune.ordering.order import Order, Side
from pairtune.ordering.shingles import order_by_shingles
from pairtune.ordering.stopwords import STOP_WORDS
from pairtune.recipe import OrderSettings

WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+")


def order_by_words(side: Side, settings: OrderSettings, seed: int) -> Order:
    """Groups of pairs that drew the same `settings.shingle` words of their texts."""
    words = [find_words(text) for text in side.texts]
    identical = side.text if settings.drop_identical else None
    return order_by_shingles((words[i] for i in side.text.tolist()), len(side), settings.group, settings.shingle, seed, identical)


def find_words(text: str | None) -> list[str]:
    """The words of a text in their order, lower-cased, without stop words.

    İ and ς are replaced because lower() of Python, Java and DuckDB disagree on them, and on nothing else of Unicode 13.

    >>> find_words("How do I learn Python?")
    ['learn', 'python']
    """
    if text is None:
        return []
    folded = text.replace("İ", "i").lower().replace("ς", "σ")
    return [word for word in WORD.findall(folded) if word not in STOP_WORDS]
