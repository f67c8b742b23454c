"""The exact nearest neighbors of vectors on a CUDA device, chosen by pieces: of many, scored coarsely and ranked in float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

SEARCHED_AT_ONCE = 2048  # vectors whose neighbors are searched at a time
SCORES_AT_ONCE = 2**30  # scores held at a time: 4 GB, or a quarter of what is free
LITTLE = 2**26  # scores that fit wherever anything is trained: nobody asks what is free
AGAIN = 2**27  # numbers of the candidates' vectors held at a time: 512 MB
SPARE_CANDIDATES = 16  # candidates beyond those asked for, or a sixteenth of them: room for the error of the coarse scores
ALL_COMPARED = 4  # times the candidates: so few vectors are all compared
MANY = 2**16  # vectors: below, by the count of bytes and products, float32 ones with all are less work than a second look


Found = tuple[np.ndarray, np.ndarray]  # (b, count) int32 ids, nearest first, and their float32 similarities


@dataclass(frozen=True, eq=False)
class Search:
    """find: from (b,) int64 rows to what is near them. block: how many rows at a time."""

    find: Callable[[np.ndarray], Found]
    block: int

    def __call__(self, rows: np.ndarray) -> Found:
        """The neighbors of the rows, however many."""
        if len(rows) <= self.block:
            return self.find(rows)
        parts = [self.find(rows[start : start + self.block]) for start in range(0, len(rows), self.block)]
        ids, similarities = zip(*parts, strict=True)
        return np.concatenate(ids), np.concatenate(similarities)


def search_device(
    vectors: np.ndarray | Tensor,
    count: int,
    device: str,
    *,
    similar: bool = True,
    coarse_from: int = MANY,
    fine_from: int = ALL_COMPARED,
    block: int = SEARCHED_AT_ONCE,
) -> Search:
    """For each of the (D, n) vectors the `count` < D nearest others by cosine; without `similar`, (b, 0) similarities.

    Exact: what coarse scores leave out is proved to be farther away, row by row, by the bound on their error; rows
    where that does not succeed are compared with all vectors in float64.

    From `coarse_from` vectors on by coarse scores; from `fine_from` times the candidates on by float32 products; below, all
    are compared. block: rows at a time, or fewer.
    """
    import torch

    everything = torch.nn.functional.normalize(torch.as_tensor(vectors).to(device, torch.float32))
    kept = count + max(SPARE_CANDIDATES, count // 16)
    step = min(block, rows_at_a_time(len(vectors), device))
    search: FineSearch | CoarseSearch | None = None
    if len(vectors) >= coarse_from:
        search, step = CoarseSearch(everything, count, kept), min(step, max(1, AGAIN // (kept * everything.shape[1])))
    elif len(vectors) > fine_from * kept:
        search = FineSearch(everything, count)

    def find(rows: np.ndarray) -> Found:
        places = torch.from_numpy(rows).to(device)
        ids, similarities = search.find(places) if search else compare_with_all(everything, places, count)
        return ids.to(torch.int32).cpu().numpy(), similarities[:, : count if similar else 0].cpu().numpy()

    return Search(find, step)


def rows_at_a_time(count: int, device: str) -> int:
    """How many vectors are compared with all `count` of them at a time."""
    import torch

    if SEARCHED_AT_ONCE * count <= LITTLE:
        return SEARCHED_AT_ONCE
    free = torch.cuda.mem_get_info(device)[0] // 16 if torch.device(device).type == "cuda" else SCORES_AT_ONCE
    return max(1, min(SEARCHED_AT_ONCE, min(SCORES_AT_ONCE, free) // count))


def compare_with_all(everything: Tensor, rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The neighbors of some rows by brute force: (b, count) ids and cosines, nearest first.

    float64 because float32 products are coarse where someone has allowed TF32, and because few rows come here.
    """
    import torch

    found, exact = [], everything.double()
    for part in rows.split(max(1, SCORES_AT_ONCE // 4 // len(everything))):
        similarities = exact[part] @ exact.T  # (b, D)
        similarities[torch.arange(len(part), device=rows.device), part] = -torch.inf
        found.append(similarities.topk(count))
    return torch.cat([ids for _, ids in found]), torch.cat([top for top, _ in found]).float()


class Pieces:
    """Columns in pieces: the `kept` best of a row lie in the `kept` pieces with the best maxima."""

    def __init__(self, size: int, kept: int) -> None:
        """size: the columns, of which 0 < kept < size are chosen in each row."""
        self.size, self.kept = size, kept
        self.piece = max(1, round((size / kept) ** 0.5))  # so many columns in a piece make both choices small
        self.count = -(-size // self.piece // 8) * 8  # matrices whose rows are not aligned take seven times as long

    def pad(self, vectors: Tensor) -> Tensor:
        """(size, n) vectors with zeros after them, so that the pieces are whole."""
        import torch

        return torch.nn.functional.pad(vectors, (0, 0, 0, self.count * self.piece - self.size))

    def choose(self, scores: Tensor, rows: Tensor, *, ordered: bool) -> tuple[Tensor, Tensor]:
        """(b, kept) columns with the best scores of each row, but for the row itself, and the scores; writes into `scores`."""
        import torch

        scores[:, self.size :] = -torch.inf
        scores.scatter_(1, rows[:, None], -torch.inf)  # itself
        maxima = scores.view(-1, self.piece, self.count).amax(dim=1)  # a piece is every so-many-th column
        pieces = maxima.topk(self.kept, sorted=False).indices
        inside = torch.arange(self.piece, device=scores.device) * self.count
        members = (pieces[:, :, None] + inside).flatten(1)  # (b, kept · piece)
        best, places = scores.gather(1, members).topk(self.kept, sorted=ordered)
        return members.gather(1, places), best


class FineSearch:
    """The neighbors of blocks of rows, by float32 products with all vectors."""

    def __init__(self, everything: Tensor, count: int) -> None:
        """everything: (D, n) of length 1."""
        self.everything, self.pieces = everything, Pieces(len(everything), count)
        self.right = self.pieces.pad(everything)

    def find(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """(b, count) ids and float32 cosines of (b,) rows, nearest first."""
        with float32_products("ieee"):  # also where someone has allowed TF32
            scores = self.everything[rows] @ self.right.T
        return self.pieces.choose(scores, rows, ordered=True)


class CoarseSearch:
    """The neighbors of blocks of rows, by three products of halves and a second look at what they put first.

    With x = high + low + rest, both in bfloat16, the coarse score is high·high + high·low + low·high.
    """

    def __init__(self, everything: Tensor, count: int, kept: int) -> None:
        """everything: (D, n) of length 1. kept: how many candidates are looked at again, count < kept < D."""
        import torch

        self.everything, self.count, self.pieces = everything, count, Pieces(len(everything), kept)
        high = everything.to(torch.bfloat16)
        low = (everything - high).to(torch.bfloat16)
        self.left = torch.cat([high, high, low], dim=1)  # (D, 3n)
        self.right = self.pieces.pad(torch.cat([high, low, high], dim=1))  # (pieces · piece, 3n)
        # |low · low| and twice |rest| are below 2^-18 each; each of 3n sums loses 2^-22 at most of a total that is at most 1
        self.error = 2**-16 + 3 * everything.shape[1] * 2**-22

    def find(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """(b, count) ids and float32 cosines of (b,) rows, nearest first."""
        ids, best, unsure = self.look(rows)
        if len(unsure):
            ids[unsure], best[unsure] = compare_with_all(self.everything, rows[unsure], self.count)
        return ids, best

    def look(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As `find`, and the places of the rows for which the bound does not prove it."""
        import torch

        scores = multiply_halves(self.left[rows], self.right)  # (b, pieces · piece)
        candidates, chosen = self.pieces.choose(scores, rows, ordered=False)
        cutoff = chosen.amin(dim=1)  # what no other exceeds
        near = self.everything[candidates].mul_(self.everything[rows, None]).sum(dim=2)  # (b, kept)
        best, places = near.topk(self.count)
        ids = candidates.gather(1, places)
        return ids, best, torch.nonzero(best[:, -1] < cutoff + self.error)[:, 0]


def multiply_halves(left: Tensor, right: Tensor) -> Tensor:
    """(b, c) float32: left · rightᵀ of bfloat16 matrices, added up in float32."""
    import torch

    if left.is_cuda:
        return torch.mm(left, right.T, out_dtype=torch.float32)
    return left.float() @ right.float().T


@contextmanager
def float32_products(how: Literal["ieee", "tf32"]) -> Iterator[None]:
    """Inside, as float32 (whatever was allowed before) or by the TF32 units: 10 bits of each factor, sums in float32."""
    import torch

    products: Any = torch.backends.cuda.matmul  # not torch.set_float32_matmul_precision: torch refuses to mix the two
    before = products.fp32_precision
    products.fp32_precision = how
    try:
        yield
    finally:
        products.fp32_precision = before
