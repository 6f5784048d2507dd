"""LaPraDoR (Xu et al., ACL Findings 2022): two encoders learn in turn, each from what the other, held still, has made.

loss      for each text x of the side whose turn it is: -log( exp(cos(x, y) / t) / sum over the texts of the other side,
          of all workers and of the cache, of exp(cos(x, .) / t) ), y its partner; + SimCSE's loss of x and a second
          pass of it
pairs     inverse cloze, as in ICT: a run of words as query, the passage mostly without it
turns     `turn_steps` steps for the queries' encoder, then as many for the passages'. The other encoder gets no
          gradient then, so the vectors it has made since the turn began, the last of which are cached, are up to date
vector    the backbone's sentence vector, of length 1. Queries and passages have an encoder each (backbone.experts=all);
          with one for both (experts=none) the cached vectors become outdated
trained   both encoders; the MLM head stays untrained
thrown    the cache. It is part of a checkpoint, so that a resumed run equals one that was not stopped
needs     backbone.dropout > 0
beware    within a turn a text is told from ever more others, so this loss may rise while the encoder learns
differs   the paper's text could not be read here. Known are its abstract (two towers trained in turn, a cache of
          negatives in one space), inverse cloze and dropout as sources of pairs, and scores by cosine. Its last part,
          the product of BM25's and the dense score, is no middle training
unpublished   the training code, and how the released checkpoint, one encoder for both sides, was made of two. Not found
          out, hence fields: size of the cache, length of a turn, temperature, weight of the dropout loss. Not found
          out and no field: whether the cache has negatives for the dropout loss too (here it has none)
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from midmask.core.batch import Batch, Part, TokenRows
from midmask.encoders.families import BackboneShape
from midmask.encoders.representation import Side
from midmask.objectives import distributed as world
from midmask.objectives.in_batch import cross_entropy_part, pairs_part
from midmask.objectives.objective import CoupledObjective, Represented, require_dropout
from midmask.objectives.pretraining.ict import ClozeConfig, PieceRows
from midmask.objectives.pretraining.simcse import two_passes


@dataclass(frozen=True)
class TurnRows:
    """The pairs of one batch, and which of the two encoders is trained on them."""

    pieces: PieceRows
    step: int  # number of the step within its turn
    trained: Side  # the side whose encoder is trained in this turn
    still: Side  # the other side

    def text(self, side: Side) -> TokenRows:
        return self.pieces.query if side == "query" else self.pieces.passage


class LaPraDoR(CoupledObjective):
    class Config(ClozeConfig):
        """LaPraDoR; its hyper-parameters are those of its relatives."""

        contrastive: ClassVar[bool] = True
        trains_queries: ClassVar[bool] = True
        name: Literal["laprador"] = Field("laprador", description="name of the objective")
        temperature: float = Field(0.05, gt=0.0, le=100.0, description="divisor of the cosines (not found out)")
        dropout_weight: float = Field(
            1.0, gt=0.0, description="factor of the loss of two passes of a text under dropout (not found out)"
        )
        turn_steps: int = Field(
            100, ge=1, description="steps for which one encoder is trained before the other (not found out)"
        )
        cache: int = Field(
            4096, ge=0, description="vectors of earlier steps of a turn that are kept as negatives (not found out)"
        )

        @property
        def remembers_rows(self) -> bool:
            return self.cache > 0 and self.turn_steps > 1

        def check(self, shape: BackboneShape) -> None:
            require_dropout(shape, self.name)

    config: Config
    parts: ClassVar[tuple[str, ...]] = ("contrastive", "dropout")

    def add_heads(self) -> None:
        self.cache_KD: Tensor
        self.cached: Tensor
        self.register_buffer("cache_KD", torch.zeros(self.config.cache, self.backbone.width))
        self.register_buffer("cached", torch.zeros((), dtype=torch.int64))

    def draw(self, batch: Batch) -> TurnRows:
        text = batch.texts["passage"]
        turn, step = divmod(batch.step, self.config.turn_steps)
        sides: tuple[Side, Side] = ("passage", "query") if turn % 2 else ("query", "passage")
        return TurnRows(self.config.pieces(text, self.vocabulary(text.ids_BL.device)), step, *sides)

    def counts(self, drawn: TurnRows) -> dict[str, Tensor]:
        rows = drawn.pieces.query.lengths_B
        texts = torch.tensor(len(rows), device=rows.device)
        return {"contrastive": texts, "dropout": texts}

    def represent(self, drawn: TurnRows) -> Represented:
        text = drawn.text(drawn.trained)
        passes_BD = two_passes(self.backbone, text, normalise=True, side=drawn.trained).chunk(2)
        with torch.no_grad():
            still = drawn.text(drawn.still)
            still_BD = self.backbone.sentence_vectors(still.ids_BL, still.lengths_B, normalise=True, side=drawn.still)
        return Represented((*passes_BD, still_BD), (torch.full_like(text.lengths_B, drawn.step),))

    def couple(self, vectors: tuple[Tensor, ...], facts: tuple[Tensor, ...]) -> dict[str, Part]:
        """Also puts the vectors of the side that is not trained into the cache."""
        first_BD, second_BD, still_BD = vectors
        local_B, still_ND = world.local_positions(first_BD), world.gather_rows(still_BD)
        before = self.cached * (facts[0][0] > 0)
        cache_KD = self.cache_KD.to(first_BD.dtype, copy=True)  # the graph keeps it, and the cache changes below
        empty_K = torch.arange(len(cache_KD), device=before.device) >= before
        excluded_BX = torch.cat([empty_K.new_zeros(len(still_ND)), empty_K]).expand(len(first_BD), -1)
        temperature = self.config.temperature
        with torch.autocast(first_BD.device.type, enabled=False):
            scores_BX = first_BD @ torch.cat([still_ND, cache_KD]).t() / temperature
        self._remember(still_ND.detach(), before)
        again = pairs_part(first_BD, second_BD, temperature=temperature, weight=self.config.dropout_weight)
        return {"contrastive": cross_entropy_part(scores_BX, local_B, excluded_BX), "dropout": again}

    def _remember(self, still_ND: Tensor, before: Tensor) -> None:
        """Puts vectors behind those of the turn so far, over the oldest ones where the cache is full."""
        size, rows = len(self.cache_KD), len(still_ND)
        self.cached.copy_(before + rows)
        if size:
            last_ND = still_ND[-size:]
            places_N = (self.cached - len(last_ND) + torch.arange(len(last_ND), device=before.device)) % size
            self.cache_KD.index_copy_(0, places_N, last_ND.to(self.cache_KD.dtype))
