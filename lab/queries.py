"""The score of each test query, by run: what a paired comparison of two rows is made from.

They stand in results/queries/<encoder>.jsonl, one line per run, apart from the records, which are read far more often.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lab.lines import append_line, read_entries
from pairtune.metrics import Gold, score_ranks, scores_per_item
from pairtune.runs.evidence import Evidence

FOLDER = "queries"


def score_queries(evidence: Evidence, metric: str) -> list[float] | None:
    """The metric of each kept test query after training, in the order of the queries; None where it is not a mean over them."""
    tested = evidence.test
    if tested is None or evidence.kind not in ("ranking", "retrieval"):
        return None
    if tested.after.rank is not None:
        values = np.array([score_ranks(np.array([rank or np.inf]), [metric])[metric] for rank in tested.after.rank])
    else:
        gold = Gold(np.array(tested.label), np.array(tested.query), np.array(tested.grade), evidence.positive_above)
        found = scores_per_item(gold, np.array(tested.after.score), metric)
        assert found is not None
        values = found
    return [round(float(value), 4) for value in values]


def append_queries(path: Path, key: str, metric: str, scores: Sequence[float]) -> None:
    """Add one line: the key of the run, the metric and a score per query."""
    append_line(path, {"run": key, "metric": metric, "scores": scores})


def read_queries(results: Path) -> dict[str, np.ndarray]:
    """The scores of each run by its key, (Q,); of two lines for a run the later one."""
    return {entry["run"]: np.array(entry["scores"], float) for entry in read_entries(results / FOLDER)}
