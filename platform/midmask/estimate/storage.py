"""Bytes that a step leaves in the storage. What is compressed (texts, token rows, ranked lists) is taken as measured on
SQuAD's passages; what is not (vectors, weights, AdamW's moments) follows from its shape.
"""

from midmask.encoders.representation import Representation
from midmask.estimate.sizes import Sizes
from midmask.retrieve.coded_tokens import record_type
from midmask.training.checkpoint import KEPT

TEXT = 0.6  # bytes a character of a prepared text, zstd
TOKEN = 1.6  # bytes a token of a token row, zstd
RANKED = 7  # bytes a row of a ranked list
RUN = 11  # bytes a row of a TREC run file, gzip
NEGATIVE = 14  # bytes a mined negative
PAIR = 30  # bytes a scored pair, with its candidate
BM25_WORDS = 0.28  # bytes a character of a text in BM25's counted words
BM25_INDEX = 0.93  # bytes a character of a text in BM25's index
NEAR_DUPLICATES = 0.55  # bytes a character of a text in what tells near-duplicates
QUERY = 60  # bytes a query with its judgements, zstd
TRACE = 60  # bytes a row of a trace, and of a step besides
WORD_BITS = 32 + 15
"""Of an entry of a lexical vector (`retrieve.packed`)."""

TEXT_LENGTH = 4
"""Bytes of a text's number of token vectors (`retrieve.coded_tokens`)."""

WHOLE, STATE = 4, 12
"""Bytes a parameter: of a model, and of a checkpoint (weights and both moments)."""


def vector_bytes(representation: Representation, sizes: Sizes, *, terms: float, tokens: float) -> float:
    """Of one text's vectors.

    Args:
        terms: words of its lexical view, if it has one. tokens: of the text, specials included.
    """
    if representation.tokens is not None:
        return record_type(representation.tokens).itemsize * tokens + TEXT_LENGTH
    dense = 4 * (representation.width or sizes.width) if representation.dense else 0
    return dense + (WORD_BITS / 8 * terms if representation.lexical else 0)


def training_bytes(parameters: int, *, steps: int, rows: int, state_stays: bool) -> float:
    """Of a finished training: model and heads, the trace, and the state to go on from, if it stays."""
    return WHOLE * parameters + STATE * parameters * state_stays + trace_bytes(steps, rows)


def trace_bytes(steps: int, rows: int) -> float:
    return steps * (TRACE + 4 * rows)


def checkpoint_bytes(parameters: int) -> float:
    """While a training runs: the checkpoints that are kept, and the one that is being written."""
    return (KEPT + 1) * STATE * parameters
