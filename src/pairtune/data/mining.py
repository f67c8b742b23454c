"""Hard negatives for positive pairs: wrong answers that an encoder, or BM25, ranks high."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from pairtune.data.pairs import PairSet
from pairtune.data.splits import distinct, single_spaces
from pairtune.encoders.prompts import NO_PROMPTS, Prompts
from pairtune.errors import UserError
from pairtune.progress import track

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer

FURTHER = 10  # candidates for each negative that is asked for, where some may be refused
DEVICE_CELLS = 2**26  # similarities that are held at once on a device
CELLS = 2**24  # scores by BM25 that are held at once
SATURATION, LENGTH = 1.2, 0.75  # k1 and b of BM25, as Lucene has them

Ranked = tuple[np.ndarray, np.ndarray]  # (Q, k) scores, falling, and places in the corpus, −1 where there is none
Rescore = Callable[[Sequence[str], Sequence[str]], np.ndarray]


class Ranker(Protocol):
    """What finds candidates: scores of given pairs of places, and the best places of the corpus for each query."""

    def rank(self, count: int) -> Ranked:
        """The best `count` texts of the corpus for each query."""

    def score(self, queries: np.ndarray, places: np.ndarray) -> np.ndarray:
        """(N,) of the queries with the texts at these places."""


@dataclass(frozen=True)
class Wanted:
    """Which negatives. A query's candidates are ranked, right answers left out, then filtered, then counted.

    count: for each pair. skip: the best so many of what is left are passed over. ranks: how many candidates are looked at,
    0 for enough. relative_margin: a candidate scores at most (1 − this) × the lowest score of a right answer (0.05 is usual).
    absolute_margin: at most that score minus this. highest, lowest: bounds of the score.
    """

    count: int = 3
    skip: int = 0
    ranks: int = 0
    relative_margin: float | None = None
    absolute_margin: float | None = None
    highest: float | None = None
    lowest: float | None = None

    def __post_init__(self) -> None:
        limits = (self.relative_margin, self.absolute_margin, self.highest, self.lowest)
        if any(limit is not None and math.isnan(limit) for limit in limits):  # every comparison with it would be false
            raise UserError("a margin or limit of mining is nan: give a number, or leave it out")

    def looked_at(self, answers: int) -> int:
        """How many candidates are looked at. answers: a query has at most so many right ones, which are no candidates."""
        filters = (self.relative_margin, self.absolute_margin, self.highest)
        many = any(one is not None for one in filters)
        return self.ranks or self.skip + self.count * (FURTHER if many else 1) + answers


@dataclass(frozen=True)
class Mined:
    """The positive pairs for which all negatives were found, with the score of each.

    rows: where each stood in the given pairs. short: how many pairs have too few.
    """

    pairs: PairSet
    rows: np.ndarray
    score: np.ndarray
    negative_score: np.ndarray
    short: int


class Nearest:
    """Ranks by the cosine of an encoder's vectors, of length 1: faiss on a CPU, tiles on a GPU."""

    def __init__(self, queries: np.ndarray, corpus: np.ndarray, device: str = "cpu") -> None:
        self.queries, self.corpus, self.device = queries, corpus, device

    def rank(self, count: int) -> Ranked:
        """The nearest texts."""
        count = min(count, len(self.corpus))
        return self._rank_on_device(count) if self.device.startswith("cuda") else self._rank_with_faiss(count)

    def score(self, queries: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Their cosines."""
        return np.einsum("ij,ij->i", self.queries[queries], self.corpus[places])

    def _rank_with_faiss(self, count: int) -> Ranked:
        import faiss

        index = faiss.IndexFlatIP(self.corpus.shape[1])
        index.add(self.corpus)
        blocks = np.array_split(self.queries, max(1, len(self.queries) // 4096))
        found = [index.search(block, count) for block in track(blocks, "searching")]
        return np.concatenate([scores for scores, _ in found]), np.concatenate([places for _, places in found])

    def _rank_on_device(self, count: int) -> Ranked:
        import torch

        corpus = torch.from_numpy(self.corpus).to(self.device).T
        blocks = torch.from_numpy(self.queries).split(max(1, DEVICE_CELLS // len(self.corpus)))
        found = [(block.to(self.device) @ corpus).topk(count, dim=1) for block in track(blocks, "searching")]
        scores, places = (torch.cat(parts).cpu().numpy() for parts in zip(*found, strict=True))
        return scores, places


class Lexical:
    """Ranks a corpus for queries by BM25; words are runs of letters and digits, lower-cased."""

    def __init__(self, queries: Sequence[str], corpus: Sequence[str]) -> None:
        from scipy.sparse import csr_matrix
        from sklearn.feature_extraction.text import CountVectorizer

        counter = CountVectorizer(token_pattern=r"\w+", dtype=np.float64)
        try:
            count = csr_matrix(counter.fit_transform(corpus))
        except ValueError as problem:  # an empty vocabulary
            raise UserError(
                "no text of the corpus has a word of letters or digits, and BM25 compares words: "
                "use an encoder instead, such as minilm"
            ) from problem
        self.queries = csr_matrix((counter.transform(queries) > 0).astype(np.float64))
        self.weights = _weigh(count).T.tocsc()  # (words, C)

    def rank(self, count: int) -> Ranked:
        """The best texts; equal scores by place."""
        texts = self.weights.shape[1]
        count, block = min(count, texts), max(1, CELLS // texts)
        found = []
        for start in track(range(0, self.queries.shape[0], block), "searching by words"):
            scores = (self.queries[start : start + block] @ self.weights).toarray()
            places = np.argpartition(-scores, count - 1, axis=1)[:, :count]
            places = np.sort(places, axis=1)
            best = np.argsort(-np.take_along_axis(scores, places, 1), axis=1, kind="stable")
            places = np.take_along_axis(places, best, 1)
            found.append((np.take_along_axis(scores, places, 1), places))
        return np.concatenate([scores for scores, _ in found]), np.concatenate([places for _, places in found])

    def score(self, queries: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Their weights of the words that both have."""
        return np.asarray(self.queries[queries].multiply(self.weights.T.tocsr()[places]).sum(axis=1)).ravel()


def _weigh(count: Any) -> Any:
    """The BM25 weight of each word in each text, (C, words), from how often it is there."""
    texts = count.shape[0]
    holding = np.asarray((count > 0).sum(axis=0)).ravel()
    rarity = np.log(1 + (texts - holding + 0.5) / (holding + 0.5))
    length = np.asarray(count.sum(axis=1)).ravel()
    room = SATURATION * (1 - LENGTH + LENGTH * length / max(length.mean(), 1))
    weighed = count.tocoo()
    weighed.data = rarity[weighed.col] * weighed.data * (SATURATION + 1) / (weighed.data + room[weighed.row])
    return weighed.tocsr()


def mine_negatives(
    pairs: PairSet,
    wanted: Wanted,
    ranker: Callable[[Sequence[str], Sequence[str]], Ranker],
    *,
    corpus: Sequence[str] | None = None,
    positive_above: float = 0.5,
    rescore: Rescore | None = None,
) -> Mined:
    """The positive pairs with `wanted.count` hard negatives each, from the corpus or from the right texts of the pairs.

    Equal left texts are one query: none of its right answers is a negative, nor is the left text itself.
    ranker: given queries and corpus. rescore: scores candidates again, pair by pair, as a cross-encoder does.
    """
    positive = pairs.take(pairs.positives(positive_above))
    if not len(positive):
        raise UserError("no pair is positive, so there is nothing to find negatives for")
    queries, texts = distinct(positive.left), distinct((*(corpus or ()), *positive.right))
    answers = _answers(positive, queries, texts)
    scores, places = _candidates(ranker(queries, texts), wanted, answers, queries, texts, rescore)
    order, short = _choose(scores, wanted)
    number = {text: place for place, text in enumerate(queries)}
    query = np.array([number[text] for text in positive.left])
    kept = np.flatnonzero(~short[query])
    if not len(kept):
        raise UserError(
            f"no pair has enough negatives ({wanted.count}) within the limits: ask for fewer (count), look at more candidates "
            f"(ranks), or widen the limits (margin, absolute margin, highest, lowest)"
        )
    chosen = order[query[kept]]  # (kept, count)
    found = [tuple(texts[place] for place in row) for row in np.take_along_axis(places[query[kept]], chosen, 1).tolist()]
    mined = positive.take(kept)
    return Mined(
        PairSet.of(mined.left, mined.right, mined.label, query=mined.query, grade=mined.grade, negatives=found),
        np.flatnonzero(pairs.positives(positive_above))[kept],
        np.concatenate(answers.scores)[_own_answer(positive, answers, texts)][kept],
        np.take_along_axis(scores[query[kept]], chosen, 1),
        int(short[query].sum()),
    )


@dataclass
class Answers:
    """For each query, the places of its right answers in the corpus, and their scores once they are known."""

    places: list[np.ndarray]
    scores: list[np.ndarray]


def _answers(positive: PairSet, queries: Sequence[str], texts: Sequence[str]) -> Answers:
    place = {text: at for at, text in enumerate(texts)}
    found: dict[str, dict[int, None]] = {query: {} for query in queries}
    for left, right in zip(positive.left, positive.right, strict=True):
        found[left][place[right]] = None
    return Answers([np.array(list(own), np.int64) for own in found.values()], [])


def _own_answer(positive: PairSet, answers: Answers, texts: Sequence[str]) -> np.ndarray:
    """(N,) where the answer of each pair stands among all answers, query after query."""
    starts = np.cumsum([0, *map(len, answers.places)])
    at = {
        (number, int(place)): int(starts[number]) + rank
        for number, own in enumerate(answers.places)
        for rank, place in enumerate(own)
    }
    query = {text: number for number, text in enumerate(distinct(positive.left))}
    place = {text: number for number, text in enumerate(texts)}
    return np.array([at[query[left], place[right]] for left, right in zip(positive.left, positive.right, strict=True)])


def _candidates(
    ranker: Ranker,
    wanted: Wanted,
    answers: Answers,
    queries: Sequence[str],
    texts: Sequence[str],
    rescore: Rescore | None,
) -> Ranked:
    """Scores and places of each query's candidates; what must not be a negative has the score −∞."""
    most = max(map(len, answers.places))
    scores, places = ranker.rank(wanted.looked_at(most) + most)
    owner = np.repeat(np.arange(len(queries)), [len(own) for own in answers.places])
    right = np.concatenate(answers.places)
    if rescore is None:
        answer_scores = ranker.score(owner, right)
    else:
        rows = np.repeat(np.arange(len(queries)), places.shape[1])
        scores = rescore([queries[row] for row in rows.tolist()], [texts[place] for place in places.ravel().tolist()])
        scores = scores.reshape(places.shape)
        answer_scores = rescore([queries[row] for row in owner.tolist()], [texts[place] for place in right.tolist()])
    answers.scores = np.split(answer_scores, np.cumsum([len(own) for own in answers.places])[:-1])
    scores = np.where(places < 0, -np.inf, scores).astype(np.float64)
    folded = [single_spaces(text) for text in texts]
    for row, own in enumerate(answers.places):
        itself = single_spaces(queries[row])
        scores[row, np.isin(places[row], own) | np.array([folded[place] == itself for place in places[row]])] = -np.inf
    bound = _bounds(answers, wanted)[:, None]
    below = scores < (-np.inf if wanted.lowest is None else wanted.lowest)
    return np.where((scores > bound) | below, -np.inf, scores), places


def _bounds(answers: Answers, wanted: Wanted) -> np.ndarray:
    """(Q,) what no negative of the query may score above."""
    least = np.array([own.min() for own in answers.scores], np.float64)
    bounds = [np.full(len(least), np.inf if wanted.highest is None else wanted.highest)]
    if wanted.absolute_margin is not None:
        bounds.append(least - wanted.absolute_margin)
    if wanted.relative_margin is not None:
        bounds.append(least - np.abs(least) * wanted.relative_margin)  # also right for scores below 0
    return np.minimum.reduce(bounds)


def _choose(scores: np.ndarray, wanted: Wanted) -> tuple[np.ndarray, np.ndarray]:
    """(Q, count) which candidates are taken, and (Q,) whether there are too few."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, wanted.skip :][:, : wanted.count]
    if order.shape[1] < wanted.count:
        raise UserError(
            f"{wanted.count} negatives after skipping {wanted.skip}, of only {scores.shape[1]} candidates: ask for fewer"
        )
    return order, ~np.isfinite(np.take_along_axis(scores, order, 1)).all(axis=1)


def rescore_with(model: CrossEncoder) -> Rescore:
    """The scores that a cross-encoder gives to pairs."""

    def rescore(left: Sequence[str], right: Sequence[str]) -> np.ndarray:
        return np.asarray(model.predict(list(zip(left, right, strict=True)), show_progress_bar=False), np.float64)

    return rescore


def rank_by_words(queries: Sequence[str], corpus: Sequence[str]) -> Ranker:
    """A ranker by BM25."""
    return Lexical(queries, corpus)


def rank_by(model: SentenceTransformer, prompts: Prompts = NO_PROMPTS) -> Callable[[Sequence[str], Sequence[str]], Ranker]:
    """A ranker by an encoder."""
    from pairtune.encoders.embedding import Embeddings

    def rank(queries: Sequence[str], corpus: Sequence[str]) -> Ranker:
        embeddings = Embeddings(model)
        texts = embeddings(prompts.of_right(corpus), "encoding the corpus")
        return Nearest(embeddings(prompts.of_left(queries), "encoding the queries"), texts, str(model.device))

    return rank
