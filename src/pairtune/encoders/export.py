"""A model for another runtime, by the host's back ends or torch's exporter; and an encoder on OpenVINO, for speed on a CPU."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from sentence_transformers.base.modules import Transformer
from torch import Tensor, nn
from transformers.utils import logging

from pairtune.encoders.adapters import merge_adapter
from pairtune.encoders.embedding import encode
from pairtune.encoders.loading import find_encoder, load_encoder
from pairtune.encoders.sizes import fix_dimension
from pairtune.errors import UserError
from pairtune.ordering.nearest import unit_rows
from pairtune.progress import say
from pairtune.runs.folder import whole_folder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Runtime = Literal["torch", "onnx", "openvino"]

PACKAGES: dict[Runtime, tuple[str, ...]] = {
    "torch": (),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "openvino": ("openvino", "optimum.intel"),
}
INSTALL: dict[Runtime, str] = {
    "torch": "",
    "onnx": "pip install 'pairtune[onnx]'",
    "openvino": "pip install 'pairtune[export]', in an environment of its own: optimum-intel needs transformers before 5.6",
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

    What does not encode as before is not kept. dimension: how many numbers of each embedding the exported model gives, the
    first ones; None: all.
    """
    if missing := [package for package in PACKAGES[runtime] if not _is_installed(package)]:
        raise UserError(f"exporting for {runtime} needs {' and '.join(missing)}: {INSTALL[runtime]}")
    if out.exists():
        raise UserError(f"{out} is there already: give a folder that is not, or remove it")
    expected = encode(load_encoder(name, device="cpu", dimension=dimension), SAMPLES)
    try:
        with whole_folder(out) as aside:
            found = _write_onnx(name, aside, dimension) if runtime == "onnx" else _save_by_host(name, aside, runtime, dimension)
            lowest = float(np.einsum("ij,ij->i", expected, found).min())
            if not lowest >= LOWEST_COSINE:
                raise UserError(
                    f"the exported model encodes differently (lowest cosine {lowest:.4f}, not {LOWEST_COSINE}) and was not kept: "
                    f"try another version of {' or '.join(PACKAGES[runtime])}"
                )
    except ImportError as problem:
        raise UserError(f"the packages for {runtime} do not fit together ({problem}): {INSTALL[runtime]}") from problem
    return lowest


def _save_by_host(name: str, folder: Path, runtime: Literal["torch", "openvino"], dimension: int | None) -> np.ndarray:
    """Through the host, whose `SentenceTransformer(folder, backend=runtime)` loads it; the vectors of the sample texts."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(find_encoder(name), backend=runtime, device="cpu")
    if dimension is not None:
        fix_dimension(model, dimension)
    model.save_pretrained(str(folder))
    return encode(SentenceTransformer(str(folder), backend=runtime, device="cpu"), SAMPLES)


GRAPH = Path("onnx") / "model.onnx"  # where the host, transformers.js and others look for it
OUTPUTS = ("last_hidden_state", "sentence_embedding")
LARGEST_GRAPH = 1_900_000_000  # bytes; a file of this format holds 2 GB, more weights stand beside it


def _write_onnx(name: str, folder: Path, dimension: int | None) -> np.ndarray:
    """Through torch: one graph from token ids to embeddings, pooling included; the vectors of the sample texts.

    The host's own way needs optimum-onnx, which has no version for transformers 5.
    """
    model = load_encoder(name, device="cpu")
    if not isinstance(model[0], Transformer):
        raise UserError(f"only a transformer can be exported for onnx, but this one begins with {type(model[0]).__name__}")
    merge_adapter(model)
    if dimension is not None:
        fix_dimension(model, dimension)
    model.save_pretrained(str(folder))
    (folder / GRAPH).parent.mkdir()
    write_graph(model, folder / GRAPH)
    for weights in folder.glob("model*.safetensors*"):  # they are in the graph
        weights.unlink()
    return encode_by_graph(model, folder / GRAPH, SAMPLES)


def write_graph(model: SentenceTransformer, path: Path) -> None:
    """The model as an ONNX graph for texts of any number and length."""
    features = model.preprocess(["a text of several words", "another"])
    inputs = {name: value for name, value in features.items() if isinstance(value, Tensor)}
    anything = torch.export.Dim.DYNAMIC
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    with _quietly(), torch.no_grad():
        torch.onnx.export(
            _WholeModel(model, list(inputs)).eval(),
            tuple(inputs.values()),
            path,
            input_names=list(inputs),
            output_names=list(OUTPUTS),
            dynamic_shapes=(tuple({0: anything, 1: anything} for _ in inputs),),
            dynamo=True,
            external_data=size > LARGEST_GRAPH,
            verbose=False,
        )


def encode_by_graph(model: SentenceTransformer, path: Path, texts: Sequence[str]) -> np.ndarray:
    """(N, n) unit vectors of the texts by ONNX Runtime; the model cuts them into tokens."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    features = model.preprocess(list(texts))
    inputs = {one.name: features[one.name].numpy() for one in session.get_inputs()}
    return unit_rows(session.run([OUTPUTS[1]], inputs)[0])


class _WholeModel(nn.Module):
    """All modules of a model as a function of tensors in a fixed order."""

    def __init__(self, model: SentenceTransformer, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        features = self.model(dict(zip(self.names, tensors, strict=True)))
        return features["token_embeddings"], features["sentence_embedding"]


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ModuleNotFoundError, ValueError):  # not even the package that it is a part of
        return False


LOWEST_BFLOAT16_COSINE = 0.999  # of a single text; the mean of real ones is above 0.9999
OUTPUT = "last_hidden_state"


def run_on_openvino(model: SentenceTransformer, lowest_cosine: float = LOWEST_BFLOAT16_COSINE) -> SentenceTransformer:
    """The same model with its encoder on OpenVINO, checked against itself on sample texts; it can no longer be trained.

    lowest_cosine: of the vectors of a sample text before and after; below it the model is refused.
    """
    if find_spec("openvino") is None:
        raise UserError("--openvino: OpenVINO is not installed: pip install 'pairtune[openvino]'")
    first: Any = model[0]
    if not isinstance(first, Transformer) or first.backend != "torch" or _output_of(first) != (OUTPUT,):
        raise UserError(
            f"OpenVINO runs a Transformer on torch, but this encoder begins with {type(first).__name__}: "
            "encode without --openvino"
        )
    model.to("cpu")
    expected = encode(model, SAMPLES)
    features = first.preprocess(["a text", "another"])
    names = [name for name in features if name in (first.model_forward_params or features)]
    try:
        first.model = OnOpenVINO(first.model, {name: features[name] for name in names})
    except RuntimeError as problem:
        reason = str(problem).strip().splitlines()[0]
        raise UserError(f"OpenVINO cannot run this encoder ({reason}): encode without --openvino") from problem
    lowest = float(np.einsum("ij,ij->i", expected, encode(model, SAMPLES)).min())
    if not lowest >= lowest_cosine:
        raise UserError(
            f"OpenVINO gives other vectors (lowest cosine {lowest:.4f}, not {lowest_cosine}): encode without --openvino"
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
        say("this processor has no bfloat16: OpenVINO computes in float32, which is not as fast")
    options = {
        "INFERENCE_PRECISION_HINT": "bf16" if has_bfloat16 else "f32",
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "PERFORMANCE_HINT": "LATENCY",
    }
    return core.compile_model(graph, "CPU", options)


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the warnings of a trace, that it may hold for some texts only: whoever asked for it checks that."""
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    getLogger("torch.onnx").setLevel("ERROR")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(before)


def _output_of(first: Any) -> tuple[str, ...]:
    name = first.modality_config.get("text", {}).get("method_output_name")
    return (name,) if isinstance(name, str) else tuple(name or ())
