"""The numbers that any system gave to the rows of a split."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pairtune.errors import UserError
from pairtune.pairs import PairSet
from pairtune.tasks.files import read_lines


def read_scores(path: Path, pairs: PairSet) -> np.ndarray:
    """Scores in the shape that the split asks for: (N,) one per pair or, in retrieval, (Q, C) query by query.

    path: a text file with one number per line, or a NumPy .npy file.
    """
    values = _read_npy(path) if path.suffix == ".npy" else _read_numbers(path)
    if pairs.corpus is None:
        return values.ravel()
    queries = len(set(pairs.query.tolist()))
    if values.size != queries * len(pairs.corpus):
        raise UserError(
            f"{path}: {values.size} scores for {queries} queries and {len(pairs.corpus)} candidates: "
            f"give {queries * len(pairs.corpus)}, all candidates of the first query first"
        )
    return values.reshape(queries, len(pairs.corpus))


def _read_numbers(path: Path) -> np.ndarray:
    values = []
    for number, line in read_lines(path):
        try:
            values.append(float(line))
        except ValueError:
            raise UserError(f"{path}, line {number}: {line.strip()[:40]!r} is not a number; give one score per line") from None
    return np.array(values)


def _read_npy(path: Path) -> np.ndarray:
    try:
        return np.asarray(np.load(path, allow_pickle=False), np.float64)
    except (OSError, ValueError) as problem:
        raise UserError(f"{path}: not a NumPy array of numbers: {problem}") from problem
