"""Masked language modelling (BERT, Devlin et al. 2019), the baseline "BERT-MS" when continued on the target corpus.

loss      sum over selected tokens of -log p(token)
masked    encoder: each token but the specials with probability 0.15 (BERT, run_mlm); or whole words, to an exact quota.
          With `final_mask_ratio` the share changes by the same amount each step, from 0.3 to 0.15 in Ankner et al.
          (EACL 2024); mmBERT (Marone et al. 2025) takes 0.3, 0.15 and 0.05, in three phases
corrupted 80% [MASK], 10% a random token of the vocabulary, 10% left as they are
thrown    nothing: the MLM head is part of the saved model
differs   from run_mlm: the sum is divided by the global count of targets; and one passage is one row, unless `packing`
          puts passages end to end and cuts rows of full length, as run_mlm does (unpublished which one BERT-MS used).
          [UNK] is a token like any other, as in BERT's code; run_mlm's collator counts it among the specials, so that
          it is never selected
"""

from typing import ClassVar, Literal, Self

from pydantic import Field
from torch import Tensor

from midmask.core.batch import Batch, Loss
from midmask.core.config import added
from midmask.objectives.objective import Objective, RowForm
from midmask.objectives.pretraining.encoder_mask import MaskedConfig, MaskedRows, mask_for_encoder, masked_lm_part


class MLM(Objective):
    class Config(MaskedConfig):
        """Masked language modelling."""

        name: Literal["mlm"] = Field("mlm", description="name of the objective")
        encoder_mask_ratio: float = Field(0.15, gt=0.0, lt=1.0, description="share of tokens to predict")
        encoder_mask: Literal["word", "token", "weighted"] = Field(
            "token", description="tokens one by one; whole words to an exact quota; or an exact share by term weight"
        )
        final_mask_ratio: float | None = added(
            None,
            "share of tokens to predict at the end of the run, reached linearly; none: the same throughout",
            gt=0.0,
            lt=1.0,
        )
        packing: bool = Field(
            False, description="rows are passages end to end, cut to full length, not one passage each"
        )

        def row_form(self) -> RowForm:
            return RowForm(rows="packed" if self.packing else "passages", term_weights=self.encoder_mask == "weighted")

        def at(self, progress: float) -> Self:
            """The config of a step at a given fraction of the run."""
            if self.final_mask_ratio is None:
                return self
            first, last = self.encoder_mask_ratio, self.final_mask_ratio
            return self.model_copy(update={"encoder_mask_ratio": first + (last - first) * progress})

    config: Config
    parts: ClassVar[tuple[str, ...]] = ("mlm",)

    def draw(self, batch: Batch) -> MaskedRows:
        text = batch.texts["passage"]
        return mask_for_encoder(text, self.vocabulary(text.ids_BL.device), self.config.at(batch.progress))

    def counts(self, drawn: MaskedRows) -> dict[str, Tensor]:
        return {"mlm": drawn.count}

    def forward(self, drawn: MaskedRows) -> Loss:
        hidden_BLD = self.backbone.hidden(drawn.ids_BL, drawn.lengths_B)
        return Loss({"mlm": masked_lm_part(self.backbone, hidden_BLD, drawn)})
