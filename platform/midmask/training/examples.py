"""From plan rows to token ids: how a training run reads rows of token ids from artifacts, in the order of its plan.

`TokenTable` is random access to an artifact with a list for each row. An `Examples` is a small description that can be
sent to any machine; `open_examples` turns it into a source there, once in each process. `local_reader` reads the steps
of one worker in order, from any step on; it is what every other reader has to equal (`backend.ray_data`).

Nothing here imports torch: reading tasks start on processes of their own, and torch alone would take them longer to
load than to read.
"""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from midmask.core.arrays import Ints32
from midmask.core.randomness import mix
from midmask.store.place import Place
from midmask.store.tables import read_metadata, read_table
from midmask.training.plan import POOL, BatchPlan, Rows

ColumnValues = NDArray[Any]
"""A row's values: int32 for token ids, float16 or float32 for term weights."""


def groups_of_pools(groups: int, rows: int) -> int:
    """How many of `groups` row groups the rows of two pools of a batch plan lie in, if all `rows` are spread evenly."""
    return 2 * -(-POOL * groups // max(1, rows)) + 2


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
        self._metadata = [read_metadata(shard) for shard in self._shards]
        self._groups = [
            (shard, group) for shard, meta in enumerate(self._metadata) for group in range(meta.num_row_groups)
        ]
        sizes = [self._metadata[shard].row_group(group).num_rows for shard, group in self._groups]
        self._starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        self.count = int(self._starts[-1])
        self._kept = min(self.KEPT, groups_of_pools(len(self._groups), planned or self.count))
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
        unique_ids = pc.unique(doc_ids)
        row_of = np.full(len(unique_ids), -1, dtype=np.int64)
        start = 0
        for shard in self._shards if len(unique_ids) else []:
            here = read_table(shard, ["doc_id"])["doc_id"]
            positions = pc.index_in(here, value_set=unique_ids).combine_chunks()
            places = np.flatnonzero(positions.is_valid().to_numpy(zero_copy_only=False))
            row_of[positions.drop_null().to_numpy()] = start + places
            start += len(here)
        index = pc.index_in(doc_ids, value_set=unique_ids).combine_chunks()
        return np.asarray(row_of[index.to_numpy(zero_copy_only=False).astype(np.int64)])


class TextRows(NamedTuple):
    """Token rows, stored one after the other without padding."""

    flat: Ints32  # token ids of all rows, [sum of lengths]
    lengths: Ints32  # tokens of each row, [B]
    rows: Rows  # number of the text in each row, int64, [B]
    weights: NDArray[np.float32] | None = None  # term weight of each token, [sum of lengths], if the objective needs it
    teacher: NDArray[np.float32] | None = None  # a teacher's score of each text, [B], or its vector, [B, D]

    def pieces(self) -> Iterator[Ints32]:
        """The rows one by one."""
        ends = np.cumsum(self.lengths)
        for end, length in zip(ends, self.lengths, strict=True):
            yield self.flat[end - length : end]


TextColumns = dict[str, TextRows]


class ExampleSource(ABC):
    """An opened `Examples`."""

    count: int
    group = 1  # passages a row
    lengths: Ints32 | None = None  # tokens of each row, [count], if batches are to be grouped by it

    @abstractmethod
    def read(self, rows: Rows, seed: int, epoch: int) -> TextColumns: ...


class Examples(Protocol):
    """A hashable, picklable description of a run's training data."""

    def __hash__(self) -> int: ...

    @property
    def fingerprint(self) -> str: ...

    def open(self) -> ExampleSource: ...


@lru_cache(maxsize=2)
def open_examples(examples: Examples) -> ExampleSource:
    """The source of a description, opened once a process."""
    return examples.open()


def join_texts(pieces: list[Ints32], rows: Rows, weights: list[ColumnValues] | None = None) -> TextRows:
    """Rows end to end; `weights`: of their tokens, row by row."""
    lengths = np.array([len(piece) for piece in pieces], dtype=np.int32)
    flat = np.concatenate(pieces).astype(np.int32, copy=False)
    weighed = None if weights is None else np.concatenate(weights).astype(np.float32, copy=False)
    if weighed is not None and len(weighed) != len(flat):
        raise ValueError(f"{len(weighed)} term weights for {len(flat)} tokens: they belong to other tokens")
    return TextRows(flat, lengths, rows, weighed)


def draw_rows(seed: int, epoch: int, rows: Rows, what: int, below: Any) -> Rows:
    """A number below `below` for each row, by hash of (seed, epoch, row, what it decides); int64 [B]."""
    keys = mix(mix(np.uint64(seed), np.uint64(epoch)), rows.astype(np.uint64))
    return np.asarray(mix(keys, np.uint64(what)) % np.asarray(below).astype(np.uint64)).astype(np.int64)


@dataclass(frozen=True)
class WorkerSteps:
    """The rows that one worker reads in steps start … stop - 1 of the batch plan. Picklable."""

    examples: Examples
    batch_size: int
    seed: int
    rank: int
    size: int
    start: int
    stop: int

    def plan(self) -> BatchPlan:
        return plan_of(self.examples, self.batch_size, self.seed)

    def read(self, step: int) -> TextColumns:
        """This worker's token rows of one step."""
        plan = self.plan()
        rows = plan.share(step, self.rank, self.size)
        return open_examples(self.examples).read(rows, self.seed, plan.epoch_of(step))


@lru_cache(maxsize=2)
def plan_of(examples: Examples, batch_size: int, seed: int) -> BatchPlan:
    source = open_examples(examples)
    return BatchPlan(source.count, batch_size, seed, examples.fingerprint, source.lengths)


StepReader = Callable[[WorkerSteps], Iterator[tuple[int, TextColumns]]]


def local_reader(worker: WorkerSteps) -> Iterator[tuple[int, TextColumns]]:
    """The one-process reader."""
    for step in range(worker.start, worker.stop):
        yield step, worker.read(step)
