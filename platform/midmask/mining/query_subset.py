"""The draw_queries step: some train queries, drawn once and saved by id, so that a smaller training set can be cited.

The SIGIR'23 benchmark trains on 50,000 and 100,000 random queries; its own lists of ids were never published, and its
released code takes the first ones of a dictionary instead (methods.md 12.6).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from midmask.artifact import Artifact, Place
from midmask.errors import UserError
from midmask.identity import Config
from midmask.randomness.texts import hash64
from midmask.retrieve.selection import judged_queries


class DrawQueriesConfig(Config):
    """A random subset of a split's queries that have a relevant passage."""

    split: str = Field("train", description="split whose queries are drawn")
    count: int = Field(ge=1, description="number of queries; a larger draw with the same seed contains the smaller one")
    seed: int = Field(0, ge=0, description="seed of the draw")


def draw_subset(query_ids: Sequence[str], count: int, seed: int) -> list[str]:
    """`count` of the ids, in the order in which they were drawn; independent of the order in which they are given.

    Raises:
        UserError: if there are not so many.
    """
    if count > len(query_ids):
        raise UserError(f"queries = {count}: there are {len(query_ids)} to draw from; ask for fewer")
    hashes = hash64(query_ids, f"subset {seed}")
    return [query_id for _, query_id in sorted(zip(hashes.tolist(), query_ids, strict=True))[:count]]


def draw_queries(config: DrawQueriesConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The step; input corpus. Writes `queries.parquet` (query_id) and `queries.txt`, an id a line."""
    drawn = draw_subset(judged_queries(inputs["corpus"], config.split, judged="relevant"), config.count, config.seed)
    with (out / "queries.parquet").writing() as stream:
        pq.write_table(pa.table({"query_id": pa.array(drawn, pa.string())}), stream, compression="zstd")
    (out / "queries.txt").write("".join(f"{query_id}\n" for query_id in drawn).encode())
    return {"queries": len(drawn)}
