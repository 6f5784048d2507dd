"""What is known of queries and passages before negatives are chosen: judgements, and near-duplicates of what is judged.

A passage with nearly the text of a relevant one would teach the opposite of the judgement; the near_duplicates step
finds these.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from midmask.core.arrays import Ints
from midmask.core.config import Config
from midmask.corpora.duplicates import BANDS, ROWS, SIMILAR, Signatures, signatures
from midmask.retrieve.searched_queries import relevant_passages
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.sharded import Inputs, Sharded
from midmask.store.tables import read_passages, read_table, write_table

PAIR = ["query_id", "doc_id"]
NEAR = pa.schema([("doc_id", pa.string()), ("group", pa.int32()), ("similarity", pa.float32())])


class NearDuplicatesConfig(Config):
    """Finds passages similar to a relevant one. The mining config has the similarity above which one is refused."""


def _begin(config: NearDuplicatesConfig, inputs: Inputs, out: Place) -> None:
    """Writes the positives and, last, the signatures of their groups."""
    if (out / "signatures.npy").exists():
        return
    relevant = pc.unique(relevant_passages(inputs["corpus"].place)["doc_id"])
    names: list[str] = []
    minima = [np.empty((0, BANDS * ROWS), np.uint32)]
    docs = inputs["corpus"].place / "docs"
    for shard in docs.names():
        table = read_table(docs / shard, ["doc_id", "text"])
        table = table.filter(pc.is_in(table["doc_id"], value_set=relevant))
        if len(table):
            names.extend(table["doc_id"].to_pylist())
            minima.append(signatures(table["text"].to_pylist()))
    minima_GH, group = np.unique(np.concatenate(minima), axis=0, return_inverse=True)
    table = pa.table({"doc_id": pa.array(names, pa.string()), "group": pa.array(group.reshape(-1), pa.int32())})
    write_table(table, out / "positives.parquet")
    (out / "signatures.npy").write_array(minima_GH)


def _worker(config: NearDuplicatesConfig, inputs: Inputs, out: Place) -> Callable[[str], None]:
    groups = Groups((out / "signatures.npy").read_array())

    def make(name: str) -> None:
        tables = [NEAR.empty_table()]
        for doc_ids, _, texts in read_passages(inputs["corpus"].place / "docs" / name):
            rows, group, similarity = groups.like(signatures(texts))
            columns = [pa.array(doc_ids, pa.string()).take(pa.array(rows)), group.astype(np.int32), similarity]
            tables.append(pa.table(columns, schema=NEAR))
        write_table(pa.concat_tables(tables), out / "near" / name)

    return make


class Groups:
    """Signatures of G groups, uint32 [G, 96], indexed by their bands."""

    def __init__(self, minima_GH: Signatures) -> None:
        self._minima_GH = minima_GH
        keys_BG = _band_keys(minima_GH)
        self._order_BG = np.argsort(keys_BG, axis=1, kind="stable")
        self._keys_BG = np.take_along_axis(keys_BG, self._order_BG, axis=1)

    def like(self, minima_NH: Signatures) -> tuple[Ints, Ints, NDArray[np.float32]]:
        """(row, group, similarity) of every pair that is equal in a band and in at least half of all hashes."""
        met = [np.empty(0, np.int64)]
        for order, keys, band_keys in zip(self._order_BG, self._keys_BG, _band_keys(minima_NH), strict=True):
            first, last = np.searchsorted(keys, band_keys, "left"), np.searchsorted(keys, band_keys, "right")
            row = np.repeat(np.arange(len(band_keys)), last - first)
            groups = [order[start:stop] for start, stop in zip(first.tolist(), last.tolist(), strict=True)]
            met.append(row * len(keys) + np.concatenate([met[0], *groups]))
        row, group = np.divmod(np.unique(np.concatenate(met)), max(1, len(self._minima_GH)))
        similarity = (minima_NH[row] == self._minima_GH[group]).mean(axis=1).astype(np.float32)
        similar = similarity >= SIMILAR
        return row[similar], group[similar], similarity[similar]


def _band_keys(minima_NH: Signatures) -> NDArray[np.uint64]:
    """One number per band and row, equal where a band's hashes are (a chance match is found out); uint64 [32, N]."""
    bands_NBR = minima_NH.reshape(-1, BANDS, ROWS).astype(np.uint64)
    factors = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)
    return np.ascontiguousarray((bands_NBR * factors).sum(axis=2).T)


def _finish(config: NearDuplicatesConfig, inputs: Inputs, out: Place) -> dict[str, Any]:
    positives, near = read_near_duplicates(out, SIMILAR)
    return {"positives": len(positives), "pairs": len(near), "passages": pc.count_distinct(near["doc_id"]).as_py()}


def read_near_duplicates(place: Place, similarity: float) -> tuple[pa.Table, pa.Table]:
    """The positives with their groups, and the passages that are so similar to a group (see NEAR)."""
    positives = read_table(place / "positives.parquet")
    tables = [NEAR.empty_table()]
    for name in (place / "near").names():
        table = read_table(place / "near" / name)
        tables.append(table.filter(pc.greater_equal(table["similarity"], pa.scalar(similarity, pa.float32()))))
    return positives, pa.concat_tables(tables)


NEAR_DUPLICATES = Sharded(folder="near", over="corpus/docs", begin=_begin, worker=_worker, finish=_finish)


@dataclass(frozen=True)
class Known:
    """Pairs (query_id, doc_id) that are never negatives, each once."""

    relevant: pa.Table  # judged so, in any split
    alike: pa.Table  # passages that are nearly copies of these

    @staticmethod
    def of(corpus: Artifact, like: Place, similarity: float) -> "Known":
        """Reads the relevant passages of all splits, and the output of the near_duplicates step."""
        relevant = relevant_passages(corpus.place).group_by(PAIR, use_threads=False).aggregate([])
        positives, near = read_near_duplicates(like, similarity)
        grouped = relevant.join(positives, "doc_id", join_type="inner").select(["query_id", "group"])
        alike = grouped.join(near, "group", join_type="inner").group_by(PAIR, use_threads=False).aggregate([])
        return Known(relevant, alike)

    def of_queries(self, query_ids: pa.Array) -> "Known":
        """Those of some queries."""
        tables = (self.relevant, self.alike)
        return Known(*(table.filter(pc.is_in(table["query_id"], value_set=query_ids)) for table in tables))
