"""The common part of all fine-tuning losses: queries and passages become vectors, which are scored against each other.

seen      queries and passages as they are; each query brings its positive and `group` - 1 hard negatives
vectors   those of the backbone's `pooling`: dense, lexical or both, pruned by side, or one for each token, scored by
          MaxSim; with experts, of each side its own
widths    the loss is also that of each of these first dimensions of the dense view, and all are added, with the same
          weight (Matryoshka, Kusupati et al., NeurIPS 2022); a vector of length 1 has length 1 again when it is cut. A
          lexical view is whole in each
lexical   the terms of `regularisers` are added
thrown    nothing; a projection of the dense view is the backbone's

Shapes: Q queries of this worker, G passages a query, N passages of all workers or of this one, D width, V vocabulary.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor

from midmask.batch import Batch, Part, TokenRows
from midmask.encoders.backbone import Backbone, Side
from midmask.encoders.representation import Representation, TextVectors
from midmask.errors import UserError
from midmask.identity import added
from midmask.objectives.finetuning.regularisers import Regularisers, regularising_parts
from midmask.objectives.objective import CoupledObjective, ObjectiveConfig, Represented
from midmask.randomness.masks import fingerprints
from midmask.vocabulary import Vocabulary

PIECE = 1024
"""Tokens, padding included, that go through the encoder at once on a CPU. With `mini` and rows of lognormal lengths
(mean 133, longest 239) a step takes 1.57 times as long with one piece, and 1.6 times with the lexical view."""


class RankingConfig(ObjectiveConfig):
    """Base of the losses of fine-tuning. needs_teacher: whether a teacher's scores are learnt."""

    trains_queries: ClassVar[bool] = True
    needs_teacher: ClassVar[bool] = False
    temperature: float = Field(1.0, gt=0.0, le=100.0, description="divisor of the encoder's scores")
    candidates: Literal["all", "positives", "own", "local_negatives"] = Field(
        "all",
        description="what a query's positive is compared with in the cross-entropy: all passages of all workers; "
        "positives: the positives of all workers and the query's hard negatives; own: the query's hard negatives; "
        "local_negatives: those of all queries of this worker, no other positives",
    )
    drop_duplicates: bool = Field(True, description="a known positive of a query is not also its negative")
    widths: tuple[int, ...] = added(
        (), "also rank by so many first dimensions of the dense view, each with the same weight (Matryoshka)"
    )
    regularisers: Regularisers = Field(default_factory=Regularisers, description="what keeps lexical vectors sparse")

    @field_validator("widths")
    @classmethod
    def _widths_are_of_vectors(cls, widths: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(widths)) < len(widths) or min(widths, default=1) < 1:
            raise ValueError("widths are different numbers of dimensions, each at least 1, such as 64,128,256")
        return widths

    @property
    def needs_negatives(self) -> bool:
        """Whether a query must bring hard negatives of its own."""
        return self.candidates in ("own", "local_negatives")

    @property
    def weights(self) -> dict[str, float]:
        """The factors of the loss's terms, by name; those that are 0 are not computed."""
        return {}

    def check_representation(self, representation: Representation, width: int) -> None:
        """Raises UserError if the loss cannot be carried out on such vectors; called before any work.

        Args:
            width: of the encoder's hidden states.
        """
        if self.regularisers.acts and representation.lexical is None:
            raise UserError(
                "loss.regularisers: they keep lexical vectors sparse, and representation.lexical = none. Set "
                "representation.lexical=splade, or leave the regularisers out."
            )
        if self.widths and representation.dense is None:
            raise UserError(
                "loss.widths: they are of the dense view, and representation.dense = none. Set "
                "representation.dense=cls, or leave the widths out."
            )
        if self.widths and max(self.widths) >= (dimensions := representation.width or width):
            raise UserError(
                f"loss.widths = {','.join(map(str, self.widths))}: the dense view has {dimensions} dimensions, which "
                "are ranked by in any case; name fewer"
            )


@dataclass(frozen=True)
class RankingRows:
    """Queries; a group of G passages for each, the positive first; hashes of both texts, int64; how much of the run is
    done, the same for all queries; a teacher's scores, if they are learnt.
    """

    query: TokenRows
    passage: TokenRows
    query_hash_Q: Tensor
    passage_hash_QG: Tensor
    progress_Q: Tensor
    teacher_QG: Tensor | None


@dataclass(frozen=True)
class RankedRows:
    """The rows to score: vectors of this worker's queries and of its passages, Q * G in query order, and their ids and
    teacher scores.
    """

    query: TextVectors
    passage: TextVectors
    query_hash_Q: Tensor
    passage_hash_QG: Tensor
    progress_Q: Tensor
    teacher_QG: Tensor | None = None

    @property
    def group(self) -> int:
        return self.passage_hash_QG.shape[1]

    def narrowed(self, width: int, *, normalise: bool) -> "RankedRows":
        """The same rows by the first `width` dimensions of their dense views."""
        query, passage = (text.narrowed(width, normalise=normalise) for text in (self.query, self.passage))
        return replace(self, query=query, passage=passage)


class Ranking(CoupledObjective):
    """A loss of fine-tuning; subclasses are final. Their `parts` end in those of the regularisers."""

    def __init__(self, config: RankingConfig, backbone: Backbone, vocabulary: Vocabulary) -> None:
        super().__init__(backbone, vocabulary)
        config.check_representation(backbone.pooling.representation, backbone.width)
        self.config = config

    @abstractmethod
    def ranking_parts(self, rows: RankedRows) -> dict[str, Part]:
        """The loss's own terms, those of weight 0 left out; each counts the queries."""

    @torch.no_grad()
    def draw(self, batch: Batch) -> RankingRows:
        if self.config.needs_negatives and batch.group == 1:
            raise UserError(
                f"loss.name = {self.config.name}, loss.candidates = {self.config.candidates}: a query has only its "
                "positive here. Give the stage per_query >= 1 and negatives, or use contrastive with candidates=all."
            )
        query, passage = batch.texts["query"], batch.texts["passage"]
        progress_Q = torch.full_like(query.lengths_B, batch.progress, dtype=torch.float32)
        hashes = fingerprints(query), fingerprints(passage).view(-1, batch.group)
        return RankingRows(query, passage, *hashes, progress_Q, self._teacher(batch))

    def _teacher(self, batch: Batch) -> Tensor | None:
        if not self.config.needs_teacher:
            return None
        if batch.teacher_QG is None:
            raise UserError(
                f"loss.name = {self.config.name}: the rows come without a teacher's scores. Give the stage a teacher, "
                "or loss.name=contrastive."
            )
        return batch.teacher_QG

    def counts(self, drawn: RankingRows) -> dict[str, Tensor]:
        queries, passages = (torch.tensor(len(text.ids_BL)) for text in (drawn.query, drawn.passage))
        names = [name for name, weight in self.config.weights.items() if weight]
        if self.backbone.pooling.representation.lexical:
            names += self.config.regularisers.part_names()
        counts = {name: passages if name.startswith("passage_") else queries for name in names}
        device = drawn.query.ids_BL.device
        return {name: counts.get(name, torch.tensor(0)).to(device) for name in self.parts}

    def represent(self, drawn: RankingRows) -> Represented:
        query, passage = self._vectors(drawn.query, "query"), self._vectors(drawn.passage, "passage")
        teacher = () if drawn.teacher_QG is None else (drawn.teacher_QG,)
        facts = (drawn.query_hash_Q, drawn.passage_hash_QG, drawn.progress_Q, *teacher)
        return Represented(query.tensors() + passage.tensors(), query.lengths() + passage.lengths() + facts)

    def _vectors(self, text: TokenRows, side: Side) -> TextVectors:
        """Vectors of token rows, which go through the encoder in pieces of like length."""
        pooling, special_V = self.backbone.pooling, self.vocabulary(text.ids_BL.device).special_V
        pieces = pieces_by_length(text)
        vectors = [
            pooling(self.backbone, text.ids_BL[rows_P, :longest], text.lengths_B[rows_P], special_V, side)
            for rows_P, longest in pieces
        ]
        places_B = torch.cat([rows_P for rows_P, _ in pieces]).argsort()
        return TextVectors.concat(vectors).take(places_B)

    def couple(self, vectors: tuple[Tensor, ...], facts: tuple[Tensor, ...]) -> dict[str, Part]:
        representation = self.backbone.pooling.representation
        views, sides = len(vectors) // 2, 2 if representation.tokens else 0  # lengths of both sides come first
        query = representation.views_of(vectors[:views], facts[: sides // 2])
        passage = representation.views_of(vectors[views:], facts[sides // 2 : sides])
        rows = RankedRows(query, passage, *facts[sides:])
        parts = self._parts_of_all_widths(rows)
        if query.lexical_BV is None or passage.lexical_BV is None:
            return parts
        sparse = regularising_parts(
            self.config.regularisers,
            query.lexical_BV,
            passage.lexical_BV,
            group=rows.group,
            progress=rows.progress_Q[0],
        )
        return {**parts, **sparse}

    def _parts_of_all_widths(self, rows: RankedRows) -> dict[str, Part]:
        """The loss's own terms, summed over the whole dense view and its beginnings."""
        normalise = self.backbone.pooling.representation.normalise
        parts = self.ranking_parts(rows)
        for width in self.config.widths:
            more = self.ranking_parts(rows.narrowed(width, normalise=normalise))
            parts = {name: replace(part, total=part.total + more[name].total) for name, part in parts.items()}
        return parts


def pieces_by_length(text: TokenRows) -> list[tuple[Tensor, int]]:
    """Rows of a batch in pieces of like length, the shortest first: row numbers, int64, and tokens of the longest.

    What a text's vectors are does not depend on its neighbours, but the work does: batches of whole passages are half
    padding. A piece holds about `PIECE` tokens, or an eighth of the batch. On a GPU there is one piece: to look at the
    lengths would make the host wait for the device.
    """
    rows, longest = text.ids_BL.shape
    if text.ids_BL.is_cuda:
        return [(torch.arange(rows, device=text.ids_BL.device), longest)]
    ordered, order_B = text.lengths_B.sort(stable=True)
    lengths = ordered.tolist()
    room = max(PIECE, rows * lengths[-1] // 8)
    starts = [0]
    for row, length in enumerate(lengths):
        if row > starts[-1] and (row + 1 - starts[-1]) * length > room:
            starts.append(row)
    return [(order_B[first:last], lengths[last - 1]) for first, last in pairwise([*starts, rows])]
