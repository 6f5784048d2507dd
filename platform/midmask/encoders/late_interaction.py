"""Late interaction: a text as one vector for each token, and MaxSim, the score of two texts (ColBERT, Khattab & Zaharia
2020).

    MaxSim(q, p) = sum over the tokens i of q of the maximum over the tokens j of p of q_i · p_j

Vectors have length 1. Those of several texts lie one after the other, without padding, so that texts of any lengths
can be joined by micro-batches and by workers.

Shapes: B texts, T tokens of all of them, L tokens of the longest, D width, Q queries, N passages, G passages a query.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

PRODUCTS = 1 << 24
"""Products of two tokens that are held at once, 64 MB of them in float32; the backward pass computes them again."""


@dataclass(frozen=True)
class TokenVectors:
    """Token vectors of B texts: vectors_TD, float, text after text; lengths_B, int64, the tokens of each (never 0)."""

    vectors_TD: Tensor
    lengths_B: Tensor

    @staticmethod
    def of_rows(states_BLD: Tensor, lengths_B: Tensor) -> "TokenVectors":
        """The first `lengths_B` vectors of each row."""
        real_BL = torch.arange(states_BLD.shape[1], device=lengths_B.device) < lengths_B[:, None]
        return TokenVectors(states_BLD.flatten(0, 1)[real_BL.flatten().nonzero().squeeze(1)], lengths_B)

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
    """Of each token of texts that lie one after the other: its text, and its place in that; int64, [T] each."""
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
    scores = [_again(_score_part, own.padded()[:, None], part, len(own.lengths_B)) for own, part in parts]
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
