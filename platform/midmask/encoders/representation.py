"""The vectors of a text that a search compares (a dense one, weights over the vocabulary, both; or one for each token),
and the score of two texts.

    cls        dense = cls                                              DPR, RetroMAE, "CLS:768"
    splade     lexical = splade                                         Formal et al. 2021
    OT:768     dense = none, lexical = logits, passage_terms = 768      DupMAE's ordinary tokens alone
    384+384    dense = cls, width = 384, lexical = logits, passage_terms = 384    DupMAE (Xiao et al. 2023, Eq. 10-12)
    CoT-MoTE   dense = cls, lexical = splade                            Ma et al. 2023, with experts in the backbone
    late:128   dense = none, tokens = 128                               ColBERT (Khattab & Zaharia 2020)

Token vectors are those of sentence-transformers' MultiVectorEncoder as it comes: all tokens are scored, [CLS] and [SEP]
among them. ColBERT's code also skips the punctuation of passages, fills queries up with [MASK], and puts a marker
before each text.

Shapes: B rows, D dense width, V vocabulary, Q queries, N passages.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor

from midmask.encoders.late_interaction import TokenVectors, group_maxsim, maxsim
from midmask.identity import Config, added


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
        """As tables name it: dense, splade, OT:768, 384+384, dense+splade, late:128; `mean` where the dense view is no
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
    """The views of some texts: dense_BD and lexical_BV, float, of which one may be missing; or the vectors of their
    tokens alone.
    """

    dense_BD: Tensor | None
    lexical_BV: Tensor | None
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
    """Of every query with every passage, [Q, N]: the sum over views of the dot product, or MaxSim; in full
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
