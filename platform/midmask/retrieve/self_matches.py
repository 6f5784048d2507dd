"""A query that is a passage of its own corpus (ArguAna, Quora) never retrieves itself.

Which passage is the query itself is a property of the corpus (`corpora.self_matches`). Left in, it would stand at rank
1 of every list, lower each figure and be mined as the hardest negative of all. BEIR's evaluation leaves it out, too.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from midmask.artifact import Artifact


def read_self_matches(corpus: Artifact) -> pa.Table:
    """The pairs (query_id, doc_id) of a corpus artifact; most have none."""
    if "self_matches.parquet" not in corpus.place.names():
        return pa.table({"query_id": pa.array([], pa.string()), "doc_id": pa.array([], pa.string())})
    with (corpus.place / "self_matches.parquet").reading() as stream:
        return pq.read_table(stream)


def excluded_pairs(ranked: Artifact, corpus: Artifact) -> pa.Table:
    """The pairs that an evaluation leaves out of a ranked list: none of a list from a run file, which is measured as it
    is; `retrieve.run_file` has removed them if that was asked for.
    """
    pairs = read_self_matches(corpus)
    return pairs.slice(0, 0) if "run" in ranked.result.get("read", {}) else pairs


def is_self(table: pa.Table, pairs: pa.Table) -> NDArray[np.bool_]:
    """For each row (query_id, doc_id) of any table, whether it is one of the pairs."""
    rows = np.flatnonzero(pc.is_in(table["query_id"], value_set=pairs["query_id"]).to_numpy())
    own = pc.is_in(_join_ids(table.take(pa.array(rows))), value_set=_join_ids(pairs)).to_numpy()
    found = np.zeros(len(table), bool)
    found[rows[own]] = True
    return found


def without_self(ranked: pa.Table, pairs: pa.Table, depth: int | None = None) -> tuple[pa.Table, int]:
    """A ranked list (`ranked.SCHEMA`) without the pairs, and how many it held; ranks close up, from 1 on.

    A search has to go one passage deeper than `depth`, to which the list is cut, for a full list to be left.
    """
    kept = ~is_self(ranked, pairs)
    if kept.all() and depth is None:
        return ranked, 0
    # A row moves up by the number of left-out rows of its own query before it.
    lost = np.cumsum(~kept)
    rank = ranked["rank"].to_numpy()
    first = np.arange(len(rank)) - (rank - 1)
    rank = rank - (lost - np.where(first > 0, lost[first - 1], 0))
    chosen = kept if depth is None else kept & (rank <= depth)
    closed = ranked.set_column(ranked.column_names.index("rank"), "rank", pa.array(rank, pa.int32()))
    return closed.filter(pa.array(chosen)), int((~kept).sum())


def _join_ids(table: pa.Table) -> pa.ChunkedArray:
    """Query and passage as one text; ids hold no white space."""
    return pc.binary_join_element_wise(table["query_id"], table["doc_id"], "\t")
