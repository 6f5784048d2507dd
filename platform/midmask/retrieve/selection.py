"""Which queries are searched: those of a split that have judgements, or a fixed sample of them."""

import hashlib
from collections.abc import Sequence
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from midmask.artifact import Artifact
from midmask.errors import UserError


def judged_queries(
    corpus: Artifact, split: str, *, judged: Literal["any", "relevant"] = "any", limit: int | None = None
) -> list[str]:
    """Ids of the queries of a split that have a judgement, or a relevant passage; sorted; a fixed sample if limited.

    Raises:
        UserError: naming the splits that the corpus has, if there is no such query.
    """
    qrels = read_qrels(corpus)
    within = pc.equal(qrels["split"], split)
    if judged == "relevant":
        within = pc.and_(within, pc.greater_equal(qrels["grade"], 1))
    names = pc.unique(qrels.filter(within)["query_id"]).to_pylist()
    if not names:
        splits = ", ".join(sorted(pc.unique(qrels["split"]).to_pylist()))
        raise UserError(f"split {split!r}: {corpus.place} has no judged queries in it. Known: {splits}.")
    return sorted(fixed_sample(names, limit))


def fixed_sample(names: Sequence[str], limit: int | None) -> list[str]:
    """The first `limit` names by SHA-256: the same queries in every run, whatever else the collection holds."""
    if limit is None or limit >= len(names):
        return list(names)
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())[:limit]


def read_qrels(corpus: Artifact) -> pa.Table:
    with (corpus.place / "qrels.parquet").reading() as stream:
        return pq.read_table(stream)
