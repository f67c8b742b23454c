"""PFCC-S: finding the fact-checked claim that a tweet repeats (Shaar et al., 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pairtune.data.files import need_file, pick_columns, read_delimited
from pairtune.data.pairs import PairSet
from pairtune.data.splits import Splits, TaskInfo, connect, distinct, in_tenth, single_spaces
from pairtune.errors import UserError

TRAIN_PAIRS = 800  # the first pairs of the file; the rest is test

HOW_TO_GET = (
    "tweet-veclaim-pairs.tsv (columns claim, fact) and verified-claims.tsv (columns title, fact) of the Snopes data from "
    "https://github.com/sshaar/That-is-a-Known-Lie go in the folder pfcc_s of PAIRTUNE_DATA"
)


def load_pfcc(folder: Path) -> Splits:
    """Two TSV files with headers and quoting: the pairs, and all verified claims, which are the corpus."""
    path = need_file(folder, "tweet-veclaim-pairs.tsv")
    records = [fields for _, fields in pick_columns(path, read_delimited(path, quoted=True), ("claim", "fact"))]
    tweets, claims = [single_spaces(tweet) for tweet, _ in records], [single_spaces(claim) for _, claim in records]
    if len(records) <= TRAIN_PAIRS:
        raise UserError(f"{path}: {len(records)} pairs, expected more than {TRAIN_PAIRS}: the first {TRAIN_PAIRS} are train")
    titles, corpus = _read_claims(need_file(folder, "verified-claims.tsv"), claims)
    # every pair is a query of its own: the paper's scores are multiples of 1/199, with one tweet twice
    pairs = PairSet.of(tweets, claims, query=[f"tweet {row}" for row in range(1, len(records) + 1)], corpus=corpus)
    dev = in_tenth(connect(tweets[:TRAIN_PAIRS], claims[:TRAIN_PAIRS]))
    rows = np.arange(len(pairs))
    notes = [f"dev: {dev.sum()} of the {TRAIN_PAIRS} train pairs, by a hash of their claim; no claim or tweet is in both"]
    shared = set(tweets[:TRAIN_PAIRS]) & set(tweets[TRAIN_PAIRS:])
    if shared:
        notes.append(
            f"tweets that are both in train or dev and in test, with different claims: {len(shared)}, kept as in the paper"
        )
    return Splits(
        pairs.take(rows[:TRAIN_PAIRS][~dev]),
        pairs.take(rows[:TRAIN_PAIRS][dev]),
        pairs.take(rows[TRAIN_PAIRS:]),
        tuple(notes),
        {"titles": titles},
    )


def _read_claims(path: Path, claims: Sequence[str]) -> tuple[PairSet, tuple[str, ...]]:
    """The articles' titles, each with the claim that it verifies, and all claims; every paired claim is among them.

    White space is folded, and what is then the same stands there once.
    """
    records = [fields for _, fields in pick_columns(path, read_delimited(path, quoted=True), ("title", "fact"))]
    articles = list(dict.fromkeys((single_spaces(title), single_spaces(fact)) for title, fact in records))
    corpus = distinct(fact for _, fact in articles)
    missing = set(claims) - set(corpus)
    if missing:
        raise UserError(f"{path}: {len(missing)} claims of the pairs are not in it, such as {min(missing)!r}")
    titled = [(title, fact) for title, fact in articles if title and fact]
    return PairSet.of([title for title, _ in titled], [fact for _, fact in titled], corpus=corpus), corpus


INFO = TaskInfo(
    name="pfcc-s",
    kind="retrieval",
    metrics=("HP@1", "HP@5", "HP@50"),
    license="none stated; research use",
    citation="""@inproceedings{shaar-etal-2020-known,
  title = {That is a Known Lie: Detecting Previously Fact-Checked Claims},
  author = {Shaar, Shaden and Babulkov, Nikolay and Da San Martino, Giovanni and Nakov, Preslav},
  booktitle = {Proceedings of the 58th Annual Meeting of the Association for Computational Linguistics},
  year = {2020},
  pages = {3607--3618},
  doi = {10.18653/v1/2020.acl-main.332}
}""",
    how=HOW_TO_GET,
    folder="pfcc_s",
    load=load_pfcc,
)
