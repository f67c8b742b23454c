"""Finding the nearest texts of a corpus: an exact index, kept beside the corpus and rebuilt when anything changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import faiss
import numpy as np

from pairtune.encoders.embedding import encode
from pairtune.progress import say

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


@dataclass(frozen=True)
class Index:
    """The distinct texts of a corpus and their unit vectors in faiss: the inner product is the cosine."""

    texts: tuple[str, ...]
    faiss: Any

    @classmethod
    def build(cls, model: SentenceTransformer, texts: Sequence[str]) -> Index:
        """Encode the corpus, each distinct text once."""
        distinct = tuple(dict.fromkeys(texts))
        vectors = encode(model, distinct, "encoding the corpus")
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors)
        return cls(distinct, index)

    def search(self, model: SentenceTransformer, query: str, top: int = 5) -> list[tuple[float, str]]:
        """The nearest texts, best first, with their cosines."""
        scores, rows = self.faiss.search(encode(model, [query]), min(top, len(self.texts)))
        return [(float(score), self.texts[row]) for score, row in zip(scores[0], rows[0], strict=True)]


def open_index(model: SentenceTransformer, texts: Sequence[str], beside: Path) -> Index:
    """The index kept in `<corpus>.index/`, if it was made by this model from these texts; else a new one, kept there."""
    folder = beside.with_name(f"{beside.name}.index")
    index_file, key_file = folder / "vectors.faiss", folder / "key.json"
    key = {"texts": fingerprint_texts(texts), "model": fingerprint_model(model)}
    try:
        if json.loads(key_file.read_text()) == key:
            return Index(tuple(dict.fromkeys(texts)), faiss.read_index(str(index_file)))
    except (OSError, ValueError, RuntimeError):
        pass  # not there yet, or damaged: it is built again either way
    index = Index.build(model, texts)
    try:
        folder.mkdir(exist_ok=True)
        key_file.unlink(missing_ok=True)  # the key is written last: an index without one is not trusted
        faiss.write_index(index.faiss, str(index_file))
        key_file.write_text(json.dumps(key))
    except (OSError, RuntimeError) as problem:
        say(f"the index could not be kept in {folder} ({problem}): it will be built again next time")
    return index


def fingerprint_texts(texts: Sequence[str]) -> str:
    """Changes when any text changes."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()


def fingerprint_model(model: SentenceTransformer) -> str:
    """Changes when the model would encode differently: its weights and how much of a text it reads."""
    digest = hashlib.sha256(f"{model.max_seq_length}".encode())
    for name, values in sorted(model.state_dict().items()):
        digest.update(name.encode() + np.ascontiguousarray(values.float().cpu().numpy()).tobytes())
    return digest.hexdigest()
