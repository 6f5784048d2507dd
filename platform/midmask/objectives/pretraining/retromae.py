"""RetroMAE (Xiao et al., EMNLP 2022): a strong encoder's sentence vector must help a weak decoder rebuild the text.

loss      encoder MLM + decoder reconstruction, weights 1 and 1
masked    encoder: 0.3 of the text by whole words, 80/10/10. Decoder "enhanced": nothing in its input, but each position
          sees only the sentence vector and a whole-word sample of half the text, never itself (eq. 5); "basic": 0.5 of
          the text by whole words, all [MASK], independent of the encoder's mask
vector    h, the last hidden state of [CLS], no pooler; gradients flow through it
trained   encoder, embeddings and MLM head, shared by both sides; nothing is frozen or detached
thrown    the decoder: one two-stream layer ("enhanced"), or ordinary layers ("basic")
targets   encoder: the selected tokens; "enhanced": all tokens but the first and the last; "basic": the masked tokens
streams   "enhanced" queries are P_i + h without norm or dropout ("paper", and the RetroMAE class), or the embedding
          module applied to h ("embedding": the DupMAE class and FlagEmbedding)
differs   sums are divided by the global count of targets, not per micro-batch. [UNK] spends quota but is never an
          encoder target, as published. "enhanced" takes one layer: with more, hidden context leaks through intermediate
          rows
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from midmask.core.batch import Batch, Part, TokenRows
from midmask.encoders.backbone import Backbone
from midmask.encoders.families import BackboneShape
from midmask.errors import UserError
from midmask.masking.corruption import select_words, visibility
from midmask.masking.randomness import Purpose
from midmask.objectives.decoders import DecoderLayer, DecoderPositions, decoder_input
from midmask.objectives.objective import flat_targets
from midmask.objectives.pretraining.encoder_mask import MaskedRows, mask_for_encoder, masked_lm_part
from midmask.objectives.pretraining.vector_decoding import BothSides, DecodedConfig, VectorDecoding
from midmask.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class RetroMAERows(BothSides):
    """Both sides of a batch. The decoder's ids are the true ones ("enhanced") or masked ("basic"); visible_BXL says
    which columns a decoder row sees, X being L ("enhanced") or 1 ("basic": all rows alike)."""

    visible_BXL: Tensor


class DecodingConfig(DecodedConfig):
    """Base of the configs of methods that decode as RetroMAE does; the defaults are RetroMAE's paper's."""

    decoder_mask_ratio: float = Field(0.5, gt=0.0, lt=1.0, description="share of tokens hidden from a decoder row")
    decoding: Literal["enhanced", "basic"] = Field("enhanced", description="two-stream, or plain masked decoding")
    decoder_layers: int = Field(
        1, ge=1, le=12, description="layers of the decoder; more than 1 only with decoding=basic"
    )
    query_stream: Literal["paper", "embedding"] = Field(
        "paper", description="enhanced: queries are P + h, or the embedding module applied to h"
    )
    decoder_masks: Literal["published", "independent"] = Field(
        "published", description="enhanced: rows pick from min(length, 256) masks, or each draws its own"
    )

    @model_validator(mode="after")
    def _one_enhanced_layer(self) -> Self:
        if self.decoding == "enhanced" and self.decoder_layers != 1:
            raise ValueError(
                f"decoder_layers = {self.decoder_layers} needs decoding = basic: with more than one enhanced layer "
                "hidden context leaks through the rows between"
            )
        return self

    def check(self, shape: BackboneShape) -> None:
        if self.decoding == "enhanced" and self.query_stream == "embedding" and not shape.embeds_streams:
            lack = "no table of positions" if not shape.has_positions else f"embeddings {shape.embedding_width} wide"
            raise UserError(
                f"objective.query_stream = embedding: a {shape.family} backbone has {lack}, so its embedding module "
                "cannot make queries from a sentence vector. Use objective.query_stream=paper."
            )


class RetroMAEDecoder(nn.ModuleList):
    """The decoder's layers, their masks and their loss. The backbone is an argument, not a member: its weights are
    kept.
    """

    def __init__(self, config: DecodingConfig, backbone: Backbone) -> None:
        super().__init__(DecoderLayer.behind(backbone) for _ in range(config.decoder_layers))
        self.config = config

    def draw(self, text: TokenRows, vocabulary: Vocabulary) -> tuple[MaskedRows, Tensor]:
        """The decoder's ids and targets, and which columns its rows see, as in `RetroMAERows`."""
        positions_L = torch.arange(text.ids_BL.shape[1], device=text.ids_BL.device)
        ratio, end_B1 = self.config.decoder_mask_ratio, text.lengths_B[:, None]
        if self.config.decoding == "enhanced":
            independent = self.config.decoder_masks == "independent"
            visible_BXL = visibility(text, vocabulary, ratio=ratio, independent=independent)
            ids_BL, targets_BL = text.ids_BL, (positions_L > 0) & (positions_L < end_B1 - 1)
        else:
            targets_BL = select_words(text, vocabulary, ratio=ratio, purpose=Purpose.DECODER)
            ids_BL = torch.where(targets_BL, vocabulary.mask_id, text.ids_BL)
            visible_BXL = (positions_L < end_B1)[:, None]
        return MaskedRows(ids_BL, text.lengths_B, *flat_targets(text.ids_BL, targets_BL)), visible_BXL

    def forward(
        self,
        backbone: Backbone,
        positions: DecoderPositions,
        vector_B1D: Tensor,
        ids_BL: Tensor,
        visible_BXL: Tensor,
    ) -> Tensor:
        """The last states, [B, L, D]. In the context, the sentence vector is at position 0, unchanged."""
        context_BLD = decoder_input(backbone, positions, vector_B1D, ids_BL)
        if self.config.decoding == "basic":
            for layer in self:
                context_BLD = layer(context_BLD, context_BLD, visible_BXL)
            return context_BLD
        if self.config.query_stream == "paper":
            query_BLD = positions(backbone, ids_BL.shape[1]) + vector_B1D
        else:
            query_BLD = backbone.embed_stream(vector_B1D.expand_as(context_BLD))
        decoded: Tensor = self[0](query_BLD, context_BLD, visible_BXL)
        return decoded


class RetroMAE(VectorDecoding):
    class Config(DecodingConfig):
        """RetroMAE; the defaults are the paper's."""

        name: Literal["retromae"] = Field("retromae", description="name of the objective")

    config: Config
    decoder: RetroMAEDecoder
    parts: ClassVar[tuple[str, ...]] = ("encoder_mlm", "decoder_mlm")

    def make_decoder(self) -> RetroMAEDecoder:
        return RetroMAEDecoder(self.config, self.backbone)

    def draw(self, batch: Batch) -> RetroMAERows:
        text = batch.texts["passage"]
        vocabulary = self.vocabulary(text.ids_BL.device)
        return RetroMAERows(mask_for_encoder(text, vocabulary, self.config), *self.decoder.draw(text, vocabulary))

    def decoder_part(self, vector_B1D: Tensor, drawn: RetroMAERows) -> Part:
        rows = drawn.decoder
        decoded_BLD = self.decoder(self.backbone, self.positions, vector_B1D, rows.ids_BL, drawn.visible_BXL)
        return masked_lm_part(self.backbone, decoded_BLD, rows, weight=self.config.decoder_weight)
