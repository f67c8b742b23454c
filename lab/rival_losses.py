"""Losses that the paper compares with and sentence-transformers has not: SupCon, NT-Xent, and both directions of ranking.

All of them see cosines at the temperature of the host's ranking loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.merged_forward import embed_columns
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor, nn

TEMPERATURE = 0.05


def supcon_loss(left: Tensor, right: Tensor, left_ids: Tensor, right_ids: Tensor, temperature: float = TEMPERATURE) -> Tensor:
    """Each text finds all that it goes with: −1/|P(i)| Σ over p in P(i) of log softmax (Khosla et al., 2020, L_out), both ways.

    left, right: (m, n), positive pairs. Right text j goes with left text i where the batch has them as a pair. A scalar.
    """
    similarity = cosines(left, right) / temperature  # (m, m)
    pairs = ((left_ids[:, None] == left_ids)[:, :, None] & (right_ids[:, None] == right_ids)[None]).any(dim=1)
    ways = [(similarity, pairs), (similarity.T, pairs.T)]
    return torch.stack([_mean_over(one.log_softmax(dim=1), goes) for one, goes in ways]).mean()


def _mean_over(log_share: Tensor, goes: Tensor) -> Tensor:
    return -((log_share * goes).sum(dim=1) / goes.sum(dim=1)).mean()


def nt_xent_loss(left: Tensor, right: Tensor, temperature: float = TEMPERATURE) -> Tensor:
    """Each of the 2m texts finds its partner among all others, those of its own side too (Chen et al., 2020). A scalar."""
    both = torch.cat([left, right])
    similarity = cosines(both, both) / temperature  # (2m, 2m)
    similarity = similarity.masked_fill(torch.eye(len(both), dtype=torch.bool, device=both.device), -torch.inf)
    partner = torch.arange(len(both), device=both.device).roll(len(left))
    return nn.functional.cross_entropy(similarity, partner)


def cosines(left: Tensor, right: Tensor) -> Tensor:
    """(m, k) cosines of all with all, in float32."""
    return nn.functional.normalize(left.float()) @ nn.functional.normalize(right.float()).T


class RivalLoss(nn.Module):
    """A loss of positive pairs as the host's trainer and the fast step call it."""

    needs_ids = False

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """The loss of one batch of the host's trainer."""
        from pairtune.loss.terms import text_ids

        features = list(sentence_features)
        ids = [text_ids(column) for column in features] if self.needs_ids else None
        return self.compute_loss_from_embeddings(embed_columns(self.model, features), labels, ids)

    def compute_loss_from_embeddings(
        self, embeddings: Sequence[Tensor], labels: Tensor | None = None, ids: Sequence[Tensor] | None = None
    ) -> Tensor:
        """The loss of embeddings that are there already."""
        raise NotImplementedError


class SupConLoss(RivalLoss):
    """See `supcon_loss`."""

    needs_ids = True

    def compute_loss_from_embeddings(
        self, embeddings: Sequence[Tensor], labels: Tensor | None = None, ids: Sequence[Tensor] | None = None
    ) -> Tensor:
        """`supcon_loss` of the batch."""
        assert ids is not None
        return supcon_loss(embeddings[0], embeddings[1], ids[0], ids[1])


class NTXentLoss(RivalLoss):
    """See `nt_xent_loss`."""

    def compute_loss_from_embeddings(
        self, embeddings: Sequence[Tensor], labels: Tensor | None = None, ids: Sequence[Tensor] | None = None
    ) -> Tensor:
        """`nt_xent_loss` of the batch."""
        return nt_xent_loss(embeddings[0], embeddings[1])


class SymmetricRankingLoss(MultipleNegativesRankingLoss):
    """The host's ranking loss in both directions: what is called the N-pair loss today."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__(model, directions=("query_to_doc", "doc_to_query"), partition_mode="per_direction")


RIVALS = {"SupConLoss": SupConLoss, "NTXentLoss": NTXentLoss, "SymmetricRankingLoss": SymmetricRankingLoss}
