"""Fine-tuning on a teacher's opinion of each query's own passages (Hofstätter et al. 2020; RetroMAE, DupMAE, SIGIR'23).

Over the group of a query, its positive and its hard negatives, with s the encoder's scores divided by `temperature`, t
the teacher's divided by `teacher_temperature`, p = softmax(t) and r = softmax(s):
kl          sum of p (log p - log r)
soft_ce     - sum of p log r, DupMAE's third stage: the gradient is that of kl
margin_mse  mean over negatives of ((s+ - s-) - (t+ - t-))²

loss      `weight` * mean over queries of the above + `ce_weight` * the contrastive loss with its `candidates`
as in     Lassance et al. 2023 (SIGIR): weight 0.99, ce_weight 0.01, candidates local_negatives, for kl and margin_mse;
          LexMAE, SimLM: kl, ce_weight 0.2. RetroMAE's code divides the encoder's scores alone by a temperature, and
          takes the mean over queries and passages: weight = 1 / (1 + per_query), ce_weight = 0.0001
"""

from typing import ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor

from midmask.core.batch import Part
from midmask.encoders.representation import group_scores
from midmask.objectives.finetuning.contrastive import contrastive_part
from midmask.objectives.finetuning.ranking import PARTS, RankedRows, Ranking, RankingConfig


class Distillation(Ranking):
    class Config(RankingConfig):
        """Distillation from a cross-encoder."""

        needs_teacher: ClassVar[bool] = True
        name: Literal["distillation"] = Field("distillation", description="name of the objective")
        loss: Literal["kl", "soft_ce", "margin_mse"] = Field("kl", description="what is compared: lists, or margins")
        teacher_temperature: float = Field(1.0, gt=0.0, le=100.0, description="divisor of the teacher's scores")
        weight: float = Field(1.0, gt=0.0, description="factor of the teacher's term, a mean over queries")
        ce_weight: float = Field(0.0, ge=0.0, description="factor of the contrastive loss that is added to it")

        @model_validator(mode="after")
        def _candidates_have_a_loss(self) -> Self:
            if self.candidates != "all" and not self.ce_weight:
                raise ValueError(f"candidates = {self.candidates} is of the contrastive loss; set ce_weight too")
            return self

        @property
        def needs_negatives(self) -> bool:
            return True

        @property
        def weights(self) -> dict[str, float]:
            return {"distillation": self.weight, "contrastive": self.ce_weight}

    parts: ClassVar[tuple[str, ...]] = ("distillation", "contrastive", *PARTS)

    config: Config

    def ranking_parts(self, rows: RankedRows) -> dict[str, Part]:
        student_QG = group_scores(rows.query, rows.passage) / self.config.temperature
        assert rows.teacher_QG is not None  # of a stage with a teacher
        teacher_QG = rows.teacher_QG.to(student_QG.dtype) / self.config.teacher_temperature
        total = distance(self.config.loss, student_QG, teacher_QG)
        queries = torch.tensor(len(student_QG), device=student_QG.device)
        parts = {"distillation": Part(total, queries, self.config.weight)}
        if self.config.ce_weight:
            parts["contrastive"] = contrastive_part(rows, self.config, self.config.ce_weight)
        return parts


def distance(loss: Literal["kl", "soft_ce", "margin_mse"], student_QG: Tensor, teacher_QG: Tensor) -> Tensor:
    """How far the encoder is from its teacher, summed over queries, []. The first passage of each is its positive."""
    if loss == "margin_mse":
        margin_QN, target_QN = (scores_QG[:, :1] - scores_QG[:, 1:] for scores_QG in (student_QG, teacher_QG))
        return (margin_QN - target_QN).square().mean(1).sum()
    log_r_QG, p_QG = F.log_softmax(student_QG, 1), F.softmax(teacher_QG, 1)
    if loss == "soft_ce":
        return -(p_QG * log_r_QG).sum()
    return F.kl_div(log_r_QG, p_QG, reduction="sum")
