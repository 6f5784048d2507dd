"""Methods whose encoder reads a masked text, and whose decoder, dropped after training, reads a text after the
encoder's vectors.

What they share: both sides' rows, both losses, the contexts that decoders read, and whether they use the vector at all.
Shapes: B rows, L tokens, D width, K sentence vectors of a row.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from midmask.core.batch import Loss, Part, TokenRows
from midmask.encoders.backbone import Backbone
from midmask.masking import corrupt, select_words
from midmask.masking.randomness import Purpose, rekey
from midmask.objectives.decoders import CausalDecoder, Decoder, DecoderPositions, decoder_input
from midmask.objectives.objective import Objective, flat_targets, use_of_vector
from midmask.objectives.pretraining.encoder_mask import MaskedConfig, MaskedRows, masked_lm_part
from midmask.text.vocabulary import Vocabulary

Decode = Callable[[Tensor, MaskedRows], Part]
"""The loss of a decoder, given the sentence vectors, [B, K, D], and what it reads behind them."""


class DecodedConfig(MaskedConfig):
    """Base of the configs of methods with one decoder."""

    factors: ClassVar[tuple[str, ...]] = ("encoder_weight", "decoder_weight")
    encoder_weight: float = Field(1.0, ge=0.0, description="factor of the encoder's loss")
    decoder_weight: float = Field(1.0, ge=0.0, description="factor of the decoder's loss")


@dataclass(frozen=True)
class BothSides:
    """Texts as the encoder reads them, and what the decoder reads behind the vector of each."""

    encoder: MaskedRows
    decoder: MaskedRows

    def counts(self, parts: tuple[str, ...]) -> dict[str, Tensor]:
        """The number of targets by part; `parts` names the encoder's and the decoder's."""
        return dict(zip(parts, (self.encoder.count, self.decoder.count), strict=True))


class VectorDecoding(Objective):
    """A masked encoder and one decoder behind its sentence vector. Subclasses, which are final, draw both
    sides and name the decoder; their `parts` are the encoder's and the decoder's."""

    config: DecodedConfig
    positions: DecoderPositions

    @property
    @abstractmethod
    def reader(self) -> Decoder | CausalDecoder:
        """The decoder."""

    def counts(self, drawn: BothSides) -> dict[str, Tensor]:
        return drawn.counts(self.parts)

    def forward(self, drawn: BothSides) -> Loss:
        return loss_of_both(self.backbone, drawn, self.config, self.parts, self._decode)

    def _decode(self, vector_B1D: Tensor, rows: MaskedRows) -> Part:
        weight = self.config.decoder_weight
        return decoder_part(self.backbone, self.positions, self.reader, vector_B1D, rows, weight=weight)

    def health(self, drawn: BothSides) -> dict[str, Tensor]:
        return vector_health(self.backbone, drawn, self._decode)


def loss_of_both(
    backbone: Backbone, rows: BothSides, config: DecodedConfig, parts: tuple[str, ...], decode: Decode
) -> Loss:
    """The encoder's loss on its masked text, and the decoder's behind its sentence vector."""
    hidden_BLD = backbone.hidden(rows.encoder.ids_BL, rows.encoder.lengths_B)
    encoder = masked_lm_part(backbone, hidden_BLD, rows.encoder, weight=config.encoder_weight)
    vector_B1D = backbone.sentence_vector(hidden_BLD, rows.encoder.lengths_B)[:, None]
    return Loss(dict(zip(parts, (encoder, decode(vector_B1D, rows.decoder)), strict=True)))


def decoder_part(
    backbone: Backbone,
    positions: DecoderPositions,
    decoder: Decoder | CausalDecoder,
    vectors_BKD: Tensor,
    rows: MaskedRows,
    *,
    weight: float,
) -> Part:
    """The decoder's loss. It reads the K vectors as they are in the place of the first token, then the other tokens."""
    more = vectors_BKD.shape[1] - 1
    x_BLD = decoder_input(backbone, positions, vectors_BKD, rows.ids_BL)
    states_BLD = decoder(x_BLD, rows.lengths_B + more)[:, more:]  # the last vector stands for the first token
    return masked_lm_part(backbone, states_BLD, rows, weight=weight)


def vector_health(backbone: Backbone, rows: BothSides, decode: Decode) -> dict[str, Tensor]:
    """Whether a decoder behind h makes use of it."""
    hidden_BLD = backbone.hidden(rows.encoder.ids_BL, rows.encoder.lengths_B)
    vector_B1D = backbone.sentence_vector(hidden_BLD, rows.encoder.lengths_B)[:, None]
    return use_of_vector(vector_B1D, lambda vector: decode(vector, rows.decoder))


def next_tokens(text: TokenRows) -> MaskedRows:
    """The text unmasked, for a causal decoder: each place but the last predicts the token after its own, [SEP] too."""
    places_L = torch.arange(text.ids_BL.shape[1], device=text.ids_BL.device)
    predicts_BL = places_L < text.lengths_B[:, None] - 1
    return MaskedRows(text.ids_BL, text.lengths_B, *flat_targets(text.ids_BL.roll(-1, 1), predicts_BL))


def mask_for_context(text: TokenRows, vocabulary: Vocabulary, ratio: float) -> MaskedRows:
    """A context for a decoder, 80/10/10 by whole words (quota without specials; [UNK] spends quota but is no target).

    Every draw is independent of those for the same rows as the encoder reads them.
    """
    apart = rekey(text)
    selected_BL = select_words(apart, vocabulary, ratio=ratio, purpose=Purpose.DECODER, count_specials=False)
    corrupted_BL = corrupt(apart, selected_BL, vocabulary)
    return MaskedRows(corrupted_BL, text.lengths_B, *flat_targets(text.ids_BL, selected_BL))


def end_to_end(first: TokenRows, second: TokenRows, pad_id: int) -> TokenRows:
    """The rows of two texts as one batch, padded alike."""
    length = max(first.ids_BL.shape[1], second.ids_BL.shape[1])

    def pad_and_concatenate(tensors: Iterable[Tensor], padding: float) -> Tensor:
        return torch.cat([F.pad(tensor, (0, length - tensor.shape[1]), value=padding) for tensor in tensors])

    weights = [text.weights_BL for text in (first, second) if text.weights_BL is not None]
    return TokenRows(
        pad_and_concatenate((first.ids_BL, second.ids_BL), pad_id),
        torch.cat([first.lengths_B, second.lengths_B]),
        torch.cat([first.keys_B, second.keys_B]),
        pad_and_concatenate(weights, 0.0) if len(weights) == 2 else None,
    )
