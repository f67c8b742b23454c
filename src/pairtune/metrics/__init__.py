"""How good a set of scores is: per item first, then the mean."""

from pairtune.metrics.ranking import distinct_queries, find_hits, first_hit_ranks
from pairtune.metrics.table import METRICS, check_metrics, score_ranks, score_split, scores_per_item
from pairtune.metrics.threshold import best_threshold

__all__ = [
    "METRICS",
    "best_threshold",
    "check_metrics",
    "distinct_queries",
    "find_hits",
    "first_hit_ranks",
    "score_ranks",
    "score_split",
    "scores_per_item",
]
