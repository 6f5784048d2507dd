"""A collection's vectors, ids, titles and texts into a table of a PostgreSQL server, and the proof that a search there
finds what midmask finds.

Each block of passages is one transaction, and a block that is there is not sent again: a killed upload goes on, and a
second one changes nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq

from midmask.arrays import Floats, Ints
from midmask.errors import UserError
from midmask.exchange.pgvector.server import connected
from midmask.exchange.pgvector.table import RankedIds, VectorTable, column_types
from midmask.retrieve.searcher import Searcher
from midmask.retrieve.views import read_views

CHECKED = 100
"""Queries that are searched in both after an upload, unless another number is asked for."""

DEPTH = 10
"""Passages of each list that is compared."""

NEAR = 1e-4
"""Scores are equal if they differ by less, in shares of the query's best one where that is above 1."""

SHOWN_EVERY = 50
"""Blocks between two lines of progress."""


class Upload(NamedTuple):
    """What an upload did.

    passages: rows of the table. written: those of them that this upload wrote. queries: how many were searched in the
    server and in midmask. equal: for how many of these both found the same ten passages with the same scores.
    """

    passages: int
    written: int
    queries: int
    equal: int


def upload(searcher: Searcher, address: str, table: str, *, check: int, show: Callable[[str], None]) -> Upload:
    """Writes what is missing in the table, compares the counts, and searches in both.

    Args:
        searcher: of the collection. address: of the server, as `connected` takes it. table: TABLE or SCHEMA.TABLE.
        check: queries to search in both; 0: none. show: gets each line of progress.

    Raises:
        UserError: as `connected` and `VectorTable`; for token vectors; if the table then has other rows besides.
    """
    if "late" in searcher.views:
        raise UserError("the model gives a vector for each token, and pgvector's columns hold one for each passage")
    if check < 0:
        raise UserError(f"check = {check}: it is a number of queries; 0 checks nothing")
    first = read_views(searcher.passages.place, searcher.blocks[0].name, searcher.views)
    with connected(address) as link:
        target = VectorTable(link, table, column_types(first), searcher.passages.fingerprint)
        written = _write(searcher, target, show)
        passages = _count(searcher, target)
        queries = _sample(searcher, check)
        return Upload(passages, written, len(queries), _equal(searcher, target, queries) if queries else 0)


def _write(searcher: Searcher, target: VectorTable, show: Callable[[str], None]) -> int:
    written, total = 0, sum(block.rows for block in searcher.blocks)
    for block in searcher.blocks:
        views = read_views(searcher.passages.place, block.name, searcher.views)
        stop = block.start + block.rows
        written += target.write(searcher.stored.rows(block.start, stop), views)
        if (block.index + 1) % SHOWN_EVERY == 0 or stop == total:
            show(f"Uploading to {target.name}: {stop:,} of {total:,} passages are there")
    return written


def _count(searcher: Searcher, target: VectorTable) -> int:
    wanted, found = len(searcher.stored.doc_ids), target.count()
    if wanted != found:
        raise UserError(
            f"table {target.name} has {found:,} rows, the collection {wanted:,} passages: rows were added or deleted "
            f"by others; delete the table (in psql: DROP TABLE {target.name}) and run the same again"
        )
    return found


def _sample(searcher: Searcher, number: int) -> list[str]:
    """Texts of the collection's queries, evenly over its file; where it has none, titles or texts of passages."""
    with (searcher.corpus.place / "queries.parquet").reading() as stream:
        queries = pq.read_table(stream, columns=["text"])["text"]
    total = len(queries) or len(searcher.stored.doc_ids)
    rows = np.unique(np.linspace(0, total - 1, num=min(number, total)).astype(np.int64)).tolist()
    if len(queries):
        return [queries[row].as_py() for row in rows]
    return [title or text for _, title, text in map(searcher.stored.row, rows)]


def _equal(searcher: Searcher, target: VectorTable, queries: Sequence[str]) -> int:
    """For how many queries both searches find the same."""
    views = searcher.encode(queries)
    ids = searcher.stored.doc_ids
    lists = zip(*searcher.nearest(views, DEPTH), strict=True)
    own = [[(ids[row].as_py(), score) for score, row in _pairs(*each) if row >= 0] for each in lists]
    theirs = target.search(views, DEPTH)
    return sum(is_same(*pair) for pair in zip(own, theirs, strict=True))


def _pairs(scores_K: Floats, rows_K: Ints) -> Iterator[tuple[float, int]]:
    return zip(scores_K.tolist(), rows_K.tolist(), strict=True)


def is_same(own: RankedIds, theirs: RankedIds) -> bool:
    """Whether two lists have the same passages with equal scores, ties aside: of passages with equal scores any order
    and, at the end of the list, any choice is the same.
    """
    if len(own) != len(theirs):
        return False
    if not own:
        return True
    margin = NEAR * max(1.0, abs(own[0][1]))
    known, found = dict(own), dict(theirs)
    level = all(abs(one[1] - other[1]) < margin for one, other in zip(own, theirs, strict=True))
    shared = all(abs(known[name] - found[name]) < margin for name in known.keys() & found.keys())
    alone = [(known | found)[name] for name in known.keys() ^ found.keys()]
    return level and shared and all(abs(score - own[-1][1]) < margin for score in alone)
