"""What needs no encoder: the order of the file, which is time or a search engine's rank on some tasks, and BM25."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from lab.keys import read_data
from lab.searches import searches
from pairtune import PairSet, Task, load_task
from pairtune.data.datasets import TASKS
from pairtune.metrics import distinct_queries, score_split

FILE = "baselines.json"
Baselines = dict[str, dict[str, dict[str, float]]]  # by task, name of the baseline, and metric: on test
SATURATION, LENGTHS = 1.2, 0.75  # BM25's k1 and b, as search engines ship it


def compute_baselines(load: Callable[[str], Task] = load_task) -> Baselines:
    """The scores on test of every task that ranks."""
    names = [name for name in searches() if TASKS[name].kind in ("ranking", "retrieval")]
    return {name: score_baselines(load(name)) for name in names}


def score_baselines(task: Task) -> dict[str, dict[str, float]]:
    """Each baseline of a task in each of its metrics."""
    gold, found = task.test.gold(task.positive_above), {}
    if order := read_data("paper.toml")["file_order"].get(task.name):
        found[order] = score_split(gold, -np.arange(len(task.test), dtype=float), task.metrics)
    found["BM25"] = score_split(gold, score_by_words(task.test), task.metrics)
    return found


def score_by_words(pairs: PairSet) -> np.ndarray:
    """BM25 of each pair, (N,), among the right texts of its split; in a search of each query with each text, (Q, C)."""
    if pairs.corpus is not None:
        lefts = dict(zip(reversed(pairs.query), reversed(pairs.left), strict=True))
        return bm25([lefts[query] for query in distinct_queries(pairs.query)], pairs.corpus)
    texts = {text: place for place, text in enumerate(dict.fromkeys(pairs.right))}
    queries = {text: place for place, text in enumerate(dict.fromkeys(pairs.left))}
    scores = bm25(list(queries), list(texts))
    return scores[[queries[text] for text in pairs.left], [texts[text] for text in pairs.right]]


def bm25(queries: Sequence[str], texts: Sequence[str]) -> np.ndarray:
    """How well each text answers each query by the words they share, (Q, C) (Robertson and Zaragoza, 2009).

    >>> bm25(["a river"], ["the river", "the sea"]).round(2).tolist()
    [[0.69, 0.0]]
    """
    from sklearn.feature_extraction.text import CountVectorizer

    words = CountVectorizer(token_pattern=r"\w+")
    counts = csr_matrix(words.fit_transform(texts), dtype=float)  # (C, words)
    asked = csr_matrix(words.transform(queries), dtype=float)  # (Q, words)
    found_in = np.bincount(counts.indices, minlength=counts.shape[1])
    rarity = np.log1p((len(texts) - found_in + 0.5) / (found_in + 0.5))
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    slow = SATURATION * (1 - LENGTHS + LENGTHS * lengths / lengths.mean())  # (C,)
    rows = np.repeat(np.arange(len(texts)), np.diff(counts.indptr))
    counts.data = counts.data * (SATURATION + 1) / (counts.data + slow[rows]) * rarity[counts.indices]
    return np.asarray((asked @ counts.T).todense())


def write_baselines(results: Path, found: Baselines) -> None:
    """Beside the records."""
    (results / FILE).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def read_baselines(results: Path) -> Baselines:
    """Those that were written; none where nobody has."""
    path = results / FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
