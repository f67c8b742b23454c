"""The batch-softmax loss, forward and backward, beside its peers: time, memory, and how far its gradient is from float64.

    python benchmarks/loss.py
    python benchmarks/loss.py --device cuda --pairs 16384 65536 262144 --peers-up-to 65536 --json --plot scaling.svg
    python benchmarks/loss.py --device cuda --lines loss.jsonl     # each of our paths beside torch.compile, 512 to 65,536 pairs

Peers in the same process: the plain path, eager cross-entropy of S and Sᵀ, the same under torch.compile,
sentence-transformers' symmetric loss and its cached one, and inf_cl where it is installed. On CUDA embeddings are bf16, and
eager and its compiled form run under bf16 autocast. Memory is the peak beyond embeddings and their gradients (CUDA only).
On CPU one thread is used, and its processor time is what is given. The error is ‖g − g₆₄‖ / ‖g₆₄‖ over 64 rows of
each side. With --json the last line is one JSON object. With --lines nothing else is measured, and every measurement is a line of
JSON, written at once; torch.compile starts anew at each size, so that its code is made for that size alone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import time
import warnings
from importlib.util import find_spec
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy, normalize

from pairtune.loss import batch_softmax_loss
from pairtune.loss.large.fused import TileSizes, fuse
from pairtune.loss.large.layout import layout_of_pairs

SIZES = [2**power for power in range(9, 17)]  # 512 to 65,536
TAU, SAMPLE, CHUNK = 0.05, 64, 2048
DIRECTIONS = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction", "scale": 1 / TAU}


def main() -> None:
    """Time everything, print a table and, if asked, the plot and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--pairs", type=int, nargs="+", help="4,096 unless given; with --lines 512 to 65,536")
    parser.add_argument("--width", type=int, help="384 on CPU, 768 on CUDA unless given")
    parser.add_argument("--peers-up-to", type=int, default=65_536, help="pairs above which only ours and inf_cl run")
    parser.add_argument("--inf-cl-up-to", type=int, default=65_536)
    parser.add_argument("--true-up-to", type=int, default=65_536, help="pairs above which float64 is not asked")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--lines", help="a file to which a line of JSON is added for each path and size")
    parser.add_argument("--plot", help="an .svg file of time and memory against pairs (needs matplotlib)")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    width = given.width or {"cpu": 384, "cuda": 768}[given.device]
    if given.lines:
        compare_paths(given, given.pairs or SIZES, width)
        return
    given.pairs = given.pairs or [4096]
    rows = [row for pairs in given.pairs for row in compare(given, pairs, width)]
    structure = compare_structure(given, given.pairs[0] if given.device == "cpu" else 65_536, width)
    ratios = {f"{row['name']}, {row['pairs']:,} pairs": row["ratio"] for row in rows if row.get("ratio")}
    if given.plot:
        plot(rows, given.plot)
    if given.json:
        gpu = torch.cuda.get_device_name() if given.device == "cuda" else None
        machine = {"cores": os.cpu_count(), "threads": torch.get_num_threads(), "gpu": gpu, "python": platform.python_version()}
        machine |= {"torch": torch.__version__, "load": os.getloadavg()[0]}
        facts = {"width": width, "temperature": TAU, "machine": machine, "date": time.strftime("%Y-%m-%d")}
        print(json.dumps({**vars(given), **facts, "rows": rows, "ours_is_faster_than": ratios, "structure": structure}))


def peers(given: argparse.Namespace, pairs: int, width: int) -> dict:
    """Each peer is a function of left and right that gives a loss, or has taken its gradient already and gives None."""
    found = {"ours": lambda left, right: batch_softmax_loss(left, right, temperature=TAU)}
    if pairs <= given.inf_cl_up_to and given.device == "cuda" and find_spec("inf_cl"):
        from inf_cl import cal_inf_loss

        def inf_cl(left, right):
            q, a = normalize(left.float()), normalize(right.float())
            head = {"scale": 1 / TAU, "head_dim": math.gcd(256, width)}
            return cal_inf_loss(q, a, **head) + cal_inf_loss(a, q, **head)

        found["inf_cl"] = inf_cl
    if pairs <= given.peers_up_to:
        eager = eager_loss(given.device)
        found["plain path"] = lambda left, right: batch_softmax_loss(left, right, temperature=TAU, fused=False)
        found |= {"eager": eager, "torch.compile": torch.compile(eager), **host_losses(given.device)}
    return found


def compare_paths(given: argparse.Namespace, sizes: list[int], width: int) -> None:
    """Each path of ours and torch.compile at each size, a line each. What fails is a line too."""
    gpu = torch.cuda.get_device_name() if given.device == "cuda" else None
    facts = {"width": width, "gpu": gpu, "torch": torch.__version__, "date": time.strftime("%Y-%m-%d")}
    for pairs in sizes:
        left, right = embeddings(pairs, width, given.device)
        true = true_gradients(left, right)
        for name, loss in paths(given.device).items():
            torch.compiler.reset()
            row = {"name": name, "pairs": pairs}
            try:
                row |= measure(loss, left, right, max(given.repeats, 30 if pairs <= 16_384 else 10), true)
            except Exception as problem:  # a path that does not run is a result too
                row["error"] = f"{type(problem).__name__}: {problem}"[:300]
            show(row)
            with Path(given.lines).open("a") as file:
                file.write(json.dumps({**row, **facts}) + "\n")
            left.grad = right.grad = None
            if given.device == "cuda":
                torch.cuda.empty_cache()


def paths(device: str) -> dict:
    """What computes the loss: ours as it chooses by size, and each of its paths at any size; last the peer that may be faster."""

    def fuse_only(left, right):
        everything = torch.ones(len(left), dtype=torch.bool, device=device)
        return fuse(left, right, TAU, layout_of_pairs(everything, "both"), "l2", len(left))

    def dense(by_tiles: bool, **tile: int):
        from pairtune.loss.large.dense import DenseLoss, DenseSetup  # needs Triton

        def loss(left, right):
            sizes = TileSizes(tile=tile)
            setup = DenseSetup(left.dtype, True, True, True, divisor=len(left), by_tiles=by_tiles, sizes=sizes)
            return DenseLoss.apply(left, right, TAU, None, setup)

        return loss

    stored = {}
    if device == "cuda":
        wide = {"BN": 256, "PER": 1, "num_warps": 8}
        stored = {
            "ours, dense, S by the library": dense(by_tiles=False),
            "ours, dense, E by tiles": dense(by_tiles=True),
            "ours, dense, E by tiles, 2 stages": dense(by_tiles=True, num_stages=2),
            "ours, dense, E by wide tiles": dense(by_tiles=True, **wide),
            "ours, dense, E by wide tiles, 4 stages": dense(by_tiles=True, **wide, num_stages=4),
        }
    return {
        "ours": lambda left, right: batch_softmax_loss(left, right, temperature=TAU),
        "ours, plain": lambda left, right: batch_softmax_loss(left, right, temperature=TAU, fused=False),
        "ours, fused": fuse_only,
        **stored,
        "eager": eager_loss(device),
        "torch.compile": torch.compile(eager_loss(device), dynamic=False),
    }


def eager_loss(device: str):
    """Cross-entropy of the scores by rows and by columns."""

    def eager(left, right):
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            scores = normalize(left) @ normalize(right).T / TAU
            own = torch.arange(len(left), device=left.device)
            return cross_entropy(scores, own) + cross_entropy(scores.T, own)

    return eager


def host_losses(device: str) -> dict:
    """sentence-transformers' losses, doubled: theirs is the mean of the directions."""
    try:
        from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss as Cached
        from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss as Plain
    except ImportError as problem:
        print(f"without sentence-transformers: {problem}")
        return {}
    plain = Plain(None, **DIRECTIONS)
    cached = Cached(torch.nn.Sequential(torch.nn.Identity()), mini_batch_size=512, **DIRECTIONS)

    def host(left, right):
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            return 2 * plain.compute_loss_from_embeddings([left, right], None)

    def host_cached(left, right):  # takes its gradient chunk by chunk, which is its point
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            cached.calculate_loss([list(left.split(512)), list(right.split(512))], with_backward=True)
        left.grad, right.grad = 2 * left.grad, 2 * right.grad

    return {"sentence-transformers": host, "sentence-transformers, cached": host_cached}


def embeddings(pairs: int, width: int, device: str):
    """Pairs whose cosine is about 0.7, in bf16 on CUDA."""
    generator = torch.Generator(device).manual_seed(pairs)
    left, noise = (torch.randn(pairs, width, generator=generator, device=device) for _ in range(2))
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    return [side.to(dtype).requires_grad_() for side in (left + 0, left + noise)]


def compare(given: argparse.Namespace, pairs: int, width: int):
    """Every peer at one size, ours first."""
    left, right = embeddings(pairs, width, given.device)
    true = true_gradients(left, right) if pairs <= given.true_up_to else None
    ours = None
    for name, loss in peers(given, pairs, width).items():
        try:
            row = {"name": name, "pairs": pairs, **measure(loss, left, right, 1 if pairs > 500_000 else given.repeats, true)}
        except torch.OutOfMemoryError:
            row = {"name": name, "pairs": pairs, "error": "out of memory"}
        except Exception as problem:  # a peer that does not run is a result too
            row = {"name": name, "pairs": pairs, "error": f"{type(problem).__name__}: {problem}"[:120]}
        ours = ours or row
        if row is not ours and "seconds" in row and "seconds" in ours:
            row["ratio"] = row["seconds"] / ours["seconds"]
        show(row)
        yield row
        if given.device == "cuda":
            torch.cuda.empty_cache()


def measure(loss, left, right, repeats: int, true=None) -> dict:
    """Median seconds of forward and backward, peak memory, error of the gradient."""

    def step():
        left.grad = right.grad = None
        found = loss(left, right)
        if found is not None:
            found.backward()

    step()  # compiles, allocates
    taken, cuda = [], left.is_cuda
    clock = time.perf_counter if cuda else time.process_time
    if cuda:
        left.grad = right.grad = None
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    for _ in range(repeats):
        start = clock()
        step()
        if cuda:
            torch.cuda.synchronize()
        taken.append(clock() - start)
    row = {"seconds": statistics.median(taken)}
    if cuda:
        gradients = left.grad.nbytes + right.grad.nbytes
        row["gigabytes"] = (torch.cuda.max_memory_allocated() - before - gradients) / 1e9
    if true is not None:
        found = torch.cat([side.grad[picked(side)].double() for side in (left, right)])
        row["error"] = float((found - true).norm() / true.norm())
    return row


def picked(side) -> torch.Tensor:
    """The rows whose gradients are checked."""
    return torch.linspace(0, len(side) - 1, SAMPLE, device=side.device).long()


@torch.no_grad()
def true_gradients(left, right) -> torch.Tensor:
    """Gradients of the picked rows in float64, with sums over all of S in chunks."""
    x, y = left.double(), right.double()
    q, a = normalize(x) / TAU, normalize(y)
    rows = torch.cat([torch.logsumexp(part @ a.T, 1) for part in q.split(CHUNK)])
    columns = torch.cat([torch.logsumexp(part @ q.T, 1) for part in a.split(CHUNK)])
    found = []
    for raw, one, other, at, others_at in ((x, q * TAU, a, rows, columns), (y, a, q * TAU, columns, rows)):
        some = picked(raw)
        scores = one[some] @ other.T / TAU
        weights = (torch.exp(scores - at[some, None]) + torch.exp(scores - others_at)) / len(raw)
        gradient = (weights @ other - 2 * other[some] / len(raw)) / TAU
        along = (gradient * one[some]).sum(1, keepdim=True)
        found.append((gradient - along * one[some]) / raw[some].norm(dim=1, keepdim=True))
    return torch.cat(found)


def compare_structure(given: argparse.Namespace, pairs: int, width: int) -> dict:
    """What labelled negatives and repeated texts save, against the same batch without using them."""
    left, right = embeddings(pairs, width, given.device)
    labels = (torch.arange(pairs, device=given.device) % 5 < 2).float()
    ids = {"left_ids": torch.arange(pairs, device=given.device) // 8, "right_ids": torch.arange(pairs, device=given.device)}
    with torch.no_grad():
        left.copy_(left[ids["left_ids"] * 8])
    kinds = {"all positive": {}, "40 % positive": {"labels": labels}, "8 answers per question": {**ids, "shared_vectors": True}}
    times = {}
    for name, chosen in kinds.items():
        row = measure(lambda a, b, chosen=chosen: batch_softmax_loss(a, b, temperature=TAU, **chosen), left, right, given.repeats)
        times[name] = row["seconds"]
        show({"name": f"ours, {name}", "pairs": pairs, **row, "ratio": row["seconds"] / times["all positive"]})
    return {name: {"seconds": taken, "faster": times["all positive"] / taken} for name, taken in times.items()} | {"pairs": pairs}


def show(row: dict) -> None:
    """One line of the table."""
    taken = f"{row['seconds'] * 1e3:10.1f} ms" if "seconds" in row else f"{row['error']}"
    memory = f"{row['gigabytes']:8.2f} GB" if "gigabytes" in row else ""
    error = f"  error {row['error']:.1e}" if isinstance(row.get("error"), float) else ""
    ratio = f"  {row['ratio']:6.2f} x ours" if "ratio" in row else ""
    print(f"{row['pairs']:9,} pairs  {row['name']:34s}{taken}{memory}{error}{ratio}", flush=True)


def plot(rows: list[dict], path: str) -> None:
    """Time and memory against pairs, both axes logarithmic."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4))
    for axis, key, label in zip(axes, ("seconds", "gigabytes"), ("seconds", "GB beyond inputs and gradients"), strict=True):
        for name in dict.fromkeys(row["name"] for row in rows):
            points = [(row["pairs"], row[key]) for row in rows if row["name"] == name and row.get(key, 0) > 0]
            axis.loglog(*zip(*points, strict=True), marker="o", label=name) if points else None
        axis.set(xlabel="pairs in the batch", ylabel=label)
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize="small", frameon=False)
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    main()
