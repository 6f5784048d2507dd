"""The data that tasks of Ray Data read: the pieces of a collection (the step "prepare"), and the steps of a training.

Nothing here imports torch, which tasks would load longer than they read.

Prepare: blocks are small and come in order, a few at a time, so neither the object store nor the driver fills up as a
corpus grows. The driver alone removes duplicates and writes, by the same code as the one-process step, hence the same
bytes.

Training: a read task takes a chunk of steps, looks up their rows in the plan (a pure function, so nothing but the step
numbers is sent) and gives one row per step, ahead of the loop and in order. Ray Data's own shuffles and
`streaming_split` promise neither an order nor a position to go on from; the plan has both.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import ray
import ray.data
from ray.data import DataContext, Datasource, ReadTask
from ray.data.block import BlockMetadata

from midmask.backend.cluster import quiet_ray_data
from midmask.corpora import CorpusConfig
from midmask.corpora.assemble import assemble
from midmask.corpora.chunks import BLOCK_BYTES, Piece
from midmask.errors import UserError
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.training.examples import Order, TextColumns, TextRows


def prepare(config: CorpusConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """Prepares a collection; the workers of the connected Ray read it.

    Raises:
        UserError: also where a worker cannot read a file or lacks a package.
    """
    return assemble(config, out, read_by_workers)


def read_by_workers(pieces: Sequence[Piece]) -> Iterator[pa.Table]:
    """The blocks of the pieces in their order, streamed; Ray Data may join or cut them."""
    if not pieces:
        return
    context = DataContext.get_current().copy()
    context.target_max_block_size = BLOCK_BYTES
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    with DataContext.current(context):
        rows = ray.data.read_datasource(PieceSource(pieces), override_num_blocks=len(pieces))
    try:
        yield from rows.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, UserError):
            # Ray Data appends advice about retries to a task's error.
            raise UserError(str(error.cause).split("\n", 1)[0]) from None
        raise


class PieceSource(Datasource):  # type: ignore[misc]
    """One read task per piece."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__()
        self._pieces = tuple(pieces)

    def estimate_inmemory_data_size(self) -> int:
        return sum(piece.size for piece in self._pieces)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: DataContext | None = None
    ) -> list[ReadTask]:
        return [
            ReadTask(piece.read, _piece_metadata(piece), per_task_row_limit=per_task_row_limit)
            for piece in self._pieces
        ]


def _piece_metadata(piece: Piece) -> BlockMetadata:
    return BlockMetadata(num_rows=None, size_bytes=piece.size, exec_stats=None, input_files=[piece.file])


READ_CPUS = 0.25
"""CPUs of a read task: `worker_group.worker_cpus` leaves room for one beside each worker."""

CHUNKS = 2000
"""Read tasks are made before the first one runs, so a long run gets larger chunks instead of more of them."""


class TrainingSteps(Datasource):  # type: ignore[misc]
    """One worker's steps as a source of Ray Data, in chunks; row i is step order.start + i."""

    def __init__(self, order: Order) -> None:
        super().__init__()
        steps = order.stop - order.start
        size = min(64, max(8, -(-steps // CHUNKS)))
        self._chunks = [
            replace(order, start=start, stop=min(start + size, order.stop))
            for start in range(order.start, order.stop, size)
        ]

    @property
    def chunks(self) -> int:
        return len(self._chunks)

    def get_name(self) -> str:
        return "TrainingSteps"

    def estimate_inmemory_data_size(self) -> int | None:
        return None

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        return [
            ReadTask(
                partial(_read_steps, chunk),
                BlockMetadata(num_rows=chunk.stop - chunk.start, size_bytes=None, exec_stats=None, input_files=None),
            )
            for chunk in self._chunks
        ]


def ray_reader(order: Order) -> Iterator[tuple[int, TextColumns]]:
    """The Ray Data reader; equals `training.examples.local_reader`."""
    quiet_ray_data()
    source = TrainingSteps(order)
    steps = ray.data.read_datasource(source, num_cpus=READ_CPUS, concurrency=1, override_num_blocks=source.chunks)
    steps.context.execution_options.preserve_order = True
    steps.context.enable_progress_bars = False
    for block in steps.iter_batches(batch_size=None, batch_format="pyarrow"):
        for row in range(len(block)):
            yield _step_from_row(block, row)


def _read_steps(chunk: Order) -> Iterator[pa.Table]:
    rows = [_step_to_row(step, chunk.read(step)) for step in range(chunk.start, chunk.stop)]
    yield pa.Table.from_pylist(rows, schema=_step_schema(rows[0]))


def _step_to_row(step: int, texts: TextColumns) -> dict[str, Any]:
    row: dict[str, Any] = {"step": step}
    for name, text in texts.items():
        fields = zip(TextRows._fields, text, strict=True)
        row |= {f"{name}.{field}": value for field, value in fields if value is not None}
    return row


def _step_schema(row: dict[str, Any]) -> pa.Schema:
    """int64 for the step; lists of the arrays' own types else."""
    return pa.schema(
        [
            (name, pa.list_(pa.from_numpy_dtype(value.dtype)) if isinstance(value, np.ndarray) else pa.int64())
            for name, value in row.items()
        ]
    )


def _step_from_row(block: pa.Table, row: int) -> tuple[int, TextColumns]:
    """The arrays of one step; a field that no column holds was none."""
    texts: dict[str, dict[str, Any]] = {}
    for column in block.column_names:
        name, dot, field = column.partition(".")
        if dot:
            texts.setdefault(name, {})[field] = block[column][row].values.to_numpy()
    return block["step"][row].as_py(), {name: TextRows(**fields) for name, fields in texts.items()}
