"""A collection: queries, a corpus and judgements, in a folder as BEIR has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pairtune.data.files import read_lines
from pairtune.data.formats import open_table
from pairtune.data.pairs import PairSet, Task
from pairtune.data.splits import distinct, split_by_key
from pairtune.errors import UserError

ENDINGS = (".jsonl", ".jsonl.gz", ".jsonl.zst")
SPLIT_FILES = {"train": ("train",), "dev": ("dev", "validation", "valid"), "test": ("test",)}
OF_SEARCH = ("MRR@10", "nDCG@10", "Recall@100", "MAP")  # the first one chooses the epoch
LAYOUT = "corpus.jsonl and queries.jsonl (with _id and text), and qrels/train.tsv, qrels/dev.tsv, qrels/test.tsv"

Judgements = list[tuple[str, str, float]]  # query, text, grade


def is_collection(path: Path) -> bool:
    """Whether a folder holds queries and judgements."""
    return path.is_dir() and _find(path, "queries") is not None


def read_collection(path: Path, seed: int = 0) -> Task:
    """The judged pairs of a folder such as BEIR's; every split searches the whole corpus.

    A grade above 0 is a right answer. Where there are judgements for train alone, dev and test are split from it, by query.
    """
    queries, texts = _read_texts(path, "queries"), _read_texts(path, "corpus")
    judged = {split: _read_split(path, names) for split, names in SPLIT_FILES.items()}
    found = {split: _pairs(path, rows, queries, texts) for split, rows in judged.items() if rows}
    if not found:
        raise UserError(f"{path}: no judgements in it; a collection has {LAYOUT}")
    parts, note = _split(found, seed, path)
    corpus = distinct(texts.values())
    whole = {split: _search(pairs, corpus) for split, pairs in parts.items()}
    sizes = ", ".join(f"{len(pairs):,} {split}" for split, pairs in whole.items() if len(pairs))
    notes = (f"retrieval: a collection of {len(queries):,} queries and {len(corpus):,} texts", f"{note}: {sizes}")
    return Task(
        path.name,
        "retrieval",
        whole["train"],
        whole["dev"],
        whole["test"],
        OF_SEARCH[0],
        OF_SEARCH,
        notes=notes,
        source=str(path),
    )


def read_judgements(path: Path) -> Judgements:
    """Judgements as BEIR writes them (a header; query, text, grade) or as TREC does (query, iteration, text, grade)."""
    rows: Judgements = []
    for line, text in read_lines(path):
        fields = text.split()
        if fields[-1:] == ["score"] and not rows:
            continue
        try:
            rows.append((fields[0], fields[-2], float(fields[-1])))
            if len(fields) not in (3, 4):
                raise ValueError
        except (ValueError, IndexError):
            raise UserError(f"{path} line {line}: {text[:60]!r}, expected a query, a text and a grade, or TREC's four") from None
    return rows


def _find(path: Path, name: str) -> Path | None:
    return next((path / f"{name}{ending}" for ending in ENDINGS if (path / f"{name}{ending}").is_file()), None)


def _read_texts(path: Path, name: str) -> dict[str, str]:
    file = _find(path, name)
    if file is None:
        raise UserError(f"{path}: no {name}.jsonl in it; a collection has {LAYOUT}")
    table = open_table(file)
    ids = [str(one) for one in table.column("_id" if "_id" in table.names else "id")]
    titles = table.column("title") if "title" in table.names else [""] * len(ids)
    texts = [f"{title or ''} {text}".strip() for title, text in zip(titles, table.column("text"), strict=True)]
    return dict(zip(ids, texts, strict=True))


def _read_split(path: Path, names: Sequence[str]) -> Judgements:
    files = (path / "qrels" / f"{name}{ending}" for name in names for ending in (".tsv", ".txt", ".qrels"))
    return next((read_judgements(file) for file in files if file.is_file()), [])


def _pairs(path: Path, rows: Judgements, queries: Mapping[str, str], texts: Mapping[str, str]) -> PairSet:
    for query, text, _ in rows:
        if query not in queries or not texts.get(text):
            missing = f"query {query}" if query not in queries else f"text {text}"
            raise UserError(f"{path}: {missing} has a judgement but is not in the collection: the files do not belong together")
    grade = np.array([grade for _, _, grade in rows], np.float32)
    return PairSet.of(
        [queries[query] for query, _, _ in rows],
        [texts[text] for _, text, _ in rows],
        (grade > 0).astype(np.float32),
        query=[query for query, _, _ in rows],
        grade=grade,
    )


def _split(found: Mapping[str, PairSet], seed: int, path: Path) -> tuple[dict[str, PairSet], str]:
    """Train, dev and test; what is missing of dev and test is split from train, if there is any."""
    missing = [place for place, name in enumerate(SPLIT_FILES) if name not in found]
    nothing = next(iter(found.values())).take([])
    parts = {name: found.get(name, nothing) for name in SPLIT_FILES}
    if "train" not in found or not missing:
        return parts, "as given"
    drawn = split_by_key(list(map(str, parts["train"].query)), seed, str(path))
    names = list(SPLIT_FILES)
    parts |= {names[place]: found["train"].take(drawn == place) for place in missing}
    return parts | {"train": found["train"].take(~np.isin(drawn, missing))}, "split by query"


def _search(pairs: PairSet, corpus: Sequence[str]) -> PairSet:
    return PairSet.of(pairs.left, pairs.right, pairs.label, query=pairs.query, grade=pairs.grade, corpus=corpus)
