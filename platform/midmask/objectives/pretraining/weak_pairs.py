"""Contrastive pre-training on pairs that nobody judged (E5, Wang et al. 2022; GTE, Li et al. 2023): a passage must be
found by its pseudo-query, which is a title, a heading, a sentence or a model's.

loss      sum over pairs of -log( exp(s(q, p) / t) / sum over its candidates of exp(s / t) ), s the cosine, t = 0.01
candidates  `passages`: all passages of all workers (E5). `all`: and, of all other pairs, their queries, and their
          queries and passages with p in place of q (GTE's improved loss)
masked    nothing
vector    the sentence vector of the backbone; one encoder for both
thrown    nothing; the MLM head stays untrained
beware    a passage that begins with its title is found by its words alone; tokens.titles=false hides it
differs   E5 marks texts by "query: " and "passage: ", pools by the mean, and trains on the pairs whose passage a first
          training on all pairs ranks among the best two of a million for the query; here all pairs are read. A pair
          with the same query, or the same passage, is no negative of a pair: titles are often shared
unpublished   both collections of pairs
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from midmask.core.batch import Batch, Part, TokenRows
from midmask.masking.randomness import fingerprints
from midmask.objectives import distributed as world
from midmask.objectives.in_batch import cross_entropy_part
from midmask.objectives.objective import CoupledObjective, ObjectiveConfig, Represented, RowForm


@dataclass(frozen=True)
class PairRows:
    """A pseudo-query and its passage, in each row; hashes of both, int64 [B, 2]."""

    query: TokenRows
    passage: TokenRows
    hashes_B2: Tensor


class WeakPairs(CoupledObjective):
    class Config(ObjectiveConfig):
        """Contrastive pre-training on weak pairs; the defaults are E5's."""

        contrastive: ClassVar[bool] = True
        name: Literal["weak_pairs"] = Field("weak_pairs", description="name of the objective")
        temperature: float = Field(0.01, gt=0.0, le=100.0, description="divisor of the cosines")
        candidates: Literal["passages", "all"] = Field(
            "passages", description="what a pair is told from: all passages (E5), or all queries and passages (GTE)"
        )

        def row_form(self) -> RowForm:
            return RowForm(rows="pseudo_queries")

    config: Config
    parts: ClassVar[tuple[str, ...]] = ("contrastive",)

    def draw(self, batch: Batch) -> PairRows:
        query, passage = batch.texts["context"], batch.texts["passage"]
        return PairRows(query, passage, torch.stack([fingerprints(query), fingerprints(passage)], 1))

    def counts(self, drawn: PairRows) -> dict[str, Tensor]:
        return {"contrastive": torch.tensor(len(drawn.hashes_B2), device=drawn.hashes_B2.device)}

    def represent(self, drawn: PairRows) -> Represented:
        vectors = tuple(
            self.backbone.sentence_vectors(text.ids_BL, text.lengths_B, normalise=True)
            for text in (drawn.query, drawn.passage)
        )
        return Represented(vectors, (drawn.hashes_B2,))

    def couple(self, vectors: tuple[Tensor, ...], facts: tuple[Tensor, ...]) -> dict[str, Part]:
        query_BD, passage_BD = vectors
        (hashes_B2,) = facts
        local_B = world.local_positions(passage_BD)
        query_ND, passage_ND, hashes_N2 = (world.gather_rows(rows) for rows in (query_BD, passage_BD, hashes_B2))
        same_BN = (hashes_B2[:, None] == hashes_N2).any(2)
        compared = [(query_BD, passage_ND)]
        if self.config.candidates == "all":
            compared += [(query_BD, query_ND), (passage_BD, query_ND), (passage_BD, passage_ND)]
        with torch.autocast(query_BD.device.type, enabled=False):
            scores_BN = torch.cat([left @ right.t() for left, right in compared], 1) / self.config.temperature
        excluded_BN = same_BN.repeat(1, len(compared)).scatter(1, local_B[:, None], False)
        return {"contrastive": cross_entropy_part(scores_BN, local_B, excluded_BN)}
