"""Finding the nearest texts of a corpus: an exact index, kept beside the corpus and rebuilt when anything changed."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import faiss
import numpy as np

from pairtune.encoders.embedding import encode
from pairtune.encoders.fingerprint import fingerprint_model, fingerprint_texts
from pairtune.encoders.prompts import NO_PROMPTS, Prompts
from pairtune.progress import say

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


@dataclass(frozen=True)
class Index:
    """The distinct texts of a corpus and their unit vectors in faiss: the inner product is the cosine.

    prompts: what stands before a query (left) and before the texts (right) when they are encoded.
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
        with tempfile.NamedTemporaryFile(dir=folder, prefix=f"{name}.", suffix=".part", delete=False) as aside:
            aside.write(content)
        Path(aside.name).replace(folder / name)
