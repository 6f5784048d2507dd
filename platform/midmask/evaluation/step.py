"""The evaluation step: from a split's ranked list to measures per query, by judgements, answer strings and slices.

Answer strings are DPR's way to evaluate open-domain question answering (Karpukhin et al. 2020), Success@k: a retrieved
passage is a success if its text (the title not counted) holds one of the query's answers: both normalised to NFD, cut
into tokens (runs of letters, digits and marks; else single characters that are neither separators nor control
characters) and lower-cased, the answer's tokens standing in the text in a row. A query without results scores 0. A
query without an answer is a bad row of the collection and is not evaluated; an answer without a token (a blank, say) is
held by no passage, where DPR's code finds it in every one.

`test.head` is a slice of `test`: some of its queries, or the same ones with other judgements. A slice is a split by
name and by data (`qrels.parquet`), so nothing else needs to know of it: its values bear the name CORPUS/SPLIT.SLICE,
and a qrels file `test.NAME.tsv` in any layout makes one. It is evaluated from the ranked list of the split it belongs
to, and no query is searched for twice. TripClick: test.head, test.head-dctr, test.torso, test.tail.
"""

import logging
import time
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import pyarrow as pa
import pyarrow.compute as pc
import regex
from pydantic import Field, field_validator, model_validator

from midmask.core.config import added, runtime
from midmask.corpora.splits import is_slice
from midmask.corpora.writer import QRELS
from midmask.encoders.precision import EncodingFields
from midmask.errors import UserError
from midmask.evaluation import measures
from midmask.evaluation.measures import expand
from midmask.retrieve import ranked
from midmask.retrieve.blocks import blocks_in
from midmask.retrieve.index import IndexFields
from midmask.retrieve.ranked import Fusion
from midmask.retrieve.search import PoolFields
from midmask.retrieve.searched_queries import (
    excluded_pairs,
    is_missing,
    judged_queries,
    read_answers,
    read_qrels,
    without_self,
)
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.tables import write_table

log = logging.getLogger(__name__)


NO_PASSAGE = ""
"""Stands in the judgements of a query that retrieved nothing, so that it is evaluated; no passage has this id."""

TOKENS = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")
"""DPR's own expression."""

DEFAULT_BY_ANSWERS = ("Success@5", "Success@20", "Success@100")


def by_answers(names: Sequence[str]) -> list[str]:
    """The measures that answer strings can judge, where a split has them: Success@k. The others need judgements
    of passages, or, as recall, of all relevant ones.
    """
    return [str(measure) for measure in measures.parse(names) if measure.NAME == "Success"]


def answer_qrels(ranked: pa.Table, answers: pa.Table, docs: Place) -> pa.Table:
    """Judgements (split, query_id, doc_id, grade) of the retrieved passages: 1 if one contains an answer, else 0.

    Args:
        ranked: query_id, doc_id. answers: split, query_id, answers, all of one split. docs: the corpus's folder of
            passages, of which a row group is in memory at a time.
    """
    ranked = ranked.filter(pc.is_in(ranked["query_id"], value_set=answers["query_id"]))
    needles = {
        query_id: [needle for answer in strings if (needle := join_answers(answer))]
        for query_id, strings in zip(answers["query_id"].to_pylist(), answers["answers"].to_pylist(), strict=True)
    }
    query_ids, doc_ids = ranked["query_id"].to_pylist(), ranked["doc_id"].to_pylist()
    rows: dict[str, list[int]] = {}
    for row, doc_id in enumerate(doc_ids):
        rows.setdefault(doc_id, []).append(row)
    grades, listed = [0] * len(doc_ids), pa.array(list(rows), pa.string())
    for block in blocks_in([docs / name for name in docs.names()]):
        passages = block.read(["doc_id", "text"])
        for passage in passages.filter(pc.is_in(passages["doc_id"], value_set=listed)).to_pylist():
            tokens = join_answers(passage["text"])
            for row in rows[passage["doc_id"]]:
                grades[row] = int(any(needle in tokens for needle in needles[query_ids[row]]))
    idle = sorted(needles.keys() - set(query_ids))
    split = answers["split"][0].as_py()
    return pa.table(
        {
            "split": pa.repeat(split, len(doc_ids) + len(idle)),
            "query_id": pa.array(query_ids + idle, pa.string()),
            "doc_id": pa.array(doc_ids + [NO_PASSAGE] * len(idle), pa.string()),
            "grade": pa.array(grades + [0] * len(idle), pa.int32()),
        },
        schema=QRELS,
    )


def join_answers(text: str) -> str:
    """DPR's tokens, each between two tabs; "" if there are none. A tab is no token, so `in` compares whole tokens."""
    tokens = TOKENS.findall(unicodedata.normalize("NFD", text))
    return "\t" + "\t".join(token.lower() for token in tokens) + "\t" if tokens else ""


def evaluate_slices(
    ranked: pa.Table, qrels: pa.Table, split: str, names: Sequence[str], searched: Sequence[str]
) -> tuple[dict[str, pa.Table], dict[str, int]]:
    """Measures the slices of a split by their own judgements.

    Args:
        ranked: the split's list. qrels: of all splits. searched: the split's evaluated queries, with results or not.

    Returns:
        slice -> (query_id, measure, value) of its searched queries, where there are any. slice -> number of its other
        queries, which do not count (a sample was searched, or the slice is no part of its split), where there are any.
    """
    values: dict[str, pa.Table] = {}
    lost: dict[str, int] = {}
    for name in sorted(pc.unique(qrels["split"]).to_pylist()):
        if not (is_slice(name) and name.startswith(f"{split}.")):
            continue
        judgements = qrels.filter(pc.equal(qrels["split"], name))
        inside = judgements.filter(pc.is_in(judgements["query_id"], value_set=pa.array(searched, pa.string())))
        if count := pc.count_distinct(judgements["query_id"]).as_py() - pc.count_distinct(inside["query_id"]).as_py():
            lost[name] = count
        if len(inside):
            listed = ranked.filter(pc.is_in(ranked["query_id"], value_set=inside["query_id"]))
            values[name] = measures.evaluate(listed, inside, name, names)
    return values, lost


class EvaluateConfig(IndexFields, PoolFields, EncodingFields):
    """Search of a whole corpus for a split's queries, and its measures. The fields of the search (index, lengths,
    threads) configure the encoding and search steps before it (`experiment.plan`).
    """

    split: str = Field("dev", description="split whose queries are searched; selection uses dev only")
    depth: int = Field(100, ge=1, le=100_000, description="passages ranked for each query")
    measures: tuple[str, ...] = Field(
        (), description="ir-measures names such as nDCG@10, or presets such as sigir23, beir, nq; none: the usual ones"
    )
    views: Literal["all", "dense", "lexical"] = Field("all", description="which vectors of a hybrid encoder are scored")
    query_terms: int | None = Field(
        None, ge=1, description="number of a query's heaviest words that are scored; none: all that were encoded"
    )
    passage_terms: int | None = Field(
        None, ge=1, description="number of a passage's heaviest words that are scored; none: all that were encoded"
    )
    width: int | None = added(
        None,
        "first dimensions of the dense view that are scored, for encoders trained with stages.N.loss.widths; none: all",
        ge=1,
    )
    bm25_share: float = added(
        0.0,
        "BM25's share of the ranking, beside the encoder's: 0.5 counts both alike; 0: the encoder alone",
        ge=0.0,
        lt=1.0,
    )
    fusion: Fusion = added(
        "rrf",
        "how both lists are joined: by reciprocal ranks (rrf), or by a convex combination of min-max normalised scores "
        "(convex)",
    )
    threads: int = runtime(1, "threads of the search", ge=1)

    def name_of(self, system: str) -> str:
        """The system as tables name it: with BM25 beside it, if their lists are joined."""
        return f"{system} + bm25" if self.bm25_share else system

    @model_validator(mode="after")
    def _fusion_has_two_lists(self) -> Self:
        if self.fusion != "rrf" and not self.bm25_share:
            raise ValueError(
                f"fusion = {self.fusion} with bm25_share = 0: no lists are joined; set evaluation.bm25_share=0.5, or "
                "leave fusion at rrf"
            )
        return self

    @field_validator("measures")
    @classmethod
    def _measures_are_known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return expand(names)


def evaluate_ranked(config: EvaluateConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The step. Inputs: corpus, and `ranked`, an artifact with `ranked/SPLIT.parquet` (of a search, or BM25's).

    Writes `per_query/CORPUS.SPLIT.parquet` (query_id, measure, value), the like for every slice of the split, and the
    list it judged, `runs/CORPUS.SPLIT.trec.gz`. In a search, a query that is a passage of the corpus does not find
    itself; the list of a run file is measured as its step left it.

    Returns:
        corpus, split, split_made_here, split_rule (in words), measures (name -> mean), slices (name -> queries and
        measures), not_searched (slice -> its queries that do not count, where there are any), what `measures.coverage`
        counts, missing_passages (judgements of passages that the collection lacks), unread_judgements (why -> rows of
        all splits that are not used), self_matches (rows left out), empty_slots (results that an index did not find),
        index_recall (of an approximate search, `retrieve.index.measure_recall`), read (how far texts were read,
        as far as the list's step says), seconds.

    Raises:
        UserError: for an unknown split, or measures that its judgements cannot tell.
    """
    started = time.perf_counter()
    corpus = inputs["corpus"]
    qrels = read_qrels(corpus)
    searched = judged_queries(corpus, config.split, limit=config.max_queries)
    ranking, itself = _cut_ranking(config, inputs, searched)
    split_values, covered = _measure_queries(config, corpus, ranking, searched)
    if covered["without_results"]:
        log.warning("%d of %d queries have no result and score 0", covered["without_results"], covered["queries"])
    slices, lost = evaluate_slices(ranking, qrels, config.split, _measures(config, corpus), searched)
    values = {config.split: split_values, **slices}
    name = corpus.result["name"]
    ranked.write_trec(out / "runs" / f"{name}.{config.split}.trec.gz", ranking, ranked.TAG)
    for split, per_query in values.items():
        write_table(per_query, out / "per_query" / f"{name}.{split}.parquet")
    means = {split: measures.aggregate(per_query) for split, per_query in values.items()}
    sizes = {split: pc.count_distinct(per_query["query_id"]).as_py() for split, per_query in values.items()}
    return {
        "corpus": name,
        "split": config.split,
        "split_made_here": config.split in corpus.result["splits_made_here"],
        "split_rule": corpus.result["split_rule"],
        "measures": means.pop(config.split),
        "slices": {split: {"queries": sizes[split], "measures": means[split]} for split in means},
        "not_searched": lost,
        **covered,
        "missing_passages": pc.sum(is_missing(corpus.place, _of_split(qrels, config.split, searched))).as_py() or 0,
        "unread_judgements": _count_unread(corpus),
        "self_matches": itself,
        "empty_slots": inputs["ranked"].result.get("splits", {}).get(config.split, {}).get("empty_slots", 0),
        "index_recall": inputs["ranked"].result.get("recall", {}),
        "read": inputs["ranked"].result.get("read", {}),
        "seconds": round(time.perf_counter() - started, 3),
    }


def _cut_ranking(config: EvaluateConfig, inputs: Mapping[str, Artifact], searched: list[str]) -> tuple[pa.Table, int]:
    """The list of the sampled queries, cut to the depth, and how many passages in it were the query itself."""
    ranking = ranked.read(ranked.of_split(inputs["ranked"].place, config.split))
    ranking = ranking.filter(pc.is_in(ranking["query_id"], value_set=pa.array(searched, pa.string())))
    ranking, itself = without_self(ranking, excluded_pairs(inputs["ranked"], inputs["corpus"]), config.depth)
    if itself:
        log.info("%d passages were the query itself and are left out", itself)
    return ranking, itself


def _measures(config: EvaluateConfig, corpus: Artifact) -> list[str]:
    """The configured measures, or the usual ones for a split with judgements, or with answer strings alone."""
    if config.measures:
        return list(config.measures)
    if config.split not in read_qrels(corpus)["split"].unique().to_pylist():
        return list(DEFAULT_BY_ANSWERS)
    return measures.default_measures(corpus.result["passages"], config.depth)


def _measure_queries(
    config: EvaluateConfig, corpus: Artifact, ranking: pa.Table, searched: list[str]
) -> tuple[pa.Table, dict[str, int]]:
    """Values per query, and their coverage: Success@k by answer strings, where the split has them; else judgements."""
    names = _measures(config, corpus)
    qrels = _of_split(read_qrels(corpus), config.split, searched)
    strings = _of_split(read_answers(corpus), config.split, searched)
    by_strings = by_answers(names) if len(strings) else []
    rest = [name for name in names if name not in by_strings]
    if rest and len(strings) and not len(qrels):
        raise UserError(
            f"measure {rest[0]!r}: split {config.split!r} has answer strings but no judgements; use Success@20, or the "
            "preset nq"
        )
    judgements, tables = [qrels], []
    if by_strings:
        deepest = max(int(measure["cutoff"]) for measure in measures.parse(by_strings))
        top = ranking.filter(pc.less_equal(ranking["rank"], deepest))
        derived = answer_qrels(top, strings, corpus.place / "docs")
        tables.append(measures.evaluate(ranking, derived, config.split, by_strings))
        judgements.append(derived)
    if rest:
        tables.append(measures.evaluate(ranking, qrels, config.split, rest))
    per_query = pa.concat_tables(tables).sort_by([("query_id", "ascending"), ("measure", "ascending")])
    return per_query, measures.coverage(ranking, pa.concat_tables(judgements), config.split)


def _of_split(table: pa.Table, split: str, searched: list[str]) -> pa.Table:
    within = pc.equal(table["split"], split)
    return table.filter(pc.and_(within, pc.is_in(table["query_id"], value_set=pa.array(searched, pa.string()))))


def _count_unread(corpus: Artifact) -> dict[str, int]:
    """Maps each fault or rule to the number of judgements in the collection's files that were not read."""
    rows = corpus.result.get("rows_by_kind", {}).get("qrels", {})
    sampled = {"of passages left out by corpus.max_passages": rows.get("left_out", 0)}
    return {why: count for why, count in {**rows.get("quarantined", {}), **sampled}.items() if count}
