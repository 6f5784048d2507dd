"""Passages with nearly the text of a relevant one: as negatives they would teach the opposite of the judgement.

    positives.parquet   doc_id, group: every passage that is judged relevant to some query; those with one MinHash
                        signature share a group
    near/NAME           doc_id, group, similarity: passages like a group's, from `corpora.duplicates.SIMILAR` up

Only passages that are judged relevant are held in memory, by their signatures (384 bytes each); the corpus streams by.
Similarity is the estimated Jaccard similarity of the texts' 5-word shingles (`corpora.duplicates`).
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from midmask.arrays import Ints
from midmask.artifact import Place
from midmask.corpora.duplicates import BANDS, ROWS, SIMILAR, Signatures, signatures
from midmask.identity import Config
from midmask.retrieve.selection import relevant_passages
from midmask.sharded import Inputs, Sharded

ROWS_AT_ONCE = 2048
NEAR = pa.schema([("doc_id", pa.string()), ("group", pa.int32()), ("similarity", pa.float32())])


class NearDuplicatesConfig(Config):
    """Finds passages similar to a relevant one. The mining config has the similarity above which one is refused."""


def _begin(config: NearDuplicatesConfig, inputs: Inputs, out: Place) -> None:
    """Writes the positives and, last, the signatures of their groups."""
    if (out / "signatures.npy").exists():
        return
    relevant = pc.unique(relevant_passages(inputs["corpus"].place)["doc_id"])
    names: list[str] = []
    found = [np.empty((0, BANDS * ROWS), np.uint32)]
    for doc_ids, texts in _read_passages(inputs["corpus"].place, relevant):
        names.extend(doc_ids)
        found.append(signatures(texts))
    minima_GH, group = np.unique(np.concatenate(found), axis=0, return_inverse=True)
    with (out / "positives.parquet").writing() as stream:
        table = pa.table({"doc_id": pa.array(names, pa.string()), "group": pa.array(group.reshape(-1), pa.int32())})
        pq.write_table(table, stream, compression="zstd")
    with (out / "signatures.npy").writing() as stream:
        np.save(stream, minima_GH)


def _read_passages(corpus: Place, wanted: pa.Array) -> Iterator[tuple[list[str], list[str]]]:
    """Ids and texts of the wanted passages, some at a time."""
    for name in (corpus / "docs").names():
        yield from _batches(corpus / "docs" / name, wanted)


def _batches(shard: Place, wanted: pa.Array | None = None) -> Iterator[tuple[list[str], list[str]]]:
    with shard.reading() as stream:
        for batch in pq.ParquetFile(stream).iter_batches(ROWS_AT_ONCE, columns=["doc_id", "text"]):
            rows = batch if wanted is None else batch.filter(pc.is_in(batch["doc_id"], value_set=wanted))
            if len(rows):
                yield rows["doc_id"].to_pylist(), rows["text"].to_pylist()


def _worker(config: NearDuplicatesConfig, inputs: Inputs, out: Place) -> Callable[[str], None]:
    with (out / "signatures.npy").reading() as stream:
        groups = Groups(np.load(stream, allow_pickle=False))

    def make(name: str) -> None:
        tables = [NEAR.empty_table()]
        for doc_ids, texts in _batches(inputs["corpus"].place / "docs" / name):
            rows, group, similarity = groups.like(signatures(texts))
            columns = [pa.array(doc_ids, pa.string()).take(pa.array(rows)), group.astype(np.int32), similarity]
            tables.append(pa.table(columns, schema=NEAR))
        with (out / "near" / name).writing() as stream:
            pq.write_table(pa.concat_tables(tables), stream, compression="zstd")

    return make


class Groups:
    """Signatures of the groups, found by their bands. signatures: uint32 [G, 96]."""

    def __init__(self, minima_GH: Signatures) -> None:
        self._minima_GH = minima_GH
        keys_BG = _band_keys(minima_GH)
        self._order_BG = np.argsort(keys_BG, axis=1, kind="stable")
        self._keys_BG = np.take_along_axis(keys_BG, self._order_BG, axis=1)

    def like(self, minima_NH: Signatures) -> tuple[Ints, Ints, NDArray[np.float32]]:
        """(row, group, similarity) of every pair that is equal in a band and in at least half of all hashes."""
        met = [np.empty(0, np.int64)]
        for order, keys, own in zip(self._order_BG, self._keys_BG, _band_keys(minima_NH), strict=True):
            first, last = np.searchsorted(keys, own, "left"), np.searchsorted(keys, own, "right")
            row = np.repeat(np.arange(len(own)), last - first)
            met.append(row * len(keys) + order[spread(first, last)])
        row, group = np.divmod(np.unique(np.concatenate(met)), max(1, len(self._minima_GH)))
        similarity = (minima_NH[row] == self._minima_GH[group]).mean(axis=1).astype(np.float32)
        kept = similarity >= SIMILAR
        return row[kept], group[kept], similarity[kept]


def spread(first: Ints, last: Ints) -> Ints:
    """The numbers first[0] … last[0] - 1, then first[1] … last[1] - 1, and so on."""
    counts = last - first
    begins = np.cumsum(counts) - counts
    return np.asarray(np.arange(counts.sum()) - np.repeat(begins, counts) + np.repeat(first, counts))


def _band_keys(minima_NH: Signatures) -> NDArray[np.uint64]:
    """One number per band and row, equal where a band's hashes are (a chance match is found out); uint64 [32, N]."""
    bands_NBR = minima_NH.reshape(-1, BANDS, ROWS).astype(np.uint64)
    factors = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)
    return np.ascontiguousarray((bands_NBR * factors).sum(axis=2).T)


def _finish(config: NearDuplicatesConfig, inputs: Inputs, out: Place) -> dict[str, Any]:
    positives, near = read(out, SIMILAR)
    return {"positives": len(positives), "pairs": len(near), "passages": pc.count_distinct(near["doc_id"]).as_py()}


def read(place: Place, similarity: float) -> tuple[pa.Table, pa.Table]:
    """The positives with their groups, and the passages that are so similar to a group, by group (see NEAR)."""
    with (place / "positives.parquet").reading() as stream:
        positives = pq.read_table(stream)
    tables = [NEAR.empty_table()]
    for name in (place / "near").names():
        with (place / "near" / name).reading() as stream:
            table = pq.read_table(stream)
        tables.append(table.filter(pc.greater_equal(table["similarity"], pa.scalar(similarity, pa.float32()))))
    return positives, pa.concat_tables(tables).sort_by("group")


NEAR_DUPLICATES = Sharded(folder="near", over="corpus/docs", begin=_begin, worker=_worker, finish=_finish)
