"""LexMAE (Shen et al., ICLR 2023): the decoder is fed a mixture of word embeddings, so the encoder must name words.

loss      encoder MLM + decoder MLM, weights 1 and 1; no term for sparsity in pre-training
masked    encoder: exactly ceil(0.3 n) of a text's n tokens without specials, [UNK] like any other. Decoder: with
          `overlap` inclusive the same, and each other token with probability (0.5 - 0.3) / (1 - 0.3); random: each
          token with probability 0.5; exclusive: each token that the encoder sees with probability 0.5 / (1 - 0.3). Both
          are 80/10/10, drawn apart
vector    b = a · E, gradients not reaching E this way; u = max over positions of the MLM head's raw logits; a =
          softmax(u), or with `bottleneck` saturated s / (sum of s + 1e-4), s = log(1 + relu(u)); cls: b = h, the last
          hidden state of [CLS]; off: the decoder reads [CLS] as it is, the paper's ablation. The positions of u are
          those whose *corrupted* id is neither [CLS], [SEP] nor padding; [MASK] is among them
trained   encoder, embeddings and MLM head; the decoder shares embeddings and output matrix
thrown    the decoder: two ordinary layers, an MLM transform of its own, and its own output bias
targets   the selected tokens of each side
differs   sums are divided by the global count of targets. Title and passage are one text; published is
          "title [SEP] passage", all of token type 0: tokens.titles=true, tokens.title_join=separator. Whole words,
          which the code cuts at the quota and leaves out beyond six pieces, are chosen here as by Condenser: those that
          fit
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from midmask.core.batch import Batch, Part
from midmask.encoders.heads import linear_cross_entropy
from midmask.encoders.representation import highest_logits
from midmask.masking.corruption import select_tokens
from midmask.masking.randomness import Purpose, rekey
from midmask.objectives.decoders import Decoder, decoder_input, fresh_linear
from midmask.objectives.pretraining.encoder_mask import EncoderMask, corrupted_rows, mask_for_encoder
from midmask.objectives.pretraining.vector_decoding import BothSides, DecodedConfig, VectorDecoding
from midmask.objectives.pretraining.vocabulary_weights import winning_vocabulary

SATURATED_FLOOR = 1e-4
"""Added to the sum that "saturated" divides by."""


@dataclass(frozen=True)
class LexMAERows(BothSides):
    """The two sides of a batch, and the positions of the encoder's side that the maximum is over."""

    pooled_BL: Tensor


class LexMAE(VectorDecoding):
    class Config(DecodedConfig):
        """LexMAE; the defaults are the paper's."""

        name: Literal["lexmae"] = Field("lexmae", description="name of the objective")
        encoder_mask: EncoderMask = Field(
            "exact", description="exactly ceil(ratio * n) tokens (LexMAE); tokens one by one; whole words; by weight"
        )
        decoder_mask_ratio: float = Field(0.5, gt=0.0, lt=1.0, description="share of tokens hidden from the decoder")
        overlap: Literal["inclusive", "random", "exclusive"] = Field(
            "inclusive", description="the decoder's mask holds the encoder's; is drawn apart; or avoids the encoder's"
        )
        bottleneck: Literal["softmax", "saturated", "cls", "off"] = Field(
            "softmax", description="what the decoder reads: words by softmax or log(1 + relu); the [CLS] state; nothing"
        )
        decoder_layers: int = Field(2, ge=1, le=12, description="layers of the decoder")

        @property
        def chance(self) -> float:
            """Probability with which a token that may be added to the decoder's mask is."""
            encoder, decoder = self.encoder_mask_ratio, self.decoder_mask_ratio
            shares = {
                "inclusive": (decoder - encoder) / (1 - encoder),
                "random": decoder,
                "exclusive": decoder / (1 - encoder),
            }
            return shares[self.overlap]

        @model_validator(mode="after")
        def _ratios_fit(self) -> Self:
            if not 0 <= self.chance <= 1:
                bound = "at least" if self.overlap == "inclusive" else "at most 1 -"
                raise ValueError(
                    f"decoder_mask_ratio = {self.decoder_mask_ratio} with overlap = {self.overlap}: it must be {bound} "
                    f"encoder_mask_ratio = {self.encoder_mask_ratio}"
                )
            return self

    config: Config
    decoder: Decoder
    parts: ClassVar[tuple[str, ...]] = ("encoder_mlm", "decoder_mlm")

    def make_decoder(self) -> Decoder:
        return Decoder(self.backbone, layers=self.config.decoder_layers)

    def add_heads(self) -> None:
        super().add_heads()
        entries, width = self.backbone.output_weight_VD.shape
        self.transform = fresh_linear(self.backbone.width, width)
        self.norm = nn.LayerNorm(width, self.backbone.norm_eps)
        self.bias = nn.Parameter(torch.zeros(entries))

    def draw(self, batch: Batch) -> LexMAERows:
        text = batch.texts["passage"]
        vocabulary = self.vocabulary(text.ids_BL.device)
        encoder = mask_for_encoder(text, vocabulary, self.config, count_specials=False, unknown="masked")
        apart = rekey(text)
        selected_BL = select_tokens(apart, vocabulary, ratio=self.config.chance, purpose=Purpose.DECODER)
        if self.config.overlap == "inclusive":
            selected_BL |= encoder.selected_BL
        elif self.config.overlap == "exclusive":
            selected_BL &= ~encoder.selected_BL
        decoder = corrupted_rows(apart, selected_BL, vocabulary)
        real_BL = torch.arange(text.ids_BL.shape[1], device=text.ids_BL.device) < text.lengths_B[:, None]
        is_text_BL = (encoder.ids_BL != vocabulary.cls_id) & (encoder.ids_BL != vocabulary.sep_id)
        return LexMAERows(encoder, decoder, real_BL & is_text_BL)

    def vector(self, hidden_BLD: Tensor, drawn: LexMAERows) -> Tensor:
        if self.config.bottleneck == "cls":
            return super().vector(hidden_BLD, drawn)
        if self.config.bottleneck == "off":
            return self.positions.embed(self.backbone, drawn.decoder.ids_BL[:, :1])
        u_BV = highest_logits(self.backbone, hidden_BLD, drawn.pooled_BL)
        if self.config.bottleneck == "softmax":
            a_BV = torch.softmax(u_BV, 1)
        else:
            s_BV = torch.log1p(torch.relu(u_BV))
            a_BV = s_BV / (s_BV.sum(1, keepdim=True) + SATURATED_FLOOR)
        return (a_BV @ self.backbone.word_embeddings_VD.detach())[:, None]

    def decoder_part(self, vector_B1D: Tensor, drawn: LexMAERows) -> Part:
        rows = drawn.decoder
        x_BLD = decoder_input(self.backbone, self.positions, vector_B1D, rows.ids_BL)
        decoded_BLD = self.decoder(x_BLD, rows.lengths_B)
        states_RD = decoded_BLD.flatten(0, 1).index_select(0, rows.rows_R)
        features_RD = self.norm(F.gelu(self.transform(states_RD)))
        total = linear_cross_entropy(features_RD, self.backbone.output_weight_VD, self.bias, rows.labels_R)
        return Part(total, rows.count, self.config.decoder_weight)

    def health(self, drawn: LexMAERows) -> dict[str, Tensor]:
        """Whether the decoder uses the bottleneck, and whether texts have winners of their own in the max-pool."""
        if self.config.bottleneck == "off":
            return {}
        measures = super().health(drawn)
        if self.config.bottleneck != "cls":
            hidden_BLD = self.backbone.hidden(drawn.encoder.ids_BL, drawn.encoder.lengths_B)
            measures["winning_vocabulary"] = winning_vocabulary(
                highest_logits(self.backbone, hidden_BLD, drawn.pooled_BL)
            )
        return measures
