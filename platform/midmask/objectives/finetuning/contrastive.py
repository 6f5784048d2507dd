"""Fine-tuning with in-batch and hard negatives (DPR, Karpukhin et al. 2020).

loss      sum over queries of -log( exp(s(q, p+) / t) / sum over its candidates of exp(s(q, p) / t) ), s the score of
          the representation
candidates  `all`: all passages of all workers (DPR, Tevatron, RetroMAE). `positives`: all positives of all workers and
          the query's own hard negatives, which is SPLADE's in-batch loss: 128 + 1 candidates of 128 queries with one
          negative. `own`: the positive and the query's own hard negatives. `local_negatives`: the positive and all
          hard negatives of this worker's batch, as the code of Lassance et al. 2023 (SIGIR) has it; it alone depends
          on the number of workers
differs   from DPR's and Tevatron's code: gradients reach the rows of all workers, so the loss and its gradient do not
          depend on their number; and a passage that is a known positive of the query is not also its negative: one with
          the same tokens as its positive, or the positive of another row with the same query. `drop_duplicates` off: as
          published. From SPLADE's code: its `positives` are those of one GPU, here those of all workers.
          From RetroMAE's: its gradient is divided by the number of processes (two give half of what one gives), which
          Adam hides and clipping does not; here it does not depend on them
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from midmask.core.batch import Part
from midmask.encoders.representation import scores
from midmask.objectives import distributed as world
from midmask.objectives.finetuning.ranking import PARTS, RankedRows, Ranking, RankingConfig
from midmask.objectives.in_batch import cross_entropy_part


class Contrastive(Ranking):
    class Config(RankingConfig):
        """Contrastive fine-tuning."""

        name: Literal["contrastive"] = Field("contrastive", description="name of the objective")

        @property
        def weights(self) -> dict[str, float]:
            return {"contrastive": 1.0}

    parts: ClassVar[tuple[str, ...]] = ("contrastive", *PARTS)

    def ranking_parts(self, rows: RankedRows) -> dict[str, Part]:
        return {"contrastive": contrastive_part(rows, self.config)}


def contrastive_part(rows: RankedRows, config: RankingConfig, weight: float = 1.0) -> Part:
    """The cross-entropy of each query's positive among its candidates."""
    hashes_N2 = _passage_hashes(rows)
    passage, targets_Q = rows.passage, torch.arange(0, len(hashes_N2), rows.group, device=hashes_N2.device)
    if config.candidates in ("all", "positives"):
        targets_Q = world.local_positions(hashes_N2)[:: rows.group]
        hashes_N2, passage = world.gather_rows(hashes_N2), passage.mapped(world.gather_rows)
    scores_QN = scores(rows.query, passage) / config.temperature
    excluded_QN = _no_candidates(config, len(hashes_N2), targets_Q, rows.group)
    if config.drop_duplicates:
        passage_hash_N, query_hash_N = hashes_N2.unbind(1)
        excluded_QN |= passage_hash_N == rows.passage_hash_QG[:, :1]
        excluded_QN |= query_hash_N == rows.query_hash_Q[:, None]
    excluded_QN.scatter_(1, targets_Q[:, None], False)
    return cross_entropy_part(scores_QN, targets_Q, excluded_QN, weight)


def _no_candidates(config: RankingConfig, passages: int, targets_Q: Tensor, group: int) -> Tensor:
    """The passages that `candidates` leaves out for each query, known positives apart; bool, [Q, N]."""
    places_N = torch.arange(passages, device=targets_Q.device)
    positive_N, same_query_QN = places_N % group == 0, places_N // group == targets_Q[:, None] // group
    return {
        "all": torch.zeros_like(same_query_QN),
        "positives": ~(positive_N | same_query_QN),
        "own": ~same_query_QN,
        "local_negatives": positive_N.expand_as(same_query_QN).clone(),
    }[config.candidates]


def _passage_hashes(rows: RankedRows) -> Tensor:
    """For each passage its hash, and the hash of the query it is the positive of (else 0); [N, 2]."""
    query_hash_QG = torch.zeros_like(rows.passage_hash_QG)
    query_hash_QG[:, 0] = rows.query_hash_Q
    return torch.stack([rows.passage_hash_QG, query_hash_QG], -1).flatten(0, 1)
