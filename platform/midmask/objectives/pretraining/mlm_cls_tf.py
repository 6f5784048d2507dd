"""MLM and term frequencies from [CLS], "BERT-MS-CLS" (Lassance et al., SIGIR 2023, after Aroca-Ouellette and Rudzicz
2020).

loss      encoder MLM + the distance between y, numbers for the vocabulary made from [CLS], and t = tf / |tf|, tf the
          counts of the text's tokens; weights 1 and 1
masked    encoder: each token but the specials with probability 0.15, 80/10/10, as in MLM
vector    h, the last hidden state of [CLS]
trained   encoder, embeddings and MLM head
thrown    with `tf_head` = linear its matrix and bias; else nothing
targets   t has length 1. Neither it nor y - t is ever made: |y - t|² = |y|² - 2 y·t + 1, and y·t takes a text's ids
          alone. A text without tokens has no target
unpublished  all but "the L2-normalised frequency of the input tokens" and weight 1: the head (here the MLM head, or a
          linear layer on h), the distance (squared error, or 1 - cosine) and its reduction over the vocabulary (sum, or
          mean, which makes it V times smaller), which tokens count (here the true ones but the specials)
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from midmask.core.batch import Batch, Loss, Part
from midmask.objectives.decoders import fresh_linear
from midmask.objectives.objective import Objective
from midmask.objectives.pretraining.encoder_mask import (
    EncoderMask,
    MaskedConfig,
    MaskedRows,
    mask_for_encoder,
    masked_lm_part,
)
from midmask.objectives.pretraining.vocabulary_weights import Bag, bag_of_words, vocabulary_logits

SHORTEST = 1e-12
"""Lower bound of |y| in the cosine."""


@dataclass(frozen=True)
class TermFrequencyRows:
    """The inputs and targets of one batch of MLM with term frequencies."""

    encoder: MaskedRows  # the masked text
    bag: Bag  # the true tokens


class MLMTermFrequency(Objective):
    class Config(MaskedConfig):
        """MLM and term frequencies from [CLS]; the defaults of its fields are ours, since none was published."""

        name: Literal["mlm_cls_tf"] = Field("mlm_cls_tf", description="name of the objective")
        encoder_mask_ratio: float = Field(0.15, gt=0.0, lt=1.0, description="share of tokens to predict")
        encoder_mask: EncoderMask = Field(
            "token", description="tokens one by one; whole words; an exact share; or an exact share by term weight"
        )
        tf_head: Literal["tied", "linear"] = Field(
            "tied", description="from [CLS] to the vocabulary: the MLM head, or a linear layer; unpublished"
        )
        tf_loss: Literal["mse", "cosine"] = Field("mse", description="squared error, or 1 - cosine; unpublished")
        tf_reduction: Literal["sum", "mean"] = Field(
            "sum",
            description="how squared errors are reduced over the vocabulary; a mean is V times smaller; unpublished",
        )
        tf_weight: float = Field(1.0, ge=0.0, description="factor of the term frequencies' loss")

        @model_validator(mode="after")
        def _a_cosine_has_no_reduction(self) -> Self:
            if self.tf_loss == "cosine" and self.tf_reduction != "sum":
                raise ValueError("tf_reduction = mean has no effect with tf_loss = cosine; leave it at sum")
            return self

    config: Config
    parts: ClassVar[tuple[str, ...]] = ("mlm", "term_frequencies")

    def add_heads(self) -> None:
        self.frequencies = None
        if self.config.tf_head == "linear":
            self.frequencies = fresh_linear(self.backbone.width, len(self.backbone.output_weight_VD))

    @torch.no_grad()
    def draw(self, batch: Batch) -> TermFrequencyRows:
        text = batch.texts["passage"]
        vocabulary = self.vocabulary(text.ids_BL.device)
        return TermFrequencyRows(mask_for_encoder(text, vocabulary, self.config), bag_of_words(text, vocabulary))

    def counts(self, drawn: TermFrequencyRows) -> dict[str, Tensor]:
        return {"mlm": drawn.encoder.count, "term_frequencies": drawn.bag.count}

    def forward(self, drawn: TermFrequencyRows) -> Loss:
        hidden_BLD = self.backbone.hidden(drawn.encoder.ids_BL, drawn.encoder.lengths_B)
        vector_BD = self.backbone.sentence_vector(hidden_BLD, drawn.encoder.lengths_B)
        distances_B = self._distances(self._predict_terms(vector_BD), drawn.bag)
        total = (distances_B * drawn.bag.present_BL.any(1)).sum()
        frequencies = Part(total, drawn.bag.count, self.config.tf_weight)
        return Loss({"mlm": masked_lm_part(self.backbone, hidden_BLD, drawn.encoder), "term_frequencies": frequencies})

    def _predict_terms(self, vector_BD: Tensor) -> Tensor:
        """y, [B, V]."""
        if self.frequencies is not None:
            return vocabulary_logits(vector_BD, self.frequencies.weight, self.frequencies.bias)
        features_BD = self.backbone.transform(vector_BD)
        return vocabulary_logits(features_BD, self.backbone.output_weight_VD, self.backbone.output_bias_V)

    def _distances(self, y_BV: Tensor, bag: Bag) -> Tensor:
        """How far y is from t, [B]; a text without tokens has no t, and its number means nothing."""
        counts_BL = bag.counts_BL.to(y_BV.dtype)
        t_BL = counts_BL / counts_BL.norm(dim=1, keepdim=True).clamp(min=1)
        product_B = (t_BL * y_BV.gather(1, bag.ids_BL)).sum(1)
        if self.config.tf_loss == "cosine":
            cosine_B: Tensor = product_B / y_BV.norm(dim=1).clamp(min=SHORTEST)
            return 1 - cosine_B
        squared_B: Tensor = y_BV.square().sum(1) - 2 * product_B + 1
        return squared_B if self.config.tf_reduction == "sum" else squared_B / y_BV.shape[1]
