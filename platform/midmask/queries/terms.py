"""How much each token of each passage matters, in [0, 1]: what weighted masks (ROM, Long et al. 2022) are drawn by.

    tokens shard        token rows
    raw weight          of each use of a word, from the counts of the corpus
    scaled              from the lowest and highest of the passage to [0, 1]; a word's weight holds for each of its
                        tokens; specials get 0
    weights/<shard>     doc_id, weights, parallel to the tokens shard's doc_id, ids

The paper says no more than that weights are normalised to [0, 1]: source, scaling and k1, b are unpublished choices.
"""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field

from midmask.core.arrays import Doubles
from midmask.core.config import Config
from midmask.queries.word_statistics import ShardWords, shard_words
from midmask.store.artifact import Artifact
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


class CountWeigher:
    """idf, or BM25's weight of a word in a passage, from the statistics of the corpus.

    idf = ln(1 + (N - n + 0.5) / (n + 0.5)) for a word in n of N passages; BM25 = idf * tf (k1 + 1) / (tf + k1 (1 - b +
    b * length / mean length)), lengths in words (Robertson & Zaragoza 2009, the non-negative idf of Lucene).
    """

    def __init__(self, config: WeighConfig, statistics: Artifact) -> None:
        self._table = read_table(statistics.place / "words.parquet").combine_chunks()
        self._config, self._result = config, statistics.result

    def _idf(self, passages: NDArray[np.int64]) -> Doubles:
        total = self._result["passages"]
        idf: Doubles = np.log1p((total - passages + 0.5) / (passages + 0.5))
        return idf

    def weights(self, found: ShardWords) -> Doubles:
        """The raw weight of each use of a word in a shard, [U]."""
        place = pc.index_in(found.words, value_set=self._table["word"])
        idf_U = self._idf(self._table["passages"].take(place).to_numpy())[found.word_U]
        if self._config.source == "idf":
            return idf_U
        _, counts, pair_U = found.occurrences()
        tf_U = counts[pair_U].astype(np.float64)
        length_U = np.bincount(found.passage_U, minlength=len(found.lengths_P))[found.passage_U]
        relative_U = length_U / self._result["words_per_passage"]
        k1, b = self._config.k1, self._config.b
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
    weigher = CountWeigher(config, inputs["statistics"])

    def write(name: str) -> None:
        rows = read_table(tokens / "passages" / name, ["doc_id", "ids"])
        words = shard_words(rows["ids"].combine_chunks(), vocabulary)
        weight_T = np.zeros(len(words.candidate_T), np.float32)
        weight_T[words.candidate_T] = scale_in_passages(weigher.weights(words), words)[words.use_of_C]
        offsets = np.concatenate([[0], np.cumsum(words.lengths_P)]).astype(np.int32)
        weights = pa.ListArray.from_arrays(pa.array(offsets), pa.array(weight_T))
        table = pa.table({"doc_id": rows["doc_id"], "weights": weights})
        write_table(table, out / "weights" / name, row_group_size=ROW_GROUP)

    return write


def _finish(config: WeighConfig, inputs: Inputs, out: Place) -> dict[str, Any]:
    passages, tokens, total = 0, 0, 0.0
    for name in (out / "weights").names():
        weights = read_table(out / "weights" / name, ["weights"])["weights"].combine_chunks()
        passages, tokens = passages + len(weights), tokens + len(weights.values)
        total += float(weights.values.to_numpy().sum(dtype=np.float64))
    return {"passages": passages, "tokens": tokens, "mean_weight": total / max(tokens, 1)}


WEIGH = Sharded(
    folder="weights",
    over="tokens/passages",
    worker=_worker,
    finish=_finish,
)
"""The step: tokens and statistics in, term weights out (weights/)."""
