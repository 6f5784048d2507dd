"""The candidates that a late-interaction search scores: another search's ranked lists, as rows of the corpus."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from midmask.arrays import Ints
from midmask.artifact import Place
from midmask.errors import UserError
from midmask.identity import Config, added

ALL = "all"


class PoolFields(Config):
    """Which passages are scored by token vectors; without effect on other vectors."""

    candidates: Literal["bm25", "all"] = added(
        "bm25", "late interaction: passages that are scored for a query: BM25's best, or all (small collections)"
    )
    pool: int = added(1000, "late interaction: BM25's passages that are scored for each query", ge=1, le=100_000)

    def check_pool(self, place: str, depth: int, *, late: bool) -> None:
        """Finds a pool that cannot be searched before anything is computed.

        Args:
            place: path of these fields, as typed (`evaluation`). depth: passages that are ranked for a query. late:
                whether token vectors are searched.

        Raises:
            UserError: if no token vectors are searched, or for a pool that is smaller than the depth.
        """
        for name, field in PoolFields.model_fields.items():
            usual = field.default
            if not late and (value := getattr(self, name)) != usual:
                raise UserError(
                    f"{place}.{name} = {value}: it is of late interaction, and representation.tokens = none; leave it "
                    f"at {usual}, or use --protocol in_batch_late"
                )
        if late and self.candidates != ALL and self.pool < depth:
            raise UserError(
                f"{place}.pool = {self.pool} with {place}.depth = {depth}: no more passages can be ranked than are "
                f"scored; set {place}.pool={depth} or more, or {place}.candidates=all"
            )


def read_candidates(lists: Place, query_ids: Sequence[str], doc_ids: pa.ChunkedArray, first: int) -> list[Ints]:
    """For each query the corpus rows of its candidates among some passages, ascending; none for a query without a list.

    Args:
        lists: a ranked list in Parquet. doc_ids: of the passages. first: the corpus row of the first of them.
    """
    within = [("query_id", ">=", min(query_ids)), ("query_id", "<=", max(query_ids))]
    with lists.reading() as stream:
        found = pq.read_table(stream, columns=["query_id", "doc_id"], filters=within)
    query_N = pc.index_in(found["query_id"], value_set=pa.array(query_ids, pa.string()))
    large = pa.large_string()  # ids may take more than 2 GiB
    row_N = pc.index_in(found["doc_id"].cast(large), value_set=doc_ids.cast(large).combine_chunks())
    kept = pc.and_(pc.is_valid(query_N), pc.is_valid(row_N))
    query_N, row_N = (column.filter(kept).to_numpy().astype(np.int64) for column in (query_N, row_N))
    order = np.lexsort((row_N, query_N))
    edges = np.searchsorted(query_N[order], np.arange(len(query_ids) + 1))
    return [first + row_N[order[start:stop]] for start, stop in pairwise(edges.tolist())]
