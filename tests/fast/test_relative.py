"""Attention with a bias by relative position: the kernels against the formula, text by text."""

from __future__ import annotations

import os

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
runs_kernels = pytest.mark.skipif(
    not INTERPRETED and DEVICE == "cpu", reason="runs in the second process of tests/loss/test_kernels.py"
)
LENGTHS = {"short": [1, 3, 0, 17, 20, 0], "long": [5, 0, 90, 64, 2, 33]}


def make_sides(lengths, dtype, heads=3, width=16):
    generator = torch.Generator().manual_seed(1)
    starts = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    sides = [torch.randn(sum(lengths), heads, width, generator=generator).to(DEVICE, dtype) for _ in range(4)]
    longest = max(lengths) + 3
    bias = torch.randn(heads, longest, longest, generator=generator).to(DEVICE).requires_grad_()
    return [side.requires_grad_() for side in sides[:3]], bias, starts.to(DEVICE), sides[3]


def by_formula(query, key, value, bias, starts, scale):
    """Text by text, in float32."""
    found = []
    for first, last in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        q, k, v = (side[first:last].float().transpose(0, 1) for side in (query, key, value))
        scores = q @ k.transpose(1, 2) * scale + bias[:, : last - first, : last - first]
        found.append((scores.softmax(-1) @ v).transpose(0, 1))
    return torch.cat(found)


@runs_kernels
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
def test_attention_is_that_of_the_formula_and_so_are_its_gradients(lengths, half):
    from pairtune.fast.relative import RelativeAttention

    dtype = (torch.float16 if INTERPRETED else torch.bfloat16) if half else torch.float32  # the interpreter has no bf16 products
    sides, bias, starts, weight = make_sides(lengths, dtype)
    results = []
    for attend in (lambda *a: by_formula(*a, 0.3), lambda *a: RelativeAttention.apply(*a, 0.0, 0.3)):
        found = attend(*sides, bias, starts)
        gradients = torch.autograd.grad((found.float() * weight.float()).sum(), [*sides, bias])
        results.append([found, *gradients])
    tolerance = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}[dtype]
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found.float(), expected.float(), atol=tolerance, rtol=tolerance)


@runs_kernels
def test_a_share_of_the_weights_is_dropped_and_the_gradient_knows_which():
    from pairtune.fast.relative import RelativeAttention

    lengths = [40, 31]
    (query, key, _), bias, starts, _ = make_sides(lengths, torch.float32)
    value = torch.ones_like(query, requires_grad=True)

    def attend(seed, values):
        torch.manual_seed(seed)
        return RelativeAttention.apply(query, key, values, bias, starts, 0.25, 0.3)

    found = attend(1, value)
    assert torch.equal(found, attend(1, value)) and not torch.equal(found, attend(2, value))
    assert found.std() > 0.05  # without dropout all would be 1
    assert found.mean().item() == pytest.approx(1.0, abs=0.05)
    (gradient,) = torch.autograd.grad(found.sum(), value)
    step = torch.zeros_like(value)
    step[7, 1, 2] = 1e-2
    slope = (attend(1, value + step) - found).sum() / 1e-2  # linear in the values: the difference is the derivative
    assert gradient[7, 1, 2].item() == pytest.approx(slope.item(), abs=1e-3)
    mixed = torch.linspace(-1, 1, value.numel(), device=DEVICE).view_as(value)
    (gradient,) = torch.autograd.grad(attend(1, mixed).sum(), query)
    with torch.no_grad():
        query[3, 2, 5] += 1e-2
        above = attend(1, mixed).sum()
        query[3, 2, 5] -= 2e-2
        slope = (above - attend(1, mixed).sum()) / 2e-2
    assert gradient[3, 2, 5].item() == pytest.approx(slope.item(), abs=2e-3)
