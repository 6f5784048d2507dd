"""From hidden states to the vectors that are scored: the views of a text that a `Representation` has.

Shapes: B rows, L tokens, D width, V vocabulary.
"""

from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from midmask.encoders.late_interaction import TokenVectors
from midmask.encoders.representation import Representation, TextVectors
from midmask.heads import linear_column_max

Side = Literal["query", "passage"]
"""What a text is, for encoders that treat queries and passages apart; all others ignore it."""


class PooledModel(Protocol):
    """What pooling needs of a `backbone.Backbone`."""

    @property
    def sentence(self) -> str: ...

    @property
    def output_weight_VD(self) -> Tensor: ...

    @property
    def output_bias_V(self) -> Tensor: ...

    def hidden(self, ids_BL: Tensor, lengths_B: Tensor, side: Side) -> Tensor: ...

    def first(self, ids_BL: Tensor, lengths_B: Tensor, side: Side) -> Tensor: ...

    def sentence_vector(self, hidden_BLD: Tensor, lengths_B: Tensor) -> Tensor: ...

    def transform(self, x: Tensor) -> Tensor: ...


class Pooling(nn.Module):
    """The views of a text. Its only weights are the projection's, which outlive training with the backbone's."""

    def __init__(self, representation: Representation, width: int) -> None:
        super().__init__()
        self.representation = representation
        wanted = representation.projected
        self.projection = None if wanted is None else nn.Linear(width, wanted, bias=False)

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
        if self.representation.dense == "cls" and self.representation.lexical is None:
            return TextVectors(self._project(backbone.first(ids_BL, lengths_B, side)), None)
        hidden_BLD = backbone.hidden(ids_BL, lengths_B, side)
        if self.projection is not None and self.representation.tokens is not None:
            return TextVectors(None, None, token_vectors(hidden_BLD, lengths_B, self.projection.weight))
        seen_BL = torch.arange(ids_BL.shape[1], device=ids_BL.device) < lengths_B[:, None]
        return TextVectors(
            self._dense(hidden_BLD, seen_BL), self._lexical(backbone, hidden_BLD, ids_BL, seen_BL, special_V)
        )

    def _dense(self, hidden_BLD: Tensor, seen_BL: Tensor) -> Tensor | None:
        kind = self.representation.dense
        if kind is None:
            return None
        return self._project(pool(kind, hidden_BLD, seen_BL))

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
    return hidden_BLD[:, 0] if kind == "cls" else mean_of(hidden_BLD, seen_BL)


def token_vectors(hidden_BLD: Tensor, lengths_B: Tensor, projection_WD: Tensor) -> TokenVectors:
    """The projected states of a row's true tokens, each of length 1, float32 at least."""
    projected = F.linear(TokenVectors.of_rows(hidden_BLD, lengths_B).vectors_TD, projection_WD)
    wide = projected.to(torch.promote_types(projected.dtype, torch.float32))
    return TokenVectors(F.normalize(wide, dim=-1), lengths_B)


def mean_of(hidden_BLD: Tensor, seen_BL: Tensor) -> Tensor:
    """The mean of a row's true tokens, [B, D]."""
    seen_BL1 = seen_BL[..., None].to(hidden_BLD.dtype)
    return (hidden_BLD * seen_BL1).sum(1) / seen_BL1.sum(1)


def highest_logits(backbone: PooledModel, hidden_BLD: Tensor, pooled_BL: Tensor) -> Tensor:
    """For each word the highest logit of the MLM head over the pooled positions; [B, V], float32 at least."""
    features_BLD = backbone.transform(hidden_BLD)
    return linear_column_max(features_BLD, backbone.output_weight_VD, backbone.output_bias_V, pooled_BL)


def sentence_vectors(
    backbone: PooledModel, ids_BL: Tensor, lengths_B: Tensor, *, normalise: bool = False, side: Side = "passage"
) -> Tensor:
    """The backbone's sentence vectors of token rows, [B, D]; of length 1 if `normalise`."""
    if backbone.sentence == "cls":
        vectors_BD = backbone.first(ids_BL, lengths_B, side)
    else:
        vectors_BD = backbone.sentence_vector(backbone.hidden(ids_BL, lengths_B, side), lengths_B)
    return F.normalize(vectors_BD, dim=-1) if normalise else vectors_BD
