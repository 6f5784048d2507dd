"""What fine-tuning, teaching, encoding and scoring cost, a query with its passages or a text at a time."""

from midmask.encoders.representation import Representation
from midmask.estimate.sizes import Sizes
from midmask.estimate.work import Work, column_maximum, encoded, encoded_first, learnt
from midmask.objectives.finetuning.cross_encoder import ListwiseRanking


def text_work(representation: Representation, sizes: Sizes, tokens: float) -> Work:
    """The vectors of one text."""
    if representation.lexical is None and representation.dense == "cls":
        work = encoded_first(sizes, tokens)
    else:
        work = encoded(sizes, tokens)
    if representation.width is not None:
        work += learnt(2 * sizes.width * representation.width)
    return work + column_maximum(sizes, tokens) if representation.lexical else work


def finetuning_work(
    representation: Representation, sizes: Sizes, *, query: float, passage: float, group: int, candidates: int
) -> Work:
    """One query with its positive and `group` - 1 negatives.

    Args:
        query, passage: tokens of each.
        candidates: passages that the query is scored against: those of the whole batch.
    """
    columns = (representation.width or sizes.width) if representation.dense else 0
    columns += sizes.vocabulary if representation.lexical else 0
    texts = text_work(representation, sizes, query) + text_work(representation, sizes, passage).times(group)
    return texts + learnt(2 * columns * candidates)


def pair_work(sizes: Sizes, tokens: float) -> Work:
    """A cross-encoder's score of one query and passage: all layers, then a dense layer on [CLS]."""
    return encoded(sizes, tokens) + learnt(2 * sizes.width**2)


def pair_tokens(query: float, passage: float, longest: float) -> float:
    """Tokens of a pair: one [CLS], a [SEP] behind each text; cut at the end of the passage."""
    return min(query + passage - 1, longest)


def teaching_work(loss: ListwiseRanking.Config, sizes: Sizes, *, pair: float, group: int) -> Work:
    """One query's list; R-Drop reads it twice."""
    return pair_work(sizes, pair).times(group * (2 if loss.r_drop else 1))
