"""How good a set of scores is: per item first, then the mean."""

from pairtune.metrics.names import METRICS, check_metrics, needs_all_hits, score_ranks, score_split, scores_per_item
from pairtune.metrics.pairwise import best_threshold
from pairtune.metrics.ranking import Gold, distinct_queries, find_hits, first_hit_ranks

__all__ = [
    "METRICS",
    "Gold",
    "best_threshold",
    "check_metrics",
    "distinct_queries",
    "find_hits",
    "first_hit_ranks",
    "needs_all_hits",
    "score_ranks",
    "score_split",
    "scores_per_item",
]
