"""Texts through an encoder in blocks of equally many tokens: each is tokenized once, and hardly any padding is computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pairtune.encoders.loading import length_of
from pairtune.errors import UserError
from pairtune.fast.architectures import why_padded
from pairtune.fast.packing import Tokens, shared_tokens
from pairtune.ordering.nearest_gpu import float32_products
from pairtune.processes import gather_everywhere, process_place
from pairtune.progress import track

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

# By the kind of device: a CPU is fastest while a block stays in its cache, an accelerator while it is kept busy.
TOKENS = {"cpu": 1024, "cuda": 32_768}  # in one forward pass, padding included
CHUNK = {"cpu": 512, "cuda": 8192}  # texts that are tokenized and sorted together, between two signs of progress
PADDED = {"input_ids", "attention_mask", "token_type_ids"}  # (texts, length), and what is cut off is padding
ABOUT_ALL = {"modality", "prompt_length"}
REMEMBERED = range(32, 100_001)  # how many texts' tokens are worth keeping: a training evaluates the same after every epoch


def embed(
    model: SentenceTransformer,
    texts: Sequence[str],
    what: str = "encoding",
    *,
    prompt: str = "",
    task: str | None = None,
    quiet: bool = False,
    exact: bool = False,
    block: tuple[int, int] | None = None,
) -> Tensor:
    """(N, n) float32: the embedding of each text as `model.encode` gives it, on the model's device.

    prompt: stands before each text, "" for none. task: as `encode` takes it. quiet: show no progress. exact: a GPU multiplies
    in float32, not by its TF32 units. block: how many tokens are encoded at once, and how many texts are sorted together;
    by default what is fastest on the device.
    """
    options = {"task": task} if task else {}
    plain = not prompt and not task and len(texts) in REMEMBERED and why_padded(model) is None
    tokens = shared_tokens(model) if plain else None
    model.eval()
    kind = model.device.type if model.device.type in TOKENS else "cpu"
    by_length = sorted(range(len(texts)), key=lambda place: len(texts[place]))
    most, size = block or (TOKENS[kind], CHUNK[kind])
    chunks = [by_length[start : start + size] for start in range(0, len(texts), size)]
    places, parts = [], []
    with torch.inference_mode(), own_precision(model), gpu_products(kind, exact=exact):
        for chunk in chunks if quiet else track(chunks, what):
            for rows, vectors in _embed_chunk(model, [texts[place] for place in chunk], most, prompt, options, tokens):
                places += [chunk[row] for row in rows]
                parts.append(vectors[:, : model.truncate_dim].float())
    if not parts:
        return torch.empty(0, model.get_embedding_dimension() or 0)
    order = torch.from_numpy(np.argsort(places))
    return torch.cat(parts)[order.to(parts[0].device)]


def gpu_products(kind: str, *, exact: bool = False) -> AbstractContextManager[None]:
    """On a GPU, products of float32 by its TF32 units, with which cosines move by about 1e-4; exact: as float32."""
    return float32_products("ieee" if exact else "tf32") if kind == "cuda" else nullcontext()


@contextmanager
def own_precision(model: SentenceTransformer) -> Iterator[None]:
    """Inside, the model computes in the precision of its weights, or in that of an autocast around this.

    A trainer in bf16 puts an autocast into the model's `forward` and leaves it there: all scores after it would be in bf16.
    """
    wrapped = vars(model).pop("forward") if "_original_forward" in vars(model) else None  # what accelerate leaves
    try:
        yield
    finally:
        if wrapped is not None:
            vars(model)["forward"] = wrapped


def _embed_chunk(
    model: SentenceTransformer, texts: list[str], most: int, prompt: str, options: dict[str, Any], tokens: Tokens | None
) -> Iterator[tuple[Sequence[int], Tensor]]:
    """Rows of the chunk and their vectors, block by block, each of at most so many tokens."""
    with tokenizer_panics():
        features = tokens.padded(model, texts) if tokens is not None else model.preprocess(texts, prompt=prompt, **options)
    if not can_cut(features):  # not a plain encoder of tokens: its own way is the only one that is sure to be right
        yield range(len(texts)), model.encode(texts, prompt=prompt, convert_to_tensor=True, show_progress_bar=False, **options)
        return
    for rows, block in cut_features(features, most):
        on_device = {name: value.to(model.device) if isinstance(value, Tensor) else value for name, value in block.items()}
        yield rows, model(on_device, **options)["sentence_embedding"]


@contextmanager
def tokenizer_panics() -> Iterator[None]:
    """Say in words that a text was too much for the tokenizer: its panic is no `Exception`, and says little."""
    try:
        yield
    except BaseException as problem:
        if type(problem).__name__ != "PanicException":
            raise
        raise UserError(
            f"the encoder's tokenizer gave up on a text ({problem}): its rules for what to ignore are too slow. "
            f"Train the model again with this version of pairtune, or leave `ignore` out"
        ) from problem


def can_cut(features: dict[str, Any]) -> bool:
    """Whether these are tokens with padding at their end, and nothing else."""
    if not {"input_ids", "attention_mask"} <= set(features) <= PADDED | ABOUT_ALL:
        return False
    mask = features["attention_mask"]
    return bool((mask[:, 1:] <= mask[:, :-1]).all())


def cut_features(features: dict[str, Any], tokens: int) -> Iterator[tuple[list[int], dict[str, Any]]]:
    """Blocks of rows, the shortest first, of at most so many tokens each, each block as long as its longest text."""
    lengths = features["attention_mask"].sum(dim=1).numpy()
    rows: list[int] = []
    for row in [*np.argsort(lengths, kind="stable").tolist(), None]:
        if rows and (row is None or (len(rows) + 1) * lengths[row] > tokens):
            longest = int(lengths[rows[-1]])
            padded = {name: features[name][rows, :longest] for name in PADDED & set(features)}
            yield rows, {**features, **padded}
            rows = []
        if row is not None:
            rows.append(row)


class Embeddings:
    """The unit vectors that a model gives to texts: each distinct text is encoded once, whoever asks for it again."""

    def __init__(self, model: SentenceTransformer, *, exact: bool = False) -> None:
        """model: its weights stay as they are from now on. exact: see `embed`."""
        self.model, self.exact = model, exact
        self._row: dict[str, int] = {}
        self._vectors: np.ndarray | None = None

    def __call__(self, texts: Sequence[str], what: str = "encoding") -> np.ndarray:
        """(N, n) vectors of the texts; of the new ones those of equally many tokens are encoded together."""
        new = [text for text in dict.fromkeys(texts) if text not in self._row]
        if new or self._vectors is None:
            prompt = self.model.prompts.get(self.model.default_prompt_name) if self.model.default_prompt_name else None
            found = embed(self.model, new, what, prompt=prompt or "", exact=self.exact)
            check_numbers(found)
            vectors = torch.nn.functional.normalize(found).cpu().numpy()
            self._row |= {text: place for place, text in enumerate(new, len(self._row))}
            self._vectors = vectors if self._vectors is None else np.concatenate([self._vectors, vectors])
        return self._vectors[[self._row[text] for text in texts]]

    def score(self, left: Sequence[str], right: Sequence[str]) -> np.ndarray:
        """(N,) the cosine of each pair."""
        vectors = self([*left, *right])
        return np.einsum("ij,ij->i", vectors[: len(left)], vectors[len(left) :])


def check_numbers(vectors: Tensor) -> None:
    """Refuse embeddings of which nothing can be said: those of damaged weights, or of a training that diverged."""
    lost = int((~torch.isfinite(vectors).all(dim=1)).sum())
    if lost:
        raise UserError(
            f"the embeddings of {lost:,} of {len(vectors):,} texts have NaN or infinite values: the weights are damaged, or the "
            f"training diverged. Get the model again, or train it with a lower train.learning_rate"
        )


def encode(model: SentenceTransformer, texts: Sequence[str], what: str = "encoding") -> np.ndarray:
    """(N, n) unit vectors of the texts."""
    return Embeddings(model)(texts, what)


def score_pairs(model: SentenceTransformer, left: Sequence[str], right: Sequence[str]) -> np.ndarray:
    """(N,) the cosine of each pair."""
    return Embeddings(model).score(left, right)


MEASURED = 5000  # texts, spread evenly over all


MANY_UNKNOWN = 0.2  # of the tokens: a script that the encoder was not trained on


def count_sampled_tokens(model: SentenceTransformer, texts: Sequence[str]) -> np.ndarray:
    """The tokens of at most MEASURED texts, uncut, special ones included."""
    return np.array(count_tokens(model, _sample(texts)), np.int64)


def _sample(texts: Sequence[str]) -> list[str]:
    count = min(len(texts), MEASURED)
    return [texts[int(place)] for place in np.arange(count) * len(texts) // max(count, 1)]


def share_unknown(model: SentenceTransformer, texts: Sequence[str]) -> float:
    """The share of the texts' tokens that stand for letters or words that the encoder's vocabulary lacks."""
    sign = getattr(model.tokenizer, "unk_token_id", None)
    some = _sample(texts)
    if sign is None or not callable(model.tokenizer) or not some:
        return 0.0
    found = model.tokenizer(some, add_special_tokens=False, truncation=False, padding=False, verbose=False)["input_ids"]
    ids = np.concatenate([np.array(one, np.int64) for one in found])
    return float((ids == sign).mean()) if len(ids) else 0.0


def warn_unknown(share: float) -> str:
    """What to do about unknown tokens, where they are many; empty where they are few."""
    cure = "it may not know this language or script: take an encoder that does, as in --model NAME"
    return f"{share:.0%} of the tokens are unknown to the encoder; {cure}" if share > MANY_UNKNOWN else ""


def count_tokens(model: SentenceTransformer, texts: Sequence[str]) -> list[int]:
    """Of whole texts, the marks at their ends included."""
    if not texts:
        return []
    if not callable(model.tokenizer):  # that of a static embedding, which has no such marks
        return [len(found.ids) for found in model.tokenizer.encode_batch(list(texts), add_special_tokens=False)]
    return [len(ids) for ids in model.tokenizer(list(texts), truncation=False, padding=False, verbose=False)["input_ids"]]


def describe_cut(model: SentenceTransformer, texts: Sequence[str]) -> str:
    """How many of the texts are longer than the model reads, in words; empty where none is."""
    limit = length_of(model)
    if limit is None:
        return ""
    tokens = count_sampled_tokens(model, texts)
    cut = int((tokens > limit).sum())
    if not cut:
        return ""
    of = "texts" if len(texts) <= MEASURED else "texts that were measured"
    return f"{cut:,} of {len(tokens):,} {of} have more than {limit} tokens and are cut (the longest has {tokens.max():,})"


def encode_texts(
    model: SentenceTransformer,
    texts: Sequence[str],
    *,
    prompt: str | None = None,
    task: str | None = None,
    precision: torch.dtype | None = None,
) -> np.ndarray:
    """(D, n) float32: the embedding of each text, dropout off; every process encodes its share and ends with all of them.

    prompt, task: as the collator gives them in training. precision: that of the training step, where it is not float32.
    """
    rank, world = process_place()
    longest_first = sorted(range(len(texts)), key=lambda place: -len(texts[place]))
    mine = longest_first[rank::world]
    with leave_no_trace(model), torch.autocast(model.device.type, dtype=precision, enabled=precision is not None):
        # no prompt is "", not the model's default one, which the collator does not add either
        some = [texts[place] for place in mine]
        vectors = embed(model, some, "encoding texts", prompt=prompt or "", task=task, quiet=rank > 0)
    return _join_shares(mine, vectors.cpu().numpy(), len(texts))


def _join_shares(places: list[int], vectors: np.ndarray, count: int) -> np.ndarray:
    shares = gather_everywhere((places, vectors))
    joined = np.empty((count, vectors.shape[1]), np.float32)
    for some, theirs in shares:
        joined[some] = theirs
    return joined


@contextmanager
def leave_no_trace(model: torch.nn.Module) -> Iterator[None]:
    """Afterwards each module is in the mode it was in, and torch's random numbers go on as if nothing had happened."""
    modes = [(module, module.training) for module in model.modules()]
    device = next(model.parameters()).device
    with torch.random.fork_rng(devices=[device.index] if device.type == "cuda" else [], device_type="cuda"):
        try:
            yield
        finally:
            for module, training in modes:
                module.training = training
