"""The Triton kernels of the fused loss: on a GPU where there is one, else through the interpreter, in a second process."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from pairtune.loss import batch_softmax_loss
from pairtune.loss.large.fused import DenseSizes, FusedLoss, FusedSetup, TileSizes, fuse_dense
from pairtune.loss.large.layout import make_layout

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what torch wants for deterministic products
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

runs_kernels = pytest.mark.skipif(not INTERPRETED and DEVICE == "cpu", reason="runs in a second process, with TRITON_INTERPRET=1")
needs_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs an NVIDIA GPU")

TEXTS, PAIRS, WIDTH = 120, 140, 70


@pytest.mark.skipif(DEVICE == "cuda" or INTERPRETED, reason="the kernels run in this process")
@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton: pip install pairtune[dev]")
def test_the_kernels_pass_their_tests_in_the_interpreter():
    """Those of the loss here, and those of attention in tests/fast/test_relative.py: five."""
    chosen = [
        "-k",
        "kernels_give or attention_is or dropped",
        __file__,
        str(Path(__file__).parents[1] / "fast" / "test_relative.py"),
    ]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *chosen]
    result = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-4000:]
    assert f"{len(CASES) + len(DENSE) + 5} passed" in result.stdout


def small_tiles():
    """Tiles so small that a small batch has many, in several blocks; the interpreter needs small kernels, too."""
    tile = {"BM": 16, "BN": 32, "BK": 32, "GROUP": 2, "PER": 1} if INTERPRETED else {}
    return TileSizes(sum_rows=128, weight_bytes=256 * 64 * 4, tile=tile)


def leaves(tau, count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    left = torch.randn(count, WIDTH, generator=generator)
    right = left[:count] + torch.randn(count, WIDTH, generator=generator)
    return [leaf.to(DEVICE).requires_grad_() for leaf in (left, right, torch.tensor(tau))]


CASES = [  # labels, duplicates, shared vectors, directions, normalize, τ, true maximum, half precision
    (False, "keep", False, "both", "l2", 0.05, False, False),
    (True, "keep", False, "both", "l2", 0.05, False, False),
    (False, "mask", False, "both", "l2", 0.05, False, False),
    (True, "mask", True, "right", "l2", 0.05, False, False),
    (True, "keep", True, "both", "none", 5.0, False, False),
    (True, "keep", True, "left", "range-batch", 1.2, True, False),
    (True, "mask", False, "both", "none", 0.02, True, False),  # scores in the thousands
    (False, "keep", False, "both", "l2", 0.002, True, False),
    (True, "keep", False, "both", "l2", 0.05, False, True),
]


@runs_kernels
@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernels_give_the_loss_and_gradients_of_the_plain_path_in_float64(case):
    labelled, duplicates, shared, directions, normalize, tau, maximum, half = case
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(0, TEXTS, (2, PAIRS), generator=generator).to(DEVICE)
    labels = torch.randint(0, 2, (PAIRS,), generator=generator).to(DEVICE) if labelled else None
    inputs = leaves(tau, TEXTS if shared else PAIRS)
    left, right = (x[i] if shared else x for x, i in zip(inputs, ids, strict=False))
    positive = torch.ones(PAIRS, dtype=torch.bool, device=DEVICE) if labels is None else labels > 0
    layout = make_layout(positive, tuple(ids), directions, everything=not labelled, mask=duplicates == "mask", merge=shared)
    dtype = torch.float32 if not half else torch.float16 if INTERPRETED else torch.bfloat16  # it knows no products of bf16
    how = {"stored": False, "maximum": maximum, "divisor": PAIRS, "sizes": small_tiles()}
    found = FusedLoss.apply(left, right, inputs[2], FusedSetup(layout, normalize, dtype, **how))
    chosen = {"duplicates": duplicates, "directions": directions, "normalize": normalize, "fused": False}
    known = {"left_ids": ids[0], "right_ids": ids[1]}
    expected = batch_softmax_loss(left.double(), right.double(), labels, temperature=inputs[2], **chosen, **known)
    for ours, true in zip(
        *([loss, *torch.autograd.grad(loss, inputs, retain_graph=True)] for loss in (found, expected)), strict=True
    ):
        assert (ours - true).norm() < (5e-3 if half else 3e-5) * true.norm() + 1e-6


DENSE = [  # labels, directions, normalize, τ, learned, E by our own tiles, operands
    (False, "both", "l2", 0.05, False, False, torch.float32),
    (True, "both", "l2", 0.05, True, True, torch.float32),
    (True, "left", "none", 20.0, True, False, torch.float32),
    (False, "right", "l2", 0.2, False, False, torch.bfloat16),
    (True, "both", "l2", 0.2, True, True, torch.float16 if INTERPRETED else torch.bfloat16),
]


@runs_kernels
@pytest.mark.parametrize("case", DENSE, ids=str)
def test_dense_kernels_give_the_loss_and_gradients_of_the_plain_path_in_float64(case):
    from pairtune.loss.large.dense import DenseLoss, DenseSetup

    labelled, directions, normalize, tau, learned, by_tiles, dtype = case
    pairs = 80  # more than one tile of each kernel, and the last not full
    labels = torch.randint(0, 2, (pairs,), generator=torch.Generator().manual_seed(7)).to(DEVICE) if labelled else None
    inputs = leaves(tau, pairs)[: 3 if learned else 2]
    left, right, temperature = *inputs[:2], inputs[2] if learned else tau
    sides = {"left": directions != "right", "right": directions != "left"}
    setup = DenseSetup(dtype, normalize == "l2", **sides, divisor=pairs, by_tiles=by_tiles, sizes=small_tiles())
    found = DenseLoss.apply(left, right, temperature, None if labels is None else labels > 0, setup)
    chosen = {"directions": directions, "normalize": normalize, "fused": False}
    expected = batch_softmax_loss(left.double(), right.double(), labels, temperature=temperature, **chosen)
    results = [[loss, *torch.autograd.grad(loss, inputs, retain_graph=True)] for loss in (found, expected, found)]
    for ours, true, again in zip(*results, strict=True):
        assert (ours - true).norm() < (3e-5 if dtype == torch.float32 else 2e-2) * true.norm() + 1e-6
        assert torch.equal(ours, again)  # the weights that took the place of E serve again


def test_a_batch_on_a_cpu_is_never_dense():
    left, right = torch.randn(2, 1024, 8, dtype=torch.bfloat16).requires_grad_()
    assert fuse_dense(left, right, 0.05, None, "both", "l2", 1024) is None


# --- on a GPU --------------------------------------------------------------------------------------------------------


def embeddings(pairs, width=768, dtype=torch.bfloat16):
    left = torch.randn(pairs, width, device=DEVICE)
    return [side.to(dtype).requires_grad_() for side in (left, left + torch.randn_like(left))]


def eager_under_autocast(left, right, tau):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        scores = torch.nn.functional.normalize(left) @ torch.nn.functional.normalize(right).T / tau
        own = torch.arange(len(left), device=left.device)
        return torch.nn.functional.cross_entropy(scores, own) + torch.nn.functional.cross_entropy(scores.T, own)


@needs_gpu
@pytest.mark.cuda
@pytest.mark.parametrize("tau", [0.02, 0.05])
@pytest.mark.parametrize(("pairs", "dtype"), [(1000, torch.bfloat16), (5000, torch.bfloat16), (5000, torch.float32)])
def test_gradients_are_no_further_from_float64_than_those_of_eager(tau, pairs, dtype):
    left, right = embeddings(pairs, dtype=dtype)
    true = torch.autograd.grad(batch_softmax_loss(left.double(), right.double(), temperature=tau), (left, right))
    found = batch_softmax_loss(left, right, temperature=tau)
    assert found.grad_fn.name() == ("DenseLossBackward" if dtype == torch.bfloat16 else "FusedLossBackward")
    peer = eager_under_autocast(left.float(), right.float(), tau) if dtype == torch.bfloat16 else None
    limits = [1e-4, 1e-4]
    if peer is not None:
        limits = [(g - t).norm() / t.norm() for g, t in zip(torch.autograd.grad(peer, (left, right)), true, strict=True)]
    for gradient, exact, limit in zip(torch.autograd.grad(found, (left, right)), true, limits, strict=True):
        assert (gradient - exact).norm() / exact.norm() <= limit


@needs_gpu
@pytest.mark.cuda
@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize(("pairs", "duplicates"), [(32, "keep"), (32, "mask"), (1024, "keep"), (4096, "keep")])
def test_a_cuda_graph_replays_the_loss_and_its_gradient(pairs, duplicates, learned):
    left, right = embeddings(pairs)
    labels, ids = torch.ones(pairs, device=DEVICE), torch.arange(pairs, device=DEVICE) // 2
    tau = torch.tensor(0.05, device=DEVICE, requires_grad=True) if learned else 0.05

    def step():
        known = {"left_ids": ids, "right_ids": ids, "duplicates": duplicates}
        loss = batch_softmax_loss(left, right, labels, temperature=tau, **known)
        return [loss.detach(), *torch.autograd.grad(loss, (left, right, tau) if learned else (left, right))]

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        left.copy_(left.roll(1, 0))
    graph.replay()
    torch.testing.assert_close(captured, step(), rtol=2e-2, atol=1e-5)


@needs_gpu
@pytest.mark.cuda
def test_deterministic_runs_are_equal_to_the_last_bit():
    left, right = embeddings(6000)
    ids = torch.randint(0, 5000, (2, 6000), device=DEVICE)
    torch.use_deterministic_algorithms(True)
    try:
        runs = []
        for _ in range(3):
            loss = batch_softmax_loss(left, right, left_ids=ids[0], right_ids=ids[1], shared_vectors=True)
            runs.append([loss, *torch.autograd.grad(loss, (left, right))])
    finally:
        torch.use_deterministic_algorithms(False)
    for run in runs[1:]:
        assert all(torch.equal(one, other) for one, other in zip(run, runs[0], strict=True))


@needs_gpu
@pytest.mark.cuda
def test_memory_grows_with_the_pairs_and_not_with_their_square():
    used = []
    for pairs in (32_768, 65_536):
        left, right = embeddings(pairs)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        batch_softmax_loss(left, right).backward()
        used.append(torch.cuda.max_memory_allocated() - before)
    assert used[1] < 1.9e9 and used[1] < 2.1 * used[0]


@needs_gpu
@pytest.mark.cuda
def test_the_size_of_a_batch_chooses_its_path_on_a_gpu():
    sizes = DenseSizes(last=8192)
    for pairs in (sizes.first - 1, sizes.first, sizes.last, sizes.last + 1):
        found = fuse_dense(*embeddings(pairs), 0.05, None, "both", "l2", pairs, sizes)
        assert (found is not None) == (sizes.first <= pairs <= sizes.last)
        assert found is None or found.grad_fn.name().startswith("DenseLoss")
    assert not batch_softmax_loss(*embeddings(1024)).grad_fn.name().startswith("DenseLoss")  # not measured, so not taken
