"""BM25 and an encoder together, by reciprocal rank fusion (Cormack, Clarke & Büttcher 2009): the strong baseline that
needs no training, since each finds what the other misses.

    score(passage) = (1 - s) / (60 + rank in the encoder's list) + s / (60 + rank in BM25's list)

A passage that a list lacks gets nothing from it. Ranks, unlike scores, need no common scale.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import Field

from midmask.artifact import Artifact, Place
from midmask.identity import Config
from midmask.retrieve import ranked

CONSTANT = 60
"""The paper's: how little the first ranks count more than those behind them."""


class FuseConfig(Config):
    """How two ranked lists of the same queries become one."""

    split: str = Field(description="split whose lists are joined")
    depth: int = Field(ge=1, le=100_001, description="passages ranked for each query")
    bm25_share: float = Field(gt=0, lt=1, description="share of BM25's ranks in a passage's score")


def fuse_lists(config: FuseConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The step. Inputs: `encoder` and `bm25`, artifacts with `ranked/SPLIT.parquet`; writes the same.

    Returns:
        splits (split -> queries, ranked, empty_slots), read and recall, as of the encoder's search.
    """
    lists = {role: ranked.read(ranked.of_split(inputs[role].place, config.split)) for role in ("encoder", "bm25")}
    fused = fuse(lists["encoder"], lists["bm25"], config.bm25_share, config.depth)
    rows = ranked.write(out / "ranked" / f"{config.split}.parquet", [fused])
    searched = inputs["encoder"].result
    return {
        "splits": {config.split: {**searched["splits"][config.split], "ranked": rows}},
        "read": searched["read"],
        **{name: searched[name] for name in ("recall",) if name in searched},
    }


def fuse(encoder: pa.Table, bm25: pa.Table, bm25_share: float, depth: int) -> pa.Table:
    """One ranked list of two, cut to `depth`."""
    parts = []
    for found, share in ((encoder, 1 - bm25_share), (bm25, bm25_share)):
        score = share / (CONSTANT + found["rank"].to_numpy().astype(np.float64))
        parts.append(found.select(["query_id", "doc_id"]).append_column("score", pa.array(score)))
    joined = pa.concat_tables(parts).group_by(["query_id", "doc_id"]).aggregate([("score", "sum")])
    return ranked.order(joined.rename_columns(["query_id", "doc_id", "score"]), depth)
