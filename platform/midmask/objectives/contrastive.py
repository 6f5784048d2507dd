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
from pydantic import Field
from torch import Tensor

from midmask import world
from midmask.encoders.backbone import Backbone, Side
from midmask.encoders.pooling import cls_vectors
from midmask.masking import fingerprints
from midmask.nouns import Batch, Part, TokenRows
from midmask.objectives.in_batch import in_batch_part
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
        (query_QD, local_ND), (query_hash_Q, passage_hash_QG) = vectors, facts
        passage_ND = world.gather_rows(local_ND)
        targets_Q = world.own_rows(local_ND)[:: passage_hash_QG.shape[1]]
        known_QN = None
        if self.config.drop_duplicates:
            passage_hash_N, query_hash_N = world.gather_rows(_passage_hashes(*facts)).unbind(1)
            same_text_QN = passage_hash_N == passage_hash_QG[:, :1]
            same_query_QN = query_hash_N == query_hash_Q[:, None]
            known_QN = (same_text_QN | same_query_QN).scatter(1, targets_Q[:, None], False)
        temperature = self.config.temperature
        part = in_batch_part(query_QD, passage_ND, targets_Q, temperature=temperature, excluded_QN=known_QN)
        return {"contrastive": part}


def _passage_hashes(query_hash_Q: Tensor, passage_hash_QG: Tensor) -> Tensor:
    """For each passage its hash, and the hash of the query it is the positive of (else 0); [N, 2]."""
    query_hash_QG = torch.zeros_like(passage_hash_QG)
    query_hash_QG[:, 0] = query_hash_Q
    return torch.stack([passage_hash_QG, query_hash_QG], -1).flatten(0, 1)
