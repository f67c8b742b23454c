"""What an order costs: the greedy pass of Algorithm 1, the search for neighbors, and re-ordering against an epoch of training.

    python benchmarks/ordering.py
    python benchmarks/ordering.py --texts 10000 100000 --train-pairs 1024 --json
    python benchmarks/ordering.py --device cuda --rows 10_000 100_000 1_000_000 --neighbors 100 500 --json
    python benchmarks/ordering.py --device cuda --train-pairs 3364 --model bert-base
    python benchmarks/ordering.py --recipe lab/recipes/qqp/bsc.toml --model bert-base

With --rows, whole orders by examples are made on --device and nothing else (up to 100,000 pairs the fastest of three): the
search for neighbors, checked against brute force in float64 on 256 rows, the greedy pass, and what `reuse` adds, which is
keeping the embeddings of an epoch. With --device cuda and without --rows, only re-ordering against an epoch is measured. With
--recipe, recipes are trained with `order.encode = "reuse"` for five epochs, on a GPU if there is one and in bf16 there: what
re-ordering and keeping take of all epochs but the first.

Seconds are processor time, which stays meaningful when the machine is shared, with the wall clock beside it. Vectors are
drawn around random centres; searches are timed on 8,192 of the texts and scaled to all. The training is the packed step on
docstrings of the standard library, cut at 24 tokens (128 on a GPU, in bf16, where the wall clock counts). With --json the
last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import platform

import numpy as np
from reordering import Stopwatch, measure_recipes, time_training

from pairtune.ordering import Side, nearest, order_pairs
from pairtune.ordering.examples import Reach, gather_groups, pairs_ahead
from pairtune.ordering.nearest import find_candidates
from pairtune.ordering.order import shuffle_rows
from pairtune.runs.recipe import OrderSettings

NEIGHBORS, GROUP, WIDTH, QUERIES = 500, 8, 384, 8192


def main() -> None:
    """Time everything, print a table and, if asked, the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=1_000_000, help="pairs in the greedy pass, with 100 neighbors each")
    parser.add_argument("--texts", type=int, nargs="+", default=[10_000, 50_000], help="texts whose neighbors are searched")
    parser.add_argument("--train-pairs", type=int, default=64, help="pairs in the training, 0 for none")
    parser.add_argument("--model", default="minilm", help="the encoder of the training; bert-base: that shape, random weights")
    parser.add_argument("--rows", type=int, nargs="+", help="pairs in whole orders; nothing else is measured then")
    parser.add_argument("--device", default="cpu", help="where whole orders are made: cpu or cuda")
    parser.add_argument("--neighbors", type=int, nargs="+", default=[100], help="of each text, in whole orders")
    parser.add_argument("--recipe", action="append", help="a recipe to train as it is; nothing else is measured then")
    parser.add_argument("--set", action="append", default=[], help="settings laid over the recipes, such as train.pairs=200")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    figures = measure_orders(given) if given.rows else measure_recipes(given) if given.recipe else measure_parts(given)
    for name, figure in figures.items():
        rest = "".join(f"   {key} {value:.3f}" for key, value in figure.items() if key not in ("cpu", "wall"))
        print(f"{name:52s} {figure['cpu']:8.2f} s cpu {figure['wall']:8.2f} s wall{rest}")
    if given.json:
        machine = {"cores": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()[0]}
        print(json.dumps({**vars(given), "machine": machine, "figures": figures}))


def measure_parts(given):
    """On a CPU the greedy pass, searches and orders of texts; on both kinds of device, training."""
    figures = {}
    if given.device == "cpu":
        figures[f"greedy pass, {given.pairs:,} pairs x 100 neighbors"] = time_greedy_pass(given.pairs)
        for count in given.texts:
            figures |= time_searches(count)
        for by in ("words", "uniform"):
            figures[f"order by {by}, 100,000 pairs"] = time_texts(by)
    if given.train_pairs:
        for encode in ("each-epoch", "reuse"):
            figures |= time_training(given.train_pairs, encode, given.model, given.device)
    return figures


def measure_orders(given):
    """Whole orders of so many pairs, each with so many neighbors."""
    order_pairs(side_of(3000).encoded(clustered(3000), device=given.device), OrderSettings(by="examples", neighbors=100), 1)
    figures = {}
    for count in given.rows:
        vectors = clustered(count, given.device)
        figures[f"keeping the embeddings of {count:,} pairs"] = time_keeping(count, vectors, given.device)
        for neighbors in given.neighbors:
            name = f"order of {count:,} pairs x {neighbors} neighbors, {given.device}"
            tries = [time_order(count, vectors, neighbors, given.device) for _ in range(3 if count <= 100_000 else 1)]
            figures[name] = min(tries, key=lambda figure: figure["wall"])
            print(name, figures[name], flush=True)
    return figures


def side_of(count):
    """Pairs whose texts are all different."""
    numbers = np.arange(count)
    return Side(tuple(map(str, range(count))), numbers, numbers)


def time_order(count, vectors, neighbors, device):
    """A whole order, its parts, and the share of neighbors that brute force finds too."""
    import torch

    settings = OrderSettings(by="examples", neighbors=neighbors, group=GROUP)
    side = side_of(count).encoded(vectors, device=device)
    whole, search, hashing = Stopwatch(), Stopwatch(), Stopwatch()
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    with whole.running():
        with search.running():
            reach = Reach(side, find_candidates(side, settings, neighbors), neighbors)
        with hashing.running():
            visits = shuffle_rows(count, 1)

        def find_near(pairs, used):
            with search.running():
                return reach(pairs, used)

        order = gather_groups(find_near, visits, GROUP, ahead=pairs_ahead(side, GROUP))
    parts = {"search": search.wall, "random numbers": hashing.wall, "greedy": whole.wall - search.wall - hashing.wall}
    memory = {} if device == "cpu" else {"peak GB": torch.cuda.max_memory_allocated() / 1e9}
    found = {"mean group": len(order) / len(order.groups), "found": check_neighbors(side, settings, device)}
    return {**vars(whole), **parts, **memory, **found}


def check_neighbors(side, settings, device):
    """The share of 256 rows' neighbors that are as near as those of brute force in float64, but for rounding."""
    import torch

    everything = torch.from_numpy(side.vectors).to(device)
    rows = torch.linspace(0, len(side) - 1, 256, device=device).long()
    similarities = torch.cat([everything[part].double() @ everything.double().T for part in rows.split(32)])
    similarities[torch.arange(len(rows)), rows] = -torch.inf
    found = find_candidates(side, settings, settings.neighbors)(rows.cpu().numpy())
    near = torch.from_numpy(found.texts[:, 1:]).to(device).long()
    last = similarities.topk(near.shape[1]).values[:, -1:]
    return float((similarities.gather(1, near) >= last - 1e-6).double().mean())


def time_keeping(count, vectors, device):
    """What `reuse` does beside training: file each batch's embeddings, bring them together, check them."""
    import torch

    from pairtune.sbert.memory import Encoded, Kept

    side, watch, flushing, checking = side_of(count), Stopwatch(), Stopwatch(), Stopwatch()
    batches = np.array_split(np.random.default_rng(0).permutation(count), max(1, count // 32))
    batches = [batch.tolist() for batch in batches]
    embeddings = torch.randn(2 * max(map(len, batches)), WIDTH, device=device)
    encoded = Encoded(torch.zeros(vectors.shape))
    kept = Kept(encoded, side.text, columns=2, place=0, device=torch.device(device))
    with watch.running():
        kept.begin_epoch(batches, 0)
        for batch in batches:
            kept.see(embeddings[: 2 * len(batch)])
            kept.end_batch()
        with flushing.running():
            kept.flush()
        with checking.running():
            side.encoded(kept.encoded.vectors, device=device)
    return {**vars(watch), "flush": flushing.wall, "check": checking.wall}


def time_greedy_pass(count):
    """Neighbors as real ones are: near in a common space, so that late pairs find most of theirs used."""
    rng = np.random.default_rng(0)
    spread = np.rint(rng.exponential(60, (count, 100)) + 1) * rng.choice([-1, 1], (count, 100))
    near = ((np.arange(count)[:, None] + spread) % count).astype(np.int32)
    visits = rng.permutation(count).tolist()
    watch = Stopwatch()
    with watch.running():
        order = gather_groups(lambda pairs, used: lambda place: near[pairs[place]].tolist(), visits, GROUP)
    return {**vars(watch), "mean group": len(order) / len(order.groups)}


def clustered(count, device="cpu"):
    """Vectors around one centre for every hundred, as texts on common subjects are."""
    import torch

    drawn = torch.Generator(device).manual_seed(count)
    centres = torch.randn(max(1, count // 100), WIDTH, device=device, generator=drawn)
    chosen = torch.randint(0, len(centres), (count,), device=device, generator=drawn)
    vectors = centres[chosen] + torch.randn(count, WIDTH, device=device, generator=drawn)
    return torch.nn.functional.normalize(vectors).cpu().numpy()


def time_searches(count):
    """Exact and approximate search for the 500 nearest."""
    vectors = clustered(count)
    found, figures = {}, {}
    for name, search in (("exact", nearest.search_exactly), ("approximate", nearest.search_approximately)):
        building, searching = Stopwatch(), Stopwatch()
        with building.running():
            find = search(vectors, NEIGHBORS)
        with searching.running():
            found[name], _ = find(np.arange(QUERIES))
        scale = count / len(found[name])
        figures[f"{name} search, {count:,} texts x {NEIGHBORS}"] = {
            clock: getattr(building, clock) + getattr(searching, clock) * scale for clock in ("cpu", "wall")
        }
    shared = [len(np.intersect1d(*pair)) for pair in zip(found["exact"][::50], found["approximate"][::50], strict=True)]
    figures[f"approximate search, {count:,} texts x {NEIGHBORS}"]["recall"] = float(np.mean(shared)) / NEIGHBORS
    return figures


def time_texts(by):
    """An order that needs no model."""
    rng = np.random.default_rng(1)
    side = Side.of([" ".join(f"w{x}" for x in row) for row in rng.zipf(1.3, (100_000, 10)) % 50_000])
    watch = Stopwatch()
    with watch.running():
        order_pairs(side, OrderSettings(by=by), 1)
    return vars(watch)


if __name__ == "__main__":
    main()
