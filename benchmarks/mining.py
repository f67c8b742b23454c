"""How long hard negatives take, by `mine_hard_negatives` of sentence-transformers and by ours, and whether they are the same.

    python benchmarks/mining.py
    python benchmarks/mining.py --model mpnet --pairs 500

Pairs of the task stdlib, three negatives each, at most 95 % of the right text's score. The ways take turns, and each has its
fastest round. Seconds are those of the processor, all threads together: other programs on the machine do not count.
"""

from __future__ import annotations

import argparse
import time

from datasets import Dataset
from sentence_transformers.util import mine_hard_negatives

from pairtune.data.datasets import load_task
from pairtune.data.mining import Wanted, mine_negatives, rank_by
from pairtune.data.pairs import PairSet
from pairtune.encoders.loading import load_encoder

COUNT, MARGIN = 3, 0.05


def main() -> None:
    """Both ways, in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="minilm", help="alias, folder or hub name of the encoder")
    parser.add_argument("--pairs", type=int, default=0, help="use this many pairs; 0: all")
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    pairs = load_task("stdlib").train
    pairs = PairSet.of(pairs.left[: given.pairs or None], pairs.right[: given.pairs or None])
    model = load_encoder(given.model)
    ways = {"sentence-transformers": by_host, "pairtune": by_us}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    found = {}
    for _ in range(given.rounds):
        for name, way in ways.items():
            start = time.process_time()
            found[name] = way(model, pairs)
            seconds[name].append(time.process_time() - start)
    host, ours = (min(seconds[name]) for name in ways)
    theirs, mine = found.values()
    same = sum(mine.get(pair) == negatives for pair, negatives in theirs.items())
    print(
        f"{len(pairs):,} pairs, {given.model}: {host:.1f} s → {ours:.1f} s ({host / ours:.2f} times as fast); "
        f"the same negatives for {same:,} of {len(theirs):,} pairs (ours: {len(mine):,} pairs)"
    )


def by_host(model, pairs):
    """Its function, with its defaults otherwise."""
    dataset = Dataset.from_dict({"left": pairs.left, "right": pairs.right})
    rows = mine_hard_negatives(
        dataset, model, num_negatives=COUNT, relative_margin=MARGIN, output_format="n-tuple", verbose=False
    )
    return {(row["left"], row["right"]): [row[f"negative_{number}"] for number in range(1, COUNT + 1)] for row in rows}


def by_us(model, pairs):
    """What `pairtune mine` calls."""
    mined = mine_negatives(pairs, Wanted(COUNT, relative_margin=MARGIN), rank_by(model)).pairs
    return {
        (left, right): list(negatives)
        for left, right, negatives in zip(mined.left, mined.right, mined.negatives or (), strict=True)
    }


if __name__ == "__main__":
    main()
