"""The mining step: hard negatives chosen from ranked lists, and their audit. And the draw_queries step, which samples
train queries.

False negatives are estimated three ways, each as a share of the candidates within the wanted ranks, before any rule:
those judged relevant (what a miner without the judgements would have taken), near-duplicates of a positive, and, of
those that a teacher has scored and that are no positives, those that it puts above a positive; the last also of the
chosen negatives.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from midmask.core.config import Config, runtime
from midmask.core.randomness import hash64
from midmask.corpora.opening import write_lines
from midmask.encoders.precision import EncodingFields
from midmask.errors import UserError
from midmask.exchange.negatives_files import HardNegatives, line_of
from midmask.mining.known import Known
from midmask.mining.listed import find_listed, stretches
from midmask.mining.negatives import (
    CODE,
    NEGATIVES,
    VERDICTS,
    Codes,
    FilterConfig,
    draw,
    examine,
    negatives_table,
    verdicts,
)
from midmask.retrieve.index import IndexFields
from midmask.retrieve.search import PoolFields
from midmask.retrieve.searched_queries import is_self, judged_queries, read_self_matches
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.tables import write_table, writing_table

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)


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
    write_table(pa.table({"query_id": pa.array(drawn, pa.string())}), out / "queries.parquet")
    (out / "queries.txt").write("".join(f"{query_id}\n" for query_id in drawn).encode())
    return {"queries": len(drawn)}


class MineConfig(IndexFields, PoolFields, EncodingFields):
    """How hard negatives are mined. The fields of the search (depth, index, lengths, threads) configure the encoding
    and search steps before it (`experiment.plan`).
    """

    WITHDRAWN = (("per_source", None), ("replacement", False))

    split: str = Field("train", description="split whose queries get negatives")
    depth: int = Field(200, ge=1, le=100_000, description="passages ranked for each query")
    min_rank: int = Field(1, ge=1, description="best rank a negative may have, counted from 1 with the positives")
    max_rank: int | None = Field(None, ge=1, description="worst rank a negative may have; none: depth")
    per_query: int = Field(30, ge=1, le=10_000, description="negatives for each query, from all lists together")
    choose: Literal["random", "top"] = Field(
        "random", description="drawn from the allowed passages by the seed, or those of the best ranks"
    )
    filters: FilterConfig = Field(default_factory=FilterConfig, description="what is refused for being relevant")
    seed: int = Field(0, ge=0, description="seed of the choice among allowed passages")
    threads: int = runtime(1, "threads of each process", ge=1)

    @model_validator(mode="after")
    def _ranks_lie_within_the_depth(self) -> "MineConfig":
        last = self.depth if self.max_rank is None else self.max_rank
        if not self.min_rank <= last <= self.depth:
            raise UserError(
                f"min_rank = {self.min_rank}, max_rank = {self.max_rank}, depth = {self.depth}: "
                "wanted is min_rank <= max_rank <= depth"
            )
        return self

    @property
    def ranks(self) -> range:
        return range(self.min_rank, (self.max_rank or self.depth) + 1)


def mine(config: MineConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The step. Inputs: corpus; near_duplicates, of it; the lists, in the order of their names: every input whose name
    begins with `ranked`, with `ranked/SPLIT.parquet` (of a search, or BM25's) or `lists/` (of read_negatives);
    `scores`, a teacher's, with `scores.parquet`, where there are any.

    Raises:
        UserError: for a split without relevant passages or one that was not ranked, and scores that are asked for and
            not there.
    """
    listed = find_listed([inputs[name] for name in sorted(inputs) if name.startswith("ranked")])
    sources = [name for lists in listed for name in lists.sources.values()]
    query_ids = judged_queries(inputs["corpus"], config.split, judged="relevant", limit=config.max_queries)
    write_table(pa.table({"query_id": pa.array(query_ids, pa.string())}), out / "queries.parquet")
    known = Known.of(inputs["corpus"], inputs["near_duplicates"].place, config.filters.near_duplicates)
    audit, self_matches = Audit(sources, config.per_query), read_self_matches(inputs["corpus"])
    with (
        writing_table(out / "negatives.parquet", NEGATIVES) as writer,
        write_lines(out / "negatives.jsonl.gz") as lines,
    ):
        for candidates, scores in stretches(listed, inputs.get("scores"), query_ids, config.split, config.depth):
            table = candidates.filter(pa.array(~is_self(candidates, self_matches)))
            here = known.of_queries(table["query_id"].unique())
            rows = examine(table, sources, here, scores, config.seed)
            codes = verdicts(rows, config.filters, config.ranks)
            chosen = draw(rows, codes, config.per_query, config.choose)
            codes[chosen] = CODE["chosen"]
            audit.add(rows, codes)
            negatives = negatives_table(rows, codes, chosen)
            writer.write_table(negatives)
            lines.writelines(line_of(entry) for entry in entries(negatives, here.relevant))
    report = audit.report(len(query_ids))
    (out / "audit.json").write_json(report)
    if report["queries_short"]:
        log.warning("%d queries have fewer than %d negatives", report["queries_short"], config.per_query)
    counted = ("queries", "negatives", "queries_short", "queries_without", "false_negatives")
    return {**{name: report[name] for name in counted}, "source": ", ".join(sources)}


def entries(negatives: pa.Table, positives: pa.Table) -> Iterator[HardNegatives]:
    """Negatives (by query and list) and positives of some queries, query by query; queries without negatives do not
    come.
    """
    relevant = positives.to_pandas().groupby("query_id")["doc_id"].agg(sorted)
    lists = negatives.to_pandas().groupby(["query_id", "source"], sort=False)["doc_id"].agg(list)
    for query_id, systems in lists.groupby("query_id", sort=False):
        yield HardNegatives(query_id, relevant.get(query_id, []), systems.droplevel("query_id").to_dict())


class Audit:
    """Counts over a mining run, one block of queries after another.

    Args:
        sources: the lists' names.
        per_query: negatives that were wanted of each query.
    """

    def __init__(self, sources: Sequence[str], per_query: int) -> None:
        self._sources, self._per_query = list(sources), per_query
        self._verdicts = np.zeros((len(sources), len(VERDICTS)), np.int64)
        self._counts: Counter[str] = Counter()

    def add(self, rows: "pd.DataFrame", codes: Codes) -> None:
        """Counts what became of the candidates of one block of queries (rows of `examine`)."""
        chosen = codes == CODE["chosen"]
        np.add.at(self._verdicts, (rows["source"].cat.codes, codes), 1)
        have = rows["query_id"][chosen].value_counts()
        within = codes != CODE["outside_ranks"]
        scored = rows["teacher"].notna() & rows["positive_teacher"].notna() & ~rows["is_positive"]
        above = scored & (rows["teacher"] > rows["positive_teacher"])
        marked = {
            "negatives": chosen,
            "queries_with_some": have > 0,
            "queries_with_all": have >= self._per_query,
            "candidates": within,
            "judged_relevant": within & rows["is_positive"],
            "near_duplicates": within & rows["is_near"],
            "scored": within & scored,
            "above": within & above,
            "chosen_scored": chosen & scored,
            "chosen_above": chosen & above,
        }
        self._counts.update({name: int(marks.sum()) for name, marks in marked.items()})

    def report(self, queries: int) -> dict[str, Any]:
        """The report as plain data, for audit.json."""
        counts = self._counts
        return {
            "queries": queries,
            "per_query": self._per_query,
            "negatives": counts["negatives"],
            "queries_short": queries - counts["queries_with_all"],  # with fewer than asked for
            "queries_without": queries - counts["queries_with_some"],
            "verdicts": {
                name: {rule: int(count) for rule, count in zip(VERDICTS, by_rule, strict=True) if count}
                for name, by_rule in zip(self._sources, self._verdicts, strict=True)
            },
            "false_negatives": {
                "judged_relevant": _share(counts["judged_relevant"], counts["candidates"]),
                "near_duplicates": _share(counts["near_duplicates"], counts["candidates"]),
                "teacher_above_positive": _share(counts["above"], counts["scored"]),
                "chosen_teacher_above_positive": _share(counts["chosen_above"], counts["chosen_scored"]),
            },
        }


def _share(count: int, of: int) -> dict[str, Any] | None:
    """A count with what it is a part of; none if there was nothing to count."""
    return {"count": count, "of": of, "share": round(count / of, 6)} if of else None
