"""What an approximate search misses: the share of an exact search's best passages that it finds, on a sample of its
queries.

    encoded queries ─► sample ─► exact search ─┐
    encoded queries ─► approximate search ─────┴► recall, among the results of the approximate search

The sample and its exact search are steps of their own, so that all indexes of one encoding are held against one list.
"""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field

from midmask.artifact import Artifact, Place
from midmask.identity import Config
from midmask.randomness.texts import fixed_sample
from midmask.retrieve import ranked
from midmask.retrieve.blocks import QUERY_BLOCK, SELECTION, blocks_in
from midmask.retrieve.views import Views, read_views

QUERIES = 256
"""Queries of the sample: the standard error of a recall of 0.95 at a cutoff of 100 is then below 0.005."""

CUTOFFS = (10, 100)
"""Ranks down to which recall is measured, beside the depth of the search."""

KEPT = ("views", "normalised", "side", "split", "model", "tokens", "length", "cut_share")
"""Facts of an encoding that are those of its sample too."""


class SampleConfig(Config):
    """How many encoded queries are drawn."""

    queries: int = Field(QUERIES, ge=1, le=QUERY_BLOCK, description="queries, chosen by a hash of their id")


def draw_sample(config: SampleConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The step. Input: queries, encoded. Writes the encoding of some of them, in one block. The vectors are copied:
    encoded again in other batches, they would differ in the last bits.
    """
    started, encoded = time.perf_counter(), inputs["queries"]
    with (encoded.place / SELECTION).reading() as stream:
        queries = pq.read_table(stream)
    drawn = fixed_sample(queries["query_id"].to_pylist(), config.queries)
    is_drawn_N = pc.is_in(queries["query_id"], value_set=pa.array(drawn, pa.string())).to_numpy()
    parts = [
        read_views(encoded.place, block.name, encoded.result["views"]).take(
            np.flatnonzero(is_drawn_N[block.start : block.start + block.rows])
        )
        for block in blocks_in([encoded.place / SELECTION])
    ]
    with (out / SELECTION).writing() as stream:
        pq.write_table(queries.filter(is_drawn_N), stream, row_group_size=QUERY_BLOCK)
    (block,) = blocks_in([out / SELECTION])
    Views.concat(parts).write(out, block.name)
    return {
        **{name: encoded.result[name] for name in KEPT if name in encoded.result},
        "rows": len(drawn),
        "blocks": 1,
        "seconds": round(time.perf_counter() - started, 3),
    }


def measure_recall(exact: Place, found: Place, depth: int) -> dict[str, float]:
    """The share of an exact ranking's passages down to a rank that another ranking has down to the same rank.

    Passages are compared by id: of copies with equal scores at the edge, only the one that the exact search lists
    counts.

    Args:
        exact: ranked list of the sample. found: of at least the same queries. depth: passages asked for.

    Returns:
        queries: of the sample. at_10, at_100: where the depth allows. at_depth.
    """
    best = ranked.read(exact)
    queries = pc.unique(best["query_id"])
    with found.reading() as stream:
        within = [("query_id", ">=", pc.min(queries).as_py()), ("query_id", "<=", pc.max(queries).as_py())]
        own = pq.read_table(stream, columns=["query_id", "doc_id", "rank"], filters=within)
    cutoffs = {f"at_{cutoff}": cutoff for cutoff in CUTOFFS if cutoff <= depth} | {"at_depth": depth}
    shares = {name: _share_found(best, own, cutoff) for name, cutoff in cutoffs.items()}
    return {"queries": len(queries), **{name: round(share, 4) for name, share in shares.items()}}


def _share_found(best: pa.Table, own: pa.Table, cutoff: int) -> float:
    pairs = [table.filter(pc.less_equal(table["rank"], cutoff)).select(["query_id", "doc_id"]) for table in (best, own)]
    return float(len(pairs[0].join(pairs[1], ["query_id", "doc_id"], join_type="inner")) / len(pairs[0]))
