"""ROM, retrieval-oriented masking (Long et al. 2022, arXiv 2210.15133): hide the words that matter for a search.

loss      sum over selected tokens of -log p(token), as in MLM
masked    encoder: exactly round(0.15 n) of a text's n tokens without specials, those of highest
          mask_temperature * uniform + term weight; a word's weight holds for each of its pieces
corrupted 80% [MASK], 10% a random token of the vocabulary, 10% left as they are (unpublished)
thrown    nothing: the MLM head is part of the saved model
weights   in [0, 1], by the recipe's `weights`: idf or BM25, from corpus statistics, scaled within the passage. What the
          authors took is unpublished. Only their ranks against the uniform number count: a constant
          added to all changes nothing, a factor does what 1 / mask_temperature does
differs   the paper's score has temperature 1. The sum is divided by the global count of targets
"""

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from midmask.core.batch import Batch, Loss
from midmask.objectives.objective import Objective
from midmask.objectives.pretraining.encoder_mask import MaskedConfig, MaskedRows, mask_for_encoder, masked_lm_part


class ROM(Objective):
    class Config(MaskedConfig):
        """Retrieval-oriented masking."""

        name: Literal["rom"] = Field("rom", description="name of the objective")
        encoder_mask_ratio: float = Field(0.15, gt=0.0, lt=1.0, description="share of tokens to predict")
        encoder_mask: Literal["weighted"] = Field(
            "weighted", description="an exact share by term weight; for other masks use the objective mlm"
        )

    config: Config
    parts: ClassVar[tuple[str, ...]] = ("mlm",)

    def draw(self, batch: Batch) -> MaskedRows:
        text = batch.texts["passage"]
        return mask_for_encoder(text, self.vocabulary(text.ids_BL.device), self.config)

    def counts(self, drawn: MaskedRows) -> dict[str, Tensor]:
        return {"mlm": drawn.count}

    def forward(self, drawn: MaskedRows) -> Loss:
        hidden_BLD = self.backbone.hidden(drawn.ids_BL, drawn.lengths_B)
        return Loss({"mlm": masked_lm_part(self.backbone, hidden_BLD, drawn)})
