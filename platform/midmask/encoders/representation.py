"""The vectors of a text that a search compares: which there are, how hidden states give them, the score of two texts.

    cls        dense = cls                                              DPR, RetroMAE, "CLS:768"
    splade     lexical = splade                                         Formal et al. 2021
    OT:768     dense = none, lexical = logits, passage_terms = 768      DupMAE's ordinary tokens alone
    384+384    dense = cls, width = 384, lexical = logits, passage_terms = 384    DupMAE (Xiao et al. 2023, Eq. 10-12)
    CoT-MoTE   dense = cls, lexical = splade                            Ma et al. 2023, with experts in the backbone
    late:128   dense = none, tokens = 128                               ColBERT (Khattab & Zaharia 2020)

Token vectors (late interaction) are those of sentence-transformers' MultiVectorEncoder as it comes: all tokens are
scored, [CLS] and [SEP] among them. ColBERT's code also skips the punctuation of passages, fills queries up with [MASK],
and puts a marker before each text. They have length 1, and their score is

    MaxSim(q, p) = sum over the tokens i of q of the maximum over the tokens j of p of q_i · p_j

Those of several texts lie one after the other, without padding, so that texts of any lengths can be joined by
micro-batches and by workers.

Shapes: B rows or texts, T tokens of all of them, L tokens of the longest, D width, V vocabulary, Q queries, N passages,
G passages a query.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from midmask.core.config import Config, added
from midmask.encoders.heads import linear_column_max

PRODUCTS = 1 << 24
"""Products of two tokens that are held at once, 64 MB of them in float32; the backward pass computes them again."""


@dataclass(frozen=True)
class TokenVectors:
    """The token vectors of B texts, without padding."""

    vectors_TD: Tensor  # float, text after text
    lengths_B: Tensor  # number of tokens of each text, int64, never 0

    def padded(self) -> Tensor:
        """One row for each text, [B, L, D], zeros behind its tokens."""
        count, longest = len(self.lengths_B), int(self.lengths_B.max())
        texts_T, places_T = _locate(self.lengths_B)
        flat = self.vectors_TD.new_zeros(count * longest, self.vectors_TD.shape[1])
        return flat.index_copy(0, texts_T * longest + places_T, self.vectors_TD).view(count, longest, -1)

    def cut(self, size: int) -> list["TokenVectors"]:
        """These texts in parts of at most `size` texts."""
        lengths = torch.split(self.lengths_B, size)
        vectors = torch.split(self.vectors_TD, [int(part.sum()) for part in lengths])
        return [TokenVectors(*part) for part in zip(vectors, lengths, strict=True)]

    def take(self, rows: Tensor) -> "TokenVectors":
        """The texts at these positions, in this order."""
        starts_B, lengths_B = self.lengths_B.cumsum(0) - self.lengths_B, self.lengths_B[rows]
        texts_T, places_T = _locate(lengths_B)
        return TokenVectors(self.vectors_TD[starts_B[rows][texts_T] + places_T], lengths_B)

    @staticmethod
    def concat(parts: Sequence["TokenVectors"]) -> "TokenVectors":
        """The texts of all parts, one part after the other."""
        return TokenVectors(
            torch.cat([part.vectors_TD for part in parts]), torch.cat([part.lengths_B for part in parts])
        )


def _locate(lengths_B: Tensor) -> tuple[Tensor, Tensor]:
    """The text of each token and its position in that text, for texts stored one after the other; int64, [T] each."""
    texts_T = torch.arange(len(lengths_B), device=lengths_B.device).repeat_interleave(lengths_B)
    starts_B = lengths_B.cumsum(0) - lengths_B
    return texts_T, torch.arange(len(texts_T), device=lengths_B.device) - starts_B[texts_T]


def maxsim(query: TokenVectors, passage: TokenVectors) -> Tensor:
    """MaxSim of every query with every passage, [Q, N]."""
    query_1QLD = query.padded()[None]
    each = query_1QLD.shape[1] * query_1QLD.shape[2] * int(passage.lengths_B.max())
    parts = passage.cut(max(1, PRODUCTS // each))
    return torch.cat([_again(_score_part, query_1QLD, part, 1) for part in parts], 2)[0]


def group_maxsim(query: TokenVectors, passage: TokenVectors) -> Tensor:
    """MaxSim of every query with its own G passages, [Q, G]; the passages of all queries are in one list, query after
    query.
    """
    group = len(passage.lengths_B) // len(query.lengths_B)
    each = int(query.lengths_B.max()) * group * int(passage.lengths_B.max())
    size = max(1, PRODUCTS // each)
    parts = zip(query.cut(size), passage.cut(size * group), strict=True)
    scores = [_again(_score_part, queries.padded()[:, None], part, len(queries.lengths_B)) for queries, part in parts]
    return torch.cat(scores)[:, 0]


def _again(score: Callable[..., Tensor], *arguments: object) -> Tensor:
    """What `score` returns; the backward pass computes it a second time instead of keeping what it is computed from."""
    result: Tensor = checkpoint(score, *arguments, use_reentrant=False, preserve_rng_state=False)
    return result


def _score_part(query_CQLD: Tensor, passage: TokenVectors, blocks: int) -> Tensor:
    """MaxSim of the queries of each of C blocks with the passages of the same block, [C, Q, passages of a block].

    The zeros behind a query's tokens add 0 to its score; those behind a passage's are no candidates for the maximum.
    """
    passage_NLD = passage.padded()
    real_NL = torch.arange(passage_NLD.shape[1], device=passage.lengths_B.device) < passage.lengths_B[:, None]
    passage_CND = passage_NLD.view(blocks, -1, passage_NLD.shape[2])
    products = torch.bmm(query_CQLD.flatten(1, 2), passage_CND.mT)
    products_CTNL = products.view(blocks, products.shape[1], -1, passage_NLD.shape[1])
    best_CTN = products_CTNL.masked_fill(~real_NL.view(blocks, 1, -1, real_NL.shape[1]), -torch.inf).amax(-1)
    return best_CTN.view(*query_CQLD.shape[:3], -1).sum(2)


class Representation(Config):
    """Which views of a text are scored. With dense and lexical, their scores are added, unweighted."""

    dense: Literal["cls", "mean"] | None = Field("cls", description="the dense view: [CLS], the mean of all tokens")
    width: int | None = Field(
        None, ge=1, description="dimensions that the dense view is projected to; none: no projection"
    )
    normalise: bool = Field(False, description="the dense view has length 1, so that its score is the cosine")
    lexical: Literal["splade", "logits"] | None = Field(
        None, description="the lexical view: log(1 + relu) of the highest logit of each word, or that logit (DupMAE)"
    )
    specials: bool = Field(True, description="whether the lexical view is also pooled over [CLS] and [SEP]")
    query_terms: int | None = Field(
        None, ge=1, description="number of a query's heaviest words that are kept; none: all"
    )
    passage_terms: int | None = Field(
        None, ge=1, description="number of a passage's heaviest words that are kept; none: all"
    )
    tokens: int | None = added(
        None,
        "late interaction: dimensions that the vector of each token is projected to (ColBERT: 128); none: no token "
        "vectors",
        ge=1,
        le=1024,  # the products of 8-bit vectors are then exact in float32 (`retrieve.late`)
    )

    @model_validator(mode="after")
    def _some_view_is_there(self) -> Self:
        if self.tokens is not None and (self.dense is not None or self.lexical is not None):
            raise ValueError(
                f"tokens = {self.tokens} with dense = {self.dense or 'none'} and lexical = {self.lexical or 'none'}: "
                "token vectors are scored alone; set representation.dense=none "
                "and representation.lexical=none, or representation.tokens=none"
            )
        if self.dense is None and self.lexical is None and self.tokens is None:
            raise ValueError(
                "dense, lexical and tokens = none leave nothing to score; set one of them, such as "
                "representation.dense=cls"
            )
        if self.dense is None and (self.width is not None or self.normalise):
            raise ValueError(
                "width and normalise are of the dense view; set representation.dense=cls or mean, or leave them"
            )
        if self.lexical is None and (self.query_terms or self.passage_terms or not self.specials):
            raise ValueError("specials, query_terms and passage_terms need lexical = splade or logits")
        if self.lexical == "logits" and self.passage_terms is None:
            raise ValueError(
                "lexical = logits gives every word a weight; set representation.passage_terms=384 or the like"
            )
        return self

    @property
    def label(self) -> str:
        """Its name in tables: dense, splade, OT:768, 384+384, dense+splade, late:128; `mean` where the dense view is no
        [CLS].
        """
        if self.tokens is not None:
            return f"late:{self.tokens}"
        whole = "dense" if self.dense == "cls" else "mean"
        if self.lexical is None:
            return f"{whole}:{self.width}" if self.width else whole
        words = self.passage_terms or self.lexical
        if self.dense is None:
            return {"splade": "splade", "logits": "OT"}[self.lexical] + (f":{words}" if self.passage_terms else "")
        return f"{self.width or whole}+{words}"

    def terms(self, side: Literal["query", "passage"]) -> int | None:
        """How many words of a text of this side count; none: all."""
        return self.query_terms if side == "query" else self.passage_terms

    @property
    def views(self) -> tuple[str, ...]:
        """Names of the views, which are the folders that they are written to: dense, lexical or both; or late."""
        kinds = {"dense": self.dense, "lexical": self.lexical, "late": self.tokens}
        return tuple(name for name, kind in kinds.items() if kind is not None)

    @property
    def projected(self) -> int | None:
        """Dimensions that the states of the encoder are projected to, all of a text or its dense view; none: none."""
        return self.tokens or self.width

    def views_of(self, tensors: tuple[Tensor, ...], lengths: tuple[Tensor, ...] = ()) -> "TextVectors":
        """Vectors from their views, as `TextVectors.tensors` and `TextVectors.lengths` give them."""
        if self.tokens is not None:
            return TextVectors(None, None, TokenVectors(*tensors, *lengths))
        views = iter(tensors)
        return TextVectors(next(views) if self.dense else None, next(views) if self.lexical else None)


@dataclass(frozen=True)
class TextVectors:
    """The vectors of B texts: a dense view, a lexical view or both; or token vectors alone."""

    dense_BD: Tensor | None  # float
    lexical_BV: Tensor | None  # float
    tokens: TokenVectors | None = None

    def pruned(self, terms: int | None) -> "TextVectors":
        """These vectors with all but the `terms` heaviest words of each text set to 0."""
        return self if self.lexical_BV is None else replace(self, lexical_BV=prune(self.lexical_BV, terms))

    def narrowed(self, width: int, *, normalise: bool) -> "TextVectors":
        """These vectors with the first `width` dimensions of the dense view alone, brought to length 1 again if so."""
        if self.dense_BD is None:
            return self
        first_BW = self.dense_BD[:, :width]
        return replace(self, dense_BD=F.normalize(first_BW, dim=-1) if normalise else first_BW)

    def tensors(self) -> tuple[Tensor, ...]:
        """The views that are there, dense first."""
        if self.tokens is not None:
            return (self.tokens.vectors_TD,)
        return tuple(view for view in (self.dense_BD, self.lexical_BV) if view is not None)

    def lengths(self) -> tuple[Tensor, ...]:
        """The number of tokens of each text, int64 [B], where it has token vectors; else nothing."""
        return () if self.tokens is None else (self.tokens.lengths_B,)

    def mapped(self, change: Callable[[Tensor], Tensor]) -> "TextVectors":
        """These vectors with `change`, which may add or leave out texts, applied to each view that is not None."""
        if self.tokens is not None:
            return TextVectors(None, None, TokenVectors(change(self.tokens.vectors_TD), change(self.tokens.lengths_B)))
        dense_BD, lexical_BV = (None if view is None else change(view) for view in (self.dense_BD, self.lexical_BV))
        return TextVectors(dense_BD, lexical_BV)

    @staticmethod
    def concat(parts: Sequence["TextVectors"]) -> "TextVectors":
        """The texts of all parts, which have the same views, one part after the other."""
        tokens = [part.tokens for part in parts if part.tokens is not None]
        if tokens:
            return TextVectors(None, None, TokenVectors.concat(tokens))
        dense = [part.dense_BD for part in parts if part.dense_BD is not None]
        lexical = [part.lexical_BV for part in parts if part.lexical_BV is not None]
        return TextVectors(torch.cat(dense) if dense else None, torch.cat(lexical) if lexical else None)

    def take(self, rows: Tensor) -> "TextVectors":
        """The texts at these positions, in this order."""
        if self.tokens is not None:
            return TextVectors(None, None, self.tokens.take(rows))
        return self.mapped(lambda view: view[rows])


def prune(weights_BV: Tensor, terms: int | None) -> Tensor:
    """All but the `terms` largest weights of each row at 0; of equal ones, those of smaller ids stay."""
    if terms is None or terms >= weights_BV.shape[1]:
        return weights_BV
    lowest_B1 = weights_BV.detach().topk(terms, dim=1, sorted=False).values.amin(1, keepdim=True)
    above_BV = ~(weights_BV <= lowest_B1)  # NaN stays, and is found in the loss
    level_BV = weights_BV == lowest_B1
    room_B1 = terms - above_BV.sum(1, keepdim=True)
    return torch.where(above_BV | (level_BV & (level_BV.cumsum(1) <= room_B1)), weights_BV, 0.0)


def scores(query: TextVectors, passage: TextVectors) -> Tensor:
    """Scores of every query with every passage, [Q, N]: the sum over views of the dot product, or MaxSim; in full
    precision.
    """
    pairs = list(zip(query.tensors(), passage.tensors(), strict=True))
    with torch.autocast(pairs[0][0].device.type, enabled=False):
        if query.tokens is not None and passage.tokens is not None:
            return maxsim(query.tokens, passage.tokens)
        return torch.stack([left @ right.t() for left, right in pairs]).sum(0)


def group_scores(query: TextVectors, passage: TextVectors) -> Tensor:
    """Scores of every query with its own G passages, [Q, G]; the passages of all queries are in one list, query after
    query.
    """
    pairs = list(zip(query.tensors(), passage.tensors(), strict=True))
    with torch.autocast(pairs[0][0].device.type, enabled=False):
        if query.tokens is not None and passage.tokens is not None:
            return group_maxsim(query.tokens, passage.tokens)
        products = [torch.bmm(right.view(len(left), -1, left.shape[1]), left[..., None]) for left, right in pairs]
        return torch.stack(products).sum(0).squeeze(2)


Side = Literal["query", "passage"]
"""What a text is, for encoders that treat queries and passages apart; all others ignore it."""


class PooledModel(Protocol):
    """What pooling needs of a `backbone.Backbone`."""

    @property
    def output_weight_VD(self) -> Tensor: ...

    @property
    def output_bias_V(self) -> Tensor: ...

    def hidden(self, ids_BL: Tensor, lengths_B: Tensor, side: Side) -> Tensor: ...

    def first(self, ids_BL: Tensor, lengths_B: Tensor, side: Side) -> Tensor: ...

    def transform(self, x: Tensor) -> Tensor: ...


class Pooling(nn.Module):
    """The views of a text. Its only weights are the projection's, which outlive training with the backbone's.

    unpooled: how many tokens at the beginning of each row, a prompt's, take no part in a dense view.
    """

    def __init__(self, representation: Representation, width: int) -> None:
        super().__init__()
        self.representation, self.unpooled = representation, 0
        projected = representation.projected
        self.projection = None if projected is None else nn.Linear(width, projected, bias=False)

    def forward(
        self, backbone: PooledModel, ids_BL: Tensor, lengths_B: Tensor, special_V: Tensor, side: Side
    ) -> TextVectors:
        """Views of token rows, as heavy words of this side alone leave them.

        Args:
            special_V: bool, which ids are special tokens; read only where they take no part.
        """
        views = self.views(backbone, ids_BL, lengths_B, special_V, side)
        return views.pruned(self.representation.terms(side))

    def views(
        self, backbone: PooledModel, ids_BL: Tensor, lengths_B: Tensor, special_V: Tensor, side: Side
    ) -> TextVectors:
        """Dense and lexical vectors of a batch, without pruning to the heaviest words; or its token vectors."""
        if self.representation.dense == "cls" and self.representation.lexical is None and not self.unpooled:
            return TextVectors(self._project(backbone.first(ids_BL, lengths_B, side)), None)
        hidden_BLD = backbone.hidden(ids_BL, lengths_B, side)
        if self.projection is not None and self.representation.tokens is not None:
            return TextVectors(None, None, token_vectors(hidden_BLD, lengths_B, self.projection.weight))
        seen_BL = torch.arange(ids_BL.shape[1], device=ids_BL.device) < lengths_B[:, None]
        kind = self.representation.dense
        dense_BD = (
            None
            if kind is None
            else self._project(pool(kind, hidden_BLD[:, self.unpooled :], seen_BL[:, self.unpooled :]))
        )
        return TextVectors(dense_BD, self._lexical(backbone, hidden_BLD, ids_BL, seen_BL, special_V))

    def _project(self, dense_BD: Tensor) -> Tensor:
        if self.projection is not None:
            dense_BD = self.projection(dense_BD)
        return F.normalize(dense_BD, dim=-1) if self.representation.normalise else dense_BD

    def _lexical(
        self, backbone: PooledModel, hidden_BLD: Tensor, ids_BL: Tensor, seen_BL: Tensor, special_V: Tensor
    ) -> Tensor | None:
        kind = self.representation.lexical
        if kind is None:
            return None
        pooled_BL = seen_BL if self.representation.specials else seen_BL & ~special_V[ids_BL]
        highest_BV = highest_logits(backbone, hidden_BLD, pooled_BL)
        return torch.log1p(torch.relu(highest_BV)) if kind == "splade" else highest_BV


def pool(kind: Literal["cls", "mean"], hidden_BLD: Tensor, seen_BL: Tensor) -> Tensor:
    """One vector for each row, [B, D]: the first token's state, or the mean of those that are seen."""
    if kind == "cls":
        return hidden_BLD[:, 0]
    seen_BL1 = seen_BL[..., None].to(hidden_BLD.dtype)
    return (hidden_BLD * seen_BL1).sum(1) / seen_BL1.sum(1)


def token_vectors(hidden_BLD: Tensor, lengths_B: Tensor, projection_WD: Tensor) -> TokenVectors:
    """The projected states of a row's true tokens, each of length 1, float32 at least."""
    real_BL = torch.arange(hidden_BLD.shape[1], device=lengths_B.device) < lengths_B[:, None]
    projected = F.linear(hidden_BLD.flatten(0, 1)[real_BL.flatten().nonzero().squeeze(1)], projection_WD)
    wide = projected.to(torch.promote_types(projected.dtype, torch.float32))
    return TokenVectors(F.normalize(wide, dim=-1), lengths_B)


def highest_logits(backbone: PooledModel, hidden_BLD: Tensor, pooled_BL: Tensor) -> Tensor:
    """For each word the highest logit of the MLM head over the pooled positions; [B, V], float32 at least."""
    features_BLD = backbone.transform(hidden_BLD)
    return linear_column_max(features_BLD, backbone.output_weight_VD, backbone.output_bias_V, pooled_BL)
