"""Scoring pairs with an encoder: the cosine of the two embeddings, at inference always."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from sentence_transformers.sentence_transformer.evaluation import SentenceEvaluator

from pairtune.data.pairs import PairSet, Task
from pairtune.encoders.embedding import Embeddings
from pairtune.encoders.sizes import PRECISIONS, Smaller, count_bytes
from pairtune.metrics import THRESHOLDS, distinct_queries, find_hits, first_hit_ranks, score_ranks, score_split
from pairtune.metrics.measures import Answered, all_hit_ranks, find_gains
from pairtune.progress import track
from pairtune.runs.record import Precision, Size, choice_score

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

CHOICE = "choice"  # among the scores of an evaluation: what the best epoch is chosen by
SEARCH_CELLS = 2**24  # similarities of queries with the whole corpus that are held at a time


@dataclass(frozen=True)
class Hits:
    """What a search finds for Q queries, each (Q,): the rank of the best right answer, from 1, infinite where there is none.

    right, rival: the places in the corpus of the best right and the best wrong answer, −1 where there is none.
    score, rival_score: their cosines. ranks: for each query, those of all its right answers.
    """

    rank: np.ndarray
    right: np.ndarray
    score: np.ndarray
    rival: np.ndarray
    rival_score: np.ndarray
    ranks: tuple[np.ndarray, ...] = ()


def find_best(scores: np.ndarray, hits: Sequence[np.ndarray]) -> Hits:
    """The best right and the best wrong answer of each query among C candidates; scores: (Q, C)."""
    is_hit = np.zeros(scores.shape, bool)
    for row, columns in enumerate(hits):
        is_hit[row, columns] = True
    found = [np.where(mask, scores, -np.inf) for mask in (is_hit, ~is_hit)]
    places = [np.where(mask.any(axis=1), side.argmax(axis=1), -1) for mask, side in zip((is_hit, ~is_hit), found, strict=True)]
    right, rival = (np.where(np.isfinite(best), best, -1.0) for best in (side.max(axis=1) for side in found))
    return Hits(first_hit_ranks(scores, hits), places[0], right, places[1], rival, tuple(all_hit_ranks(scores, hits)))


def rank_hits(embeddings: Embeddings | Smaller, pairs: PairSet, positive_above: float) -> Hits:
    """What each query finds in the corpus, a block of queries at a time."""
    assert pairs.corpus is not None
    first = dict(zip(reversed(pairs.query), reversed(pairs.left), strict=True))
    queries = [first[query] for query in distinct_queries(pairs.query)]
    corpus = embeddings(pairs.corpus, "encoding the corpus")
    vectors = embeddings(queries, "encoding the queries")
    hits = find_hits(pairs.gold(positive_above))
    block = max(1, SEARCH_CELLS // len(pairs.corpus))
    blocks = [slice(start, start + block) for start in range(0, len(queries), block)]
    found = [find_best(vectors[block] @ corpus.T, hits[block]) for block in track(blocks, "searching")]
    names = [field.name for field in fields(Hits) if field.name != "ranks"]
    whole = {name: np.concatenate([getattr(part, name) for part in found]) for name in names}
    return Hits(**whole, ranks=tuple(ranks for part in found for ranks in part.ranks))


def evaluate_pairs(
    embeddings: Embeddings | Smaller,
    pairs: PairSet,
    metrics: Sequence[str],
    positive_above: float,
    dev: PairSet | None = None,
    keep: Callable[[np.ndarray | Hits], None] = lambda found: None,
    f1_threshold: str = "steady",
) -> dict[str, float]:
    """The metrics of a split. The threshold of F1 is chosen on dev, and on the split itself only if that is dev.

    keep: is shown what the metrics are made from, (N,) scores, or the hits of a search.
    f1_threshold: how it is chosen, by a name in THRESHOLDS.
    """
    if pairs.corpus is not None:
        keep(hits := rank_hits(embeddings, pairs, positive_above))
        return score_ranks(hits.rank, metrics, Answered(hits.ranks, find_gains(pairs.gold(positive_above))))
    keep(scores := embeddings.score(pairs.left, pairs.right))
    if "F1" not in metrics:
        return score_split(pairs.gold(positive_above), scores, metrics)
    # dev only: a threshold tuned on test would leak
    on_dev = scores if dev is None or dev is pairs else embeddings.score(dev.left, dev.right)
    threshold = THRESHOLDS[f1_threshold](on_dev, (dev or pairs).positives(positive_above))
    values = score_split(pairs.gold(positive_above), scores, metrics, threshold=threshold)
    return {**values, "threshold": threshold}


def evaluate_task(
    model: SentenceTransformer,
    task: Task,
    splits: Sequence[str] = ("dev", "test"),
    keep: dict[str, np.ndarray | Hits] | None = None,
) -> dict[str, dict[str, float]]:
    """The task's metrics on each of the splits; what they are made from goes into `keep`."""
    kept = {} if keep is None else keep
    if task.sources:
        found = {name: evaluate_task(model, source, splits) for name, source in task.sources.items()}
        return {split: join_scores(task, {name: values[split] for name, values in found.items()}) for split in splits}
    embeddings = Embeddings(model, exact=True)
    how = partial(evaluate_pairs, embeddings, positive_above=task.positive_above, dev=task.dev, f1_threshold=task.f1_threshold)
    return {name: how(task.split(name), task.metrics, keep=partial(kept.__setitem__, name)) for name in splits}


def join_scores(task: Task, scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The mean of the sources' main metrics, and all their metrics with the name of the source before."""
    mean = float(np.mean([scores[name][source.metric] for name, source in task.sources.items()]))
    return {task.metric: mean} | {f"{name} {key}": value for name, own in scores.items() for key, value in own.items()}


def evaluate_sizes(
    model: SentenceTransformer, task: Task, split: str, dimensions: Sequence[int], precisions: Sequence[Precision] = PRECISIONS
) -> list[Size]:
    """The task's metrics on a split with smaller embeddings: every dimension at every precision, encoded once."""
    pairs, whole = task.split(split), Embeddings(model, exact=True)
    texts = [*pairs.left, *pairs.right, *(pairs.corpus or ())]
    whole(list(dict.fromkeys([*texts, *task.dev.left, *task.dev.right])))
    found = []
    for dimension, precision in product(sorted(set(dimensions), reverse=True), precisions):
        smaller = Smaller(whole, dimension, precision, calibration=texts)
        scores = evaluate_pairs(smaller, pairs, task.metrics, task.positive_above, task.dev, f1_threshold=task.f1_threshold)
        size = count_bytes(dimension, precision)
        found.append(Size(dimension=dimension, precision=precision, bytes=size, scores=scores))
    return found


class PairEvaluator(SentenceEvaluator):
    """A split of pairs as an evaluator of the host's trainer: metrics by name, the main one as `primary_metric`.

    >>> PairEvaluator(PairSet.of(["a"], ["b"]), "Spearman", ("Spearman", "Pearson"), name="stsb-dev").primary_metric
    'stsb-dev_Spearman'
    """

    def __init__(
        self,
        pairs: PairSet,
        metric: str,
        metrics: Sequence[str],
        *,
        positive_above: float = 0.5,
        name: str = "dev",
        f1_threshold: str = "steady",
    ) -> None:
        super().__init__()
        self.f1_threshold = f1_threshold
        self.pairs, self.metrics, self.positive_above, self.name = pairs, tuple(metrics), positive_above, name
        self.metric, self.primary_metric = metric, f"{name}_{metric}"

    @classmethod
    def of_task(cls, task: Task, split: str = "dev") -> PairEvaluator:
        """The evaluator of a task's split."""
        if task.sources:
            return SourcesEvaluator(task, split)
        how: Any = {"positive_above": task.positive_above, "f1_threshold": task.f1_threshold}
        return cls(task.split(split), task.metric, task.metrics, name=split, **how)

    def __call__(self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1) -> dict[str, float]:
        """Score the split; the host logs the scores and puts them on the model card."""
        embeddings = Embeddings(model, exact=True)
        values = evaluate_pairs(embeddings, self.pairs, self.metrics, self.positive_above, f1_threshold=self.f1_threshold)
        return self.report(values, model, epoch, steps)

    def report(self, values: dict[str, float], model: Any, epoch: int, steps: int) -> dict[str, float]:
        """The scores as the host has them, and CHOICE, by which the best epoch is chosen."""
        named = {f"{self.name}_{key}": value for key, value in values.items()}
        self.store_metrics_in_model_card_data(model, named, epoch, steps)
        return {**named, CHOICE: choice_score(values, self.metric)}

    def get_config_dict(self) -> dict[str, Any]:
        """What the model card says of the evaluation."""
        return {"pairs": len(self.pairs), "positive_above": self.positive_above}


class SourcesEvaluator(PairEvaluator):
    """The same of several sources: their metrics, and the mean of their main ones, which is the `primary_metric`."""

    def __init__(self, task: Task, split: str) -> None:
        super().__init__(task.split(split), task.metric, task.metrics, name=split)
        self.task = task

    def __call__(self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1) -> dict[str, float]:
        """Score the split of every source."""
        return self.report(evaluate_task(model, self.task, [self.name])[self.name], model, epoch, steps)
