"""A collection: queries, a corpus and judgements, in a folder as BEIR has them or by its name in ir_datasets; and TREC's runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pairtune.data.files import read_lines
from pairtune.data.formats import open_table
from pairtune.data.pairs import PairSet, Task
from pairtune.data.splits import distinct, split_by_key
from pairtune.errors import UserError
from pairtune.progress import track

ENDINGS = (".jsonl", ".jsonl.gz", ".jsonl.zst")
IR = "ir:"  # before the name of a collection in ir_datasets
RUNS = (".trec", ".run", ".txt", ".tsv")
SPLIT_FILES = {"train": ("train",), "dev": ("dev", "validation", "valid"), "test": ("test",)}
OF_SEARCH = ("MRR@10", "nDCG@10", "Recall@100", "MAP")  # the first one chooses the epoch
LAYOUT = "corpus.jsonl and queries.jsonl (with _id and text), and qrels/train.tsv, qrels/dev.tsv, qrels/test.tsv"

Judgements = list[tuple[str, str, float]]  # query, text, grade


def is_collection(path: Path) -> bool:
    """Whether a folder holds queries and judgements, or a name is one of ir_datasets."""
    return str(path).startswith(IR) or (path.is_dir() and _find_part(path, "queries") is not None)


def read_collection(path: Path, seed: int = 0) -> Task:
    """The judged pairs of a folder such as BEIR's, or of `ir:NAME`; every split searches the whole corpus.

    A grade above 0 is a right answer. Where there are judgements for train alone, dev and test are split from it, by query.
    """
    queries, texts = read_texts_by_id(path, "queries"), read_texts_by_id(path, "corpus")
    judged = (
        _judgements_of_name(path)
        if str(path).startswith(IR)
        else {split: _read_split(path, names) for split, names in SPLIT_FILES.items()}
    )
    found = {split: _pairs(path, rows, queries, texts) for split, rows in judged.items() if rows}
    if not found:
        raise UserError(f"{path}: no judgements in it; a collection has {LAYOUT}")
    parts, note = _split(found, seed, path)
    corpus = distinct(texts.values())
    whole = {split: _with_corpus(pairs, corpus) for split, pairs in parts.items()}
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


def read_texts_by_id(path: Path, name: str) -> dict[str, str]:
    """The queries or the corpus of a collection, by id. name: queries or corpus."""
    return _texts_of_name(path, name) if str(path).startswith(IR) else _read_texts(path, name)


def _load(name: str) -> Any:
    """A dataset of ir_datasets; it downloads what it needs, once."""
    try:
        import ir_datasets
    except ImportError as problem:
        raise UserError(f"{IR}{name}: collections by name need a package: pip install 'pairtune[ir]'") from problem
    try:
        return ir_datasets.load(name)
    except KeyError as problem:
        raise UserError(f"{IR}{name}: ir_datasets knows no such collection; its names are as in ir:beir/scifact") from problem


def _texts_of_name(path: Path, name: str) -> dict[str, str]:
    dataset, given = _load(str(path).removeprefix(IR)), str(path)
    parts = [dataset] if name == "corpus" or dataset.has_queries() else [part for _, part in _parts(given)]
    what = "docs" if name == "corpus" else "queries"
    if not parts or not all(getattr(part, f"has_{what}")() for part in parts):
        raise UserError(f"{given}: this collection of ir_datasets has no {what}; give one that has, such as ir:beir/scifact")
    key = "doc_id" if name == "corpus" else "query_id"
    try:
        found = (one for part in parts for one in getattr(part, f"{what}_iter")())
        return {getattr(one, key): one.default_text().strip() for one in track(found, f"reading the {what} of {given}")}
    except OSError as problem:
        raise UserError(
            f"{given}: could not be downloaded ({problem}); run this once with a network, and ir_datasets keeps the collection"
        ) from problem


def _parts(name: str) -> list[tuple[str, Any]]:
    """The splits that a collection of ir_datasets has under its name; or itself, as the split that its name ends with."""
    import ir_datasets

    own = name.removeprefix(IR)
    below = [
        (split, f"{own}/{other}")
        for split, names in SPLIT_FILES.items()
        for other in names
        if f"{own}/{other}" in ir_datasets.registry
    ]
    if below:
        return [(split, _load(full)) for split, full in below]
    ends = next((split for split, names in SPLIT_FILES.items() if own.rpartition("/")[2] in names), "train")
    return [(ends, _load(own))]


def _judgements_of_name(path: Path) -> dict[str, Judgements]:
    parts = [(split, part) for split, part in _parts(str(path)) if part.has_qrels()]
    return {split: [(one.query_id, one.doc_id, float(one.relevance)) for one in part.qrels_iter()] for split, part in parts}


TrecRun = dict[str, dict[str, float]]  # for each query, the scores of the texts that were found, best first


def is_run(path: Path) -> bool:
    """Whether a file is a TREC run: six fields, of which the second says nothing and the fifth is the score."""
    if path.suffix.lower() not in RUNS or not path.is_file():
        return False
    first = next(read_lines(path), (0, ""))[1].split()
    return len(first) == 6 or path.suffix.lower() in RUNS[:2]


def read_run(path: Path) -> TrecRun:
    """A TREC run: query, Q0, text, rank, score, name. Equal scores stay in the order of the file."""
    found: TrecRun = {}
    for line, text in read_lines(path):
        fields = text.split()
        try:
            query, _, place, _, score, _ = fields
            value = float(score)
            if not np.isfinite(value) or place in found.setdefault(query, {}):
                raise ValueError
        except ValueError:
            expected = "a query, Q0, a text (once for each query), a rank, a score and a name"
            raise UserError(f"{path} line {line}: {text[:60]!r}, expected {expected}") from None
        found[query][place] = value
    return {query: dict(sorted(own.items(), key=lambda item: -item[1])) for query, own in found.items()}


def score_run(run: TrecRun, pairs: PairSet, ids: Mapping[str, str], names: Sequence[str], origin: str) -> dict[str, float]:
    """The metrics of a run on the judged pairs of a collection; a right answer that was not found has no rank.

    ids: the corpus by id. Texts that are the same count once.
    """
    from pairtune.metrics import distinct_queries, find_hits, score_ranks  # here: they take a second to import
    from pairtune.metrics.measures import Answered, find_gains

    gold = pairs.gold()
    place = {text: at for at, text in enumerate(gold.corpus or ())}
    ranks: list[np.ndarray] = []
    for query, hits in zip(distinct_queries(pairs.query), find_hits(gold), strict=True):
        if unknown := next((one for one in run.get(query, ()) if one not in ids), None):
            raise UserError(f"{origin}: text {unknown!r} of query {query} is not in the collection: they do not belong together")
        found = distinct(ids[one] for one in run.get(query, ()))
        rank = {place[text]: number for number, text in enumerate(found, start=1) if text in place}
        ranks.append(np.array([rank.get(hit, np.inf) for hit in hits.tolist()], float))
    if not set(run) & set(pairs.query.tolist()):
        raise UserError(f"{origin}: none of its queries is judged in the collection: they do not belong together")
    first = np.array([own.min(initial=np.inf) for own in ranks])
    return score_ranks(first, names, Answered(ranks, find_gains(gold)))


class TrecRanker:
    """Ranks by a run, for mining: candidates are what it found. A right answer that it did not find scores like its best one."""

    def __init__(self, run: TrecRun, path: Path, queries: Sequence[str], corpus: Sequence[str]) -> None:
        asked, texts = read_texts_by_id(path, "queries"), read_texts_by_id(path, "corpus")
        place = {text: at for at, text in enumerate(corpus)}
        by_text = {asked[query]: own for query, own in run.items() if query in asked}
        self.found = [
            {place[texts[one]]: score for one, score in by_text.get(query, {}).items() if texts.get(one) in place}
            for query in queries
        ]

    def rank(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The texts that were found, −1 where there are no more."""
        scores = np.full((len(self.found), count), -np.inf)
        places = np.full((len(self.found), count), -1)
        for row, own in enumerate(self.found):
            some = list(own.items())[:count]
            places[row, : len(some)], scores[row, : len(some)] = [at for at, _ in some], [score for _, score in some]
        return scores, places

    def score(self, queries: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Of right answers."""
        both = zip(queries.tolist(), places.tolist(), strict=True)
        return np.array([self.found[query].get(at, max(self.found[query].values(), default=0.0)) for query, at in both])


def _find_part(path: Path, name: str) -> Path | None:
    return next((path / f"{name}{ending}" for ending in ENDINGS if (path / f"{name}{ending}").is_file()), None)


def _read_texts(path: Path, name: str) -> dict[str, str]:
    file = _find_part(path, name)
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


def _with_corpus(pairs: PairSet, corpus: Sequence[str]) -> PairSet:
    return PairSet.of(pairs.left, pairs.right, pairs.label, query=pairs.query, grade=pairs.grade, corpus=corpus)
