"""LoRA: small matrices beside an encoder's layers, trained in place of its weights, and merged into them when they are done."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from pairtune.encoders.loading import load_encoder
from pairtune.errors import UserError
from pairtune.runs.recipe import AdapterSettings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

UNUSED = "pooler.dense"  # a layer that embeddings do not depend on


def check_adapter(model: SentenceTransformer, settings: AdapterSettings) -> None:
    """Refuse what cannot have an adapter, before anything is trained."""
    if find_spec("peft") is None:
        raise UserError("adapter.kind = lora needs peft, which is not installed: pip install 'pairtune[adapters]'")
    if not model.has_peft_compatible_model():
        raise UserError(
            f"adapter.kind = lora needs a transformer, but this encoder begins with {type(model[0]).__name__}: "
            f"leave [adapter] out of the recipe"
        )
    if settings.save == "adapter" and has_adapter(model):
        raise UserError("adapter.save = adapter needs a whole encoder, but this is an adapter: set adapter.save = merged")
    names = _linear_layers(model)
    if missing := [target for target in settings.targets if not any(_matches(name, target) for name in names)]:
        known = ", ".join(sorted({name.rpartition(".")[2] for name in names}))
        raise UserError(f"adapter.targets names {', '.join(missing)}; the linear layers of this encoder are {known}")


def add_adapter(model: SentenceTransformer, settings: AdapterSettings, seed: int) -> str:
    """Give the encoder a new adapter, which changes nothing yet, and freeze all else; what is trained, in words.

    seed: of the adapter's random numbers.
    """
    from peft import LoraConfig

    encoder: Any = model.transformers_model
    targets = list(settings.targets) or "all-linear"
    without = [UNUSED] if not settings.targets and UNUSED in _linear_layers(model) else None
    config = LoraConfig(r=settings.rank, lora_alpha=settings.alpha, target_modules=targets, exclude_modules=without)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model.add_adapter(config)
    folder = Path(encoder.config._name_or_path)
    config.base_model_name_or_path = str(folder.resolve()) if folder.is_dir() else str(folder)
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    total = sum(parameter.numel() for parameter in model.parameters())
    return f"LoRA of rank {settings.rank}: {trained:,} of {total:,} parameters are trained"


def has_adapter(model: SentenceTransformer) -> bool:
    """Whether the encoder computes with an adapter beside its weights."""
    return bool(getattr(model.transformers_model, "peft_config", None))


def merge_adapter(model: SentenceTransformer) -> None:
    """Add an adapter to the weights that it stands beside: the same embeddings, and a model like any other."""
    if not has_adapter(model):
        return
    from peft.tuners.tuners_utils import BaseTunerLayer

    encoder: Any = model.transformers_model
    for name, layer in list(encoder.named_modules()):
        if isinstance(layer, BaseTunerLayer):
            layer.merge()
            encoder.set_submodule(name, layer.get_base_layer())
    encoder._hf_peft_config_loaded = False
    encoder._weight_conversions = None  # or weights are saved under the names of an adapter that was loaded
    del encoder.peft_config
    for parameter in model.parameters():
        parameter.requires_grad_(True)


def restore_weights(model: SentenceTransformer, folder: Path) -> None:
    """Give the model the weights of a saved one. What is frozen stays: a saved adapter does not know what it stood beside."""
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    saved = load_encoder(str(folder), device=str(model.device)).state_dict()
    if saved.keys() != model.state_dict().keys():
        raise UserError(f"{folder} holds a model of another shape: train again, with --overwrite")
    model.load_state_dict({name: value for name, value in saved.items() if name not in frozen}, strict=not frozen)


def _linear_layers(model: SentenceTransformer) -> list[str]:
    encoder: Any = model.transformers_model
    return [name for name, module in encoder.named_modules() if isinstance(module, nn.Linear)]


def _matches(name: str, target: str) -> bool:
    return name == target or name.endswith(f".{target}")
