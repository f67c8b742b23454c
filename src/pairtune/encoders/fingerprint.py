"""What tells one encoder, or one list of texts, from another: equal fingerprints mean equal vectors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

UNREAD = {
    "_name_or_path",
    "transformers_version",
    "architectures",
    "dtype",
    "torch_dtype",
}  # of a config: no vector hangs on them
SET_BY_CALLS = {"truncation", "padding"}  # of a tokenizer: what the last call asked for; the model's length is told by itself


def fingerprint_texts(texts: Sequence[str]) -> str:
    """Changes when any text changes, or ends elsewhere."""
    return _digest(text.encode("utf-8", "surrogatepass") for text in texts)


def fingerprint_model(model: SentenceTransformer) -> str:
    """Changes when the model would encode differently: weights, tokenizer, pooling, prompts, length, dimension."""
    weights = sorted(model.state_dict().items())
    described = [name.encode() for name, _ in weights]
    values = (np.ascontiguousarray(tensor.float().cpu().numpy()).tobytes() for _, tensor in weights)
    return _digest(
        [json.dumps(describe_model(model), sort_keys=True, default=str).encode(), *described, _digest(values).encode()]
    )


def describe_model(model: SentenceTransformer) -> dict[str, Any]:
    """All but the weights."""
    config = getattr(getattr(model[0], "auto_model", None), "config", None)
    return {
        "modules": [(type(module).__qualname__, _settings(module)) for module in model],
        "transformer": {} if config is None else {key: value for key, value in config.to_dict().items() if key not in UNREAD},
        "tokenizer": describe_tokenizer(model.tokenizer),
        "prompts": model.prompts,
        "default_prompt": model.default_prompt_name,
        "length": model.max_seq_length,
        "dimension": model.truncate_dim,
    }


def describe_tokenizer(tokenizer: Any) -> Any:
    """Its rules and its words."""
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not hasattr(backend, "to_str"):  # a slow one
        return [type(tokenizer).__qualname__, sorted(tokenizer.get_vocab().items()) if hasattr(tokenizer, "get_vocab") else None]
    return {key: value for key, value in json.loads(backend.to_str()).items() if key not in SET_BY_CALLS}


def _settings(module: Any) -> dict[str, Any]:
    return module.get_config_dict() if hasattr(module, "get_config_dict") else {}


def _digest(parts: Iterable[bytes]) -> str:
    """Of the parts and where each ends."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()
