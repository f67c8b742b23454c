"""The kernels of the dense loss become machine code of a GPU that is not here: its compiler refuses what the interpreter runs."""

from __future__ import annotations

import sys

import pytest

if not sys.platform.startswith("linux"):
    pytest.skip("Triton is for Linux alone", allow_module_level=True)

from triton import compile as to_machine_code
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pairtune.loss.large import dense_kernels

HOPPER = GPUTarget("cuda", 90, 32)
FLOATS, HALVES, FLAGS, COUNT, NUMBER = "*fp32", "*bf16", "*i1", "i32", "fp32"
KERNELS = [  # name, what it reads and writes, what it is compiled for, warps
    (
        "scale_pairs",
        {"left": HALVES, "right": FLOATS, "temperature": NUMBER, "q": HALVES, "a": HALVES, "own": FLOATS}
        | dict.fromkeys(("width", "left_stride", "right_stride", "stride"), COUNT),
        {"UNIT": True, "LEARNED": False, "BLOCK": 1024},
        4,
    ),
    (
        "enter_tiles",
        {"scores": FLOATS, "entries": HALVES, "row_sums": FLOATS, "column_sums": FLOATS, "pairs": COUNT, "stride": COUNT},
        {"KEEP": True, "BM": 64, "BN": 128},
        8,
    ),
    (
        "finish_sums",
        dict.fromkeys(("row_sums", "column_sums", "own"), FLOATS)
        | {"positive": FLAGS}
        | dict.fromkeys(("alpha", "beta", "weight", "costs"), FLOATS)
        | {"pairs": COUNT, "across": COUNT, "down": COUNT, "scale": NUMBER},
        {"LABELLED": True, "LEFT": True, "RIGHT": True, "BM": 32, "BP": 32},
        4,
    ),
    (
        "weigh_entries",
        {"entries": HALVES, "alpha": FLOATS, "beta": FLOATS, "pairs": COUNT, "stride": COUNT},
        {"BM": 32, "BN": 256},
        8,
    ),
    (
        "pull_pairs",
        {"left": FLOATS, "right": FLOATS, "temperature": FLOATS, "q": HALVES, "a": HALVES}
        | dict.fromkeys(("by_q", "by_a", "weight", "upstream", "by_left", "by_right"), FLOATS)
        | dict.fromkeys(("width", "left_stride", "right_stride", "stride"), COUNT)
        | {"scale": NUMBER},
        {"UNIT": True, "LEARNED": True, "BLOCK": 1024},
        4,
    ),
]


@pytest.mark.parametrize(("name", "arguments", "constants", "warps"), KERNELS, ids=[kernel[0] for kernel in KERNELS])
def test_a_kernel_compiles_for_a_hopper_gpu(name, arguments, constants, warps):
    signature = {**arguments, **dict.fromkeys(constants, "constexpr")}
    source = ASTSource(fn=getattr(dense_kernels, name), signature=signature, constexprs=constants)
    found = to_machine_code(source, target=HOPPER, options={"num_warps": warps})
    assert found.asm["cubin"].startswith(b"\x7fELF") and ".target sm_90" in found.asm["ptx"]
