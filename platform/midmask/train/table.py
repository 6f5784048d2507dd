"""Random access to the token rows of a tokens artifact."""

from collections import OrderedDict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from midmask.artifact import Place
from midmask.train.plan import BLOCK, POOL, Rows

Ints = NDArray[np.int32]


class TokenTable:
    """Random access to the shards of `passages/`: row groups are decoded on demand, the newest kept.

    A pool of the batch plan spans about 32 row groups, so pre-training decodes each once an epoch.
    """

    KEPT = 2 * POOL // BLOCK + 2

    def __init__(self, passages: Place) -> None:
        self._shards = [passages / name for name in passages.names()]
        self._metadata = [_metadata(shard) for shard in self._shards]
        self._groups = [
            (shard, group) for shard, meta in enumerate(self._metadata) for group in range(meta.num_row_groups)
        ]
        sizes = [self._metadata[shard].row_group(group).num_rows for shard, group in self._groups]
        self._starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        self.count = int(self._starts[-1])
        self._decoded: OrderedDict[int, tuple[Ints, Ints]] = OrderedDict()

    def read(self, rows: Rows) -> list[Ints]:
        """The token ids of passages, in the order asked for."""
        groups = np.searchsorted(self._starts, rows, side="right") - 1
        pieces: list[Ints] = [np.empty(0, np.int32)] * len(rows)
        for place in np.argsort(groups, kind="stable"):  # group by group: none is decoded twice
            values, offsets = self._group(int(groups[place]))
            row = rows[place] - self._starts[groups[place]]
            pieces[place] = values[offsets[row] : offsets[row + 1]]
        return pieces

    def _group(self, group: int) -> tuple[Ints, Ints]:
        if group not in self._decoded:
            if len(self._decoded) >= self.KEPT:
                self._decoded.popitem(last=False)
            ids = self._column(group, "ids").combine_chunks()
            self._decoded[group] = (ids.values.to_numpy(), ids.offsets.to_numpy())
        self._decoded.move_to_end(group)
        return self._decoded[group]

    def _column(self, group: int, name: str) -> pa.ChunkedArray:
        shard, index = self._groups[group]
        with self._shards[shard].reading() as stream:
            return pq.ParquetFile(stream, metadata=self._metadata[shard]).read_row_group(index, columns=[name])[name]

    def doc_ids(self, rows: Rows) -> list[str]:
        """The names of passages; slow, for messages."""
        groups = np.searchsorted(self._starts, rows, side="right") - 1
        return [
            str(self._column(int(group), "doc_id")[int(row - self._starts[group])].as_py())
            for row, group in zip(rows, groups, strict=True)
        ]

    def rows_of(self, doc_ids: pa.ChunkedArray) -> Rows:
        """The row of each passage by its id, int64; -1 for one that is not here. One pass over the shards' ids."""
        wanted = pc.unique(doc_ids)
        row_of = np.full(len(wanted), -1, dtype=np.int64)
        start = 0
        for shard in self._shards if len(wanted) else []:
            with shard.reading() as stream:
                here = pq.read_table(stream, columns=["doc_id"])["doc_id"]
            found = pc.index_in(here, value_set=wanted).combine_chunks()
            places = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
            row_of[found.drop_null().to_numpy()] = start + places
            start += len(here)
        index = pc.index_in(doc_ids, value_set=wanted).combine_chunks()
        return np.asarray(row_of[index.to_numpy(zero_copy_only=False).astype(np.int64)])


def _metadata(shard: Place) -> Any:
    with shard.reading() as stream:
        return pq.read_metadata(stream)


def read_table(place: Place) -> pa.Table:
    """A whole Parquet file."""
    with place.reading() as stream:
        return pq.read_table(stream)
