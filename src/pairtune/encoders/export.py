"""A model for another runtime, through the host's own back ends."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np

from pairtune.encoders.embedding import encode
from pairtune.encoders.loading import find_encoder, load_encoder
from pairtune.errors import UserError
from pairtune.runs.folder import whole_folder

Runtime = Literal["onnx", "openvino"]

PACKAGES: dict[Runtime, tuple[str, ...]] = {
    "onnx": ("onnxruntime", "optimum.onnxruntime"),
    "openvino": ("openvino", "optimum.intel"),
}
INSTALL: dict[Runtime, str] = {
    "onnx": "pip install 'sentence-transformers[onnx]', as soon as there is an optimum-onnx for transformers 5 "
    "(0.1.0 is not: it asks for less than 4.58); until then use --openvino",
    "openvino": "pip install 'pairtune[export]'",
}
LOWEST_COSINE = 0.9999  # float32 on another runtime rounds differently, and no more than that
SAMPLES = (
    "a",
    "How do I sort a list of numbers?",
    "sorted(iterable, /, *, key=None, reverse=False)",
    "Wie spät ist es? ¿Qué hora es? 何時ですか",
    "A sentence that goes on. " * 200,
)


def export_model(name: str, out: Path, runtime: Runtime) -> float:
    """Write the model to the folder `out`; the lowest cosine between its embeddings of sample texts, before and after.

    `SentenceTransformer(out, backend=runtime)` loads it. What does not encode as before is not kept.
    """
    if missing := [package for package in PACKAGES[runtime] if not _is_installed(package)]:
        raise UserError(f"exporting for {runtime} needs {' and '.join(missing)}: {INSTALL[runtime]}")
    if out.exists():
        raise UserError(f"{out} is there already: give a folder that is not, or remove it")
    from sentence_transformers import SentenceTransformer

    expected = encode(load_encoder(name, device="cpu"), SAMPLES)
    try:
        with whole_folder(out) as aside:
            SentenceTransformer(find_encoder(name), backend=runtime, device="cpu").save_pretrained(str(aside))
            found = encode(SentenceTransformer(str(aside), backend=runtime, device="cpu"), SAMPLES)
            lowest = float(np.einsum("ij,ij->i", expected, found).min())
            if not lowest >= LOWEST_COSINE:
                raise UserError(
                    f"the exported model encodes differently (lowest cosine {lowest:.4f}, not {LOWEST_COSINE}) and was not kept: "
                    f"try another version of {' or '.join(PACKAGES[runtime])}"
                )
    except ImportError as problem:
        raise UserError(f"the packages for {runtime} do not go together ({problem}): {INSTALL[runtime]}") from problem
    return lowest


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # not even the package that it is a part of
        return False
