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
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from midmask.core.batch import Part
from midmask.objectives.pretraining.encoder_mask import MaskedConfig
from midmask.objectives.pretraining.vocabulary_weights import BagRows, NamedWords, bag_cross_entropy


class BOW(NamedWords):
    class Config(MaskedConfig):
        """Bag-of-words prediction; the defaults are the paper's."""

        name: Literal["bow"] = Field("bow", description="name of the objective")
        bow_weight: float = Field(1.0, ge=0.0, description="factor of the bag-of-words loss in the first step")
        bow_weight_end: float = Field(0.1, ge=0.0, description="factor of the bag-of-words loss at the end of the run")

    config: Config
    parts: ClassVar[tuple[str, ...]] = ("mlm", "bag_of_words")
    names_unknown: ClassVar[bool] = False

    def bag_part(self, logits_BV: Tensor, drawn: BagRows) -> Part:
        total = bag_cross_entropy(logits_BV, drawn.bag.ids_BL, drawn.bag.weights("set", logits_BV.dtype))
        return Part(total, drawn.bag.count, self.bow_weight(drawn.progress))

    def bow_weight(self, progress: float) -> float:
        """The factor of the bag-of-words loss at a fraction of the run, 0 to 1."""
        first, last = self.config.bow_weight, self.config.bow_weight_end
        return last + (first - last) * (1 + math.cos(math.pi * progress)) / 2
