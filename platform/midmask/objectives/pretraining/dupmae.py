"""DupMAE, or RetroMAE v2 (Xiao et al., ACL 2023): besides RetroMAE's decoding from [CLS], the ordinary tokens' states
must name the words of the text.

loss      encoder MLM + decoder reconstruction + `bow_weight` * bag of words, the latter per text
          - sum over the distinct tokens v of the text of w_v log softmax(mu)_v, mu = max over positions of their logits
masked    as in RetroMAE; the bag is that of the true text, masked words included
vector    h, the last hidden state of [CLS], and mu, a number for each entry of the vocabulary
trained   encoder, embeddings and MLM head, shared by all; nothing is frozen or detached
thrown    RetroMAE's decoder, under RetroMAE's names; with `bow_head` = projection also its matrix
targets   as in RetroMAE; the bag: all tokens but the specials, [UNK] among them. A text without pooled positions has
          none
decode    "cls", "ot" and "both" are the rows of the paper's Table 3
paper     bow_weight 1, bow_head projection (eq. 6), masked tokens not pooled, the targets a set (eq. 8). Unpublished:
          whether the loss is the mean over the set ("set") or the sum ("sum"); whether [SEP] is pooled
code      bow_weight 0.1, bow_head tied, bow_targets share, pool_masked and pool_sep true, query_stream embedding
differs   the defaults are the paper's in weight and positions, [SEP] being no word of the text. They are the code's in
          the head (no checkpoint holds another, and retrieval by mu needs one), the targets, whose reduction the paper
          leaves open, and the query stream
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from midmask.core.batch import Batch, Loss, Part
from midmask.encoders.families import BackboneShape
from midmask.encoders.heads import linear_column_max
from midmask.encoders.representation import highest_logits
from midmask.objectives.decoders import DecoderPositions, fresh_linear
from midmask.objectives.objective import Objective, use_of_vector
from midmask.objectives.pretraining.encoder_mask import MaskedRows, mask_for_encoder, masked_lm_part
from midmask.objectives.pretraining.retromae import DecodingConfig, RetroMAEDecoder
from midmask.objectives.pretraining.vocabulary_weights import (
    Bag,
    TargetWeights,
    bag_cross_entropy,
    bag_of_words,
    winning_vocabulary,
)


@dataclass(frozen=True)
class DupMAERows:
    """The inputs and targets of one batch of DupMAE."""

    encoder: MaskedRows  # the masked text
    decoder: tuple[MaskedRows, Tensor] | None  # what RetroMAE's decoder reads and sees; None without that decoder
    bag: Bag  # the true tokens
    pooled_BL: Tensor  # positions whose logits the maximum is over; no position if the bag is not decoded

    @property
    def has_bag_B(self) -> Tensor:
        """Whether a text has words to name and a position to name them from."""
        return self.bag.present_BL.any(1) & self.pooled_BL.any(1)


class DupMAE(Objective):
    class Config(DecodingConfig):
        """DupMAE; which defaults are the paper's and which the code's is in the module's docstring."""

        name: Literal["dupmae"] = Field("dupmae", description="name of the objective")
        decode: Literal["cls", "ot", "both"] = Field(
            "both", description="what decodes: the sentence vector, the ordinary tokens, or both"
        )
        query_stream: Literal["paper", "embedding"] = Field(
            "embedding", description="enhanced: queries are P + h, or the embedding module applied to h (DupMAE's code)"
        )
        factors: ClassVar[tuple[str, ...]] = ()  # bow_weight is above 0
        bow_weight: float = Field(1.0, gt=0.0, description="factor of the bag-of-words loss; paper 1, code 0.1")
        bow_head: Literal["tied", "projection"] = Field(
            "tied", description="logits of ordinary tokens: by the MLM head (code), or by a matrix of their own (paper)"
        )
        bow_targets: TargetWeights = Field(
            "share",
            description="weight of a distinct token: 1 / tokens of the text, repeated ones included (code); "
            "1 / distinct tokens; or 1",
        )
        pool_masked: bool = Field(False, description="masked positions enter the maximum (code: true, paper: false)")
        pool_sep: bool = Field(False, description="[SEP] enters the maximum (code: true; paper: unpublished)")

        def check(self, shape: BackboneShape) -> None:
            if self.decode != "ot":
                super().check(shape)

    config: Config
    parts: ClassVar[tuple[str, ...]] = ("encoder_mlm", "decoder_mlm", "bag_of_words")

    def add_heads(self) -> None:
        self.decoder = None if self.config.decode == "ot" else RetroMAEDecoder(self.config, self.backbone)
        self.positions = None if self.config.decode == "ot" else DecoderPositions(self.backbone)
        self.projection = None
        if self.config.bow_head == "projection":
            self.projection = fresh_linear(self.backbone.width, len(self.backbone.output_weight_VD), bias=False)

    def draw(self, batch: Batch) -> DupMAERows:
        text = batch.texts["passage"]
        vocabulary = self.vocabulary(text.ids_BL.device)
        encoder = mask_for_encoder(text, vocabulary, self.config)
        decoder = None if self.decoder is None else self.decoder.draw(text, vocabulary)
        positions_L = torch.arange(text.ids_BL.shape[1], device=text.ids_BL.device)
        end_B1 = text.lengths_B[:, None] - (0 if self.config.pool_sep else 1)
        pooled_BL = (positions_L > 0) & (positions_L < end_B1)
        if not self.config.pool_masked:
            pooled_BL &= ~encoder.selected_BL
        if self.config.decode == "cls":
            pooled_BL = torch.zeros_like(pooled_BL)
        return DupMAERows(encoder, decoder, bag_of_words(text, vocabulary), pooled_BL)

    def counts(self, drawn: DupMAERows) -> dict[str, Tensor]:
        encoder = drawn.encoder.count
        decoder = torch.zeros_like(encoder) if drawn.decoder is None else drawn.decoder[0].count
        return dict(zip(self.parts, (encoder, decoder, drawn.has_bag_B.sum()), strict=True))

    def forward(self, drawn: DupMAERows) -> Loss:
        hidden_BLD = self.backbone.hidden(drawn.encoder.ids_BL, drawn.encoder.lengths_B)
        encoder = masked_lm_part(self.backbone, hidden_BLD, drawn.encoder, weight=self.config.encoder_weight)
        nothing = Part(torch.zeros_like(encoder.total), torch.zeros_like(encoder.count))
        vector_BD = self.backbone.sentence_vector(hidden_BLD, drawn.encoder.lengths_B)
        decoder = nothing if self.decoder is None else self._decoder_part(vector_BD, drawn)
        bag = nothing if self.config.decode == "cls" else self.bag_part(hidden_BLD, drawn)
        return Loss(dict(zip(self.parts, (encoder, decoder, bag), strict=True)))

    def _decoder_part(self, vector_BD: Tensor, drawn: DupMAERows) -> Part:
        assert self.decoder is not None and self.positions is not None and drawn.decoder is not None
        rows, visible_BXL = drawn.decoder
        decoded_BLD = self.decoder(self.backbone, self.positions, vector_BD[:, None], rows.ids_BL, visible_BXL)
        return masked_lm_part(self.backbone, decoded_BLD, rows, weight=self.config.decoder_weight)

    def bag_part(self, hidden_BLD: Tensor, drawn: DupMAERows) -> Part:
        """The loss of naming the text's words from its tokens' last states."""
        logits_BV = self._pool_logits(hidden_BLD, drawn.pooled_BL)
        weights_BL = drawn.bag.weights(self.config.bow_targets, logits_BV.dtype) * drawn.has_bag_B[:, None]
        total = bag_cross_entropy(logits_BV, drawn.bag.ids_BL, weights_BL)
        return Part(total, drawn.has_bag_B.sum(), self.config.bow_weight)

    def _pool_logits(self, hidden_BLD: Tensor, pooled_BL: Tensor) -> Tensor:
        """mu, [B, V]."""
        if self.projection is None:
            return highest_logits(self.backbone, hidden_BLD, pooled_BL)
        weight_VD = self.projection.weight
        return linear_column_max(hidden_BLD, weight_VD, weight_VD.new_zeros(len(weight_VD)), pooled_BL)

    def health(self, drawn: DupMAERows) -> dict[str, Tensor]:
        """Whether the decoder uses the sentence vector, and whether texts have winners of their own in the max-pool."""
        hidden_BLD = self.backbone.hidden(drawn.encoder.ids_BL, drawn.encoder.lengths_B)
        measures: dict[str, Tensor] = {}
        if self.decoder is not None:
            vector_BD = self.backbone.sentence_vector(hidden_BLD, drawn.encoder.lengths_B)
            measures |= use_of_vector(vector_BD, lambda vector: self._decoder_part(vector, drawn))
        if self.config.decode != "cls":
            measures["winning_vocabulary"] = winning_vocabulary(self._pool_logits(hidden_BLD, drawn.pooled_BL))
        return measures
