"""MLM and term frequencies from [CLS], "BERT-MS-CLS" (Lassance et al., SIGIR 2023, after Aroca-Ouellette and Rudzicz
2020).

loss      encoder MLM + |y - t|², y the MLM head's numbers for the vocabulary at [CLS], and t = tf / |tf|, tf the counts
          of the text's tokens; weights 1 and 1
masked    encoder: each token but the specials with probability 0.15, 80/10/10, as in MLM
vector    h, the last hidden state of [CLS]
trained   encoder, embeddings and MLM head
thrown    nothing: the MLM head is part of the saved model
targets   t has length 1. Neither it nor y - t is ever made: |y - t|² = |y|² - 2 y·t + 1, and y·t takes a text's ids
          alone. A text without tokens has no target
unpublished  all but "the L2-normalised frequency of the input tokens" and weight 1: the head, the distance and its
          reduction over the vocabulary, which tokens count (here the true ones but the specials)
"""

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from midmask.core.batch import Part
from midmask.objectives.pretraining.encoder_mask import EncoderMask, MaskedConfig
from midmask.objectives.pretraining.vocabulary_weights import Bag, BagRows, NamedWords


class MLMTermFrequency(NamedWords):
    class Config(MaskedConfig):
        """MLM and term frequencies from [CLS]; the defaults of its fields are ours, since none was published."""

        name: Literal["mlm_cls_tf"] = Field("mlm_cls_tf", description="name of the objective")
        encoder_mask_ratio: float = Field(0.15, gt=0.0, lt=1.0, description="share of tokens to predict")
        encoder_mask: EncoderMask = Field(
            "token", description="tokens one by one; whole words; an exact share; or an exact share by term weight"
        )
        tf_weight: float = Field(1.0, ge=0.0, description="factor of the term frequencies' loss")

    config: Config
    parts: ClassVar[tuple[str, ...]] = ("mlm", "term_frequencies")

    def bag_part(self, logits_BV: Tensor, drawn: BagRows) -> Part:
        total = (_distances(logits_BV, drawn.bag) * drawn.bag.present_BL.any(1)).sum()
        return Part(total, drawn.bag.count, self.config.tf_weight)


def _distances(y_BV: Tensor, bag: Bag) -> Tensor:
    """The squared distance of y from t, [B]; a text without tokens has no t, and its number means nothing."""
    counts_BL = bag.counts_BL.to(y_BV.dtype)
    t_BL = counts_BL / counts_BL.norm(dim=1, keepdim=True).clamp(min=1)
    product_B = (t_BL * y_BV.gather(1, bag.ids_BL)).sum(1)
    squared_B: Tensor = y_BV.square().sum(1) - 2 * product_B + 1
    return squared_B
