"""The words of tokenised passages, and the number of passages that contain each: the statistics of a corpus for idf and
BM25.

A word is a token and the continuations right after it, as in `masking.words.find_words`; it is known by its token ids,
so no text is read. Shapes: T tokens of a shard end to end, P passages, U uses of words, W distinct words.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from midmask.core.arrays import Ints
from midmask.core.config import Config
from midmask.store.place import Place
from midmask.store.sharded import Inputs, Sharded
from midmask.store.tables import read_table, write_table
from midmask.text.vocabulary import Vocabulary

COUNTED = pa.schema([("word", pa.binary()), ("passages", pa.int64())])


class StatisticsConfig(Config):
    """Word counts of a corpus as tokenised; nothing to choose."""


@dataclass(frozen=True)
class ShardWords:
    """A shard's passages as uses of words, in order; C: tokens that belong to a word."""

    lengths_P: Ints  # tokens of each passage, specials included
    candidate_T: NDArray[np.bool_]  # whether a token belongs to a word, being no special token
    use_of_C: Ints  # the word use that a token belongs to
    passage_U: Ints  # the passage that contains a use
    word_U: Ints  # position of the used word in `words`
    words: pa.BinaryArray  # distinct words by first use: the bytes of a word's token ids as little-endian int32

    def occurrences(self) -> tuple[Ints, Ints, Ints]:
        """Distinct (passage, word) pairs: the word of each, its count in the passage, and the pair of each use."""
        pairs, pair_U, counts = np.unique(
            self.passage_U * len(self.words) + self.word_U, return_inverse=True, return_counts=True
        )
        return pairs % max(len(self.words), 1), counts, pair_U


def shard_words(ids: pa.ListArray, vocabulary: Vocabulary) -> ShardWords:
    """Finds the words of token rows, which are lists of int32."""
    offsets = ids.offsets.to_numpy().astype(np.int64)
    flat_T = ids.values.to_numpy()[offsets[0] : offsets[-1]].astype("<i4", copy=False)
    lengths_P = np.diff(offsets)
    candidate_T = ~vocabulary.special_V.numpy()[flat_T]
    joined_T = candidate_T & vocabulary.continues_V.numpy()[flat_T]
    joined_T[1:] &= candidate_T[:-1]
    firsts = (offsets - offsets[0])[:-1]
    joined_T[firsts[lengths_P > 0]] = False
    passage_T = np.repeat(np.arange(len(lengths_P)), lengths_P)
    begins_C = ~joined_T[candidate_T]
    bounds = np.append(np.flatnonzero(begins_C), len(begins_C)) * 4
    buffers = [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(flat_T[candidate_T].tobytes())]
    uses = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers).dictionary_encode()
    return ShardWords(
        lengths_P=lengths_P,
        candidate_T=candidate_T,
        use_of_C=np.cumsum(begins_C) - 1,
        passage_U=passage_T[candidate_T][begins_C],
        word_U=uses.indices.to_numpy().astype(np.int64),
        words=uses.dictionary,
    )


def _make_counter(config: StatisticsConfig, inputs: Inputs, out: Place) -> Callable[[str], None]:
    tokens = inputs["tokens"].place
    vocabulary = Vocabulary.of((tokens / "tokenizer").local())

    def write(name: str) -> None:
        ids = read_table(tokens / "passages" / name, ["ids"])["ids"].combine_chunks()
        shard = shard_words(ids, vocabulary)
        word, _, _ = shard.occurrences()
        counted = pa.table([shard.words, np.bincount(word, minlength=len(shard.words))], schema=COUNTED)
        totals = {"passages": str(len(shard.lengths_P)), "words": str(len(shard.word_U))}
        write_table(counted.sort_by("word").replace_schema_metadata(totals), out / "counted" / name)

    return write


def _add_up(config: StatisticsConfig, inputs: Inputs, out: Place) -> dict[str, Any]:
    """Adds up the counts of all shards, writes words.parquet (word, passages; sorted by word) and returns totals."""
    tables, passages, words = [], 0, 0
    for name in (out / "counted").names():
        tables.append(read_table(out / "counted" / name))
        totals = tables[-1].schema.metadata
        passages, words = passages + int(totals[b"passages"]), words + int(totals[b"words"])
    merged = pa.concat_tables([table.replace_schema_metadata() for table in tables])
    merged = merged.group_by("word").aggregate([("passages", "sum")]).rename_columns(COUNTED.names).sort_by("word")
    write_table(merged, out / "words.parquet")
    return {
        "passages": passages,
        "words": words,
        "words_per_passage": words / max(passages, 1),
        "distinct_words": len(merged),
    }


STATISTICS = Sharded(
    folder="counted",
    over="tokens/passages",
    worker=_make_counter,
    finish=_add_up,
)
"""The step: tokens in, word statistics out (counted/, words.parquet)."""
