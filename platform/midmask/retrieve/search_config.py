"""The settings of a search, the candidates that late interaction scores, and the checks of a search's inputs."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from midmask.core.arrays import Ints
from midmask.core.config import Config, added, runtime
from midmask.errors import UserError
from midmask.retrieve.index import IndexFields
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.tables import read_table

ALL = "all"

NO_DENSE_VIEW = "no dense vectors are searched; leave it at Flat"
"""Why an approximate index is of no use, and what to set."""


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


def read_candidates(lists: Place, query_ids: Sequence[str], doc_ids: pa.ChunkedArray) -> list[Ints]:
    """For each query the places of its candidates among the passages with these ids, ascending.

    Args:
        lists: a ranked list in Parquet.
    """
    within = [("query_id", ">=", min(query_ids)), ("query_id", "<=", max(query_ids))]
    found = read_table(lists, ["query_id", "doc_id"], filters=within)
    query_N = pc.index_in(found["query_id"], value_set=pa.array(query_ids, pa.string()))
    large = pa.large_string()  # ids may take more than 2 GiB
    row_N = pc.index_in(found["doc_id"].cast(large), value_set=doc_ids.cast(large).combine_chunks())
    kept = pc.and_(pc.is_valid(query_N), pc.is_valid(row_N))
    query_N, row_N = (column.filter(kept).to_numpy().astype(np.int64) for column in (query_N, row_N))
    order = np.lexsort((row_N, query_N))
    edges = np.searchsorted(query_N[order], np.arange(len(query_ids) + 1))
    return [row_N[order[start:stop]] for start, stop in pairwise(edges.tolist())]


class SearchConfig(IndexFields):
    """How a corpus is searched. With another index than Flat, the step `index` builds it."""

    depth: int = Field(100, ge=1, le=100_001, description="passages ranked for each query")
    views: Literal["all", "dense", "lexical"] = Field("all", description="what is scored of what was encoded")
    query_terms: int | None = Field(
        None, ge=1, description="words of a query's lexical view that count, the heaviest; none: all that were encoded"
    )
    passage_terms: int | None = Field(
        None, ge=1, description="the same of a passage; fewer than were encoded need no new encoding"
    )
    width: int | None = added(
        None, "first dimensions of the dense view that count, for an exact search; none: all", ge=1
    )
    actors: int = runtime(1, "on a cluster: processes that each search a part of the corpus", ge=1)
    threads: int = runtime(1, "threads of each process", ge=1)


def check_inputs(config: SearchConfig, inputs: Mapping[str, Artifact], views: Sequence[str]) -> None:
    """Checks that the inputs of a search belong together, and that its settings have a meaning for them.

    Args:
        views: that are scored.

    Raises:
        UserError: naming the setting, or the two artifacts.
    """
    typed = {name: getattr(config, name) for name in ("query_terms", "passage_terms")}
    terms = ", ".join(f"{name} = {count}" for name, count in typed.items() if count is not None)
    if terms and "lexical" not in views:
        raise UserError(f"{terms}: no lexical view is searched; leave it at none")
    if any((name in inputs) == config.is_exact for name in ("index", "exact")):
        raise UserError(
            f"index = {config.index}: it is built by the step `index`, an input of this one, as is `exact`, the search "
            "that its recall is measured against"
        )
    if not config.is_exact and "dense" not in views:
        raise UserError(f"index = {config.index}: {NO_DENSE_VIEW}")
    if "candidates" in inputs and "late" not in views:
        raise UserError("candidates: all passages are scored by dense and lexical vectors; leave the input out")
    passages, queries = inputs["passages"], inputs["queries"]
    if passages.result["model"] != queries.result["model"]:
        raise UserError(
            f"the index {passages.place} was made by the encoder {passages.result['model']}, the queries "
            f"{queries.place} by {queries.result['model']}; encode both with one model"
        )
    for artifact in (passages, queries):
        if artifact.result["tokens"] != inputs["tokens"].fingerprint:
            raise UserError(
                f"{artifact.place} was encoded from the tokens {artifact.result['tokens']}, not from "
                f"{inputs['tokens'].place} ({inputs['tokens'].fingerprint}); encode these"
            )
