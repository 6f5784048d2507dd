"""CoT-MAE v2 (Wu et al. 2023, arXiv 2304.03158): two views of a text, dense and sparse, help two decoders to rebuild a
context of it, one from both sides, one from left to right.

loss      encoder MLM + MLM of the context ("ae") + causal language modelling of the context ("ar"), weights 1, 1 and 1
seen      a text and a context of it: two spans of a document, each the context of the other, as in the first version
          (default); or a passage and a pseudo-query, the passage alone being encoded
masked    encoder: 0.3 by whole words; ae: 0.45 of the context by whole words, both 80/10/10; ar: nothing
vectors   h, the last hidden state of [CLS]; s = max over positions of log(1 + relu(logits)), brought to the width of h
          by the matrix of word embeddings. Both decoders read h, s, then the context's tokens after the first
trained   encoder, embeddings and MLM head, shared by all sides; nothing is detached
thrown    both decoders
targets   encoder and ae: the selected tokens; ar: all tokens after the first, s predicting the first of them
differs   there is no published code. Unpublished, hence fields whose defaults are those of the first version or the
          plainest choice: the context, ratios and layers of the decoders. Unpublished and no field: that s is the
          maximum over all positions but padding, its projection a sum, that it stands behind h in the sequence, and
          that the ar decoder has no window
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from midmask.core.batch import Batch, Loss, Part
from midmask.objectives.decoders import CausalDecoder, Decoder, DecoderPositions
from midmask.objectives.objective import Objective, RowForm, use_of_vector
from midmask.objectives.pretraining.encoder_mask import MaskedConfig, MaskedRows, mask_for_encoder, masked_lm_part
from midmask.objectives.pretraining.vector_decoding import end_to_end, loss_after_vectors, mask_for_context, next_tokens
from midmask.objectives.pretraining.vocabulary_weights import project, sparse_weights


@dataclass(frozen=True)
class CoTMAEv2Rows:
    """The inputs and targets of one batch of CoT-MAE v2."""

    encoder: MaskedRows  # the texts as the encoder reads them
    masked: MaskedRows  # the context of each text, masked
    whole: MaskedRows  # the context of each text, unmasked


class CoTMAEv2(Objective):
    class Config(MaskedConfig):
        """CoT-MAE v2. Its paper gives no hyper-parameters: all defaults are those of its relatives."""

        name: Literal["cotmae_v2"] = Field("cotmae_v2", description="name of the objective")
        context: Literal["random", "nearby", "overlap", "mixed", "pseudo_query"] = Field(
            "mixed",
            description="another span of the document, chosen so; or a pseudo-query for the passage (unpublished)",
        )
        decoder_mask_ratio: float = Field(
            0.45, gt=0.0, lt=1.0, description="share of tokens hidden from the ae decoder (unpublished)"
        )
        ae_layers: int = Field(1, ge=1, le=12, description="layers of the ae decoder (unpublished)")
        ar_layers: int = Field(1, ge=1, le=12, description="layers of the ar decoder (unpublished)")
        factors: ClassVar[tuple[str, ...]] = ("encoder_weight", "ae_weight", "ar_weight")
        encoder_weight: float = Field(1.0, ge=0.0, description="factor of the encoder's loss")
        ae_weight: float = Field(1.0, ge=0.0, description="factor of the ae decoder's loss")
        ar_weight: float = Field(1.0, ge=0.0, description="factor of the ar decoder's loss")

        def row_form(self) -> RowForm:
            weights = self.encoder_mask == "weighted"
            if self.context == "pseudo_query":
                return RowForm(rows="pseudo_queries", term_weights=weights)
            return RowForm(rows="spans", context=self.context, term_weights=weights)

    config: Config
    parts: ClassVar[tuple[str, ...]] = ("encoder_mlm", "ae_mlm", "ar_clm")

    def add_heads(self) -> None:
        config = self.config
        self.decoder = Decoder(self.backbone, layers=config.ae_layers)
        self.causal_decoder = CausalDecoder(self.backbone, layers=config.ar_layers, window=None, vectors=2)
        self.positions = DecoderPositions(self.backbone)

    def draw(self, batch: Batch) -> CoTMAEv2Rows:
        text, context = batch.texts["passage"], batch.texts["context"]
        vocabulary = self.vocabulary(text.ids_BL.device)
        if self.config.context != "pseudo_query":
            text, context = (end_to_end(*pair, vocabulary.pad_id) for pair in ((text, context), (context, text)))
        encoder = mask_for_encoder(text, vocabulary, self.config, count_specials=False)
        masked = mask_for_context(context, vocabulary, self.config.decoder_mask_ratio)
        return CoTMAEv2Rows(encoder, masked, next_tokens(context))

    def counts(self, drawn: CoTMAEv2Rows) -> dict[str, Tensor]:
        return {"encoder_mlm": drawn.encoder.count, "ae_mlm": drawn.masked.count, "ar_clm": drawn.whole.count}

    def forward(self, drawn: CoTMAEv2Rows) -> Loss:
        hidden_BLD = self.backbone.hidden(drawn.encoder.ids_BL, drawn.encoder.lengths_B)
        vectors_B2D = self.both_views(hidden_BLD, drawn.encoder.lengths_B)
        encoder = masked_lm_part(self.backbone, hidden_BLD, drawn.encoder, weight=self.config.encoder_weight)
        ae, ar = self._decode(vectors_B2D, drawn, "ae"), self._decode(vectors_B2D, drawn, "ar")
        return Loss({"encoder_mlm": encoder, "ae_mlm": ae, "ar_clm": ar})

    def _decode(self, vectors_B2D: Tensor, drawn: CoTMAEv2Rows, name: Literal["ae", "ar"]) -> Part:
        decoder: Decoder | CausalDecoder = self.decoder if name == "ae" else self.causal_decoder
        rows, weight = {"ae": (drawn.masked, self.config.ae_weight), "ar": (drawn.whole, self.config.ar_weight)}[name]
        return loss_after_vectors(self.backbone, self.positions, decoder, vectors_B2D, rows, weight=weight)

    def both_views(self, hidden_BLD: Tensor, lengths_B: Tensor) -> Tensor:
        """h and the projection of s, [B, 2, D]."""
        projected_BD = project(self.backbone, sparse_weights(self.backbone, hidden_BLD, lengths_B))
        vector_BD = self.backbone.sentence_vector(hidden_BLD, lengths_B)
        return torch.stack([vector_BD, projected_BD.to(hidden_BLD.dtype)], 1)

    def health(self, drawn: CoTMAEv2Rows) -> dict[str, Tensor]:
        hidden_BLD = self.backbone.hidden(drawn.encoder.ids_BL, drawn.encoder.lengths_B)
        vectors_B2D = self.both_views(hidden_BLD, drawn.encoder.lengths_B)
        ae = use_of_vector(vectors_B2D, lambda vectors: self._decode(vectors, drawn, "ae"), "ae")
        return ae | use_of_vector(vectors_B2D, lambda vectors: self._decode(vectors, drawn, "ar"), "ar")
