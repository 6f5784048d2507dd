"""BM25's first pass: the stemmed words of each shard of a corpus, counted, and the counts of the whole collection.

    counted/NAME     word, passages of the shard that have it, postings (row, count); sorted by word
    passages/NAME    doc_id, words: the shard's passages in row order
    words.parquet    word, passages of the collection that have it; sorted by word

A worker holds one shard. The last step holds the different words of the collection, and those of a few shards.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from midmask.core.arrays import Ints
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
        found: list[str] = self._stem(self._split(text.lower()))
        return found

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


def count_shard(docs: Place, out: Place, name: str, *, titles: bool) -> None:
    """Writes the words of a shard's passages: `passages/NAME` and, last, `counted/NAME`."""
    words = StemmedWords()
    doc_ids: list[str] = []
    lengths = [np.empty(0, np.int32)]
    keys, counts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for ids, headings, texts in read_passages(docs / name):
        numbers = [words.ids(text) for text in (map("{} {}".format, headings, texts) if titles else texts)]
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


def merge_counts(out: Place, collection: str) -> dict[str, Any]:
    """Adds up the shards' words, and writes `words.parquet`.

    Args:
        collection: its name, for the message.

    Raises:
        UserError: if there is no word in it.
    """
    names = (out / "counted").names()
    merged, passages, words = WORDS.empty_table(), 0, 0
    for first in range(0, len(names), MERGED_AT_ONCE):
        tables = [read_table(out / "counted" / name, WORDS.names) for name in names[first : first + MERGED_AT_ONCE]]
        passages += sum(int(table.schema.metadata[b"passages"]) for table in tables)
        words += sum(int(table.schema.metadata[b"words"]) for table in tables)
        together = pa.concat_tables([merged, *(table.replace_schema_metadata() for table in tables)])
        merged = together.group_by("word").aggregate([("passages", "sum")]).rename_columns(WORDS.names)
    if not words:
        raise UserError(f"{collection}: no passage holds a word of two letters, so BM25 has nothing to index")
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


def read_counted(counts: Place, name: str) -> tuple[pa.Table, pa.Table]:
    """The words of a shard (COUNTED), and its passages (PASSAGES)."""
    return read_table(counts / "counted" / name, COUNTED.names), read_table(counts / "passages" / name, PASSAGES.names)


def _worker(config: Bm25WordsConfig, inputs: Inputs, out: Place) -> Callable[[str], None]:
    docs = inputs["corpus"].place / "docs"
    return lambda name: count_shard(docs, out, name, titles=config.titles)


BM25_WORDS = Sharded(
    folder="counted",
    over="corpus/docs",
    worker=_worker,
    finish=lambda config, inputs, out: merge_counts(out, str(inputs["corpus"].place)),
)
"""The step: corpus in, counted words out."""
