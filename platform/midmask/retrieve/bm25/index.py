"""BM25's second pass: the index of each shard of a corpus, with the statistics of the whole collection.

    words/all.arrow     the different words of the collection, sorted
    index/NAME.arrow    word (its row in all.arrow), postings (row, score): what the shard's passages score for a word
    ids/NAME.parquet    doc_id of the shard's passages in row order

Scores are those of bm25s in its Lucene variant, to the last digit: of the same float32 and float64 operations. It has
no argument for statistics of other passages than those of the index (`bm25s.BM25.build_index_from_ids`), so postings
are scored here and added up by it in a search. Files of Arrow open as memory maps. A worker holds one shard and the
collection's different words.
"""

import math
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from midmask.core.arrays import Floats, Ints
from midmask.core.config import Config
from midmask.retrieve.bm25.words import WordStatistics, read_counted, read_statistics
from midmask.store.place import Place
from midmask.store.sharded import Sharded
from midmask.store.tables import write_table

ALL_WORDS = "all.arrow"

INDEXED = pa.schema(
    [("word", pa.int64()), ("postings", pa.list_(pa.struct([("row", pa.int32()), ("score", pa.float32())])))]
)


class Bm25IndexConfig(Config):
    """How a word's count in a passage becomes a score."""

    k1: float = Field(0.9, ge=0, le=10, description="how soon repeated words stop to count")
    b: float = Field(0.4, ge=0, le=1, description="how much long passages are held back")


def file_name(shard: str) -> str:
    """The index file of a shard of a corpus."""
    return f"{shard.removesuffix('.parquet')}.arrow"


def _copy_words(counts: Place, out: Place) -> None:
    if not (out / "words" / ALL_WORDS).exists():
        _write_arrow(pa.table({"word": read_statistics(counts).words}), out / "words" / ALL_WORDS)


def _indexer(config: Bm25IndexConfig, counts: Place, out: Place) -> Callable[[str], None]:
    statistics = read_statistics(counts)

    def index_shard(name: str) -> None:
        words, passages = read_counted(counts, name)
        write_table(passages.select(["doc_id"]), out / "ids" / name)
        scored = score_postings(config, statistics, words, passages["words"].to_numpy().astype(np.int64))
        _write_arrow(scored, out / "index" / file_name(name))

    return index_shard


def score_postings(config: Bm25IndexConfig, statistics: WordStatistics, words: pa.Table, length_D: Ints) -> pa.Table:
    """The index of a shard (INDEXED).

    Args:
        words: of the shard (`COUNTED`). length_D: words of each of its passages.
    """
    word_W = np.flatnonzero(pc.is_in(statistics.words, value_set=words["word"].combine_chunks()))
    postings = words["postings"].combine_chunks()
    row_P, count_P = (postings.values.field(name).to_numpy() for name in ("row", "count"))
    idf_P = np.repeat(_idf(statistics.passages_W[word_W], statistics.passages), np.diff(postings.offsets.to_numpy()))
    often_P = count_P.astype(np.float32)
    held_back_D = config.k1 * ((1 - config.b) + config.b * length_D / statistics.mean_length)
    score_P = (idf_P * (often_P / (held_back_D[row_P] + often_P))).astype(np.float32)
    scored = pa.StructArray.from_arrays([pa.array(row_P), pa.array(score_P)], ["row", "score"])
    table = pa.table([word_W, pa.ListArray.from_arrays(postings.offsets, scored)], schema=INDEXED)
    return table.replace_schema_metadata({"passages": str(len(length_D))})


def _idf(passages_W: Ints, passages: int) -> Floats:
    """Lucene's IDF: ln(1 + (N - n + 0.5) / (n + 0.5)). `math.log`, since numpy's may differ in the last digit."""
    counts, at_W = np.unique(passages_W, return_inverse=True)
    idf = [math.log(1 + (passages - count + 0.5) / (count + 0.5)) for count in counts.tolist()]
    return np.array(idf, np.float32)[at_W]


def _write_arrow(table: pa.Table, place: Place) -> None:
    """Writes a table as one uncompressed batch, so that its columns can be memory-mapped."""
    (batch,) = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    with place.writing() as stream, pa.ipc.new_file(stream, table.schema) as writer:
        writer.write_batch(batch)


BM25_INDEX = Sharded(
    folder="index",
    over="words/counted",
    begin=lambda config, inputs, out: _copy_words(inputs["words"].place, out),
    worker=lambda config, inputs, out: _indexer(config, inputs["words"].place, out),
    finish=lambda config, inputs, out: {
        "passages": inputs["words"].result["passages"],
        "bytes": (out / "index").size(),
    },
    file_name=file_name,
)
"""The step: counted words in, an index of each shard out."""
