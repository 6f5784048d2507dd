"""CoT-MAE (Wu et al., AAAI 2023): the sentence vector of one span of a document helps to rebuild another span of it.

loss      encoder MLM + decoder reconstruction, weights 1 and 1
seen      two spans of a document, both encoded; how the second is chosen is `context` (published: one of a random span,
          a neighbour and an overlapping one, drawn anew each time)
masked    encoder: 0.3 of each span by whole words, 80/10/10. Decoder: 0.45 of each span by whole words, 80/10/10,
          independent of the encoder's mask
vector    h, the last hidden state of [CLS]; that of the first span stands before the second's tokens, and the reverse
trained   encoder, embeddings and MLM head, shared by both sides
thrown    the decoder: two BERT layers, as in the released models and their results; the paper's text says one
targets   the selected tokens of each side
differs   sums are divided by the global count of targets. Both sides read the same cut of a span: the published code
          cuts a long one twice, at random, so that its masks split words
"""

from typing import ClassVar, Literal

from pydantic import Field

from midmask.core.batch import Batch
from midmask.objectives.decoders import Decoder
from midmask.objectives.objective import RowForm
from midmask.objectives.pretraining.encoder_mask import mask_for_encoder
from midmask.objectives.pretraining.vector_decoding import (
    BothSides,
    DecodedConfig,
    VectorDecoding,
    end_to_end,
    mask_for_context,
)


class CoTMAE(VectorDecoding):
    class Config(DecodedConfig):
        """CoT-MAE; the defaults are those of the released models."""

        name: Literal["cotmae"] = Field("cotmae", description="name of the objective")
        context: Literal["random", "nearby", "overlap", "mixed"] = Field(
            "mixed", description="how the second span is chosen; mixed: one of the three ways, drawn for each pair"
        )
        decoder_mask_ratio: float = Field(0.45, gt=0.0, lt=1.0, description="share of tokens hidden from the decoder")
        decoder_layers: int = Field(2, ge=1, le=12, description="layers of the decoder; the paper's text: 1")

        def row_form(self) -> RowForm:
            return RowForm(rows="spans", context=self.context, term_weights=self.encoder_mask == "weighted")

    config: Config
    parts: ClassVar[tuple[str, ...]] = ("encoder_mlm", "decoder_mlm")

    def make_decoder(self) -> Decoder:
        return Decoder(self.backbone, layers=self.config.decoder_layers)

    def draw(self, batch: Batch) -> BothSides:
        first, second = batch.texts["passage"], batch.texts["context"]
        vocabulary = self.vocabulary(first.ids_BL.device)
        encoder = mask_for_encoder(
            end_to_end(first, second, vocabulary.pad_id), vocabulary, self.config, count_specials=False
        )
        others = end_to_end(second, first, vocabulary.pad_id)
        return BothSides(encoder, mask_for_context(others, vocabulary, self.config.decoder_mask_ratio))
