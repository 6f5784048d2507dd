"""SimLM (Wang et al., ACL 2023): undo what a generator has put into the text, once from all of it, once from little of
it and the sentence vector.

loss      encoder and decoder replaced-language-modelling, weights 1 and 1; + 0.2 of the generator's own masked LM if it
          is trained
replaced  encoder: 0.3 of the text by whole words; decoder: the same and a second draw, half of the text in the mean.
          The generator sees [MASK] there, and its guesses, drawn from its softmax, take the tokens' places
vector    h, the last hidden state of [CLS]
trained   encoder, embeddings and MLM head, shared by both sides
thrown    the decoder: two layers, at first copies of the encoder's top two; and the generator
targets   the true tokens of all places but specials and [UNK], replaced or not, on both sides
differs   sums are divided by the global count of targets. Published is a frozen ELECTRA generator, here the folder of
          one; as there is none on a bare machine, the default is a small one of its own, trained along (a variant of
          the published code). It guesses without dropout, so that a guess is a function of the row's key alone. Title
          and passage are one text of token type 0; published is a pair, of types 0 and 1 for encoder and generator and
          0 for the decoder: tokens.titles=true, tokens.title_join=pair
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator
from torch import Tensor

from midmask.core.batch import Batch, Loss, TokenRows
from midmask.encoders.families import BackboneShape
from midmask.errors import UserError
from midmask.masking.corruption import keep_pairs, select_words
from midmask.masking.randomness import Purpose, rekey
from midmask.masking.words import find_words
from midmask.objectives.decoders import Decoder
from midmask.objectives.objective import flat_targets, require_plain_layers
from midmask.objectives.pretraining.encoder_mask import MaskedRows, mask_for_encoder
from midmask.objectives.pretraining.generator import (
    TokenGeneratorConfig,
    build_generator,
    fill,
    generator_count,
    generator_part,
)
from midmask.objectives.pretraining.vector_decoding import BothSides, DecodedConfig, VectorDecoding
from midmask.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class SimLMRows(BothSides):
    """Texts with guesses in them, their true tokens being the targets; and masked, as the generator reads them."""

    generator: MaskedRows


class SimLM(VectorDecoding):
    class Config(TokenGeneratorConfig, DecodedConfig):
        """SimLM; the defaults are the paper's, but for the generator."""

        name: Literal["simlm"] = Field("simlm", description="name of the objective")
        decoder_mask_ratio: float = Field(
            0.5, gt=0.0, lt=1.0, description="share of tokens replaced for the decoder, at least the encoder's"
        )
        decoder_layers: int = Field(2, ge=1, le=12, description="layers of the decoder, copied from the encoder's top")

        @model_validator(mode="after")
        def _decoder_sees_less(self) -> Self:
            if self.decoder_mask_ratio < self.encoder_mask_ratio:
                raise ValueError(
                    f"decoder_mask_ratio = {self.decoder_mask_ratio} is below encoder_mask_ratio = "
                    f"{self.encoder_mask_ratio}: tokens replaced for the encoder are also replaced for the decoder"
                )
            return self

        def check(self, shape: BackboneShape) -> None:
            require_plain_layers(
                shape, "objective.name = simlm: its decoder begins as a copy of the encoder's top layers, and those"
            )
            if self.decoder_layers > shape.layers:
                raise UserError(
                    f"objective.decoder_layers = {self.decoder_layers}: they begin as copies of the encoder's, which "
                    f"has {shape.layers}; choose from 1 to {shape.layers}."
                )
            super().check(shape)

    config: Config
    parts: ClassVar[tuple[str, ...]] = ("encoder_rlm", "decoder_rlm", "generator_mlm")

    def make_decoder(self) -> Decoder:
        decoder = Decoder(self.backbone, layers=self.config.decoder_layers)
        for number, layer in enumerate(decoder, self.backbone.layers - self.config.decoder_layers):
            for name, part in self.backbone.family.parts_of(self.backbone.encoder, number).items():
                layer.get_submodule(name).load_state_dict(part.state_dict())
        return decoder

    def add_heads(self) -> None:
        super().add_heads()
        self.generator = build_generator(self.config.generator, self._vocabulary)

    def draw(self, batch: Batch) -> SimLMRows:
        text = batch.texts["passage"]
        vocabulary = self.vocabulary(text.ids_BL.device)
        encoder_BL = mask_for_encoder(text, vocabulary, self.config).selected_BL
        # A second draw adds 2/7 of the tokens to 3/10: half of them in the mean, but for roundings
        more = 1 - (1 - self.config.decoder_mask_ratio) / (1 - self.config.encoder_mask_ratio)
        decoder_BL = encoder_BL
        if more > 0:
            decoder_BL = encoder_BL | select_words(text, vocabulary, ratio=more, purpose=Purpose.DECODER)
        ordinary_BL = find_words(text, vocabulary).candidate_BL & (text.ids_BL != vocabulary.unk_id)
        targets = flat_targets(text.ids_BL, ordinary_BL)
        encoder, decoder = (
            MaskedRows(self._guess(each, hidden_BL, vocabulary), text.lengths_B, *targets)
            for each, hidden_BL in ((text, encoder_BL), (rekey(text), decoder_BL))
        )
        masked_BL = text.ids_BL.masked_fill(encoder_BL, vocabulary.mask_id)
        generator = MaskedRows(masked_BL, text.lengths_B, *flat_targets(text.ids_BL, encoder_BL))
        return SimLMRows(encoder, decoder, generator)

    def _guess(self, text: TokenRows, hidden_BL: Tensor, vocabulary: Vocabulary) -> Tensor:
        """The text with tokens drawn by the generator where it is hidden."""
        masked = replace(text, ids_BL=text.ids_BL.masked_fill(hidden_BL, vocabulary.mask_id))
        return keep_pairs(text.ids_BL, fill(self.generator, masked, hidden_BL, vocabulary.size), vocabulary)

    def counts(self, drawn: SimLMRows) -> dict[str, Tensor]:
        learns = generator_count(self.generator, drawn.generator)
        return {**super().counts(drawn), "generator_mlm": learns}

    def forward(self, drawn: SimLMRows) -> Loss:
        both = super().forward(drawn)
        generator = generator_part(self.generator, drawn.generator, weight=self.config.generator_weight)
        return Loss({**both.parts, "generator_mlm": generator})
