"""SEED-Encoder (Lu et al., EMNLP 2021): a decoder too weak to write the text alone must rely on the sentence vector.

loss      encoder MLM + causal language modelling of the same text, weights 0.5 and 0.5
masked    encoder: each token with probability 0.15, 80/10/10. Decoder: nothing
vector    h, the last hidden state of [CLS], in the place of the first token
trained   encoder, embeddings and MLM head, shared by both sides
thrown    the decoder: pre-norm causal layers in which a token sees h, itself and few tokens before it. Published are 3
          layers with a window of 2 (default) and 1 layer with a window of 8
targets   encoder: the selected tokens; decoder: all tokens after the first
differs   sums are divided by the global count of targets. The released decoder reads h by a cross-attention over it
          alone and predicts with the embedding matrix; here h is a column of its self-attention, and the MLM head is
          shared, as in the paper's successors. Its vocabulary of 32,769 entries is the tokenizer's business
"""

from typing import ClassVar, Literal

from pydantic import Field

from midmask.core.batch import Batch
from midmask.objectives.decoders import CausalDecoder
from midmask.objectives.pretraining.encoder_mask import EncoderMask, mask_for_encoder
from midmask.objectives.pretraining.vector_decoding import BothSides, DecodedConfig, VectorDecoding, next_tokens


class SEED(VectorDecoding):
    class Config(DecodedConfig):
        """SEED-Encoder; the defaults are those of the published three-layer decoder."""

        name: Literal["seed"] = Field("seed", description="name of the objective")
        encoder_mask_ratio: float = Field(0.15, gt=0.0, lt=1.0, description="share of tokens hidden from the encoder")
        encoder_mask: EncoderMask = Field("token", description="how tokens are chosen that the encoder must predict")
        encoder_weight: float = Field(0.5, ge=0.0, description="factor of the encoder's loss")
        decoder_weight: float = Field(0.5, ge=0.0, description="factor of the decoder's loss")
        decoder_layers: int = Field(3, ge=1, le=12, description="layers of the decoder")
        window: int | None = Field(
            2, ge=1, description="tokens that a decoder row sees, itself included; none: all before it"
        )

    config: Config
    parts: ClassVar[tuple[str, ...]] = ("encoder_mlm", "decoder_clm")

    def make_decoder(self) -> CausalDecoder:
        return CausalDecoder(self.backbone, layers=self.config.decoder_layers, window=self.config.window)

    def draw(self, batch: Batch) -> BothSides:
        text = batch.texts["passage"]
        encoder = mask_for_encoder(text, self.vocabulary(text.ids_BL.device), self.config)
        return BothSides(encoder, next_tokens(text))
