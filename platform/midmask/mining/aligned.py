"""Several tables read side by side, some queries at a time: lists of passages by query may be larger than memory."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from midmask.artifact import Place
from midmask.errors import UserError


def row_groups(place: Place) -> Iterator[pa.Table]:
    """The row groups of a Parquet file, one after the other."""
    with place.reading() as stream:
        file = pq.ParquetFile(stream)
        for group in range(file.metadata.num_row_groups):
            yield file.read_row_group(group)


class Cursor:
    """Reads a table sorted by `query_id` from its start; keeps little more than the rows of the last query in memory.

    last: the last query that has been read; None when the tables have ended.

    Args:
        tables: its rows, cut anywhere.
        name: for messages.
        schema: the columns that are wanted.

    Raises:
        UserError: where the rows are not sorted.
    """

    def __init__(self, tables: Iterator[pa.Table], name: str, schema: pa.Schema) -> None:
        self._tables, self._name, self._schema = tables, name, schema
        self._held: list[pa.Table] = []
        self.last: str | None = ""
        self._load_next_table()

    def _load_next_table(self) -> None:
        """Loads the next table that is not empty; sets `last` to None at the end.

        Raises:
            UserError: if query_id is not sorted.
        """
        for table in self._tables:
            if len(table):
                names = table["query_id"].combine_chunks()
                falls = pc.any(pc.less(names[1:], names[:-1])).as_py()
                if falls or names[0].as_py() < self.last:
                    raise UserError(f"{self._name}: the rows are not sorted by query_id; sort them by this column")
                self.last = str(names[-1].as_py())
                self._held.append(table.select(self._schema.names).cast(self._schema))
                return
        self.last = None

    def until(self, bound: str) -> pa.Table:
        """The next rows, up to the last one of the query `bound`."""
        while self.last is not None and self.last <= bound:
            self._load_next_table()
        held = pa.concat_tables([self._schema.empty_table(), *self._held])
        within = pc.sum(pc.less_equal(held["query_id"], bound)).as_py() or 0
        self._held = [held.slice(within)] if within < len(held) else []
        return held.slice(0, within)


def align(cursors: Sequence[Cursor]) -> Iterator[list[pa.Table]]:
    """The cursors' rows of the same stretch of queries, stretch by stretch; every query is whole."""
    while bounds := [cursor.last for cursor in cursors if cursor.last is not None]:
        yield [cursor.until(min(bounds)) for cursor in cursors]
