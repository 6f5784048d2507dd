"""The steps "prepare" (a corpus's files become one artifact) and "join" (the passages of several such artifacts).

Pieces are read and checked (here, or by workers: `stream`), put together in source order, and written: passages as they
come, then queries and judgements. The bytes written are a function of config and source alone.

Queries may be passages of their own corpus (ArguAna, Quora): `self_matches` tells which passage is the query itself.
Ids alone do not tell: MS MARCO numbers queries and passages apart, and query 7 is not passage 7. So by the rule "auto"
a query is the passage of its id if at least half of the queries that have such a passage have its very text; else none
is. A passage that is judged relevant for a query is never taken for the query itself.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, field_validator

from midmask.core.config import Config
from midmask.corpora.checked_rows import Collection, Quarantine, Stream, pair_texts, separate_rejected
from midmask.corpora.chunks import read_here
from midmask.corpora.config import CorpusConfig
from midmask.corpora.documents import ending
from midmask.corpora.pydocs import pair_up
from midmask.corpora.reader import open_corpus, reader_of
from midmask.corpora.splits import BY_CLUSTER, Rule
from midmask.corpora.writer import (
    ANSWERS,
    DOCS,
    GROUP_ROWS,
    MISSING_PASSAGES,
    QRELS,
    QUARANTINE,
    QUERIES,
    SELF_MATCHES,
    write_rows,
    write_shards,
)
from midmask.errors import UserError
from midmask.store.artifact import Artifact, start_afresh
from midmask.store.place import Place
from midmask.store.tables import read_batches

log = logging.getLogger(__name__)


def prepare(config: CorpusConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """Reads the corpus in this process and writes its artifact to `out`; see `assemble`."""
    return assemble(config, out, read_here)


def assemble(config: CorpusConfig, out: Place, stream: Stream) -> dict[str, Any]:
    """Writes docs/, queries.parquet, qrels.parquet, quarantine.jsonl and statistics.json; where there are any, also
    answers.parquet (nq), self_matches.parquet and missing_passages.parquet.

    What an interrupted call has left in `out` is deleted first. The result holds counts: passages, those with a title,
    queries, splits, self_matches, missing_passages, and rows_read = rows_kept + the sums of rows_quarantined and of
    rows_left_out.

    Raises:
        UserError: for a place without a corpus, or a share of bad rows above the threshold; quarantine.jsonl stays.
    """
    start_afresh(out)
    failure = None
    with (out / QUARANTINE).writing() as quarantine:
        rejected = Quarantine(quarantine, config.bad_rows_threshold, config.name)
        try:
            result = _fill(config, out, stream, rejected)
        except UserError as error:  # once the quarantine is written
            failure = error
    if failure is None:
        return result
    raise UserError(f"{failure} (all bad rows: {out / QUARANTINE})") if any(rejected.bad.values()) else failure


def _fill(config: CorpusConfig, out: Place, stream: Stream, rejected: Quarantine) -> dict[str, Any]:
    passages = TextStatistics()
    rules: dict[str, Any] = {}
    corpus = open_corpus(config)
    if config.format == "pydocs":
        tables = separate_rejected(stream(corpus.docs), "docs", rejected)
        docs, queries, qrels, rules = pair_up(tables, config)
        rejected.kept.update(docs=len(docs), queries=len(queries), qrels=len(qrels))
        rejected.check("docs")
        write_shards(passages.watch([docs]), out / "docs")
        rule = Rule(BY_CLUSTER)
        answers, missing = ANSWERS.empty_table(), pa.array([], pa.string())
    else:
        collection = Collection(corpus, config, stream, rejected)
        if not write_shards(passages.watch(collection.passages()), out / "docs"):
            bad = "; ".join(rejected.examples["docs"])
            raise UserError(
                f"{config.name}: there is no passage in it{bad and f' but bad rows, first: {bad}'}; wanted is "
                f"{reader_of(config.format).layout}"
            )
        queries, qrels, rule = collection.read_judged()
        answers = queries.filter(pc.is_valid(queries.column("answers"))).select(ANSWERS.names)
        missing = collection.missing_passages(qrels)
    write_rows(queries, out / "queries.parquet", QUERIES)
    write_rows(qrels, out / "qrels.parquet", QRELS)
    if len(answers):
        write_rows(answers, out / "answers.parquet", ANSWERS)
    log.info(rejected.line())
    facts = {
        "name": config.short_name,
        "splits": _count_splits(qrels, answers),
        "splits_made_here": list(rule.made),
        "split_rule": rule.words,
        "self_matches": _write_self_matches(config, out, queries, qrels),
        "missing_passages": _write_missing_passages(config, out, qrels, missing),
        **rejected.result(),
        "rules": rules,
    }
    if config.format == "docs":
        kinds = dict(sorted(Counter(ending(piece.file) for piece in corpus.docs).items()))
        facts["documents"] = {"files": kinds, "files_left_out": corpus.left_out}
        log.info("%s: documents %s, other files that are left out %s", config.name, kinds, corpus.left_out)
    query_texts = TextStatistics()
    query_texts.add(queries)
    statistics = {"passages": passages.summary(), "queries": query_texts.summary(), "titled": passages.titled, **facts}
    (out / "statistics.json").write_json(statistics)
    counts = {"passages": statistics["passages"]["count"], "queries": statistics["queries"]["count"]}
    return {**facts, **counts, "titled": passages.titled}


class TextStatistics:
    """Word counts (split at white space) of a stream of texts; four bytes a text are held."""

    def __init__(self) -> None:
        self._lengths = [np.zeros(0, np.int32)]
        self.titled = 0

    def add(self, table: pa.Table) -> None:
        """Counts the rows of a block by its column `text` and, if it has one, `title`."""
        self._lengths.append(np.array([len(text.split()) for text in table.column("text").to_pylist()], np.int32))
        if "title" in table.column_names:
            self.titled += pc.sum(pc.not_equal(table.column("title"), "")).as_py() or 0

    def watch(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The tables as they are."""
        for table in tables:
            self.add(table)
            yield table

    def summary(self) -> dict[str, Any]:
        """count, and words: mean, median, p90, max (median and p90 by nearest rank)."""
        lengths = np.concatenate(self._lengths)
        if not len(lengths):
            return {"count": 0, "words": {"mean": 0.0, "median": 0, "p90": 0, "max": 0}}
        median, p90, most = (int(length) for length in np.percentile(lengths, [50, 90, 100], method="inverted_cdf"))
        words = {"mean": int(lengths.sum()) / len(lengths), "median": median, "p90": p90, "max": most}
        return {"count": len(lengths), "words": words}


def statistics_table(statistics: Mapping[str, Any]) -> str:
    """The contents of statistics.json as a table for people."""
    lines = [f"{'':<10}{'count':>10}  {'words: mean':>11}  {'median':>6}  {'p90':>6}  {'max':>6}"]
    for name in ("passages", "queries"):
        part = statistics[name]
        words = part["words"]
        lines.append(
            f"{name:<10}{part['count']:>10,}  {words['mean']:>11.1f}  {words['median']:>6}  {words['p90']:>6}  "
            f"{words['max']:>6}"
        )
    for split, part in statistics["splits"].items():
        made = "  (split made here)" if split in statistics["splits_made_here"] else ""
        judged = f"{part['answered']:>10,} with answers" if "answered" in part else ""
        lines.append(f"{split:<10}{part['queries']:>10,} queries  {part['judgements']:>10,} judgements{judged}{made}")
    if not statistics["splits"]:
        lines.append("no queries and no judgements: text only")
    lines.append(f"titles: {statistics['titled']:,} of {statistics['passages']['count']:,} passages have one")
    facts = statistics["self_matches"]
    if facts["pairs"]:
        lines.append(f"{facts['pairs']:,} passages are a query itself (by {facts['rule']}) and are not retrieved by it")
    if missing := statistics.get("missing_passages", {}).get("judgements"):
        lines.append(describe_missing(missing))
    return "\n".join(lines)


def describe_missing(judgements: int) -> str:
    """A sentence about judgements of passages that the collection lacks."""
    return (
        f"{judgements:,} judgements name passages that the collection lacks; the relevant ones count as passages that "
        "no search can find, and no training uses them"
    )


def _write_self_matches(config: CorpusConfig, out: Place, queries: pa.Table, qrels: pa.Table) -> dict[str, Any]:
    """Writes the pairs of a query and the passage that it is, if there are any; returns their counts and the rule."""
    pairs, facts = self_matches(out / "docs", queries, qrels, config.self_matches)
    if facts["pairs"]:
        write_rows(pairs, out / "self_matches.parquet", SELF_MATCHES)
        log.info("%d passages are themselves queries; searches leave them out of these queries' results", len(pairs))
    return facts


def _write_missing_passages(config: CorpusConfig, out: Place, qrels: pa.Table, missing: pa.Array) -> dict[str, int]:
    """Writes the ids of judged passages that the collection lacks, if there are any; returns their number, and that of
    the judged pairs of a query and such a passage.
    """
    judged = qrels.filter(pc.is_in(qrels.column("doc_id"), value_set=missing)).group_by(["query_id", "doc_id"])
    counts = {"passages": len(missing), "judgements": len(judged.aggregate([]))}
    if len(missing):
        write_rows(pa.table([missing], schema=MISSING_PASSAGES), out / "missing_passages.parquet", MISSING_PASSAGES)
        log.warning("%s: %s", config.name, describe_missing(counts["judgements"]))
    return counts


def _count_splits(qrels: pa.Table, answers: pa.Table) -> dict[str, dict[str, int]]:
    """Of every split the queries and judgements, and the queries that answer strings judge, if there are any."""
    sizes = {}
    names = {*pc.unique(qrels.column("split")).to_pylist(), *pc.unique(answers.column("split")).to_pylist()}
    for split in sorted(names):
        rows = qrels.filter(pc.equal(qrels.column("split"), split))
        answered = answers.filter(pc.equal(answers.column("split"), split)).column("query_id")
        query_ids = pa.chunked_array([*rows.column("query_id").chunks, *answered.chunks], pa.string())
        sizes[split] = {"queries": pc.count_distinct(query_ids).as_py(), "judgements": len(rows)}
        if len(answered):
            sizes[split]["answered"] = len(answered)
    return sizes


def self_matches(docs: Place, queries: pa.Table, qrels: pa.Table, rule: str) -> tuple[pa.Table, dict[str, Any]]:
    """The pairs (query_id, doc_id) to leave out of ranked lists, and the facts: rule, pairs, and the queries that have
    a passage of the same id, and of the same id and text (its title before it counts, too).

    Args:
        docs: the folder of written passages; one row group is in memory at a time.
        queries: query_id, text. rule: id, none or auto.
    """
    texts = dict(zip(queries["query_id"].to_pylist(), queries["text"].to_pylist(), strict=True))
    same_id, same_text = [], 0
    for table in _read_passage_texts(docs) if texts else ():
        for doc_id, title, text in zip(*(table[name].to_pylist() for name in DOCS.names), strict=True):
            if doc_id in texts:
                same_id.append(doc_id)
                same_text += texts[doc_id].strip() in (text.strip(), f"{title} {text}".strip())
    if rule == "auto":
        rule = "id" if same_id and 2 * same_text >= len(same_id) else "none"
    same = sorted(same_id) if rule == "id" else []
    pairs = pa.table([pa.array(same, pa.string())] * 2, schema=SELF_MATCHES)
    relevant = qrels.filter(pc.greater_equal(qrels["grade"], 1))
    pairs = pairs.filter(pc.invert(pc.is_in(pair_texts(pairs), value_set=pair_texts(relevant))))
    return pairs, {"rule": rule, "pairs": len(pairs), "same_id": len(same_id), "same_id_and_text": same_text}


def _read_passage_texts(docs: Place) -> Iterator[pa.Table]:
    for shard in docs.names():
        yield from (pa.Table.from_batches([batch]) for batch in read_batches(docs / shard, GROUP_ROWS))


class JoinConfig(Config):
    """Names of the collections that are joined, in order.

    Raises:
        UserError: if two collections have one name, since their ids could be equal.
    """

    names: tuple[str, ...] = Field(min_length=1, description="short names, which ids begin with")

    @field_validator("names")
    @classmethod
    def _each_name_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if names.count(name) > 1:
                raise UserError(
                    f"two collections are named {name!r}, and ids begin with that name; rename the folder of one, or "
                    "name a collection once"
                )
        return names


def join(config: JoinConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """Inputs corpus0, corpus1, … in the order of `names`; writes docs/, and queries and judgements that are empty.

    A passage `d7` of the collection `wiki` is `wiki/d7`. One row group is held in memory. The result counts passages,
    also by collection.
    """
    start_afresh(out)
    sources = [inputs[f"corpus{number}"].place for number in range(len(config.names))]
    counts = [0] * len(sources)

    def tables() -> Iterator[pa.Table]:
        for number, (name, source) in enumerate(zip(config.names, sources, strict=True)):
            for table in _read_passage_texts(source / "docs"):
                counts[number] += len(table)
                ids = pc.binary_join_element_wise(f"{name}/", table["doc_id"], "")
                yield table.set_column(table.column_names.index("doc_id"), "doc_id", ids)

    passages = write_shards(tables(), out / "docs")
    write_rows(QUERIES.empty_table(), out / "queries.parquet", QUERIES)
    write_rows(QRELS.empty_table(), out / "qrels.parquet", QRELS)
    by_name = [{"name": name, "passages": count} for name, count in zip(config.names, counts, strict=True)]
    return {"name": "+".join(config.names), "passages": passages, "queries": 0, "collections": by_name}
