"""Finding the nearest texts of a corpus: an exact index, kept beside the corpus until encoder or texts change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import faiss
import numpy as np

from pairtune.encoders.embedding import encode
from pairtune.encoders.prompts import NO_PROMPTS, Prompts
from pairtune.progress import say
from pairtune.runs.folder import whole_file

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


@dataclass(frozen=True)
class Index:
    """The distinct texts of a corpus and their unit vectors in faiss: the inner product is the cosine.

    prompts: the text put before a query (left) and before the texts (right) when they are encoded.
    """

    texts: tuple[str, ...]
    faiss: Any
    prompts: Prompts = NO_PROMPTS

    @classmethod
    def build(cls, model: SentenceTransformer, texts: Sequence[str], prompts: Prompts = NO_PROMPTS) -> Index:
        """Encode the corpus, each distinct text once."""
        distinct = tuple(dict.fromkeys(texts))
        vectors = encode(model, prompts.of_right(distinct), "encoding the corpus")
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors)
        return cls(distinct, index, prompts)

    def search(self, model: SentenceTransformer, query: str, top: int = 5) -> list[tuple[float, str]]:
        """The nearest texts, best first, with their cosines."""
        scores, rows = self.faiss.search(encode(model, self.prompts.of_left([query])), min(top, len(self.texts)))
        return [(float(score), self.texts[row]) for score, row in zip(scores[0], rows[0], strict=True)]


def open_index(
    model: SentenceTransformer,
    texts: Sequence[str],
    beside: Path,
    prompts: Prompts = NO_PROMPTS,
) -> Index:
    """The index kept in `<corpus>.index/`, if it was made by this model from these texts; else a new one, kept there."""
    folder = beside.with_name(f"{beside.name}.index")
    key = {"texts": fingerprint_texts(prompts.of_right(texts)), "model": fingerprint_model(model)}
    kept = read_index(folder, key, tuple(dict.fromkeys(texts)))
    if kept is not None:
        return replace(kept, prompts=prompts)
    index = Index.build(model, texts, prompts)
    try:
        write_index(folder, key, index)
    except (OSError, RuntimeError) as problem:
        say(f"the index could not be kept in {folder} ({problem}): it will be built again next time")
    return index


def read_index(folder: Path, key: dict[str, str], texts: tuple[str, ...]) -> Index | None:
    """The index of these distinct texts; None where there is none, or it has another key, or is not as it was written."""
    try:
        sealed = json.loads((folder / "key.json").read_text())
        stored = (folder / "vectors.faiss").read_bytes()
        if sealed != {**key, "sha256": hashlib.sha256(stored).hexdigest()}:
            return None
        return Index(texts, faiss.deserialize_index(np.frombuffer(stored, np.uint8)))
    except (OSError, ValueError, RuntimeError):
        return None


def write_index(folder: Path, key: dict[str, str], index: Index) -> None:
    """Two files, each whole. The key has the hash of the vectors: those of another process that writes here do not fit to it."""
    folder.mkdir(exist_ok=True)
    stored = faiss.serialize_index(index.faiss).tobytes()
    sealed = json.dumps({**key, "sha256": hashlib.sha256(stored).hexdigest()})
    for name, content in (("vectors.faiss", stored), ("key.json", sealed.encode())):
        with whole_file(folder / name, shared=True) as aside:
            aside.write_bytes(content)


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
        "modules": [(type(module).__qualname__, _module_settings(module)) for module in model],
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


def _module_settings(module: Any) -> dict[str, Any]:
    return module.get_config_dict() if hasattr(module, "get_config_dict") else {}


def _digest(parts: Iterable[bytes]) -> str:
    """Of the parts and where each ends."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()
