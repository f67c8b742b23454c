"""A model for another runtime, through the host's own back ends; and an encoder on OpenVINO, for speed on a CPU."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from sentence_transformers.base.modules import Transformer
from torch import Tensor, nn
from transformers.utils import logging

from pairtune.encoders.embedding import encode
from pairtune.encoders.loading import find_encoder, load_encoder
from pairtune.encoders.sizes import fix_dimension
from pairtune.errors import UserError
from pairtune.progress import say
from pairtune.runs.folder import whole_folder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Runtime = Literal["torch", "onnx", "openvino"]

PACKAGES: dict[Runtime, tuple[str, ...]] = {
    "torch": (),
    "onnx": ("onnxruntime", "optimum.onnxruntime"),
    "openvino": ("openvino", "optimum.intel"),
}
INSTALL: dict[Runtime, str] = {
    "torch": "",
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


def export_model(name: str, out: Path, runtime: Runtime, dimension: int | None = None) -> float:
    """Write the model to the folder `out`; the lowest cosine between its embeddings of sample texts, before and after.

    `SentenceTransformer(out, backend=runtime)` loads it. What does not encode as before is not kept.
    dimension: how many numbers of each embedding the exported model gives, the first ones; None: all.
    """
    if missing := [package for package in PACKAGES[runtime] if not _is_installed(package)]:
        raise UserError(f"exporting for {runtime} needs {' and '.join(missing)}: {INSTALL[runtime]}")
    if out.exists():
        raise UserError(f"{out} is there already: give a folder that is not, or remove it")
    from sentence_transformers import SentenceTransformer

    expected = encode(load_encoder(name, device="cpu", dimension=dimension), SAMPLES)
    try:
        with whole_folder(out) as aside:
            model = SentenceTransformer(find_encoder(name), backend=runtime, device="cpu")
            if dimension is not None:
                fix_dimension(model, dimension)
            model.save_pretrained(str(aside))
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


LOWEST_QUICK_COSINE = 0.999  # of a single text; the mean of real ones is above 0.9999
OUTPUT = "last_hidden_state"


def quicken(model: SentenceTransformer) -> SentenceTransformer:
    """The same model with its encoder on OpenVINO, checked against itself on sample texts; it can no longer be trained."""
    if find_spec("openvino") is None:
        raise UserError("a quick encoder runs on OpenVINO, which is not installed: pip install 'pairtune[openvino]'")
    first: Any = model[0]
    if not isinstance(first, Transformer) or first.backend != "torch" or _output_of(first) != (OUTPUT,):
        raise UserError(
            f"a quick encoder is a Transformer on torch, but this one begins with {type(first).__name__}: encode without --quick"
        )
    model.to("cpu")
    expected = encode(model, SAMPLES)
    features = first.preprocess(["a text", "another"])
    names = [name for name in features if name in (first.model_forward_params or features)]
    try:
        first.model = OnOpenVINO(first.model, {name: features[name] for name in names})
    except RuntimeError as problem:
        reason = str(problem).strip().splitlines()[0]
        raise UserError(f"OpenVINO cannot take over this encoder ({reason}): encode without --quick") from problem
    lowest = float(np.einsum("ij,ij->i", expected, encode(model, SAMPLES)).min())
    if not lowest >= LOWEST_QUICK_COSINE:
        raise UserError(
            f"OpenVINO gives other vectors (lowest cosine {lowest:.4f}, not {LOWEST_QUICK_COSINE}): encode without --quick"
        )
    return model


class OnOpenVINO(nn.Module):
    """Stands for a transformers encoder: the same arguments and the same output, computed by OpenVINO."""

    def __init__(self, encoder: Any, features: dict[str, Any]) -> None:
        """features: those of any texts; their names are what the encoder is given."""
        super().__init__()
        self.encoder = encoder.eval()  # its weights say which model this is
        self.config = encoder.config
        self.inputs = {name: value for name, value in features.items() if isinstance(value, Tensor)}
        self._compiled = compile_encoder(self.encoder, self.inputs)

    def forward(self, **features: Any) -> dict[str, Tensor]:
        """(texts, length) token ids and mask to the hidden states of the last layer, (texts, length, n)."""
        found = self._compiled([features[name].numpy() for name in self.inputs])
        return {OUTPUT: torch.from_numpy(found[0])}


class _HiddenStates(nn.Module):
    """An encoder as a function of tensors in a fixed order."""

    def __init__(self, encoder: nn.Module, names: list[str]) -> None:
        super().__init__()
        self.encoder, self.names = encoder, names

    def forward(self, *tensors: Tensor) -> Tensor:
        return self.encoder(**dict(zip(self.names, tensors, strict=True)))[0]


def compile_encoder(encoder: nn.Module, inputs: dict[str, Tensor]) -> Any:
    """The encoder for texts of any number and length, in bfloat16 where the processor has it."""
    # importing openvino reports to its makers, unless the package that does so cannot be imported
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino

    with _quietly(), torch.no_grad():
        graph = openvino.convert_model(_HiddenStates(encoder, list(inputs)), example_input=tuple(inputs.values()))
    core = openvino.Core()
    has_bfloat16 = "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    if not has_bfloat16:
        say("this processor has no bfloat16: OpenVINO computes in float32, which is less of a gain")
    options = {
        "INFERENCE_PRECISION_HINT": "bf16" if has_bfloat16 else "f32",
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "PERFORMANCE_HINT": "LATENCY",
    }
    return core.compile_model(graph, "CPU", options)


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the warnings of a trace, that it may hold for some texts only: `quicken` checks that."""
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(before)


def _output_of(first: Any) -> tuple[str, ...]:
    name = first.modality_config.get("text", {}).get("method_output_name")
    return (name,) if isinstance(name, str) else tuple(name or ())
