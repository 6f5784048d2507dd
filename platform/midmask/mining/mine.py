"""The mining step: hard negatives chosen from ranked lists, and their audit. And the draw_queries step, which samples
train queries.

False negatives are estimated three ways, each as a share of the candidates within the wanted ranks, before any rule:
those judged relevant (what a miner without the judgements would have taken), near-duplicates of a positive, and, of
those that a teacher has scored and that are no positives, those that it puts above a positive; the last also of the
chosen negatives.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, groupby
from operator import itemgetter
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from midmask.core.arrays import Ints
from midmask.core.config import Config, runtime
from midmask.core.randomness import hash64
from midmask.corpora.opening import write_lines
from midmask.encoders.precision import EncodingFields
from midmask.errors import UserError
from midmask.exchange.negatives_files import HardNegatives, line_of
from midmask.mining.known import NEAR_DUPLICATES, KnownRelevant, NearDuplicatesConfig
from midmask.mining.listed import find_listed, stretches
from midmask.mining.negatives import (
    ALLOWED,
    CODE,
    NEGATIVES,
    VERDICTS,
    Choice,
    Codes,
    FilterConfig,
    Stretch,
    draw,
    examine,
    negatives_table,
    refuse_unscored,
    verdicts,
)
from midmask.retrieve.index import IndexFields
from midmask.retrieve.search import PoolFields
from midmask.retrieve.searched_queries import is_self, judged_queries, read_self_matches
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.tables import write_table, writing_table

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

    split: str = Field("train", description="split whose queries get negatives")
    depth: int = Field(200, ge=1, le=100_000, description="passages ranked for each query")
    min_rank: int = Field(1, ge=1, description="best rank a negative may have, counted from 1 with the positives")
    max_rank: int | None = Field(None, ge=1, description="worst rank a negative may have; none: depth")
    per_query: int = Field(30, ge=1, le=10_000, description="negatives for each query, from all lists together")
    per_source: int | None = Field(
        None,
        ge=1,
        description="negatives for each query from each list, other passages from each; none: no limit",
    )
    choose: Literal["random", "top"] = Field(
        "random", description="drawn from the allowed passages by the seed, or those of the best ranks"
    )
    replacement: bool = Field(
        False, description="whether a query with too few allowed passages gets some of them several times"
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

    @property
    def choice(self) -> Choice:
        return Choice(self.per_query, self.per_source, self.choose, self.replacement, self.seed)


def mine(config: MineConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The step. Inputs: corpus; the lists, in the order of their names: every input whose name begins with `ranked`,
    with `ranked/SPLIT.parquet` (of a search, or BM25's) or `lists/` (of read_negatives); `scores`, a teacher's, with
    `scores.parquet` sorted by query; `near_duplicates`, else they are computed here.

    Raises:
        UserError: for a split without relevant passages or one that was not ranked, and scores that are asked for and
            not there.
    """
    lists = [inputs[name] for name in sorted(inputs) if name.startswith("ranked")]
    if config.filters.teacher_margin is not None and "scores" not in inputs:
        raise UserError(
            f"filters.teacher_margin = {config.filters.teacher_margin:g} needs a teacher's scores; give the mining an "
            "input scores, or leave the margin out"
        )
    query_ids = judged_queries(inputs["corpus"], config.split, judged="relevant", limit=config.max_queries)
    write_table(pa.table({"query_id": pa.array(query_ids, pa.string())}), out / "queries.parquet")
    listed = find_listed(lists)
    sources = [source for own in listed for source in own.sources.values()]
    relevant = KnownRelevant.of(inputs["corpus"], _near_duplicates(inputs, out), config.filters.near_duplicates)
    audit = Audit([source.name for source in sources], config.per_query)
    own, self_matches = read_self_matches(inputs["corpus"]), 0
    with (
        writing_table(out / "negatives.parquet", NEGATIVES) as writer,
        write_lines(out / "negatives.jsonl.gz") as lines,
    ):
        for table, scores in stretches(listed, inputs.get("scores"), query_ids, config.split, config.depth):
            itself = is_self(table, own)
            self_matches += int(itself.sum())
            if itself.all():
                continue
            stretch = examine(table.filter(pa.array(~itself)), sources, relevant, scores, config.seed)
            verdict = judge(config, stretch)
            chosen = draw(stretch, verdict, config.choice)
            audit.add(stretch, verdict, chosen)
            negatives = negatives_table(stretch, np.full(len(verdict), CODE["chosen"]), chosen)
            writer.write_table(negatives)
            positives = relevant.positives(stretch.query_ids)
            lines.writelines(line_of(entry) for entry in entries(negatives, positives, stretch.query_ids))
    write_table(pa.concat_tables(audit.refused), out / "refused.parquet")
    report = audit.report(len(query_ids))
    (out / "audit.json").write_json(report)
    (out / "audit.md").write(as_markdown(report).encode())
    if self_matches:
        log.info("%d candidates were the query itself and are left out", self_matches)
    if report["queries_short"]:
        log.warning("%d queries have fewer than %d negatives", report["queries_short"], config.per_query)
    return {
        **{name: report[name] for name in ("queries", "negatives", "queries_short", "queries_without")},
        "self_matches": self_matches,
        "source": ", ".join(source.name for source in sources),
        "false_negatives": report["false_negatives"],
    }


def _near_duplicates(inputs: Mapping[str, Artifact], out: Place) -> Place:
    if "near_duplicates" in inputs:
        return inputs["near_duplicates"].place
    place = out / "near_duplicates"
    NEAR_DUPLICATES(NearDuplicatesConfig(), inputs, place)
    return place


def judge(config: MineConfig, stretch: Stretch) -> Codes:
    """A verdict on every candidate.

    Raises:
        UserError: for a score that a rule asks for and that is not there.
    """
    if config.filters.asks_scores and np.isnan(stretch.facts.score).any():
        row = stretch.table.slice(int(np.flatnonzero(np.isnan(stretch.facts.score))[0]), 1).to_pylist()[0]
        raise UserError(
            f"filters: the list {row['source']!r} has no scores, so max_score, min_score, absolute_margin and "
            "relative_margin cannot be applied; use stages.*.mine.filters.teacher_margin with a teacher's scores"
        )
    verdict = verdicts(stretch.facts, config.filters, config.ranks)
    if config.filters.teacher_margin is not None and config.filters.unscored == "error":
        refuse_unscored(stretch, verdict)
    return verdict


def entries(table: pa.Table, positives: pa.Table, query_ids: pa.Array) -> Iterator[HardNegatives]:
    """Negatives (by query and list) and positives of some queries, query by query; queries without negatives do not
    come.
    """
    relevant: dict[str, list[str]] = {}
    for query_id, doc_id in _rows(query_ids.take(positives["query"].combine_chunks()), positives["doc_id"]):
        relevant.setdefault(query_id, []).append(doc_id)
    for query_id, rows in groupby(_rows(table["query_id"], table["source"], table["doc_id"]), itemgetter(0)):
        systems: dict[str, list[str]] = {}
        for _, source, doc_id in rows:
            systems.setdefault(source, []).append(doc_id)
        yield HardNegatives(query_id, sorted(relevant.get(query_id, [])), systems)


def _rows(*columns: Any) -> Iterator[tuple[str, ...]]:
    return zip(*(column.to_pylist() for column in columns), strict=True)


EXAMPLES = 20
"""Refused candidates of each rule that are kept to be looked at."""


class Audit:
    """Counts over a mining run, one block of queries after another, and the first candidates that each rule refused
    (`refused`, NEGATIVES).

    Args:
        sources: the lists' names.
        per_query: negatives that were wanted of each query.
    """

    def __init__(self, sources: Sequence[str], per_query: int) -> None:
        self._sources, self._per_query = list(sources), per_query
        self._verdicts = np.zeros((len(sources), len(VERDICTS)), np.int64)
        self._counts: Counter[str] = Counter()
        self._examples: Counter[int] = Counter()
        self.refused = [NEGATIVES.empty_table()]
        self._overlap: defaultdict[tuple[int, int], float] = defaultdict(float)
        self._both: Counter[tuple[int, int]] = Counter()

    def add(self, stretch: Stretch, verdict: Codes, chosen: Ints) -> None:
        """Counts the verdicts and the chosen negatives of one block of queries.

        Args:
            stretch: the block's candidates. verdict: of each, before the draw. chosen: rows of the negatives drawn.

        Raises:
            ValueError: if a positive was chosen.
        """
        wrong = chosen[stretch.facts.is_positive[chosen]]
        if len(wrong):
            row = stretch.table.slice(int(wrong[0]), 1).to_pylist()[0]
            raise ValueError(
                f"passage {row['doc_id']!r} is relevant to query {row['query_id']!r}, so it cannot be a negative"
            )
        became = verdict.copy()
        became[chosen] = CODE["chosen"]
        np.add.at(self._verdicts, (stretch.source, became), 1)
        have = np.bincount(stretch.query[chosen], minlength=len(stretch.query_ids))
        self._counts.update(negatives=len(chosen), some=int((have > 0).sum()))
        self._counts.update(full=int((have >= self._per_query).sum()))
        self._count_suspects(stretch, verdict, chosen)
        self._count_overlap(stretch)
        for code in np.unique(verdict[verdict != ALLOWED]).tolist():
            rows = np.flatnonzero(verdict == code)[: EXAMPLES - self._examples[code]]
            self._examples[code] += len(rows)
            self.refused.append(negatives_table(stretch, verdict, rows))

    def _count_suspects(self, stretch: Stretch, verdict: Codes, chosen: Ints) -> None:
        facts = stretch.facts
        within = verdict != CODE["outside_ranks"]
        judged_by_teacher = ~(np.isnan(facts.teacher) | np.isnan(facts.positive_teacher)) & ~facts.is_positive
        above = judged_by_teacher & (facts.teacher > facts.positive_teacher)
        self._counts.update(
            candidates=int(within.sum()),
            judged_relevant=int((within & facts.is_positive).sum()),
            near_duplicates=int((within & facts.is_near).sum()),
            scored=int((within & judged_by_teacher).sum()),
            above=int((within & above).sum()),
            chosen_scored=int(judged_by_teacher[chosen].sum()),
            chosen_above=int(above[chosen].sum()),
        )

    def _count_overlap(self, stretch: Stretch) -> None:
        """Adds every query's Jaccard similarity of each two lists that both have it."""
        lists = range(len(self._sources))
        keys = [stretch.key[stretch.source == source] for source in lists]
        queries = [stretch.query[stretch.source == source] for source in lists]
        sizes = [np.bincount(numbers, minlength=len(stretch.query_ids)) for numbers in queries]
        for one, other in combinations(lists, 2):
            shared = queries[one][np.isin(keys[one], keys[other])]
            common = np.bincount(shared, minlength=len(stretch.query_ids))
            both = (sizes[one] > 0) & (sizes[other] > 0)
            jaccard = common[both] / (sizes[one] + sizes[other] - common)[both]
            self._overlap[one, other] += float(jaccard.sum())
            self._both[one, other] += int(both.sum())

    def report(self, queries: int) -> dict[str, Any]:
        """The report as plain data, for audit.json."""
        counts = self._counts
        return {
            "queries": queries,
            "per_query": self._per_query,
            "negatives": counts["negatives"],
            "queries_short": queries - counts["full"],  # with fewer than asked for
            "queries_without": queries - counts["some"],
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
            "overlap": [
                {
                    "lists": [self._sources[one], self._sources[other]],
                    "queries": count,
                    "jaccard": round(self._overlap[one, other] / count, 4),
                }
                for (one, other), count in self._both.items()
                if count
            ],
        }


def _share(count: int, of: int) -> dict[str, Any] | None:
    """A count with what it is a part of; none if there was nothing to count."""
    return {"count": count, "of": of, "share": round(count / of, 6)} if of else None


def as_markdown(report: dict[str, Any]) -> str:
    """The report as a Markdown page."""
    heads = [rule.replace("_", " ") for rule in VERDICTS]
    lines = [
        "# Audit of mined negatives",
        "",
        f"{report['negatives']:,} negatives for {report['queries']:,} queries, {report['per_query']} wanted of each; "
        f"{report['queries_short']:,} queries have fewer, {report['queries_without']:,} none.",
        "",
        f"| list | {' | '.join(heads)} |",
        "| --- |" + " ---: |" * len(heads),
    ]
    for name, counts in report["verdicts"].items():
        lines.append(f"| {name} | {' | '.join(f'{counts.get(rule, 0):,}' for rule in VERDICTS)} |")
    lines += ["", "Likely relevant:"]
    for name, found in report["false_negatives"].items():
        if found:
            lines.append(f"- {name.replace('_', ' ')}: {found['count']:,} of {found['of']:,} ({found['share']:.2%})")
    for pair in report["overlap"]:
        lines.append(f"- lists {pair['lists'][0]} and {pair['lists'][1]}: Jaccard {pair['jaccard']:.3f}")
    return "\n".join(lines) + "\n"
