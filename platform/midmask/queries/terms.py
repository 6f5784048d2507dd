"""How much each token of each passage matters, in [0, 1]: what weighted masks (ROM, Long et al. 2022) are drawn by; and
the word counts of a corpus that these weights come from.

    tokens shard        token rows
    counted/<shard>     word, the shard's passages that contain it; added up in words.parquet
    raw weight          of each use of a word, from the counts of the corpus
    scaled              from the lowest and highest of the passage to [0, 1]; a word's weight holds for each of its
                        tokens; specials get 0
    weights/<shard>     doc_id, weights, parallel to the tokens shard's doc_id, ids

The paper says no more than that weights are normalised to [0, 1]: source, scaling and k1, b are unpublished choices.
A word is a token and the continuations right after it, as in `masking.words.find_words`; it is known by its token ids,
so no text is read. Shapes: T tokens of a shard end to end, P passages, U uses of words, W distinct words.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field

from midmask.core.arrays import Doubles, Ints
from midmask.core.config import Config
from midmask.store.place import Place
from midmask.store.sharded import Inputs, Sharded
from midmask.store.tables import read_table, write_table
from midmask.text.tokens import ROW_GROUP
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


class WeighConfig(Config):
    """Where term weights come from."""

    source: Literal["idf", "bm25"] = Field(
        "idf", description="how rare a word is in the corpus, or its BM25 weight in the passage. Unpublished for ROM"
    )
    k1: float = Field(0.9, ge=0, le=10, description="bm25: how fast repetitions of a word saturate")
    b: float = Field(0.4, ge=0, le=1, description="bm25: how much a passage's length lowers its weights")


def raw_weights(config: WeighConfig, words: pa.Table, totals: Mapping[str, Any], shard: ShardWords) -> Doubles:
    """The weight of each use of a word in a shard, [U]: idf, or BM25's, from the words and totals of the corpus.

    idf = ln(1 + (N - n + 0.5) / (n + 0.5)) for a word in n of N passages; BM25 = idf * tf (k1 + 1) / (tf + k1 (1 - b +
    b * length / mean length)), lengths in words (Robertson & Zaragoza 2009, the non-negative idf of Lucene).
    """
    passages_W = words["passages"].take(pc.index_in(shard.words, value_set=words["word"])).to_numpy()
    idf_U: Doubles = np.log1p((totals["passages"] - passages_W + 0.5) / (passages_W + 0.5))[shard.word_U]
    if config.source == "idf":
        return idf_U
    _, counts, pair_U = shard.occurrences()
    tf_U = counts[pair_U].astype(np.float64)
    length_U = np.bincount(shard.passage_U, minlength=len(shard.lengths_P))[shard.passage_U]
    relative_U = length_U / totals["words_per_passage"]
    k1, b = config.k1, config.b
    bm25_U: Doubles = idf_U * tf_U * (k1 + 1) / (tf_U + k1 * (1 - b + b * relative_U))
    return bm25_U


def scale_in_passages(weight_U: Doubles, shard: ShardWords) -> Doubles:
    """Lowest to 0 and highest to 1 within each passage; all 0 where they are equal."""
    lowest_P, highest_P = np.full((2, len(shard.lengths_P)), [[np.inf], [-np.inf]])
    np.minimum.at(lowest_P, shard.passage_U, weight_U)
    np.maximum.at(highest_P, shard.passage_U, weight_U)
    above_U, range_U = weight_U - lowest_P[shard.passage_U], (highest_P - lowest_P)[shard.passage_U]
    scaled_U: Doubles = np.divide(above_U, range_U, out=np.zeros_like(weight_U), where=range_U > 0)
    return scaled_U


def _worker(config: WeighConfig, inputs: Inputs, out: Place) -> Callable[[str], None]:
    tokens = inputs["tokens"].place
    vocabulary = Vocabulary.of((tokens / "tokenizer").local())
    corpus_words = read_table(inputs["statistics"].place / "words.parquet").combine_chunks()

    def write(name: str) -> None:
        rows = read_table(tokens / "passages" / name, ["doc_id", "ids"])
        words = shard_words(rows["ids"].combine_chunks(), vocabulary)
        weight_T = np.zeros(len(words.candidate_T), np.float32)
        weight_U = raw_weights(config, corpus_words, inputs["statistics"].result, words)
        weight_T[words.candidate_T] = scale_in_passages(weight_U, words)[words.use_of_C]
        offsets = np.concatenate([[0], np.cumsum(words.lengths_P)]).astype(np.int32)
        weights = pa.ListArray.from_arrays(pa.array(offsets), pa.array(weight_T))
        table = pa.table({"doc_id": rows["doc_id"], "weights": weights})
        write_table(table, out / "weights" / name, row_group_size=ROW_GROUP)

    return write


WEIGH = Sharded(folder="weights", over="tokens/passages", worker=_worker, finish=lambda config, inputs, out: {})
"""The step: tokens and statistics in, term weights out (weights/)."""
