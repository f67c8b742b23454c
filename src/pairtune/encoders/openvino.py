"""An encoder on OpenVINO in bfloat16: several times the speed of torch on a CPU, for a little accuracy."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sentence_transformers.base.modules import Transformer
from torch import Tensor, nn
from transformers.utils import logging

from pairtune.encoders.embedding import encode
from pairtune.encoders.export import SAMPLES
from pairtune.errors import UserError
from pairtune.progress import say

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

LOWEST_COSINE = 0.999  # of a single text; the mean of real ones is above 0.9999
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
    if not lowest >= LOWEST_COSINE:
        raise UserError(f"OpenVINO gives other vectors (lowest cosine {lowest:.4f}, not {LOWEST_COSINE}): encode without --quick")
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
