"""MASTER (Zhou et al., ECML-PKDD 2023): one encoder, and behind its vector a decoder for each of several texts.

loss      the encoder's MLM in three passes + the MLM of each decoder, all weights 1
passes    whole: the passage, masked 0.3. first: its first half, masked 0.3. dual: the passage, masked 0.5
decoders  keyword (behind whole): the same passage, 0.5 of its tokens masked, rare words first. query (behind whole): a
          pseudo-query of the passage, masked 0.5. second (behind first): the second half, masked as for keyword.
          dual (behind dual): the passage with all words masked that the encoder saw, and only these
masked    by whole words, 80/10/10; the quota is a share of the text without specials, and [UNK] is passed over. Every
          draw is independent but for those of dual, which complement each other
vector    h, the last hidden state of [CLS], of each pass; it stands in the place of a decoder's first token
trained   encoder, embeddings and MLM head, shared by all sides
thrown    the decoders, two layers each
targets   the selected tokens of each text
differs   sums are divided by the global counts of targets. The fifth decoder, of GPT-2's continuation of the passage,
          is left out, because a row has one text beside its passage. Published is a row of all queries that doc2query
          wrote; here it is one of them, drawn at each visit, and by default a sentence of the passage, for want of a
          model (`pseudo_queries.source`). Published keywords are words drawn with odds of 1 / frequency until half of
          the tokens are reached; here they are the half of highest temperature * uniform + term weight, as ROM's.
          [UNK] spends quota in a decoder's text
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from midmask.core.batch import Batch, Loss, Part, TokenRows
from midmask.masking.corruption import only, select_highest, select_words
from midmask.masking.randomness import Purpose, rekey
from midmask.masking.words import find_words
from midmask.objectives.decoders import Decoder, DecoderPositions
from midmask.objectives.objective import Objective, RowForm, use_of_vector
from midmask.objectives.pretraining.encoder_mask import MaskedRows, corrupted_rows, mask_for_encoder, masked_lm_part
from midmask.objectives.pretraining.vector_decoding import DecodedConfig, loss_after_vectors, mask_for_context
from midmask.text.vocabulary import Vocabulary

BEHIND = {"keyword": "whole", "query": "whole", "second": "first", "dual": "dual"}
"""Decoder -> the pass of the encoder whose vector it reads."""


@dataclass(frozen=True)
class MASTERRows:
    """What the encoder reads, by pass; what the decoders read behind its vectors, by decoder."""

    encoded: dict[str, MaskedRows]
    decoded: dict[str, MaskedRows]


class MASTER(Objective):
    class Config(DecodedConfig):
        """MASTER; the defaults are the published command's."""

        name: Literal["master"] = Field("master", description="name of the objective")
        decoder_mask_ratio: float = Field(0.5, gt=0.0, lt=1.0, description="share of tokens hidden from the decoders")
        dual_mask_ratio: float = Field(
            0.5, gt=0.0, lt=1.0, description="share of tokens hidden from the encoder in the dual pass"
        )
        decoder_layers: int = Field(2, ge=1, le=12, description="layers of each decoder")

        def row_form(self) -> RowForm:
            return RowForm(rows="pseudo_queries", term_weights=True)

    config: Config
    parts: ClassVar[tuple[str, ...]] = (
        *(f"encoder_{name}_mlm" for name in ("whole", "first", "dual")),
        *(f"decoder_{name}_mlm" for name in BEHIND),
    )

    def add_heads(self) -> None:
        layers = self.config.decoder_layers
        self.decoders = nn.ModuleDict({name: Decoder(self.backbone, layers=layers) for name in BEHIND})
        self.positions = DecoderPositions(self.backbone)

    def draw(self, batch: Batch) -> MASTERRows:
        """A pass has keys of its own, so that its masks are independent of the others'."""
        whole, query = batch.texts["passage"], batch.texts["context"]
        vocabulary = self.vocabulary(whole.ids_BL.device)
        first, second = halves(rekey(whole), vocabulary)
        encoder, decoder = self._mask_both(rekey(rekey(whole)), vocabulary)
        masks = partial(
            mask_for_encoder, vocabulary=vocabulary, config=self.config, count_specials=False, unknown="skipped"
        )
        return MASTERRows(
            {"whole": masks(whole), "first": masks(first), "dual": encoder},
            {
                "keyword": self._mask_keywords(whole, vocabulary),
                "query": mask_for_context(query, vocabulary, self.config.decoder_mask_ratio),
                "second": self._mask_keywords(second, vocabulary),
                "dual": decoder,
            },
        )

    def _mask_keywords(self, text: TokenRows, vocabulary: Vocabulary) -> MaskedRows:
        config, apart = self.config, rekey(text)
        heaviest_BL = select_highest(
            apart,
            vocabulary,
            ratio=config.decoder_mask_ratio,
            purpose=Purpose.DECODER,
            temperature=config.mask_temperature,
        )
        return corrupted_rows(apart, heaviest_BL & (text.ids_BL != vocabulary.unk_id), vocabulary)

    def _mask_both(self, text: TokenRows, vocabulary: Vocabulary) -> tuple[MaskedRows, MaskedRows]:
        """The text with some words hidden, and with all others hidden."""
        ratio = self.config.dual_mask_ratio
        hidden_BL = select_words(
            text, vocabulary, ratio=ratio, purpose=Purpose.SELECT, count_specials=False, unknown="skipped"
        )
        ordinary_BL = find_words(text, vocabulary).candidate_BL & (text.ids_BL != vocabulary.unk_id)
        return corrupted_rows(text, hidden_BL, vocabulary), corrupted_rows(text, ordinary_BL & ~hidden_BL, vocabulary)

    def counts(self, drawn: MASTERRows) -> dict[str, Tensor]:
        encoded = {f"encoder_{name}_mlm": rows.count for name, rows in drawn.encoded.items()}
        return {**encoded, **{f"decoder_{name}_mlm": rows.count for name, rows in drawn.decoded.items()}}

    def forward(self, drawn: MASTERRows) -> Loss:
        encoded, vectors = {}, {}
        for name, rows in drawn.encoded.items():
            hidden_BLD = self.backbone.hidden(rows.ids_BL, rows.lengths_B)
            vectors[name] = self.backbone.sentence_vector(hidden_BLD, rows.lengths_B)[:, None]
            encoded[f"encoder_{name}_mlm"] = masked_lm_part(
                self.backbone, hidden_BLD, rows, weight=self.config.encoder_weight
            )
        decoded = {
            f"decoder_{name}_mlm": self._decode(vectors[BEHIND[name]], name, rows)
            for name, rows in drawn.decoded.items()
        }
        return Loss({**encoded, **decoded})

    def _decode(self, vector_B1D: Tensor, name: str, rows: MaskedRows) -> Part:
        decoder = self.decoders[name]
        assert isinstance(decoder, Decoder)
        weight = self.config.decoder_weight
        return loss_after_vectors(self.backbone, self.positions, decoder, vector_B1D, rows, weight=weight)

    def health(self, drawn: MASTERRows) -> dict[str, Tensor]:
        """Each decoder's loss with and without its vector."""
        values: dict[str, Tensor] = {}
        for name, behind in BEHIND.items():
            read, rows = drawn.encoded[behind], drawn.decoded[name]
            hidden_BLD = self.backbone.hidden(read.ids_BL, read.lengths_B)
            vector_B1D = self.backbone.sentence_vector(hidden_BLD, read.lengths_B)[:, None]
            values |= use_of_vector(vector_B1D, partial(self._decode, name=name, rows=rows), name)
        return values


def halves(text: TokenRows, vocabulary: Vocabulary) -> tuple[TokenRows, TokenRows]:
    """The first half of each text's tokens and the rest, each between the text's specials; of an odd number the rest
    has one more."""
    candidate_BL = find_words(text, vocabulary).candidate_BL
    first_BL = candidate_BL & (candidate_BL.cumsum(1) <= candidate_BL.sum(1, keepdim=True) // 2)
    return only(text, first_BL, vocabulary), only(text, ~first_BL, vocabulary)
