"""CoT-MoTE (Ma et al. 2023, arXiv 2304.10195): queries and passages pre-train textual experts of one encoder.

loss      for queries and for passages: encoder MLM + causal language modelling of a contextual span, all weights 1
seen      a passage and one of its pseudo-queries; both are encoded, each through the expert of its side: feed-forward
          layers of their own, everything else shared. Controls: `backbone.experts` = none ("Siamese") or all ("fully
          separate"); `switched`, in which each goes through the other's expert
masked    encoder: 0.3 of either text by whole words, 80/10/10 (ratio and corruption unpublished). Decoder: nothing
vectors   h, the last hidden state of [CLS]; s = max over positions of log(1 + relu(logits)), times the matrix of word
          embeddings (the projection is that of CoT-MAE v2); in the place of the contextual span's first token
trained   encoder with both experts, embeddings and MLM head, the latter two common to both sides in the controls too
          (with experts = all, queries have their own copy of the embeddings inside their encoder)
thrown    the decoder: one GPT-2 block (dropout, block, LN), the same one behind every vector
targets   encoder: the selected tokens; decoder: the span's tokens after the first, [SEP] included, the vector
          predicting the first of them
differs   there is no published code. The logits under s are the MLM head's, or, as equation 4 prints, the products of
          the hidden states with the embeddings. Unpublished and no field: a query's vector decodes the query itself,
          since the paper calls queries the contextual spans and gives the decoder the vectors of both; dense and sparse
          vectors are decoded apart and summed; s looks at all positions but padding; each of the four terms is a mean
          over its own targets, so that short queries weigh as much as passages
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from midmask.core.batch import Batch, Loss, Part
from midmask.encoders.representation import Side
from midmask.objectives.decoders import CausalDecoder, DecoderPositions
from midmask.objectives.objective import Objective, RowForm, use_of_vector
from midmask.objectives.pretraining.encoder_mask import MaskedRows, mask_for_encoder, masked_lm_part
from midmask.objectives.pretraining.vector_decoding import DecodedConfig, loss_after_vectors, next_tokens
from midmask.objectives.pretraining.vocabulary_weights import (
    project,
    sparse_weights,
    winning_vocabulary,
)

OTHER: dict[Side, Side] = {"passage": "query", "query": "passage"}


@dataclass(frozen=True)
class CoTMoTERows:
    """Both sides of a batch of pairs, as the encoder reads them; the queries, which the vectors of both decode."""

    passage: MaskedRows
    query: MaskedRows
    decoder: MaskedRows

    @property
    def sides(self) -> tuple[tuple[Side, MaskedRows], ...]:
        return ("passage", self.passage), ("query", self.query)


class CoTMoTE(Objective):
    class Config(DecodedConfig):
        """CoT-MoTE; `backbone.experts` sets how much of the encoder the two sides do not share."""

        trains_queries: ClassVar[bool] = True
        name: Literal["cotmote"] = Field("cotmote", description="name of the objective")
        views: Literal["dense", "sparse", "both"] = Field("both", description="which vectors of a text are decoded")
        switched: bool = Field(False, description="each side goes through the other's expert, as a control")
        decoder_layers: int = Field(1, ge=1, le=12, description="blocks of the decoder")
        logits: Literal["head", "embeddings"] = Field(
            "head", description="under s: the MLM head's, or hidden states times embeddings, as equation 4 prints"
        )

        @model_validator(mode="after")
        def _queries_have_no_weights(self) -> Self:
            if self.encoder_mask == "weighted":
                raise ValueError("encoder_mask = weighted: pseudo-queries have no term weights; choose word or token")
            return self

        def row_form(self) -> RowForm:
            return RowForm(rows="pseudo_queries")

    config: Config
    parts: ClassVar[tuple[str, ...]] = ("passage_mlm", "query_mlm", "passage_clm", "query_clm")

    def add_heads(self) -> None:
        self.positions = DecoderPositions(self.backbone)
        self.causal_decoder = CausalDecoder(self.backbone, layers=self.config.decoder_layers, window=None)

    def draw(self, batch: Batch) -> CoTMoTERows:
        passage, query = batch.texts["passage"], batch.texts["context"]
        vocabulary = self.vocabulary(passage.ids_BL.device)
        passages, queries = (
            mask_for_encoder(text, vocabulary, self.config, count_specials=False) for text in (passage, query)
        )
        return CoTMoTERows(passages, queries, next_tokens(query))

    def counts(self, drawn: CoTMoTERows) -> dict[str, Tensor]:
        encoded = {f"{side}_mlm": rows.count for side, rows in drawn.sides}
        return {**encoded, **{f"{side}_clm": drawn.decoder.count for side, _ in drawn.sides}}

    def forward(self, drawn: CoTMoTERows) -> Loss:
        encoded, decoded = {}, {}
        for side, rows in drawn.sides:
            hidden_BLD = self._hidden(side, rows)
            encoded[f"{side}_mlm"] = masked_lm_part(self.backbone, hidden_BLD, rows, weight=self.config.encoder_weight)
            vectors = self._vectors(hidden_BLD, rows.lengths_B).values()
            totals = [self._decode(vector_B1D, drawn.decoder).total for vector_B1D in vectors]
            total = torch.stack([hidden_BLD.new_zeros(()), *totals]).sum()
            decoded[f"{side}_clm"] = Part(total, drawn.decoder.count, self.config.decoder_weight)
        return Loss({**encoded, **decoded})

    def _hidden(self, side: Side, rows: MaskedRows) -> Tensor:
        expert = OTHER[side] if self.config.switched else side
        return self.backbone.hidden(rows.ids_BL, rows.lengths_B, expert)

    def _decode(self, vector_B1D: Tensor, rows: MaskedRows) -> Part:
        return loss_after_vectors(self.backbone, self.positions, self.causal_decoder, vector_B1D, rows, weight=1.0)

    def _vectors(self, hidden_BLD: Tensor, lengths_B: Tensor) -> dict[str, Tensor]:
        """What the decoder reads, each by itself, by name; [B, 1, D] each."""
        vectors = {}
        if self.config.views != "sparse":
            vectors["dense"] = self.backbone.sentence_vector(hidden_BLD, lengths_B)[:, None]
        if self.config.views != "dense":
            vector_BD = project(self.backbone, self._sparse(hidden_BLD, lengths_B))
            vectors["sparse"] = vector_BD[:, None].to(hidden_BLD.dtype)
        return vectors

    def _sparse(self, hidden_BLD: Tensor, lengths_B: Tensor) -> Tensor:
        return sparse_weights(self.backbone, hidden_BLD, lengths_B, logits=self.config.logits)

    def health(self, drawn: CoTMoTERows) -> dict[str, Tensor]:
        """For each vector the decoder's loss with and without it; the vocabulary that wins under the passages' s."""
        values: dict[str, Tensor] = {}
        for side, rows in drawn.sides:
            hidden_BLD = self._hidden(side, rows)
            for view, vector_B1D in self._vectors(hidden_BLD, rows.lengths_B).items():
                decode = partial(self._decode, rows=drawn.decoder)
                values |= use_of_vector(vector_B1D, decode, f"{side}_{view}_decoder")
            if side == "passage" and self.config.views != "dense":
                values["winning_vocabulary"] = winning_vocabulary(self._sparse(hidden_BLD, rows.lengths_B))
        return values
