"""SimCSE, unsupervised (Gao, Yao & Chen, EMNLP 2021): a text must find itself under another dropout mask.

loss      sum over texts of -log( exp(cos(z, z') / t) / sum over the second passes of all texts of all workers of
          exp(cos(z, .) / t) ), z and z' of two passes of the same text, t = 0.05; + `mlm_weight` times the MLM loss of
          a masked third pass (0.1 in the paper's ablation)
masked    nothing for the vectors; MLM: 0.15 token by token, 80/10/10
vector    h, the last hidden state of [CLS]; z = tanh(W h + b) with a fresh W, or h itself (`projection` off)
trained   encoder and embeddings; the MLM head only with mlm_weight
thrown    the projection ("mlp_only_train" in the published commands for BERT)
needs     backbone.dropout > 0 (published: 0.1), which is the only difference between the two passes
differs   gradients reach the rows of all workers; sums are divided by global counts
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from midmask.core.batch import Batch, Part, TokenRows
from midmask.encoders.backbone import Backbone
from midmask.encoders.families import BackboneShape
from midmask.encoders.representation import Side
from midmask.objectives.decoders import fresh_linear
from midmask.objectives.in_batch import pairs_part
from midmask.objectives.objective import CoupledObjective, Represented, RowForm, require_dropout
from midmask.objectives.pretraining.encoder_mask import (
    EncoderMask,
    MaskedConfig,
    MaskedRows,
    mask_for_encoder,
    masked_lm_part,
)


@dataclass(frozen=True)
class SimCSERows:
    """The texts as they are; masked, for the MLM term, if there is one."""

    text: TokenRows
    masked: MaskedRows | None


class SimCSE(CoupledObjective):
    class Config(MaskedConfig):
        """Unsupervised SimCSE; the defaults are the published commands'."""

        contrastive: ClassVar[bool] = True
        name: Literal["simcse"] = Field("simcse", description="name of the objective")
        temperature: float = Field(0.05, gt=0.0, le=100.0, description="divisor of the cosines")
        projection: bool = Field(
            True, description="compare tanh(W h + b), with W and b dropped after training, instead of h"
        )
        mlm_weight: float = Field(0.0, ge=0.0, description="factor of the auxiliary MLM loss; 0: no such pass")
        encoder_mask_ratio: float = Field(0.15, gt=0.0, lt=1.0, description="MLM: share of tokens to predict")
        encoder_mask: EncoderMask = Field("token", description="MLM: which tokens, as for other masked methods")

        def row_form(self) -> RowForm:
            return RowForm(term_weights=self.mlm_weight > 0 and self.encoder_mask == "weighted")

        def check(self, shape: BackboneShape) -> None:
            require_dropout(shape, self.name)

    config: Config
    parts: ClassVar[tuple[str, ...]] = ("contrastive", "mlm")

    def add_heads(self) -> None:
        self.projection = fresh_linear(self.backbone.width, self.backbone.width) if self.config.projection else None

    def draw(self, batch: Batch) -> SimCSERows:
        text = batch.texts["passage"]
        if not self.config.mlm_weight:
            return SimCSERows(text, None)
        return SimCSERows(text, mask_for_encoder(text, self.vocabulary(text.ids_BL.device), self.config))

    def counts(self, drawn: SimCSERows) -> dict[str, Tensor]:
        texts = torch.tensor(len(drawn.text.lengths_B), device=drawn.text.lengths_B.device)
        return {"contrastive": texts, "mlm": torch.zeros_like(texts) if drawn.masked is None else drawn.masked.count}

    def represent(self, drawn: SimCSERows) -> Represented:
        views = F.normalize(self.project(two_passes(self.backbone, drawn.text)), dim=-1).chunk(2)
        return Represented(views, parts=lambda: {"mlm": self._mlm(drawn)})

    def project(self, vectors_BD: Tensor) -> Tensor:
        """The vectors that are compared, from sentence vectors; [B, D]."""
        return vectors_BD if self.projection is None else torch.tanh(self.projection(vectors_BD))

    def _mlm(self, drawn: SimCSERows) -> Part:
        rows = drawn.masked
        if rows is None:
            nothing = self.counts(drawn)["mlm"]
            return Part(nothing.float(), nothing)
        hidden_BLD = self.backbone.hidden(rows.ids_BL, rows.lengths_B)
        return masked_lm_part(self.backbone, hidden_BLD, rows, weight=self.config.mlm_weight)

    def couple(self, vectors: tuple[Tensor, ...], facts: tuple[Tensor, ...]) -> dict[str, Part]:
        return {"contrastive": pairs_part(*vectors, temperature=self.config.temperature)}


def two_passes(backbone: Backbone, text: TokenRows, *, normalise: bool = False, side: Side = "passage") -> Tensor:
    """Sentence vectors of each text under two dropout masks, first those of all first passes; [2 B, D]."""
    twice_TL, lengths_T = text.ids_BL.repeat(2, 1), text.lengths_B.repeat(2)
    return backbone.sentence_vectors(twice_TL, lengths_T, normalise=normalise, side=side)
