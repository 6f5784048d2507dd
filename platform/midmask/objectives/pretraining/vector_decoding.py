"""Methods whose encoder reads a masked text, and whose decoder, dropped after training, reads a text after the
encoder's vectors.

What they share: both sides' rows, both losses, the contexts that decoders read, and whether they use the vector at all.
Shapes: B rows, L tokens, D width, K sentence vectors of a row.
"""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from midmask.core.batch import Loss, Part, TokenRows
from midmask.encoders.backbone import Backbone
from midmask.masking.corruption import select_words
from midmask.masking.randomness import Purpose, rekey
from midmask.objectives.decoders import CausalDecoder, Decoder, DecoderPositions, decoder_input
from midmask.objectives.objective import Objective, flat_targets, use_of_vector
from midmask.objectives.pretraining.encoder_mask import MaskedConfig, MaskedRows, corrupted_rows, masked_lm_part
from midmask.text.vocabulary import Vocabulary


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


class VectorDecoding(Objective):
    """A masked encoder and one decoder behind its sentence vector, both weighed by fields of the config. Subclasses,
    which are final, draw both sides; the first two of their `parts` are the encoder's and the decoder's."""

    @abstractmethod
    def make_decoder(self) -> nn.Module:
        """The decoder, with fresh weights."""

    def add_heads(self) -> None:
        decoder = self.make_decoder()
        self._decoder_name = "causal_decoder" if isinstance(decoder, CausalDecoder) else "decoder"
        self.add_module(self._decoder_name, decoder)
        self.positions = DecoderPositions(self.backbone)

    def counts(self, drawn: Any) -> dict[str, Tensor]:
        return dict(zip(self.parts, (drawn.encoder.count, drawn.decoder.count), strict=False))

    def forward(self, drawn: Any) -> Loss:
        hidden_BLD = self.backbone.hidden(drawn.encoder.ids_BL, drawn.encoder.lengths_B)
        encoder = masked_lm_part(self.backbone, hidden_BLD, drawn.encoder, weight=self.config.encoder_weight)
        decoder = self.decoder_part(self.vector(hidden_BLD, drawn), drawn)
        return Loss(dict(zip(self.parts, (encoder, decoder), strict=False)))

    def vector(self, hidden_BLD: Tensor, drawn: Any) -> Tensor:
        """What the decoder reads in the place of the first token, [B, 1, D]; by default the sentence vector."""
        return self.backbone.sentence_vector(hidden_BLD, drawn.encoder.lengths_B)[:, None]

    def decoder_part(self, vector_B1D: Tensor, drawn: Any) -> Part:
        """The decoder's loss behind these vectors."""
        decoder, weight = getattr(self, self._decoder_name), self.config.decoder_weight
        return loss_after_vectors(self.backbone, self.positions, decoder, vector_B1D, drawn.decoder, weight=weight)

    def health(self, drawn: Any) -> dict[str, Tensor]:
        """Whether the decoder makes use of the vector."""
        hidden_BLD = self.backbone.hidden(drawn.encoder.ids_BL, drawn.encoder.lengths_B)
        return use_of_vector(self.vector(hidden_BLD, drawn), lambda vector: self.decoder_part(vector, drawn))


def loss_after_vectors(
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
    return corrupted_rows(apart, selected_BL, vocabulary)


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
