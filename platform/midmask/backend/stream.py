"""The batch plan carried out by Ray Data: steps are read ahead by tasks anywhere in the cluster, and arrive in order.

A read task takes a chunk of steps, looks up their rows in the plan (a pure function, so nothing but the step numbers is
sent) and gives one row per step. Ray Data's own shuffles and `streaming_split` promise neither an order nor a position
to go on from; the plan has both.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import ray.data
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask

from midmask.backend.connection import quiet_ray_data
from midmask.training.examples import TextColumns, TextRows
from midmask.training.order import Order

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
                partial(_read, chunk),
                BlockMetadata(num_rows=chunk.stop - chunk.start, size_bytes=None, exec_stats=None, input_files=None),
            )
            for chunk in self._chunks
        ]


def ray_reader(order: Order) -> Iterator[tuple[int, TextColumns]]:
    """The Ray Data reader; equals `training.order.local_reader`."""
    quiet_ray_data()
    source = TrainingSteps(order)
    steps = ray.data.read_datasource(source, num_cpus=READ_CPUS, concurrency=1, override_num_blocks=source.chunks)
    steps.context.execution_options.preserve_order = True
    steps.context.enable_progress_bars = False
    for block in steps.iter_batches(batch_size=None, batch_format="pyarrow"):
        for row in range(len(block)):
            yield _from_row(block, row)


def _read(chunk: Order) -> Iterator[pa.Table]:
    rows = [_to_row(step, chunk.read(step)) for step in range(chunk.start, chunk.stop)]
    yield pa.Table.from_pylist(rows, schema=_schema(rows[0]))


def _to_row(step: int, texts: TextColumns) -> dict[str, Any]:
    row: dict[str, Any] = {"step": step}
    for name, text in texts.items():
        fields = zip(TextRows._fields, text, strict=True)
        row |= {f"{name}.{field}": value for field, value in fields if value is not None}
    return row


def _schema(row: dict[str, Any]) -> pa.Schema:
    """int64 for the step; lists of the arrays' own types else."""
    return pa.schema(
        [
            (name, pa.list_(pa.from_numpy_dtype(value.dtype)) if isinstance(value, np.ndarray) else pa.int64())
            for name, value in row.items()
        ]
    )


def _from_row(block: pa.Table, row: int) -> tuple[int, TextColumns]:
    """The arrays of one step; a field that no column holds was none."""
    texts: dict[str, dict[str, Any]] = {}
    for column in block.column_names:
        name, dot, field = column.partition(".")
        if dot:
            texts.setdefault(name, {})[field] = block[column][row].values.to_numpy()
    return block["step"][row].as_py(), {name: TextRows(**fields) for name, fields in texts.items()}
