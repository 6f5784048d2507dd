"""BM25 and an encoder together: the strong baseline that needs no training, since each finds what the other misses.

Two lists of a query become one, by

- `rrf`, reciprocal rank fusion (Cormack, Clarke & Büttcher 2009), which needs no common scale:

      score(passage) = (1 - s) / (60 + rank in the encoder's list) + s / (60 + rank in BM25's list)

- `convex`, the convex combination of min-max normalised scores (Bruch, Gai & Ingber 2023), which keeps how far a
  passage is ahead of the next:

      score(passage) = (1 - s) * encoder' + s * bm25',    x' = (x - min) / (max - min)

  min and max are taken over that list of that query; scores that are all equal become 1. A list's last passage
  therefore has 0, and the list's depth, through its minimum, is part of what is computed.

A passage that a list lacks gets 0 from it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from midmask.arrays import Doubles
from midmask.artifact import Artifact, Place
from midmask.identity import Config, added
from midmask.retrieve import ranked

Fusion = Literal["rrf", "convex"]
"""How two lists are joined: by ranks, or by scores."""

CONSTANT = 60
"""The paper's, of reciprocal ranks: how little the first ranks count more than those behind them."""


class FuseConfig(Config):
    """How two ranked lists of the same queries become one."""

    split: str = Field(description="split whose lists are joined")
    depth: int = Field(ge=1, le=100_001, description="passages ranked for each query")
    bm25_share: float = Field(gt=0, lt=1, description="share of BM25's list in a passage's score")
    fusion: Fusion = added("rrf", "by ranks (rrf), or by min-max normalised scores (convex)")


def fuse_lists(config: FuseConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The step. Inputs: `encoder` and `bm25`, artifacts with `ranked/SPLIT.parquet`; writes the same.

    Returns:
        splits (split -> queries, ranked, empty_slots), read and recall, as of the encoder's search.
    """
    lists = {role: ranked.read(ranked.of_split(inputs[role].place, config.split)) for role in ("encoder", "bm25")}
    fused = fuse(lists["encoder"], lists["bm25"], config.bm25_share, config.depth, config.fusion)
    rows = ranked.write(out / "ranked" / f"{config.split}.parquet", [fused])
    searched = inputs["encoder"].result
    return {
        "splits": {config.split: {**searched["splits"][config.split], "ranked": rows}},
        "read": searched["read"],
        **{name: searched[name] for name in ("recall",) if name in searched},
    }


def fuse(encoder: pa.Table, bm25: pa.Table, bm25_share: float, depth: int, fusion: Fusion = "rrf") -> pa.Table:
    """One ranked list of two, cut to `depth`. Scores are computed in float64 and stored in float32."""
    scores = _SCORES[fusion]
    parts = []
    for found, share in ((encoder, 1 - bm25_share), (bm25, bm25_share)):
        score = pa.array(scores(found, share))
        parts.append(found.select(["query_id", "doc_id"]).append_column("score", score))
    joined = pa.concat_tables(parts).group_by(["query_id", "doc_id"]).aggregate([("score", "sum")])
    return ranked.order(joined.rename_columns(["query_id", "doc_id", "score"]), depth)


def _by_rank(found: pa.Table, share: float) -> Doubles:
    """The list's part of each row's score: its reciprocal rank."""
    score: Doubles = share / (CONSTANT + found["rank"].to_numpy().astype(np.float64))
    return score


def _by_score(found: pa.Table, share: float) -> Doubles:
    """The list's part of each row's score: `share` for a query's best scores, 0 for its lowest ones."""
    score = found["score"].to_numpy().astype(np.float64)
    first = np.flatnonzero(found["rank"].to_numpy() == 1)  # a query's rows stand together, the best one first
    rows = np.diff(np.append(first, len(score)))
    low = np.repeat(score[first + rows - 1], rows)
    span = np.repeat(score[first], rows) - low
    scaled: Doubles = np.divide(score - low, span, out=np.ones_like(score), where=span > 0)
    return share * scaled


_SCORES: Mapping[Fusion, Callable[[pa.Table, float], Doubles]] = {"rrf": _by_rank, "convex": _by_score}
