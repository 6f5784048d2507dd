"""BM25's two passes over a corpus: its stemmed words, counted; and an index of each shard, with the statistics of the
whole collection.

    counted/NAME        word, passages of the shard that have it, postings (row, count); sorted by word
    passages/NAME       doc_id, words: the shard's passages in row order
    words.parquet       word, passages of the collection that have it; sorted by word

    words/all.arrow     the different words of the collection, sorted
    index/NAME.arrow    word (its row in all.arrow), postings (row, score): what the shard's passages score for a word
    ids/NAME.parquet    doc_id of the shard's passages in row order

A worker holds one shard, in the second pass with the collection's different words; the end of the first one holds these
and those of a few shards.

Scores are those of bm25s in its Lucene variant, to the last digit: of the same float32 and float64 operations. It has
no argument for statistics of other passages than those of the index (`bm25s.BM25.build_index_from_ids`), so postings
are scored here and added up by it in a search. Files of Arrow open as memory maps.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from midmask.core.arrays import Floats, Ints
from midmask.core.config import Config
from midmask.errors import UserError
from midmask.store.place import Place
from midmask.store.sharded import Inputs, Sharded
from midmask.store.tables import read_passages, read_table, write_table

WORD = r"(?u)\b\w\w+\b"


class StemmedWords:
    """Text to numbers of stemmed words. `known`: stem -> number."""

    def __init__(self) -> None:
        import re

        import Stemmer

        self.known: dict[str, int] = {}
        self._split = re.compile(WORD).findall
        self._stem = Stemmer.Stemmer("english").stemWords

    def stems(self, text: str) -> list[str]:
        """The stem of each word, in order."""
        stems: list[str] = self._stem(self._split(text.lower()))
        return stems

    def ids(self, text: str) -> list[int]:
        """One number per word; unknown words are learnt."""
        return [self.known.setdefault(stem, len(self.known)) for stem in self.stems(text)]


MERGED_AT_ONCE = 32
"""Shards whose words are added to those of the shards before them at a time."""

WORDS = pa.schema([("word", pa.large_string()), ("passages", pa.int64())])
COUNTED = WORDS.append(pa.field("postings", pa.list_(pa.struct([("row", pa.int32()), ("count", pa.int32())]))))
PASSAGES = pa.schema([("doc_id", pa.string()), ("words", pa.int32())])


class Bm25WordsConfig(Config):
    """Which texts of a corpus are counted."""

    titles: bool = Field(True, description="whether a passage is 'title text' instead of the text alone")


@dataclass(frozen=True)
class WordStatistics:
    """Statistics of the collection that the scores of every shard depend on."""

    words: pa.LargeStringArray  # the different ones, sorted
    passages_W: Ints  # passages that have each
    passages: int  # of the collection
    mean_length: float  # words of a passage, repetitions included


def _counter(config: Bm25WordsConfig, inputs: Inputs, out: Place) -> Callable[[str], None]:
    docs = inputs["corpus"].place / "docs"

    def count_shard(name: str) -> None:
        """Writes the words of a shard's passages: `passages/NAME` and, last, `counted/NAME`."""
        words = StemmedWords()
        doc_ids: list[str] = []
        lengths = [np.empty(0, np.int32)]
        keys, counts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for ids, headings, texts in read_passages(docs / name):
            numbers = [words.ids(text) for text in (map("{} {}".format, headings, texts) if config.titles else texts)]
            lengths.append(np.fromiter(map(len, numbers), np.int32, len(numbers)))
            row = np.repeat(np.arange(len(doc_ids), len(doc_ids) + len(ids)), lengths[-1])
            word = np.fromiter(chain.from_iterable(numbers), np.int64, len(row))
            key, count = np.unique(word << 32 | row, return_counts=True)
            keys.append(key)
            counts.append(count)
            doc_ids.extend(ids)
        length_D = np.concatenate(lengths)
        write_table(pa.table([pa.array(doc_ids, pa.string()), length_D], schema=PASSAGES), out / "passages" / name)
        table = _by_word(list(words.known), np.concatenate(keys), np.concatenate(counts))
        totals = {"passages": str(len(length_D)), "words": str(length_D.sum(dtype=np.int64))}
        write_table(table.replace_schema_metadata(totals), out / "counted" / name)

    return count_shard


def _by_word(words: list[str], keys: Ints, counts: Ints) -> pa.Table:
    """The postings of each word.

    Args:
        keys: the number of the word, and in the lower 32 bits the row; each once.
    """
    named = pa.array(words, pa.large_string())
    order = pc.sort_indices(named).to_numpy().astype(np.int64)
    sorted_number = np.empty_like(order)
    sorted_number[order] = np.arange(len(order))
    word, row = sorted_number[keys >> 32], keys & 0xFFFFFFFF
    at = np.lexsort((row, word))
    passages = np.bincount(word, minlength=len(words))
    offsets = np.concatenate([[0], np.cumsum(passages)])
    columns = [pa.array(row[at], pa.int32()), pa.array(counts[at], pa.int32())]
    postings = pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.StructArray.from_arrays(columns, ["row", "count"])
    )
    return pa.table([named.take(pa.array(order)), passages, postings], schema=COUNTED)


def _merge_counts(config: Bm25WordsConfig, inputs: Inputs, out: Place) -> dict[str, Any]:
    """Adds up the shards' words, and writes `words.parquet`. Raises UserError if there is no word in the collection."""
    names = (out / "counted").names()
    merged, passages, words = WORDS.empty_table(), 0, 0
    for first in range(0, len(names), MERGED_AT_ONCE):
        tables = [read_table(out / "counted" / name, WORDS.names) for name in names[first : first + MERGED_AT_ONCE]]
        passages += sum(int(table.schema.metadata[b"passages"]) for table in tables)
        words += sum(int(table.schema.metadata[b"words"]) for table in tables)
        together = pa.concat_tables([merged, *(table.replace_schema_metadata() for table in tables)])
        merged = together.group_by("word").aggregate([("passages", "sum")]).rename_columns(WORDS.names)
    if not words:
        raise UserError(
            f"{inputs['corpus'].place}: no passage holds a word of two letters, so BM25 has nothing to index"
        )
    totals = {"passages": str(passages), "words": str(words)}
    write_table(merged.sort_by("word").replace_schema_metadata(totals), out / "words.parquet")
    return {"passages": passages, "words": words, "distinct_words": len(merged)}


def read_statistics(counts: Place) -> WordStatistics:
    """Reads the statistics that the first pass wrote for a collection."""
    table = read_table(counts / "words.parquet", WORDS.names)
    passages, words = (int(table.schema.metadata[name]) for name in (b"passages", b"words"))
    return WordStatistics(
        table["word"].combine_chunks(), table["passages"].to_numpy().astype(np.int64), passages, words / passages
    )


BM25_WORDS = Sharded(
    folder="counted",
    over="corpus/docs",
    worker=_counter,
    finish=_merge_counts,
)
"""The step: corpus in, counted words out."""


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


def _copy_words(config: Bm25IndexConfig, inputs: Inputs, out: Place) -> None:
    if not (out / "words" / ALL_WORDS).exists():
        _write_arrow(pa.table({"word": read_statistics(inputs["words"].place).words}), out / "words" / ALL_WORDS)


def _indexer(config: Bm25IndexConfig, inputs: Inputs, out: Place) -> Callable[[str], None]:
    counts = inputs["words"].place
    statistics = read_statistics(counts)

    def index_shard(name: str) -> None:
        words = read_table(counts / "counted" / name, COUNTED.names)
        passages = read_table(counts / "passages" / name, PASSAGES.names)
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
    begin=_copy_words,
    worker=_indexer,
    finish=lambda config, inputs, out: {
        "passages": inputs["words"].result["passages"],
        "bytes": (out / "index").size(),
    },
    file_name=file_name,
)
"""The step: counted words in, an index of each shard out."""
