"""Fine-tuning of a dense [CLS] bi-encoder with in-batch negatives (DPR, Karpukhin et al. 2020).

loss      sum over queries of -log( exp(s(q, p+) / t) / sum over all passages of all workers of exp(s(q, p) / t) ),
          s the dot product, of unit vectors if `normalise`
seen      queries and passages as they are; each query brings its positive and `group` - 1 mined negatives
thrown    nothing
differs   from DPR's and Tevatron's code: gradients reach the rows of all workers, so the loss and its gradient do not
          depend on their number; and a passage that is a known positive of the query is not also its negative: one with
          the same tokens as its positive, or the positive of another row with the same query. `drop_duplicates` off: as
          published
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from midmask import world
from midmask.encoders.backbone import Backbone, Side
from midmask.encoders.pooling import cls_vectors
from midmask.masking import fingerprints
from midmask.nouns import Batch, Part, TokenRows
from midmask.objectives.objective import CoupledObjective, ObjectiveConfig, Represented
from midmask.vocabulary import Vocabulary


@dataclass(frozen=True)
class PairRows:
    """Queries; a group of G passages for each, the positive first; hashes of both texts, int64."""

    query: TokenRows
    passage: TokenRows
    query_hash_Q: Tensor
    passage_hash_QG: Tensor


class Contrastive(CoupledObjective):
    class Config(ObjectiveConfig):
        """In-batch contrastive fine-tuning."""

        name: Literal["contrastive"] = Field("contrastive", description="the objective")
        temperature: float = Field(1.0, gt=0.0, le=100.0, description="divisor of the scores")
        normalise: bool = Field(False, description="score by cosine instead of the dot product; saved with the model")
        drop_duplicates: bool = Field(True, description="a known positive of a query is not also its negative")

    parts: ClassVar[tuple[str, ...]] = ("contrastive",)

    def __init__(self, config: Config, backbone: Backbone, vocabulary: Vocabulary) -> None:
        super().__init__(backbone, vocabulary)
        self.config = config

    @torch.no_grad()
    def draw(self, batch: Batch) -> PairRows:
        query, passage = batch.texts["query"], batch.texts["passage"]
        return PairRows(query, passage, fingerprints(query), fingerprints(passage).view(-1, batch.group))

    def counts(self, drawn: PairRows) -> dict[str, Tensor]:
        return {"contrastive": torch.tensor(len(drawn.query.lengths_B), device=drawn.query.lengths_B.device)}

    def represent(self, drawn: PairRows) -> Represented:
        query_QD = self._vectors(drawn.query, "query")
        passage_ND = self._vectors(drawn.passage, "passage")
        return Represented((query_QD, passage_ND), (drawn.query_hash_Q, drawn.passage_hash_QG))

    def _vectors(self, text: TokenRows, side: Side) -> Tensor:
        return cls_vectors(self.backbone, text.ids_BL, text.lengths_B, normalise=self.config.normalise, side=side)

    def couple(self, vectors: tuple[Tensor, ...], facts: tuple[Tensor, ...]) -> dict[str, Part]:
        query_QD, (query_hash_Q, passage_hash_QG) = vectors[0], facts
        group = passage_hash_QG.shape[1]
        passage_ND = world.gather_rows(vectors[1])
        owner_N, passage_hash_N, query_hash_N = world.gather_rows(_passage_facts(*facts)).unbind(1)
        first = (owner_N < world.rank()).sum()
        targets_Q = first + torch.arange(len(query_QD), device=query_QD.device) * group
        with torch.autocast(query_QD.device.type, enabled=False):
            scores_QN = query_QD @ passage_ND.t() / self.config.temperature
        if self.config.drop_duplicates:
            same_text = passage_hash_N == passage_hash_QG[:, :1]
            same_query = query_hash_N == query_hash_Q[:, None]
            known = (same_text | same_query).scatter(1, targets_Q[:, None], False)
            scores_QN = scores_QN.masked_fill(known, -torch.inf)
        total = F.cross_entropy(scores_QN, targets_Q, reduction="sum")
        return {"contrastive": Part(total, torch.tensor(len(query_QD), device=query_QD.device))}


def _passage_facts(query_hash_Q: Tensor, passage_hash_QG: Tensor) -> Tensor:
    """For each passage the worker it is on, its hash, and the hash of the query it is the positive of (else 0); [N,
    3]."""
    query_hash_QG = torch.zeros_like(passage_hash_QG)
    query_hash_QG[:, 0] = query_hash_Q
    owner_QG = torch.full_like(passage_hash_QG, world.rank())
    return torch.stack([owner_QG, passage_hash_QG, query_hash_QG], -1).flatten(0, 1)
