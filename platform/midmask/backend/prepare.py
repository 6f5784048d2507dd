"""The step "prepare" on a cluster: pieces are read and checked by Ray Data's read tasks, the driver puts them together.

Blocks are small and come in order, a few at a time, so neither the object store nor the driver fills up as a corpus
grows. The driver alone removes duplicates and writes, by the same code as the one-process step, hence the same bytes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import ray
from ray.data import DataContext, Datasource, ReadTask
from ray.data.block import BlockMetadata

from midmask.artifact import Artifact, Place
from midmask.corpora import CorpusConfig
from midmask.corpora.assemble import assemble
from midmask.corpora.chunks import BLOCK_BYTES, Piece
from midmask.errors import UserError


def prepare(config: CorpusConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """As `midmask.corpora.prepare`, read by the workers of the Ray this process is connected to.

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
        return [ReadTask(piece.read, _metadata(piece), per_task_row_limit=per_task_row_limit) for piece in self._pieces]


def _metadata(piece: Piece) -> BlockMetadata:
    return BlockMetadata(num_rows=None, size_bytes=piece.size, exec_stats=None, input_files=[piece.file])
