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
differs   there is no published code. Unpublished, hence fields: what a query's vector decodes (default: itself, since
          the paper calls queries the contextual spans and gives the decoder the vectors of both); whether dense and
          sparse vectors are decoded apart and summed (default) or stand side by side; the logits under s (default: the
          MLM head's; equation 4 prints the hidden states' products with the embeddings); the positions s looks at; the
          decoder's window. Unpublished and no field: each of the four terms is a mean over its own targets, so that
          short queries weigh as much as passages
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from midmask.core.batch import Batch, Loss, Part, TokenRows
from midmask.encoders.representation import Side
from midmask.objectives.decoders import CausalDecoder, DecoderPositions
from midmask.objectives.objective import Objective, RowForm, use_of_vector
from midmask.objectives.pretraining.encoder_mask import MaskedRows, mask_for_encoder, masked_lm_part
from midmask.objectives.pretraining.vector_decoding import DecodedConfig, loss_after_vectors, next_tokens
from midmask.objectives.pretraining.vocabulary_weights import (
    Projection,
    SparsePooling,
    pooled_positions,
    project,
    sparse_weights,
    winning_vocabulary,
)

OTHER: dict[Side, Side] = {"passage": "query", "query": "passage"}


@dataclass(frozen=True)
class SideRows:
    """The inputs and targets of one side (queries or passages) of a batch."""

    encoder: MaskedRows  # the texts as the encoder reads them
    pooled_BL: Tensor  # positions that the sparse vector s is pooled over, bool
    decoder: MaskedRows | None  # what is decoded from their vectors


@dataclass(frozen=True)
class CoTMoTERows:
    """Both sides of a batch of pairs."""

    passage: SideRows
    query: SideRows

    @property
    def sides(self) -> tuple[tuple[Side, SideRows], ...]:
        return ("passage", self.passage), ("query", self.query)


class CoTMoTE(Objective):
    class Config(DecodedConfig):
        """CoT-MoTE; `backbone.experts` sets how much of the encoder the two sides do not share."""

        trains_queries: ClassVar[bool] = True
        name: Literal["cotmote"] = Field("cotmote", description="name of the objective")
        views: Literal["dense", "sparse", "both"] = Field("both", description="which vectors of a text are decoded")
        decoding: Literal["apart", "together"] = Field(
            "apart", description="both views: each by itself, losses summed; or side by side (unpublished)"
        )
        query_decodes: Literal["query", "passage", "nothing"] = Field(
            "query", description="what a query's vector decodes to; a passage's decodes to the query (unpublished)"
        )
        switched: bool = Field(False, description="each side goes through the other's expert, as a control")
        decoder_layers: int = Field(1, ge=1, le=12, description="blocks of the decoder")
        window: int | None = Field(
            None, ge=1, description="span tokens that a decoder row sees, itself included; none: all (unpublished)"
        )
        logits: Literal["head", "embeddings"] = Field(
            "head", description="under s: the MLM head's, or hidden states times embeddings, as equation 4 prints"
        )
        pooling: SparsePooling = Field(
            "all", description="positions that s is pooled over: all, or without special tokens (unpublished)"
        )
        projection: Projection = Field(
            "sum", description="s times the embeddings, or also divided by the sum of s (unpublished)"
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
        vectors = 2 if self.config.views == "both" and self.config.decoding == "together" else 1
        self.causal_decoder = CausalDecoder(
            self.backbone, layers=self.config.decoder_layers, window=self.config.window, vectors=vectors
        )

    @torch.no_grad()
    def draw(self, batch: Batch) -> CoTMoTERows:
        passage, query = batch.texts["passage"], batch.texts["context"]
        behind_query = {"query": query, "passage": passage, "nothing": None}[self.config.query_decodes]
        return CoTMoTERows(self._side(passage, query), self._side(query, behind_query))

    def _side(self, text: TokenRows, span: TokenRows | None) -> SideRows:
        vocabulary = self.vocabulary(text.ids_BL.device)
        encoder = mask_for_encoder(text, vocabulary, self.config, count_specials=False)
        pooled_BL = pooled_positions(text, vocabulary, self.config.pooling)
        return SideRows(encoder, pooled_BL, None if span is None else next_tokens(span))

    def counts(self, drawn: CoTMoTERows) -> dict[str, Tensor]:
        encoded = {f"{side}_mlm": rows.encoder.count for side, rows in drawn.sides}
        return {**encoded, **{f"{side}_clm": _targets(rows) for side, rows in drawn.sides}}

    def forward(self, drawn: CoTMoTERows) -> Loss:
        encoded, decoded = {}, {}
        for side, rows in drawn.sides:
            hidden_BLD = self._hidden(side, rows)
            encoded[f"{side}_mlm"] = masked_lm_part(
                self.backbone, hidden_BLD, rows.encoder, weight=self.config.encoder_weight
            )
            decoded[f"{side}_clm"] = self._decode_each(hidden_BLD, rows)
        return Loss({**encoded, **decoded})

    def _hidden(self, side: Side, rows: SideRows) -> Tensor:
        expert = OTHER[side] if self.config.switched else side
        return self.backbone.hidden(rows.encoder.ids_BL, rows.encoder.lengths_B, expert)

    def _decode_each(self, hidden_BLD: Tensor, rows: SideRows) -> Part:
        """The decoder's loss behind each of the vectors by itself, summed."""
        totals = [hidden_BLD.new_zeros(())]
        if rows.decoder is not None:
            vectors = self._vectors(hidden_BLD, rows).values()
            totals += [self._decode(vectors_BKD, rows.decoder).total for vectors_BKD in vectors]
        return Part(torch.stack(totals).sum(), _targets(rows), self.config.decoder_weight)

    def _decode(self, vectors_BKD: Tensor, rows: MaskedRows) -> Part:
        return loss_after_vectors(self.backbone, self.positions, self.causal_decoder, vectors_BKD, rows, weight=1.0)

    def _vectors(self, hidden_BLD: Tensor, rows: SideRows) -> dict[str, Tensor]:
        """What the decoder reads at once, by name; [B, 1 or 2, D] each."""
        vectors = {}
        if self.config.views != "sparse":
            vectors["dense"] = self.backbone.sentence_vector(hidden_BLD, rows.encoder.lengths_B)[:, None]
        if self.config.views != "dense":
            vector_BD = project(self.backbone, self._sparse(hidden_BLD, rows.pooled_BL), self.config.projection)
            vectors["sparse"] = vector_BD[:, None].to(hidden_BLD.dtype)
        if len(vectors) == 2 and self.config.decoding == "together":
            return {"both": torch.cat(list(vectors.values()), 1)}
        return vectors

    def _sparse(self, hidden_BLD: Tensor, pooled_BL: Tensor) -> Tensor:
        return sparse_weights(self.backbone, hidden_BLD, pooled_BL, logits=self.config.logits)

    def health(self, drawn: CoTMoTERows) -> dict[str, Tensor]:
        """For each vector the decoder's loss with and without it; the vocabulary that wins under the passages' s; the
        share of tokens that the query expert reads, and how far it is from the passage expert."""
        found: dict[str, Tensor] = {}
        for side, rows in drawn.sides:
            hidden_BLD = self._hidden(side, rows)
            if rows.decoder is not None:
                for view, vectors_BKD in self._vectors(hidden_BLD, rows).items():
                    use = use_of_vector(vectors_BKD, partial(self._decode, rows=rows.decoder))
                    found |= {f"{side}_{view}_{name}": value for name, value in use.items()}
            if side == "passage" and self.config.views != "dense":
                found["winning_vocabulary"] = winning_vocabulary(self._sparse(hidden_BLD, rows.pooled_BL))
        return found | self._health_of_experts(drawn)

    def _health_of_experts(self, drawn: CoTMoTERows) -> dict[str, Tensor]:
        if self.backbone.experts is None:
            return {}
        passages, queries = (rows.encoder.lengths_B.sum() for _, rows in drawn.sides)
        share = (passages if self.config.switched else queries) / (passages + queries)
        return {"query_expert_share": share, "expert_distance": self.backbone.experts.distance(self.backbone.encoder)}


def _targets(rows: SideRows) -> Tensor:
    return torch.zeros_like(rows.encoder.count) if rows.decoder is None else rows.decoder.count
