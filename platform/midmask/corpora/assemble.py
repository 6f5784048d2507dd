"""The steps "prepare" (a corpus's files become one artifact) and "join" (the passages of several such artifacts).

Pieces are read and checked (here, or by workers: `stream`), put together in source order, and written: passages as they
come, then queries and judgements. The bytes written are a function of config and source alone.

Queries may be passages of their own corpus (ArguAna, Quora): `self_matches` tells which passage is the query itself.
Ids alone do not tell: MS MARCO numbers queries and passages apart, and query 7 is not passage 7. So by the rule "auto"
a query is the passage of its id if at least half of the queries that have such a passage have its very text; else it is
every passage of its very text, if at least half of all queries have one; else none is. A passage that is judged
relevant for a query is never taken for the query itself.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, field_validator

from midmask.core.config import Config
from midmask.corpora.checked_rows import Collection, Quarantine, Stream, pair_texts, separate_rejected
from midmask.corpora.chunks import Piece
from midmask.corpora.config import CorpusConfig
from midmask.corpora.corpus import CorpusPieces, unread_names
from midmask.corpora.docs import document_files, showing
from midmask.corpora.documents import ending
from midmask.corpora.pydocs import pair_up
from midmask.corpora.reader import FolderReader, open_corpus, reader_of
from midmask.corpora.splits import BY_CLUSTER, Rule
from midmask.corpora.statistics import TextStatistics, describe_missing
from midmask.corpora.writer import (
    ANSWERS,
    DOCS,
    MISSING_PASSAGES,
    QRELS,
    QUARANTINE,
    QUERIES,
    SELF_MATCHES,
    write_shards,
    write_tables,
)
from midmask.errors import UserError
from midmask.store.artifact import Artifact, start_afresh
from midmask.store.place import Place
from midmask.store.tables import read_row_groups

log = logging.getLogger(__name__)


def prepare(config: CorpusConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """Reads the corpus in this process and writes its artifact to `out`; see `assemble`."""
    return assemble(config, out, read_here)


def read_here(pieces: Sequence[Piece]) -> Iterator[pa.Table]:
    """The blocks of the pieces, one piece after the other."""
    for piece in pieces:
        yield from piece.read()


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
        except UserError as error:
            failure = error
    if failure:
        raise (
            UserError(f"{failure} (all bad rows: {out / QUARANTINE})")
            if rejected.result()["rows_quarantined"]
            else failure
        )
    return result


def _fill(config: CorpusConfig, out: Place, stream: Stream, rejected: Quarantine) -> dict[str, Any]:
    passages = TextStatistics()
    rules: dict[str, Any] = {}
    corpus = open_corpus(config)
    if isinstance(reader_of(config.format), FolderReader):
        for folder, names in unread_names(Place.named(config.place), corpus.files()):
            log.info("%s: not read, since the format has no such files: %s", folder, names)
    if config.format == "pydocs":
        tables = separate_rejected(stream(corpus.docs), corpus.docs, "docs", rejected)
        docs, queries, qrels, rules = pair_up(tables, config)
        rejected.kept.update(docs=len(docs), queries=len(queries), qrels=len(qrels))
        rejected.check("docs")
        write_shards(passages.watch([docs]), out / "docs")
        rule = Rule(BY_CLUSTER)
        answers, missing = ANSWERS.empty_table(), pa.array([], pa.string())
    else:
        collection = Collection(corpus, config, stream, rejected)
        if not write_shards(passages.watch(collection.passages()), out / "docs"):
            raise UserError(_nothing_in(config, rejected))
        queries, qrels, rule = collection.read_judged()
        answers = queries.filter(pc.is_valid(queries.column("answers"))).select(ANSWERS.names)
        missing = collection.missing_passages(qrels)
    write_tables([queries], out / "queries.parquet", QUERIES)
    write_tables([qrels], out / "qrels.parquet", QRELS)
    if len(answers):
        write_tables([answers], out / "answers.parquet", ANSWERS)
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
        facts["documents"] = _count_documents(config, corpus)
    asked = TextStatistics()
    asked.add(queries)
    statistics = {"passages": passages.summary(), "queries": asked.summary(), "titled": passages.titled, **facts}
    (out / "statistics.json").write_json(statistics)
    counts = {"passages": statistics["passages"]["count"], "queries": statistics["queries"]["count"]}
    return {**facts, **counts, "titled": passages.titled}


def _nothing_in(config: CorpusConfig, rejected: Quarantine) -> str:
    kinds = rejected.kinds("docs")
    first = f". First: {'; '.join(rejected.examples['docs'])}" if kinds else ""
    layout = reader_of(config.format).layout
    return f"{config.name}: there is no passage in it{f' ({kinds})' if kinds else ''}; wanted is {layout}{first}"


def _count_documents(config: CorpusConfig, corpus: CorpusPieces) -> dict[str, Mapping[str, int]]:
    """Numbers of files, by ending, that are documents and that are left out; logs them."""
    kinds = Counter(ending(file or config.place) for file in document_files(corpus))
    for counts, words in ((kinds, "documents"), (Counter(corpus.left_out), "left out, no documents")):
        if counts:
            log.info("%s: %s: %s", config.name, words, showing(counts))
    return {"files": dict(sorted(kinds.items())), "files_left_out": corpus.left_out}


def _write_self_matches(config: CorpusConfig, out: Place, queries: pa.Table, qrels: pa.Table) -> dict[str, Any]:
    """Writes the pairs of a query and the passage that it is, if there are any; returns their counts and the rule."""
    pairs, facts = self_matches(out / "docs", queries, qrels, config.self_matches)
    if facts["pairs"]:
        write_tables([pairs], out / "self_matches.parquet", SELF_MATCHES)
        log.info(
            "%d passages are themselves queries (same %s); searches leave them out of these queries' results",
            len(pairs),
            facts["rule"],
        )
    elif facts["same_id"] or facts["same_text"]:
        log.info("no query is treated as a passage (rule %s): %s", facts["rule"], facts)
    return facts


def _write_missing_passages(config: CorpusConfig, out: Place, qrels: pa.Table, missing: pa.Array) -> dict[str, int]:
    """Writes the ids of judged passages that the collection lacks, if there are any; returns their number, and that of
    the judged pairs of a query and such a passage.
    """
    judged = qrels.filter(pc.is_in(qrels.column("doc_id"), value_set=missing)).group_by(["query_id", "doc_id"])
    counts = {"passages": len(missing), "judgements": len(judged.aggregate([]))}
    if len(missing):
        write_tables([pa.table([missing], schema=MISSING_PASSAGES)], out / "missing_passages.parquet", MISSING_PASSAGES)
        log.warning("%s: %s", config.name, describe_missing(counts["judgements"]))
    return counts


def _count_splits(qrels: pa.Table, answers: pa.Table) -> dict[str, dict[str, int]]:
    """Of every split the queries and judgements, and the queries that answer strings judge, if there are any."""
    sizes = {}
    names = {*pc.unique(qrels.column("split")).to_pylist(), *pc.unique(answers.column("split")).to_pylist()}
    for split in sorted(names):
        rows = qrels.filter(pc.equal(qrels.column("split"), split))
        answered = answers.filter(pc.equal(answers.column("split"), split)).column("query_id")
        asked = pa.chunked_array([*rows.column("query_id").chunks, *answered.chunks], pa.string())
        sizes[split] = {"queries": pc.count_distinct(asked).as_py(), "judgements": len(rows)}
        if len(answered):
            sizes[split]["answered"] = len(answered)
    return sizes


def self_matches(docs: Place, queries: pa.Table, qrels: pa.Table, rule: str) -> tuple[pa.Table, dict[str, Any]]:
    """The pairs (query_id, doc_id) to leave out of ranked lists, and the facts: rule, pairs, and the queries that have
    a passage of the same id, of the same text, and of both.

    Args:
        docs: the folder of written passages; one row group is in memory at a time.
        queries: query_id, text. rule: id, text, none or auto.
    """
    asked = pa.table({"query_id": queries["query_id"], "text": pc.utf8_trim_whitespace(queries["text"])})
    pairs = _find_pairs(docs, asked) if len(asked) else FOUND_PAIRS.empty_table()
    same_id = pairs.filter(pc.equal(pairs["query_id"], pairs["doc_id"]))
    same_text = pairs.filter(pairs["same_text"])
    both = same_id.filter(same_id["same_text"])
    counts = {
        "same_id": _queries_of(same_id),
        "same_text": _queries_of(same_text),
        "same_id_and_text": _queries_of(both),
    }
    chosen = _choose_rule(len(queries), counts) if rule == "auto" else rule
    kept = {"id": same_id, "text": same_text, "none": pairs.slice(0, 0)}[chosen]
    kept = _without_relevant(kept, qrels).select(SELF_MATCHES.names)
    kept = kept.sort_by([("query_id", "ascending"), ("doc_id", "ascending")])
    return kept, {"rule": chosen, "pairs": len(kept), **counts}


FOUND_PAIRS = pa.schema([*SELF_MATCHES, ("same_text", pa.bool_())])


def _choose_rule(queries: int, counts: dict[str, int]) -> str:
    if counts["same_id"] and 2 * counts["same_id_and_text"] >= counts["same_id"]:
        return "id"
    return "text" if counts["same_text"] and 2 * counts["same_text"] >= queries else "none"


def _find_pairs(docs: Place, asked: pa.Table) -> pa.Table:
    """Pairs of a query and a passage that have the same id or the same text (title and text together count, too)."""
    by_text: defaultdict[str, list[str]] = defaultdict(list)
    for query_id, text in zip(asked["query_id"].to_pylist(), asked["text"].to_pylist(), strict=True):
        by_text[text].append(query_id)
    ids = {query_id for same in by_text.values() for query_id in same}
    found: list[tuple[str, str, bool]] = []
    for table in _read_passage_texts(docs):
        for doc_id, title, text in zip(*(table[name].to_pylist() for name in DOCS.names), strict=True):
            if doc_id in ids:
                found.append((doc_id, doc_id, False))
            for wording in {text.strip(), f"{title} {text}".strip()}:
                found += ((query_id, doc_id, True) for query_id in by_text.get(wording, ()))
    return pa.Table.from_pylist([dict(zip(FOUND_PAIRS.names, pair, strict=True)) for pair in found], FOUND_PAIRS)


def _read_passage_texts(docs: Place) -> Iterator[pa.Table]:
    for shard in docs.names():
        yield from read_row_groups(docs / shard)


def _queries_of(pairs: pa.Table) -> int:
    return int(pc.count_distinct(pairs["query_id"]).as_py())


def _without_relevant(pairs: pa.Table, qrels: pa.Table) -> pa.Table:
    """The pairs, each once, without those that have a judgement of grade 1 or more."""
    pairs = pairs.group_by(["query_id", "doc_id"]).aggregate([])
    relevant = qrels.filter(pc.greater_equal(qrels["grade"], 1))
    return pairs.filter(pc.invert(pc.is_in(pair_texts(pairs), value_set=pair_texts(relevant))))


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
    write_tables([QUERIES.empty_table()], out / "queries.parquet", QUERIES)
    write_tables([QRELS.empty_table()], out / "qrels.parquet", QRELS)
    by_name = [{"name": name, "passages": count} for name, count in zip(config.names, counts, strict=True)]
    return {"name": "+".join(config.names), "passages": passages, "queries": 0, "collections": by_name}
