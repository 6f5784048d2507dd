"""Training of a cross-encoder on lists (RetroMAE's, SimLM's and CoT-MAE's teachers).

loss      sum over queries of -log softmax(z)[positive], z the scores of the query with its positive and `group` - 1
          negatives; + `r_drop` x the mean of KL(p1 || p2) and KL(p2 || p1) of two passes with different dropout, the
          first term then being the mean of both (R-Drop, Liang et al. 2021; SimLM and CoT-MAE train so)
seen      "[CLS] query [SEP] passage [SEP]" as the tokenizer joins two texts, the passage cut to what is left
thrown    nothing; the loss sees differences of a query's scores alone, so what all scores have in common means nothing
differs   from their code: a passage drawn as a negative is never a known positive; the head is each family's own
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from midmask.core.batch import Batch, Loss, Part
from midmask.encoders.cross_encoder import CrossEncoder, Pairs
from midmask.objectives.objective import Objective, ObjectiveConfig


@dataclass(frozen=True)
class ListRows:
    """Pairs, `group` to a query, its positive first."""

    pairs: Pairs
    group: int


class ListwiseRanking(Objective):
    """Its `backbone` is a cross-encoder, all of which outlives training; so it is not in the table of objectives, whose
    methods train a masked LM.
    """

    class Config(ObjectiveConfig):
        """Listwise training of a cross-encoder."""

        name: Literal["cross_encoder"] = Field("cross_encoder", description="name of the objective")
        max_length: int = Field(192, ge=16, le=8192, description="tokens of a pair; the rest of its passage is cut")
        r_drop: float = Field(
            0.0, ge=0.0, le=100.0, description="weight of the agreement of two passes with dropout; 0: one pass"
        )

    config: Config
    parts: ClassVar[tuple[str, ...]] = ("listwise", "r_drop")
    backbone: CrossEncoder  # type: ignore[assignment]

    def draw(self, batch: Batch) -> ListRows:
        pairs = self.backbone.join(batch.texts["query"], batch.texts["passage"], batch.group)
        return ListRows(pairs, batch.group)

    def counts(self, drawn: ListRows) -> dict[str, Tensor]:
        queries = torch.tensor(len(drawn.pairs.lengths_N) // drawn.group, device=drawn.pairs.lengths_N.device)
        return {"listwise": queries, "r_drop": queries * (self.config.r_drop > 0)}

    def forward(self, drawn: ListRows) -> Loss:
        scores = (self.backbone(drawn.pairs).view(-1, drawn.group) for _ in range(2 if self.config.r_drop > 0 else 1))
        passes = [F.log_softmax(scores_QG, dim=1) for scores_QG in scores]  # float32, within each list
        counts = self.counts(drawn)
        listwise = -torch.stack([log_QG[:, 0].sum() for log_QG in passes]).mean()
        parts = {"listwise": Part(listwise, counts["listwise"])}
        if self.config.r_drop > 0:
            one_QG, other_QG = passes
            apart = F.kl_div(one_QG, other_QG, reduction="sum", log_target=True)
            apart = (apart + F.kl_div(other_QG, one_QG, reduction="sum", log_target=True)) / 2
            parts["r_drop"] = Part(apart, counts["r_drop"], self.config.r_drop)
        return Loss(parts)
