"""The common part of all fine-tuning losses: queries and passages become vectors, which are scored and kept sparse.

seen      queries and passages as they are; each query brings its positive and `group` - 1 hard negatives
vectors   those of the backbone's `pooling`: dense, lexical or both, pruned by side, or one for each token, scored by
          MaxSim; with experts, of each side its own
widths    the loss is also that of each of these first dimensions of the dense view, and all are added, with the same
          weight (Matryoshka, Kusupati et al., NeurIPS 2022); a vector of length 1 has length 1 again when it is cut. A
          lexical view is whole in each
lexical   the terms of `Regularisers` are added
thrown    nothing; a projection of the dense view is the backbone's

The regularisers of lexical vectors:

FLOPS      sum over words of (mean over texts of |weight|)²        Paria et al. 2020; it spreads words evenly
L1         sum over words of the mean over texts of |weight|
anti-zero  1 / S_q² + 1 / S_p², S the sum of all weights of all queries, and of all passages (SPLADE's trainer); next to
           nothing unless all vectors go to 0, and infinite when they have
λ          times min(t / ramp, 1)², t the share of the run that is done: SPLADE's quadratic schedule, whose T = 50,000
           of 150,000 steps is ramp = 0.333; 0: constant, as in Lassance et al. 2023

Means are over the texts of all workers and micro-batches: FLOPS is no mean of what each has alone (Tevatron's issue 36
saw a sparsity 2 to 4 times another on several GPUs). Both act on what is scored, thus after pruning.

differs    with two kinds of regularisers SPLADE's first trainer adds the first one twice. In its "efficient" configs
           (L1 on queries, FLOPS on passages) that is FLOPS, so that a printed lambda of passages is in effect doubled.
           Here each term counts once: for those configs, double lambda_passage

Shapes: B texts and Q queries of this worker, G passages a query, N passages of all workers or of this one, C groups of
texts, D width, V vocabulary.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from midmask.core.batch import Batch, Part, TokenRows
from midmask.core.config import Config, added
from midmask.encoders.backbone import Backbone
from midmask.encoders.representation import Representation, Side, TextVectors
from midmask.errors import UserError
from midmask.masking.randomness import fingerprints
from midmask.objectives import distributed as world
from midmask.objectives.objective import CoupledObjective, ObjectiveConfig, Represented
from midmask.text.vocabulary import Vocabulary

PARTS = ("query_regulariser", "passage_regulariser", "anti_zero", "query_terms", "passage_terms")
"""Terms of the loss; the last two have weight 0 and only say how many words of a text have a weight."""


class Regularisers(Config):
    """How sparse the lexical view of each side is made; its default leaves it alone."""

    query: Literal["flops", "l1"] | None = Field(
        None, description="regulariser of the queries' lexical vectors; none: no regulariser"
    )
    passage: Literal["flops", "l1"] | None = Field(
        None, description="regulariser of the passages' lexical vectors; none: no regulariser"
    )
    lambda_query: float = Field(0.0, ge=0.0, description="factor of the queries' term; 0: the term is only logged")
    lambda_passage: float = Field(0.0, ge=0.0, description="factor of the passages' term; 0: the term is only logged")
    passage_groups: Literal["joint", "separate"] = Field(
        "joint",
        description="joint: one mean over all passages (sentence-transformers); separate: the average of the term over "
        "positives and that over negatives (SPLADE's first trainer)",
    )
    anti_zero: float = Field(0.0, ge=0.0, description="factor of the term that is infinite where all weights are 0")
    ramp: float = Field(0.0, ge=0.0, le=1.0, description="share of the run in which the factors rise, by its square")

    @model_validator(mode="after")
    def _factors_have_a_term(self) -> Self:
        for side in ("query", "passage"):
            if getattr(self, f"lambda_{side}") and getattr(self, side) is None:
                raise ValueError(f"lambda_{side} = {getattr(self, f'lambda_{side}')} needs {side} = flops or l1")
        return self

    @property
    def acts(self) -> bool:
        """Whether any regulariser is set."""
        return self.query is not None or self.passage is not None or self.anti_zero > 0

    def part_names(self) -> tuple[str, ...]:
        """Names of the terms of the loss that regularise lexical vectors."""
        present = (self.query is not None, self.passage is not None, self.anti_zero > 0, True, True)
        return tuple(name for name, is_present in zip(PARTS, present, strict=True) if is_present)

    def ramp_factor(self, progress: Tensor) -> Tensor | float:
        """The factor of λ when a fraction of the run, [] in [0, 1), is done."""
        return (progress / self.ramp).clamp(max=1.0).square() if self.ramp else 1.0


def regularising_parts(
    config: Regularisers, query_QV: Tensor, passage_NV: Tensor, *, group: int, progress: Tensor
) -> dict[str, Part]:
    """The terms that act on the lexical vectors of all workers' texts. This worker answers for as much of each as it
    has of the texts, so that their sum over workers, divided by the number of all texts, is the term.

    Args:
        group: passages a query; the first of each group is its positive.
        progress: share of the run that is done, [].
    """
    passages = [passage_NV]
    if config.passage_groups == "separate" and group > 1:
        first_N = torch.arange(len(passage_NV), device=passage_NV.device) % group == 0
        passages = [passage_NV[first_N], passage_NV[~first_N]]
    factor = config.ramp_factor(progress)
    parts = {"query_terms": _terms(query_QV), "passage_terms": _terms(passage_NV)}
    if config.query is not None:
        value = _term(config.query, [query_QV])
        parts["query_regulariser"] = _share(value, query_QV, config.lambda_query * factor)
    if config.passage is not None:
        value = _term(config.passage, passages)
        parts["passage_regulariser"] = _share(value, passage_NV, config.lambda_passage * factor)
    if config.anti_zero:
        sums = world.all_sum_with_gradient(torch.stack([query_QV.abs().sum(), passage_NV.abs().sum()]))
        parts["anti_zero"] = _share(sums.square().reciprocal().sum(), query_QV, config.anti_zero)
    return {name: parts[name] for name in PARTS if name in parts}


def _term(kind: Literal["flops", "l1"], groups: list[Tensor]) -> Tensor:
    """FLOPS or L1 of each group of texts, averaged over the groups; []."""
    sums_CV = world.all_sum_with_gradient(torch.stack([group_BV.abs().sum(0) for group_BV in groups]))
    texts_C = world.all_sum(torch.tensor([len(group_BV) for group_BV in groups], device=sums_CV.device))
    mean_CV = sums_CV / texts_C[:, None]
    return (mean_CV.square() if kind == "flops" else mean_CV).sum(1).mean()


def _share(value: Tensor, weights_BV: Tensor, weight: Tensor | float) -> Part:
    """This worker's share of a value that all workers compute alike."""
    texts = len(weights_BV)
    return Part(value * texts, torch.tensor(texts, device=value.device), weight)


def _terms(weights_BV: Tensor) -> Part:
    """The number of words with a weight in each text."""
    texts = torch.tensor(len(weights_BV), device=weights_BV.device)
    return Part(weights_BV.detach().count_nonzero().to(weights_BV.dtype), texts, 0.0)


PIECE = 1024
"""Tokens, padding included, that go through the encoder at once on a CPU."""


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
    """The token rows of one batch: queries, and a group of G passages for each."""

    query: TokenRows
    passage: TokenRows  # in the order of the queries; the positive is the first of its group
    query_hash_Q: Tensor  # hash of each text, int64
    passage_hash_QG: Tensor
    progress_Q: Tensor  # fraction of the run that is done, the same for all queries
    teacher_QG: Tensor | None  # a teacher's scores, if the loss learns them


@dataclass(frozen=True)
class RankedRows:
    """A batch as vectors, ready to be scored; the other fields are as in `RankingRows`."""

    query: TextVectors  # this worker's queries
    passage: TextVectors  # this worker's passages, Q * G in query order
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

    config: RankingConfig

    def __init__(self, config: RankingConfig, backbone: Backbone, vocabulary: Vocabulary) -> None:
        super().__init__(config, backbone, vocabulary)
        config.check_representation(backbone.pooling.representation, backbone.width)

    @abstractmethod
    def ranking_parts(self, rows: RankedRows) -> dict[str, Part]:
        """The loss's own terms, those of weight 0 left out; each counts the queries."""

    def draw(self, batch: Batch) -> RankingRows:
        query, passage = batch.texts["query"], batch.texts["passage"]
        progress_Q = torch.full_like(query.lengths_B, batch.progress, dtype=torch.float32)
        hashes = fingerprints(query), fingerprints(passage).view(-1, batch.group)
        return RankingRows(query, passage, *hashes, progress_Q, batch.teacher if self.config.needs_teacher else None)

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
