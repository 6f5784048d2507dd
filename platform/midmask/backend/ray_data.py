"""The data that tasks of Ray Data read: the pieces of a collection (the step "prepare"), and the steps of a training.

Nothing here imports torch, which tasks would load longer than they read.

Prepare: blocks are small and come in order, a few at a time, so neither the object store nor the driver fills up as a
corpus grows. The driver alone removes duplicates and writes, by the same code as the one-process step, hence the same
bytes.

Training: a read task takes a chunk of steps, looks up their rows in the plan (a pure function, so nothing but the step
numbers is sent) and gives one row per step, ahead of the loop and in order. Ray Data's own shuffles and
`streaming_split` promise neither an order nor a position to go on from; the plan has both.
"""

import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
import ray
import ray.data
from ray.data import DataContext, Datasource, ReadTask
from ray.data._internal.execution.execution_callback import ExecutionCallback
from ray.data.block import BlockMetadata

from midmask.backend.cluster import quiet_ray_data
from midmask.corpora.chunks import BLOCK_BYTES, Piece, batches, read_here
from midmask.errors import UserError
from midmask.training.examples import TextColumns, WorkerSteps

TASK_BYTES, TASK_PIECES = 2 << 20, 500
"""A read task takes consecutive pieces of so many bytes, or one that is larger: collections have many small files."""


def read_by_workers(pieces: Sequence[Piece]) -> Iterator[pa.Table]:
    """The blocks of a collection's pieces in their order, streamed; Ray Data may join or cut them.

    Raises:
        UserError: also where a worker cannot read a file or lacks a package.
    """
    if not pieces:
        return
    context = DataContext.get_current().copy()
    context.target_max_block_size = BLOCK_BYTES
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    with DataContext.current(context):
        tasks = [
            (partial(read_here, batch), None, sum(piece.size for piece in batch))
            for batch in batches(pieces, TASK_BYTES, TASK_PIECES)
        ]
        rows = ray.data.read_datasource(TaskSource(tasks), override_num_blocks=len(tasks))
    try:
        yield from rows.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, UserError):
            # Ray Data appends advice about retries to a task's error.
            raise UserError(str(error.cause).split("\n", 1)[0]) from None
        raise


class TaskSource(Datasource):  # type: ignore[misc]  # Ray has no types
    """A source of Ray Data: one read task for each function, with the number of its rows and bytes where known."""

    def __init__(self, tasks: Sequence[tuple[Callable[[], Iterable[pa.Table]], int | None, int | None]]) -> None:
        super().__init__()
        self._tasks = tasks

    def estimate_inmemory_data_size(self) -> int | None:
        return None

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: DataContext | None = None
    ) -> list[ReadTask]:
        return [
            ReadTask(read, BlockMetadata(num_rows=rows, size_bytes=size, exec_stats=None, input_files=None))
            for read, rows, size in self._tasks
        ]


READ_CPUS = 0.25
"""CPUs of a read task: `worker_group.worker_cpus` leaves room for one beside each worker."""

STEPS = pa.schema({"step": pa.int64(), "texts": pa.large_binary()})
"""The table of rows that a training reads: the number of a step, and its arrays, pickled."""

CHUNKS = 2000
"""Read tasks are made before the first one runs, so a long run gets larger chunks instead of more of them."""


PAUSE_S = 0.05


class _Pause(ExecutionCallback):  # type: ignore[misc]  # Ray has no types
    """A pause in each turn of Ray Data's loop. Where a block is ready that nobody has room for, the loop would turn
    without one, and take half of the worker's processor time from the training.
    """

    def on_execution_step(self, executor: object) -> None:
        time.sleep(PAUSE_S)


def ray_reader(worker: WorkerSteps) -> Iterator[tuple[int, TextColumns]]:
    """The Ray Data reader; equals `training.examples.local_reader`."""
    quiet_ray_data()
    tasks = [(partial(_read_steps, chunk), chunk.stop - chunk.start, None) for chunk in _chunks(worker)]
    steps = ray.data.read_datasource(
        TaskSource(tasks), num_cpus=READ_CPUS, concurrency=1, override_num_blocks=len(tasks)
    )
    steps.context.execution_options.preserve_order = True
    steps.context.enable_progress_bars = False
    steps.context.custom_execution_callback_classes = [_Pause]
    for block in steps.iter_batches(batch_size=None, batch_format="pyarrow"):
        for row in range(len(block)):
            yield block["step"][row].as_py(), pickle.loads(block["texts"][row].as_py())


def _chunks(worker: WorkerSteps) -> list[WorkerSteps]:
    size = min(64, max(8, -(-(worker.stop - worker.start) // CHUNKS)))
    starts = range(worker.start, worker.stop, size)
    return [replace(worker, start=start, stop=min(start + size, worker.stop)) for start in starts]


def _read_steps(chunk: WorkerSteps) -> Iterator[pa.Table]:
    steps = range(chunk.start, chunk.stop)
    rows = [{"step": step, "texts": pickle.dumps(chunk.read(step))} for step in steps]
    yield pa.Table.from_pylist(rows, schema=STEPS)
