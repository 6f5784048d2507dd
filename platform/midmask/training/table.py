"""Random access to the rows of an artifact that has a list for each: token ids, term weights, queries."""

from collections import OrderedDict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from midmask.arrays import Ints32
from midmask.artifact import Place
from midmask.training.plan import POOL, Rows

ColumnValues = NDArray[Any]
"""A row's values: int32 for token ids, float16 or float32 for term weights."""


class TokenTable:
    """Random access to the shards of a folder: row groups are decoded on demand, the newest kept.

    As many are kept as two pools of the batch plan lie in, so that pre-training decodes each about once an epoch.

    Args:
        folder: holds Parquet files, whose rows are numbered through in the order of their names.
        column: a list of numbers a row, or a list of such lists.
        planned: rows of the batch plan, if these are not the table's: they are spread evenly over it.
    """

    KEPT = 512
    """Decoded row groups at most."""

    def __init__(self, folder: Place, column: str = "ids", *, planned: int | None = None) -> None:
        self._column_name = column
        self._shards = [folder / name for name in folder.names()]
        self._metadata = [_metadata(shard) for shard in self._shards]
        self._groups = [
            (shard, group) for shard, meta in enumerate(self._metadata) for group in range(meta.num_row_groups)
        ]
        sizes = [self._metadata[shard].row_group(group).num_rows for shard, group in self._groups]
        self._starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        self.count = int(self._starts[-1])
        self._kept = min(self.KEPT, 2 * -(-POOL * len(self._groups) // max(1, planned or self.count)) + 2)
        self._decoded: OrderedDict[int, tuple[ColumnValues, list[Ints32]]] = OrderedDict()

    def read(self, rows: Rows, picks: Rows | None = None) -> list[ColumnValues]:
        """The values of rows, in the order asked for; of a list of lists, the list `picks` names in each."""
        groups = np.searchsorted(self._starts, rows, side="right") - 1
        pieces: list[ColumnValues] = [np.empty(0, np.int32)] * len(rows)
        for place in np.argsort(groups, kind="stable"):  # group by group: none is decoded twice
            values, offsets = self._group(int(groups[place]))
            row = rows[place] - self._starts[groups[place]]
            if picks is not None:
                row = offsets[0][row] + picks[place]
            pieces[place] = values[offsets[-1][row] : offsets[-1][row + 1]]
        return pieces

    def _group(self, group: int) -> tuple[ColumnValues, list[Ints32]]:
        """All values of a row group end to end, and where the lists begin in what they are of, outermost first."""
        if group not in self._decoded:
            if len(self._decoded) >= self._kept:
                self._decoded.popitem(last=False)
            lists, offsets = self._column(group, self._column_name).combine_chunks(), []
            while pa.types.is_list(lists.type):
                offsets.append(lists.offsets.to_numpy())
                lists = lists.values
            self._decoded[group] = (lists.to_numpy(), offsets)
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
