"""Fine-tuning with in-batch and hard negatives (DPR, Karpukhin et al. 2020).

loss      sum over queries of -log( exp(s(q, p+) / t) / sum over its candidates of exp(s(q, p) / t) ), s the score of
          the representation
candidates  `all`: all passages of all workers (DPR, Tevatron, RetroMAE). `own`: the positive and the query's own hard
          negatives. `local_negatives`: the positive and all hard negatives of this worker's batch, as the code of
          Lassance et al. 2023 (SIGIR) has it; alone of the three it depends on the number of workers
differs   from DPR's and Tevatron's code: gradients reach the rows of all workers, so the loss and its gradient do not
          depend on their number; and a passage that is a known positive of the query is not also its negative: one with
          the same tokens as its positive, or the positive of another row with the same query. `drop_duplicates` off: as
          published
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from midmask import world
from midmask.encoders.representation import scores
from midmask.nouns import Part
from midmask.objectives.in_batch import cross_entropy_part
from midmask.objectives.ranking import RankedRows, Ranking, RankingConfig
from midmask.objectives.regularisers import PARTS


class Contrastive(Ranking):
    class Config(RankingConfig):
        """Contrastive fine-tuning."""

        name: Literal["contrastive"] = Field("contrastive", description="the objective")

        @property
        def weights(self) -> dict[str, float]:
            return {"contrastive": 1.0}

    parts: ClassVar[tuple[str, ...]] = ("contrastive", *PARTS)

    def ranking_parts(self, rows: RankedRows) -> dict[str, Part]:
        return {"contrastive": contrastive_part(rows, self.config)}


def contrastive_part(rows: RankedRows, config: RankingConfig, weight: float = 1.0) -> Part:
    """The cross-entropy of each query's positive among its candidates."""
    hashes_N2 = _passage_hashes(rows)
    passage, places_N = rows.passage, torch.arange(len(hashes_N2), device=hashes_N2.device)
    if config.candidates == "all":
        places_N = world.own_rows(hashes_N2)
        hashes_N2, passage = world.gather_rows(hashes_N2), passage.mapped(world.gather_rows)
    targets_Q = places_N[:: rows.group]
    scores_QN = scores(rows.query, passage) / config.temperature
    excluded_QN = torch.zeros_like(scores_QN, dtype=torch.bool)
    if config.candidates == "own":
        excluded_QN |= places_N // rows.group != torch.arange(len(targets_Q), device=places_N.device)[:, None]
    if config.candidates == "local_negatives":
        excluded_QN |= places_N % rows.group == 0
    if config.drop_duplicates:
        passage_hash_N, query_hash_N = hashes_N2.unbind(1)
        excluded_QN |= passage_hash_N == rows.passage_hash_QG[:, :1]
        excluded_QN |= query_hash_N == rows.query_hash_Q[:, None]
    excluded_QN.scatter_(1, targets_Q[:, None], False)
    return cross_entropy_part(scores_QN, targets_Q, excluded_QN, weight)


def _passage_hashes(rows: RankedRows) -> Tensor:
    """For each passage its hash, and the hash of the query it is the positive of (else 0); [N, 2]."""
    query_hash_QG = torch.zeros_like(rows.passage_hash_QG)
    query_hash_QG[:, 0] = rows.query_hash_Q
    return torch.stack([rows.passage_hash_QG, query_hash_QG], -1).flatten(0, 1)
