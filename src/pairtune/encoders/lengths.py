"""How many tokens texts have: what an encoder has to read, and what it cuts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

MEASURED = 5000  # texts, spread evenly over all
LONGEST = 512  # where an encoder names no limit
QUANTILE = 0.99


def count_sampled_tokens(model: SentenceTransformer, texts: Sequence[str]) -> np.ndarray:
    """The tokens of at most MEASURED texts, uncut, special ones included."""
    count = min(len(texts), MEASURED)
    chosen = [texts[int(place)] for place in np.arange(count) * len(texts) // max(count, 1)]
    found = model.tokenizer(chosen, truncation=False, padding=False, verbose=False)["input_ids"] if chosen else []
    return np.array([len(ids) for ids in found], np.int64)


def needed_length(model: SentenceTransformer, texts: Sequence[str], share: float = QUANTILE) -> tuple[int, int]:
    """The length that holds this share of the texts, at most the encoder's own limit; and how many texts it cuts.

    Measured on at most MEASURED texts; how many of all are cut is estimated from these.
    """
    tokens = count_sampled_tokens(model, texts)
    limit = int(model.max_seq_length or LONGEST)
    if not len(tokens):
        return limit, 0
    length = min(limit, int(np.quantile(tokens, share, method="higher")))
    return length, round(float((tokens > length).mean()) * len(texts))


def describe_cut(model: SentenceTransformer, texts: Sequence[str]) -> str:
    """How many of the texts are longer than the model reads, in words; empty where none is."""
    tokens = count_sampled_tokens(model, texts)
    limit = int(model.max_seq_length or LONGEST)
    cut = int((tokens > limit).sum())
    if not cut:
        return ""
    of = "texts" if len(texts) <= MEASURED else "texts that were measured"
    return f"{cut:,} of {len(tokens):,} {of} have more than {limit} tokens and are cut (the longest has {tokens.max():,})"
