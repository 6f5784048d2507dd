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
          and passage are one text of token type 0; published is a pair, "title [SEP] passage", of types 0 and 1
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from midmask.batch import Batch, Loss, Part, TokenRows
from midmask.decoders import Decoder, DecoderPositions
from midmask.encoders.backbone import SIZES, Backbone, BackboneConfig, BackboneShape, build_backbone, shape_of
from midmask.errors import UserError
from midmask.masking import find_words, select_words
from midmask.objectives.objective import Objective, flat_targets, require_plain_layers
from midmask.objectives.pretraining.encoder_mask import MaskedRows, mask_for_encoder, masked_lm_part
from midmask.objectives.pretraining.vector_decoding import (
    BothSides,
    DecodedConfig,
    decoder_part,
    loss_of_both,
    vector_health,
)
from midmask.randomness.masks import Purpose, rekey, uniform
from midmask.vocabulary import Vocabulary

GUESSES_AT_ONCE = {"cpu": 2**22, "cuda": 2**27}
"""Logits of the generator that are held at a time."""


@dataclass(frozen=True)
class SimLMRows:
    """Texts with guesses in them, their true tokens being the targets; and as a generator that learns reads them."""

    sides: BothSides
    generator: MaskedRows


class SimLM(Objective):
    class Config(DecodedConfig):
        """SimLM; the defaults are the paper's, but for the generator."""

        name: Literal["simlm"] = Field("simlm", description="name of the objective")
        decoder_mask_ratio: float = Field(
            0.5, gt=0.0, lt=1.0, description="share of tokens replaced for the decoder, at least the encoder's"
        )
        decoder_layers: int = Field(2, ge=1, le=12, description="layers of the decoder, copied from the encoder's top")
        generator: str = Field(
            "tiny",
            description="tiny, mini, small or base: fresh weights, trained beside the encoder and dropped; or a "
            "Hugging Face masked LM with the same vocabulary, by folder or hub id: frozen",
        )
        generator_weight: float = Field(0.2, ge=0.0, description="factor of the loss of a generator that is trained")

        @model_validator(mode="after")
        def _decoder_sees_less(self) -> Self:
            if self.decoder_mask_ratio < self.encoder_mask_ratio:
                raise ValueError(
                    f"decoder_mask_ratio = {self.decoder_mask_ratio} is below encoder_mask_ratio = "
                    f"{self.encoder_mask_ratio}: tokens replaced for the encoder are also replaced for the decoder"
                )
            return self

        def places(self) -> tuple[str, ...]:
            return () if self.generator in SIZES else (self.generator,)

        def check(self, shape: BackboneShape) -> None:
            require_plain_layers(
                shape, "objective.name = simlm: its decoder begins as a copy of the encoder's top layers, and those"
            )
            if self.decoder_layers > shape.layers:
                raise UserError(
                    f"objective.decoder_layers = {self.decoder_layers}: they begin as copies of the encoder's, which "
                    f"has {shape.layers}; choose from 1 to {shape.layers}."
                )
            with said_of_generator():
                shape_of(BackboneConfig(name=self.generator))

    parts: ClassVar[tuple[str, ...]] = ("encoder_rlm", "decoder_rlm", "generator_mlm")

    def __init__(self, config: Config, backbone: Backbone, vocabulary: Vocabulary) -> None:
        super().__init__(backbone, vocabulary)
        self.config = config
        self.decoder = Decoder.behind(backbone, layers=config.decoder_layers)
        for number, layer in enumerate(self.decoder, backbone.layers - config.decoder_layers):
            for name, part in backbone.layer_parts(number).items():
                layer.get_submodule(name).load_state_dict(part.state_dict())
        self.positions = DecoderPositions(backbone)
        with said_of_generator():
            seed = int(torch.randint(2**31, (), device="cpu"))
            fresh = backbone.no_bias_V.is_meta  # an outline, whose cost is counted, reads no weights
            named = BackboneConfig(name=config.generator, dropout=0.0, fresh=fresh)
            made = build_backbone(named, vocabulary, seed=seed)
        self.generator = made if config.generator in SIZES else None
        self._guesser = (made,)  # in a tuple: what is frozen is no part of the state
        if self.generator is None:
            made.requires_grad_(False).eval()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """A frozen generator goes to the devices and types that the objective goes to."""
        if self.generator is None:
            self._guesser[0]._apply(fn, recurse)  # type: ignore[no-untyped-call]
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    @torch.no_grad()
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
        sides = (
            MaskedRows(self._guess(each, hidden_BL, vocabulary), text.lengths_B, *targets)
            for each, hidden_BL in ((text, encoder_BL), (rekey(text), decoder_BL))
        )
        learns_BL = encoder_BL & (self.generator is not None)
        masked_BL = text.ids_BL.masked_fill(encoder_BL, vocabulary.mask_id)
        generator = MaskedRows(masked_BL, text.lengths_B, *flat_targets(text.ids_BL, learns_BL))
        return SimLMRows(BothSides(*sides), generator)

    def _guess(self, text: TokenRows, hidden_BL: Tensor, vocabulary: Vocabulary) -> Tensor:
        """The text with tokens drawn by the generator where it is hidden."""
        (generator,) = self._guesser
        masked_BL = text.ids_BL.masked_fill(hidden_BL, vocabulary.mask_id)
        rows_R, _ = flat_targets(masked_BL, hidden_BL)
        states_RD = generator.hidden(masked_BL, text.lengths_B).flatten(0, 1)[rows_R]
        chance_R = uniform(text.keys_B, Purpose.GUESS, text.ids_BL.shape[1]).flatten()[rows_R]
        guesses_R = sample(generator, states_RD, chance_R, vocabulary.size)
        return text.ids_BL.flatten().index_copy(0, rows_R, guesses_R).view_as(text.ids_BL)

    def counts(self, drawn: SimLMRows) -> dict[str, Tensor]:
        return {**drawn.sides.counts(self.parts[:2]), "generator_mlm": drawn.generator.count}

    def forward(self, drawn: SimLMRows) -> Loss:
        both = loss_of_both(self.backbone, drawn.sides, self.config, self.parts[:2], self._decode)
        return Loss({**both.parts, "generator_mlm": self._generator_part(drawn.generator)})

    def _decode(self, vector_B1D: Tensor, rows: MaskedRows) -> Part:
        weight = self.config.decoder_weight
        return decoder_part(self.backbone, self.positions, self.decoder, vector_B1D, rows, weight=weight)

    def _generator_part(self, rows: MaskedRows) -> Part:
        if self.generator is None:
            return Part(torch.zeros((), device=rows.ids_BL.device), rows.count)
        hidden_BLD = self.generator.hidden(rows.ids_BL, rows.lengths_B)
        return masked_lm_part(self.generator, hidden_BLD, rows, weight=self.config.generator_weight)

    def health(self, drawn: SimLMRows) -> dict[str, Tensor]:
        """Also the share of the decoder's targets that were replaced by another token."""
        rows = drawn.sides.decoder
        replaced_R = rows.ids_BL.flatten()[rows.rows_R] != rows.labels_R
        use = vector_health(self.backbone, drawn.sides, self._decode)
        return {**use, "replaced": replaced_R.sum() / rows.count.clamp(min=1)}


@contextmanager
def said_of_generator() -> Iterator[None]:
    """What is wrong with a backbone is said of the generator, which is made as one."""
    try:
        yield
    except UserError as error:
        raise UserError(str(error).replace("backbone.name", "objective.generator")) from None


def sample(generator: Backbone, states_RD: Tensor, chance_R: Tensor, size: int) -> Tensor:
    """A token for each state, from the softmax of a masked LM over its first `size` entries; int64, [R].

    The token is the one in whose share of [0, 1) the number in `chance_R` falls. Logits exist for a chunk of states.
    """
    weight_VD, bias_V = generator.output_weight_VD[:size], generator.output_bias_V[:size]
    step = max(1, GUESSES_AT_ONCE[states_RD.device.type] // size)
    guesses_R = torch.empty(len(states_RD), dtype=torch.int64, device=states_RD.device)
    for at in range(0, len(states_RD), step):
        part = slice(at, at + step)
        logits_CV = generator.transform(states_RD[part]) @ weight_VD.t() + bias_V
        shares_CV = logits_CV.double().softmax(1).cumsum(1)
        falls_C1 = chance_R[part, None].double() * shares_CV[:, -1:]
        guesses_R[part] = torch.searchsorted(shares_CV, falls_C1, right=True).clamp(max=size - 1).squeeze(1)
    return guesses_R
