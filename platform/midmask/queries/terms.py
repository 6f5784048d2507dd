"""How much each token of each passage matters, in [0, 1]: what weighted masks (ROM, Long et al. 2022) are drawn by.

    tokens shard        token rows
    raw weight          of each use of a word, from the counts of the corpus
    scaled              from the lowest and highest of the passage to [0, 1]; a word's weight holds for each of its
                        tokens; specials get 0
    weights/<shard>     doc_id, weights, parallel to the tokens shard's doc_id, ids

The paper says no more than that weights are normalised to [0, 1]: source, scaling and k1, b are unpublished choices.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from midmask.core.arrays import Doubles
from midmask.core.config import Config
from midmask.queries.word_statistics import ShardWords, shard_words
from midmask.store.place import Place
from midmask.store.sharded import Inputs, Sharded
from midmask.store.tables import read_table, write_table
from midmask.text.tokens import ROW_GROUP
from midmask.text.vocabulary import Vocabulary


class WeighConfig(Config):
    """Where term weights come from."""

    source: Literal["idf", "bm25"] = Field(
        "idf", description="how rare a word is in the corpus, or its BM25 weight in the passage. Unpublished for ROM"
    )
    k1: float = Field(0.9, ge=0, le=10, description="bm25: how fast repetitions of a word saturate")
    b: float = Field(0.4, ge=0, le=1, description="bm25: how much a passage's length lowers its weights")


def raw_weights(config: WeighConfig, words: pa.Table, totals: Mapping[str, Any], found: ShardWords) -> Doubles:
    """The weight of each use of a word in a shard, [U]: idf, or BM25's, from the words and totals of the corpus.

    idf = ln(1 + (N - n + 0.5) / (n + 0.5)) for a word in n of N passages; BM25 = idf * tf (k1 + 1) / (tf + k1 (1 - b +
    b * length / mean length)), lengths in words (Robertson & Zaragoza 2009, the non-negative idf of Lucene).
    """
    passages_W = words["passages"].take(pc.index_in(found.words, value_set=words["word"])).to_numpy()
    idf_U: Doubles = np.log1p((totals["passages"] - passages_W + 0.5) / (passages_W + 0.5))[found.word_U]
    if config.source == "idf":
        return idf_U
    _, counts, pair_U = found.occurrences()
    tf_U = counts[pair_U].astype(np.float64)
    length_U = np.bincount(found.passage_U, minlength=len(found.lengths_P))[found.passage_U]
    relative_U = length_U / totals["words_per_passage"]
    k1, b = config.k1, config.b
    bm25_U: Doubles = idf_U * tf_U * (k1 + 1) / (tf_U + k1 * (1 - b + b * relative_U))
    return bm25_U


def scale_in_passages(weight_U: Doubles, found: ShardWords) -> Doubles:
    """Lowest to 0 and highest to 1 within each passage; all 0 where they are equal."""
    lowest_P, highest_P = np.full((2, len(found.lengths_P)), [[np.inf], [-np.inf]])
    np.minimum.at(lowest_P, found.passage_U, weight_U)
    np.maximum.at(highest_P, found.passage_U, weight_U)
    above_U, range_U = weight_U - lowest_P[found.passage_U], (highest_P - lowest_P)[found.passage_U]
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
