"""Bag-of-words prediction ("Drop your decoder", Ma et al., SIGIR 2024): [CLS] names the words of the text, and there is
no decoder.

loss      encoder MLM + weight * the mean over the distinct tokens v of a text of -log softmax(y)_v, y the MLM head's
          logits at [CLS]
masked    encoder: 0.3 of the text by whole words, 80/10/10, specials counted in the quota; [UNK] spends quota but is
          never an MLM target. The bag is that of the true text, masked words included
vector    h, the last hidden state of [CLS]
weight    1.0 falling to 0.1 along half a cosine, over the whole run
trained   encoder, embeddings and MLM head
thrown    nothing: the MLM head is part of the saved model
targets   the distinct tokens but the specials. Published: ids above 998 alone, which in BERT's vocabulary leaves out
          [unused] tokens, which no text has, and [UNK]
differs   sums are divided by global counts. A text without a target is not counted. Of a text that is too long, the
          beginning is read; the published code draws a window of it at every visit
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from midmask.core.batch import Batch, Loss, Part
from midmask.objectives.objective import Objective
from midmask.objectives.pretraining.encoder_mask import MaskedConfig, MaskedRows, mask_for_encoder, masked_lm_part
from midmask.objectives.pretraining.vocabulary_weights import Bag, bag_cross_entropy, bag_of_words, vocabulary_logits


@dataclass(frozen=True)
class BOWRows:
    """The inputs and targets of one batch of bag-of-words prediction."""

    encoder: MaskedRows  # the masked text
    bag: Bag  # the true tokens
    progress: float  # fraction of the run that is done, in [0, 1)


class BOW(Objective):
    class Config(MaskedConfig):
        """Bag-of-words prediction; the defaults are the paper's."""

        name: Literal["bow"] = Field("bow", description="name of the objective")
        bow_weight: float = Field(1.0, ge=0.0, description="factor of the bag-of-words loss in the first step")
        bow_weight_end: float = Field(0.1, ge=0.0, description="factor of the bag-of-words loss at the end of the run")

    config: Config
    parts: ClassVar[tuple[str, ...]] = ("mlm", "bag_of_words")

    def draw(self, batch: Batch) -> BOWRows:
        text = batch.texts["passage"]
        vocabulary = self.vocabulary(text.ids_BL.device)
        bag = bag_of_words(text, vocabulary, unknown=False)
        return BOWRows(mask_for_encoder(text, vocabulary, self.config), bag, batch.progress)

    def counts(self, drawn: BOWRows) -> dict[str, Tensor]:
        return {"mlm": drawn.encoder.count, "bag_of_words": drawn.bag.count}

    def forward(self, drawn: BOWRows) -> Loss:
        hidden_BLD = self.backbone.hidden(drawn.encoder.ids_BL, drawn.encoder.lengths_B)
        features_BD = self.backbone.transform(self.backbone.sentence_vector(hidden_BLD, drawn.encoder.lengths_B))
        logits_BV = vocabulary_logits(features_BD, self.backbone.output_weight_VD, self.backbone.output_bias_V)
        total = bag_cross_entropy(logits_BV, drawn.bag.ids_BL, drawn.bag.weights("set", logits_BV.dtype))
        bag = Part(total, drawn.bag.count, self.bow_weight(drawn.progress))
        return Loss({"mlm": masked_lm_part(self.backbone, hidden_BLD, drawn.encoder), "bag_of_words": bag})

    def bow_weight(self, progress: float) -> float:
        """The factor of the bag-of-words loss at a fraction of the run, 0 to 1."""
        first, last = self.config.bow_weight, self.config.bow_weight_end
        return last + (first - last) * (1 + math.cos(math.pi * progress)) / 2
