"""Query as context (Wu et al., EMNLP 2023, "CoT-MAE-qc"): a passage's vector must help to write a query for it.

loss      encoder MLM + causal language modelling of the query, weights 1 and 1
seen      a passage and one of its pseudo-queries, drawn anew each time; only the passage is encoded
masked    encoder: 0.3 of the passage by whole words, 80/10/10. Decoder: nothing of the query
vector    h, the last hidden state of [CLS], in the place of the query's first token
trained   encoder, embeddings and MLM head, shared by both sides
thrown    the decoder: a GPT-2 block (dropout, block, LN) in which a token sees h, itself and the two tokens before it,
          a bottleneck on the local context. Its feed-forward width is 4 x hidden, whatever the encoder's
targets   encoder: the selected tokens; decoder: the query's tokens after the first, [SEP] included, h predicting the
          first of them
differs   sums are divided by the global count of targets. The published code puts its window into a buffer of the
          block; newer libraries have none, and there its attention is silently causal in full. Of a passage that is
          too long, the beginning is read; the published code draws a window of it at every visit
"""

from typing import ClassVar, Literal

from pydantic import Field

from midmask.core.batch import Batch
from midmask.objectives.decoders import CausalDecoder
from midmask.objectives.objective import RowForm
from midmask.objectives.pretraining.encoder_mask import mask_for_encoder
from midmask.objectives.pretraining.vector_decoding import BothSides, DecodedConfig, VectorDecoding, next_tokens


class QueryAsContext(VectorDecoding):
    class Config(DecodedConfig):
        """Query as context; the defaults are the paper's."""

        name: Literal["cotmae_qc"] = Field("cotmae_qc", description="name of the objective")
        decoder_layers: int = Field(1, ge=1, le=12, description="blocks of the decoder")
        window: int | None = Field(
            3, ge=1, description="query tokens that a decoder row sees, itself included; none: all before it"
        )

        def row_form(self) -> RowForm:
            return RowForm(rows="pseudo_queries", term_weights=self.encoder_mask == "weighted")

    config: Config
    parts: ClassVar[tuple[str, ...]] = ("encoder_mlm", "decoder_clm")

    def make_decoder(self) -> CausalDecoder:
        return CausalDecoder(self.backbone, layers=self.config.decoder_layers, window=self.config.window)

    def draw(self, batch: Batch) -> BothSides:
        passage, query = batch.texts["passage"], batch.texts["context"]
        vocabulary = self.vocabulary(passage.ids_BL.device)
        encoder = mask_for_encoder(passage, vocabulary, self.config, count_specials=False)
        return BothSides(encoder, next_tokens(query))
