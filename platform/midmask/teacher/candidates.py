"""Which pairs a teacher scores: every listed candidate, and the relevant passages of the listed queries.

Negatives alone would not do: a loss compares them with the positive, and published code ends with a KeyError where that
has no score.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midmask.errors import UserError
from midmask.mining.listed import find_listed, stretches
from midmask.retrieve.searched_queries import judged_queries, relevant_passages
from midmask.store.place import Place
from midmask.store.sharded import Inputs
from midmask.store.tables import read_table, write_table
from midmask.training.examples import TokenTable

FOLDER = "candidates"
COUNTS = "candidates.json"


def write_candidates(inputs: Inputs, out: Place, *, split: str, queries: int) -> None:
    """Writes `candidates/00000.parquet` …, `queries` queries each: query_id, doc_id, relevant, and row, the passage's
    number in the corpus; by query, then document. Does nothing if it is done.

    Args:
        inputs: corpus, and any number of lists whose names begin with "negatives" (negatives.parquet) or "ranked" (of a
            search, of BM25 or from a file).
        split: whose relevant passages, and whose ranked lists.

    Raises:
        UserError: if there is nothing to score.
    """
    if (out / COUNTS).exists():
        return
    listed = _drop_repeated(pa.concat_tables([_PAIRS.empty_table(), *_read_lists(inputs, split)]))
    if not len(listed):
        raise UserError(f"score: no list names a query of split {split!r}; mine negatives for it first")
    relevant = relevant_passages(inputs["corpus"].place, split)
    relevant = _drop_repeated(relevant.filter(pc.is_in(relevant["query_id"], value_set=listed["query_id"])))
    table = _drop_repeated(pa.concat_tables([listed, relevant]))
    table = table.join(relevant.append_column("relevant", pa.repeat(True, len(relevant))), ["query_id", "doc_id"])
    table = table.set_column(2, "relevant", pc.fill_null(table["relevant"], False))
    table = table.sort_by([("query_id", "ascending"), ("doc_id", "ascending")])
    table = table.append_column("row", pa.array(TokenTable(inputs["corpus"].place / "docs").rows_of(table["doc_id"])))
    for number, some in enumerate(by_query(table, queries)):
        write_table(some, out / FOLDER / f"{number:05d}.parquet")
    counts = {"queries": len(pc.unique(table["query_id"])), "pairs": len(table), "positives": len(relevant)}
    (out / COUNTS).write_json({**counts, "positives_unlisted": len(table) - len(listed)})


_PAIRS = pa.schema([("query_id", pa.string()), ("doc_id", pa.string())])


def _read_lists(inputs: Inputs, split: str) -> Iterator[pa.Table]:
    for name in sorted(inputs):
        if name.startswith("negatives"):
            yield read_table(inputs[name].place / "negatives.parquet", _PAIRS.names)
        elif name.startswith("ranked"):
            query_ids = judged_queries(inputs["corpus"], split, judged="relevant")
            for piece, _ in stretches(find_listed([inputs[name]]), None, query_ids, split):
                yield piece.select(_PAIRS.names)


def _drop_repeated(table: pa.Table) -> pa.Table:
    """Each (query_id, doc_id) once."""
    return table.group_by(_PAIRS.names).aggregate([])


def by_query(table: pa.Table, queries: int = 1) -> Iterator[pa.Table]:
    """A table that is sorted by query in pieces of `queries` queries each."""
    names = table["query_id"].combine_chunks()
    begins = np.append(True, pc.not_equal(names[1:], names[:-1]).to_numpy(zero_copy_only=False))
    for start, stop in pairwise([*np.flatnonzero(begins)[::queries].tolist(), len(table)]):
        yield table.slice(start, stop - start)
