"""Embedding distillation, as in EmbeddingGemma (Vera et al. 2025) and jina-embeddings-v5-text (Akram et al. 2026): a
text's vector, through a linear map, must point where a finished encoder's does, and all vectors must spread out.

loss      sum over texts of 1 - cos(W z, t), t the teacher's vector, z = h / |h|; + `spread_weight` times the sum over
          texts of the mean of (z · z')^2 over all other texts of all workers (Zhang et al., ICCV 2017)
masked    nothing
vector    h, the sentence vector of the backbone
trained   encoder and embeddings; the MLM head stays untrained
thrown    W, a linear layer without bias from the encoder's width to the teacher's, so that only directions count
teacher   a frozen encoder with a tokenizer of its own. Its vectors are an artifact, computed once; each is of the
          passage as far as the teacher reads, also where `excerpt` leaves the encoder a part of it
differs   the authors distil queries too, and EmbeddingGemma has a contrastive loss beside; here are passages alone,
          without labels. Of vectors of length 1, squared error (Kim et al. 2023, whom EmbeddingGemma follows) is twice
          1 - cos. Of Zhang's regulariser this is the second moment, as in EmbeddingGemma, without his floor of 1 /
          width; the other term, the square of the mean, is never larger. His factor is 1; theirs was not found out
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from midmask.core.batch import Batch, Part, TokenRows
from midmask.encoders.families import BackboneShape
from midmask.objectives import distributed as world
from midmask.objectives.decoders import fresh_linear
from midmask.objectives.objective import CoupledObjective, ObjectiveConfig, Represented, RowForm, teacher_width


@dataclass(frozen=True)
class TaughtRows:
    """The texts, and the teacher's vectors of them, [B, the teacher's width]."""

    text: TokenRows
    teacher_BD: Tensor


class DistilVectors(CoupledObjective):
    class Config(ObjectiveConfig):
        """Embedding distillation from a frozen encoder."""

        name: Literal["distil_vectors"] = Field("distil_vectors", description="name of the objective")
        teacher: str = Field(
            "minilm",
            description="frozen encoder whose vectors are the targets: minilm, a Hugging Face or sentence-transformers "
            "folder, or a cached hub id",
        )
        spread_weight: float = Field(1.0, ge=0.0, description="factor of the term that spreads vectors out")

        def row_form(self) -> RowForm:
            return RowForm(teacher=self.teacher)

        def check(self, shape: BackboneShape) -> None:
            teacher_width(self.teacher)

    config: Config
    parts: ClassVar[tuple[str, ...]] = ("distance", "spread")

    def add_heads(self) -> None:
        self.teacher_projection = fresh_linear(self.backbone.width, teacher_width(self.config.teacher), bias=False)

    def draw(self, batch: Batch) -> TaughtRows:
        assert batch.teacher is not None  # as the form of its rows says
        return TaughtRows(batch.texts["passage"], batch.teacher)

    def counts(self, drawn: TaughtRows) -> dict[str, Tensor]:
        return dict.fromkeys(self.parts, _number_of(drawn.teacher_BD))

    def represent(self, drawn: TaughtRows) -> Represented:
        unit_BD = self.backbone.sentence_vectors(drawn.text.ids_BL, drawn.text.lengths_B, normalise=True)
        return Represented((unit_BD,), parts=lambda: {"distance": self._distance(unit_BD, drawn.teacher_BD)})

    def _distance(self, unit_BD: Tensor, teacher_BD: Tensor) -> Part:
        with torch.autocast(unit_BD.device.type, enabled=False):
            cosines_B = F.cosine_similarity(self.teacher_projection(unit_BD), teacher_BD.to(unit_BD.dtype))
        return Part((1 - cosines_B).sum(), _number_of(unit_BD))

    def couple(self, vectors: tuple[Tensor, ...], facts: tuple[Tensor, ...]) -> dict[str, Part]:
        (unit_BD,) = vectors
        unit_ND, local_B = world.gather_rows(unit_BD), world.local_positions(unit_BD)
        with torch.autocast(unit_BD.device.type, enabled=False):
            cosines_BN = (unit_BD @ unit_ND.t()).scatter(1, local_B[:, None], 0.0)
        total = cosines_BN.square().sum() / max(len(unit_ND) - 1, 1)
        return {"spread": Part(total, _number_of(unit_BD), self.config.spread_weight)}


def _number_of(rows_BD: Tensor) -> Tensor:
    """The number of rows, int64, [] on their device."""
    return torch.tensor(len(rows_BD), device=rows_BD.device)
