"""Texts without padding: tokenized once, each distinct text of a batch once, one after the other in a single row."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from sentence_transformers.base.data_collator import DEFAULT_LABEL_COLUMNS
from torch import Tensor

from pairtune.errors import UserError
from pairtune.loss.terms import check_labels, text_ids
from pairtune.progress import track

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

TOKENIZED_AT_ONCE = 4096  # texts that are tokenized between two signs of progress
TOKENIZED_AHEAD = 2_000_000  # distinct texts that are tokenized before training; of a larger dataset, each batch as it comes
BLOCKS = 6  # different paddings of the attention in a batch on a CPU: more waste less, and call more
QUANTUM = 32  # lengths of the attention that captured steps are made for, where it has to be padded


class Tokens:
    """The token ids of texts, each text once, and equal ids once: what reads the same to the model is the same text.

    keep: without, the texts of one call are forgotten when the next one has others.
    """

    def __init__(self, keep: bool = True) -> None:
        self.keep = keep
        self._place: dict[str, int] = {}  # of a text, in `_ids`
        self._known: dict[bytes, int] = {}  # of token ids
        self._ids: list[np.ndarray] = []
        self._numbers: list[int] = []

    def add(self, model: SentenceTransformer, texts: Sequence[str], quiet: bool = True) -> None:
        """Tokenize those that are new, as the host does it for this model."""
        new = sorted(dict.fromkeys(text for text in texts if text not in self._place), key=len)
        chunks = range(0, len(new), TOKENIZED_AT_ONCE)
        for start in chunks if quiet else track(chunks, "tokenizing"):
            chunk = new[start : start + TOKENIZED_AT_ONCE]
            features = model.preprocess(chunk)
            mask, ids = features["attention_mask"].bool().numpy(), features["input_ids"].numpy().astype(np.int32)
            for text, row, seen, number in zip(chunk, ids, mask, text_ids(features).tolist(), strict=True):
                self._place[text] = self._keep(row[seen], number)

    def places(self, model: SentenceTransformer, texts: Sequence[str]) -> np.ndarray:
        """Where each text is, equal for equal token ids. (len(texts),)"""
        try:
            return np.fromiter((self._place[text] for text in texts), np.int64, len(texts))
        except KeyError:
            if not self.keep:
                self._place, self._known, self._ids, self._numbers = {}, {}, [], []
            self.add(model, texts)
            return self.places(model, texts)

    def padded(self, model: SentenceTransformer, texts: Sequence[str]) -> dict[str, Tensor]:
        """The host's features of these texts, (texts, length)."""
        parts = [self[place] for place in self.places(model, texts)]
        lengths = np.fromiter(map(len, parts), np.int64, len(parts))
        mask = np.arange(lengths.max()) < lengths[:, None]
        ids = np.full(mask.shape, model.tokenizer.pad_token_id)
        ids[mask] = np.concatenate(parts)
        found = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask.astype(np.int64))}
        if "token_type_ids" in model.tokenizer.model_input_names:
            found["token_type_ids"] = torch.zeros_like(found["input_ids"])
        return found

    def number(self, place: int) -> int:
        """The number of the token ids at this place, as `text_ids` has it: the same in every process."""
        return self._numbers[place]

    def __len__(self) -> int:
        return len(self._place)

    def __getitem__(self, place: int) -> np.ndarray:
        return self._ids[place]

    def _keep(self, ids: np.ndarray, number: int) -> int:
        place = self._known.setdefault(ids.tobytes(), len(self._ids))
        if place == len(self._ids):
            self._ids.append(ids)
            self._numbers.append(number)
        return place


_shared: dict[Any, Tokens] = {}  # of one vocabulary and one length
_vocabularies: WeakKeyDictionary[Any, tuple[int, bytes]] = WeakKeyDictionary()


def shared_tokens(model: SentenceTransformer) -> Tokens:
    """The texts that this process has tokenized for this vocabulary and length, trained on or evaluated."""
    tokenizer = model.tokenizer
    key = digest_vocabulary(tokenizer), model.max_seq_length, tokenizer.padding_side, tokenizer.truncation_side
    found = _shared.get(key)
    if found is None or len(found) > TOKENIZED_AHEAD:
        _shared.clear()
        found = _shared[key] = Tokens()
    return found


def digest_vocabulary(tokenizer: Any) -> bytes:
    """The same for tokenizers that cut all texts in the same way; asked often, computed once."""
    size, digest = _vocabularies.get(tokenizer, (-1, b""))
    if size != len(tokenizer):
        whole = json.loads(tokenizer.backend_tokenizer.to_str())
        parts = [whole[part] for part in ("model", "normalizer", "pre_tokenizer", "post_processor", "added_tokens")]
        digest = hashlib.sha256(json.dumps(parts).encode()).digest()
        _vocabularies[tokenizer] = len(tokenizer), digest
    return digest


@dataclass(frozen=True)
class Block:
    """Neighboring texts whose attention is computed together: `texts` of them, padded to `length` tokens.

    first, last: their tokens in the packed row. slots: where each token goes in (texts · length), or None when all texts
    are `length` long and nothing has to move. lengths: (texts,), of each.
    """

    first: int
    last: int
    texts: int
    length: int
    slots: Tensor | None
    lengths: Tensor | None


@dataclass(frozen=True)
class Packed:
    """Distinct texts in one row of T tokens, shortest first.

    ids, positions, text: (1, T), text the number of the text that a token is in. starts: (texts + 1,), where texts begin.
    index: (columns, m), which text each place of the batch's columns holds. number: (columns, m), equal for equal texts.
    label: (m,) or None. blocks: how attention is cut where no kernel takes texts of different lengths.
    longest: no text is longer. shape: equal for batches that one captured step can serve.
    parts: the same texts, in the same order, in several rows, where they are encoded one row after the other.
    """

    ids: Tensor
    positions: Tensor
    text: Tensor
    starts: Tensor
    index: Tensor
    number: Tensor
    label: Tensor | None
    blocks: tuple[Block, ...]
    longest: int
    parts: tuple[Packed, ...] = ()

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sizes of everything in it."""
        cuts = tuple((block.first, block.last, block.texts, block.length, block.slots is None) for block in self.blocks)
        return self.ids.shape[1], len(self.starts), tuple(self.index.shape), self.label is None, self.longest, cuts

    def tensors(self) -> list[Tensor]:
        """All tensors, in a fixed order."""
        own = [self.ids, self.positions, self.text, self.starts, self.index, self.number]
        inner = [tensor for block in self.blocks for tensor in (block.slots, block.lengths) if tensor is not None]
        return own + ([] if self.label is None else [self.label]) + inner

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Packed:
        """The same on another device; the host's data loader calls it."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Packed:
        """The same where a device can fetch it by itself."""
        return self._map(lambda tensor: tensor.pin_memory())

    def clone(self) -> Packed:
        """The same in memory of its own."""
        return self._map(Tensor.clone)

    def features(self) -> dict[str, Tensor]:
        """What the host's modules take for texts without padding."""
        return {"input_ids": self.ids, "position_ids": self.positions, "cu_seq_lens_q": self.starts, "seq_idx": self.text}

    def _map(self, change: Any) -> Packed:
        moved = {name: change(value) for name, value in vars(self).items() if isinstance(value, Tensor)}
        blocks = tuple(
            Block(*(change(value) if isinstance(value, Tensor) else value for value in vars(block).values()))
            for block in self.blocks
        )
        parts = tuple(part._map(change) for part in self.parts)
        return Packed(**{**vars(self), **moved, "blocks": blocks, "parts": parts})


class PackingCollator:
    """Rows of a dataset as a `Packed` batch, in place of the host's collator."""

    def __init__(
        self,
        model: SentenceTransformer,
        dataset: Dataset,
        *,
        offset: int,
        static: int = 0,
        part: int = 0,
        most_ahead: int = TOKENIZED_AHEAD,
    ) -> None:
        """offset: the position of a text's first token in the encoder's table of positions. static, part: as `pack` takes them.

        most_ahead: texts of a dataset that is tokenized now; of a larger one, each batch as it comes.
        """
        self.valid_label_columns = list(DEFAULT_LABEL_COLUMNS)
        label = next((name for name in self.valid_label_columns if name in dataset.column_names), None)
        self.columns = [name for name in dataset.column_names if name != label]
        self.label = label
        self.how = {"offset": offset, "longest": int(model.max_seq_length or 512), "static": static, "part": part}
        ahead = len(dataset) * len(self.columns) <= most_ahead
        self.model = model
        self.tokens = shared_tokens(model) if ahead else Tokens(keep=False)
        if ahead:
            self.tokens.add(
                model, [text for column in self.columns for text in dataset[column] if isinstance(text, str)], quiet=False
            )

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Packed]:
        """The batch, under the one name that `PairTrainer` looks for."""
        texts = [text for column in self.columns for text in self._texts(rows, column)]
        places = self.tokens.places(self.model, texts).reshape(len(self.columns), -1)  # (columns, m)
        label = torch.tensor([row[self.label] for row in rows]) if self.label else None
        if label is not None:
            check_labels(label)
        return {"packed": pack(self.tokens, places, label, **self.how)}

    def _texts(self, rows: list[dict[str, Any]], column: str) -> list[str]:
        texts = [row[column] for row in rows]
        for text in texts:
            if not isinstance(text, str):
                raise UserError(f"a text of column {column!r} is {text!r}: drop such pairs, or give them a text")
        return texts


def pack(
    tokens: Tokens, places: np.ndarray, label: Tensor | None, *, offset: int, longest: int, static: int = 0, part: int = 0
) -> Packed:
    """The batch whose columns hold the texts at these places, (columns, m).

    offset: the position of a text's first token. longest: no text is longer. static: what the longest text of a batch is rounded
    up to, for few shapes; 0: nothing. part: texts that are encoded at a time; 0: all.
    """
    own = np.zeros_like(places)
    own[1:] = places[1:] == places[0]  # a text paired with itself is encoded twice: dropout is all that tells the two apart
    distinct, seen, index = np.unique(2 * places + own, return_index=True, return_inverse=True)
    texts = [tokens[place // 2] for place in distinct]
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    order = np.lexsort((seen, lengths))  # not by place: that depends on which texts were tokenized first
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    texts = [texts[place] for place in order]
    number = torch.tensor([[tokens.number(place) for place in column] for column in places.tolist()])
    whole = lay_out(texts, torch.from_numpy(rank[index].reshape(places.shape)), number, label, offset, longest, static)
    if not part:
        return whole
    none = number[:, :0]
    rows = [texts[first : first + part] for first in range(0, len(texts), part)]
    return replace(
        whole, parts=tuple(lay_out(row, torch.arange(len(row))[None], none, None, offset, longest, static) for row in rows)
    )


def lay_out(
    texts: Sequence[np.ndarray], index: Tensor, number: Tensor, label: Tensor | None, offset: int, longest: int, static: int
) -> Packed:
    """Texts in order of length, as one row of tokens."""
    most, ids = longest, np.concatenate(texts)
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    if static:
        longest = min(-(-int(lengths[-1]) // static) * static, -(-longest // 8) * 8)
        ids, lengths = fill_up(ids, lengths, index.numel(), min(longest, most))  # positions end there
    starts = np.concatenate([[0], np.cumsum(lengths)])
    text = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(len(text)) - starts[text]
    cuts = [(0, len(lengths))] if static else cut_blocks(lengths)
    return Packed(
        ids=torch.from_numpy(ids.astype(np.int64))[None],
        positions=torch.from_numpy(place + offset)[None],
        text=torch.from_numpy(text)[None],
        starts=torch.from_numpy(starts.astype(np.int32)),
        index=index,
        number=number,
        label=label,
        blocks=tuple(
            make_block(starts, lengths, place, text, *cut, length=longest if static else int(lengths[cut[1] - 1])) for cut in cuts
        ),
        longest=longest if static else int(lengths[-1]),
    )


def fill_up(ids: np.ndarray, lengths: np.ndarray, most: int, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens up to one of a few totals, in texts of their own, and empty texts up to a fixed number of them.

    Four totals to each doubling: about a quarter more tokens at most. most: how many texts there can be; longest: their length.
    At least one token is added, and texts that hold some come last, so that every text, an empty one too, begins at a token.
    """
    step = max(QUANTUM, 2 ** int(np.log2(len(ids))) // 4)
    rest = step - len(ids) % step
    extra = np.zeros(-(-step // longest), lengths.dtype)  # texts that hold any remainder
    whole, part = divmod(rest, longest)
    extra[len(extra) - whole :] = longest
    if part:
        extra[len(extra) - whole - 1] = part
    ids = np.concatenate([ids, np.full(rest, ids[0], ids.dtype)])
    return ids, np.concatenate([lengths, np.zeros(most - len(lengths), lengths.dtype), extra])


def cut_blocks(lengths: np.ndarray) -> list[tuple[int, int]]:
    """Where to cut texts in order of length into at most BLOCKS parts, so that the squares of padded lengths sum to least."""
    values, first = np.unique(lengths, return_index=True)
    ends = np.append(first[1:], len(lengths))
    square = values.astype(np.float64) ** 2
    best = np.full((BLOCKS + 1, len(values) + 1), np.inf)
    best[0, 0] = 0.0
    back = np.zeros(best.shape, np.int64)
    for parts in range(1, BLOCKS + 1):
        for stop in range(1, len(values) + 1):
            cost = best[parts - 1, :stop] + (ends[stop - 1] - first[:stop]) * square[stop - 1]
            back[parts, stop] = int(np.argmin(cost))
            best[parts, stop] = cost[back[parts, stop]]
    parts, stop, cuts = int(np.argmin(best[:, -1])), len(values), []
    while stop:
        start = int(back[parts, stop])
        cuts.append((int(first[start]), int(ends[stop - 1])))
        parts, stop = parts - 1, start
    return cuts[::-1]


def make_block(
    starts: np.ndarray, lengths: np.ndarray, place: np.ndarray, text: np.ndarray, begin: int, end: int, length: int
) -> Block:
    """Texts `begin` to `end`, padded to `length`."""
    first, last = int(starts[begin]), int(starts[end])
    if last - first == (end - begin) * length:
        return Block(first, last, end - begin, length, None, None)
    slots = (text[first:last] - begin) * length + place[first:last]
    return Block(first, last, end - begin, length, torch.from_numpy(slots), torch.from_numpy(lengths[begin:end].copy()))
