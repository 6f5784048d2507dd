"""The step "prepare": a corpus's files, or the installed packages, become one artifact.

Pieces are read and checked (here, or by workers: `stream`), put together in source order, and written: passages as they
come, then queries and judgements. The bytes written are a function of config and source alone.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from midmask.artifact import Artifact, Place, start_afresh
from midmask.corpora.chunks import Piece
from midmask.corpora.config import CorpusConfig
from midmask.corpora.documents.listing import showing
from midmask.corpora.files import Collection, Stream
from midmask.corpora.pairs import pair_up
from midmask.corpora.quarantine import Quarantine, separate_rejected
from midmask.corpora.reader import FolderReader, open_corpus, reader_of
from midmask.corpora.repeats import Repeats
from midmask.corpora.self_matches import self_matches
from midmask.corpora.splits import BY_CLUSTER, Rule
from midmask.corpora.statistics import TextStatistics, describe_missing
from midmask.corpora.strays import unread_names
from midmask.corpora.writer import (
    ALIASES,
    ANSWERS,
    MISSING_PASSAGES,
    QRELS,
    QUARANTINE,
    QUERIES,
    SELF_MATCHES,
    write_shards,
    write_table,
)
from midmask.errors import UserError

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
    aliases.parquet (pydocs), answers.parquet (nq), self_matches.parquet and missing_passages.parquet.

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
    repeats = Repeats()
    if config.format == "pydocs":
        tables = separate_rejected(stream(corpus.docs), corpus.docs, "docs", rejected)
        paired = pair_up(tables, config)
        rejected.kept.update(docs=len(paired.docs), queries=len(paired.queries), qrels=len(paired.qrels))
        rejected.check("docs")
        write_shards(_count(iter([paired.docs]), passages), out / "docs")
        write_table(iter([paired.aliases]), out / "aliases.parquet", ALIASES)
        queries, qrels, rule, rules = paired.queries, paired.qrels, Rule(BY_CLUSTER), paired.rules
        answers, missing = ANSWERS.empty_table(), pa.array([], pa.string())
    else:
        collection = Collection(corpus, config, stream, rejected)
        tables = repeats.watch(collection.passages()) if config.format == "docs" else collection.passages()
        if not write_shards(_count(tables, passages), out / "docs"):
            raise UserError(_nothing_in(config, rejected))
        queries, qrels, rule = collection.read_judged()
        answers = queries.filter(pc.is_valid(queries.column("answers"))).select(ANSWERS.names)
        missing = collection.missing_passages(qrels)
    write_table(iter([queries]), out / "queries.parquet", QUERIES)
    write_table(iter([qrels]), out / "qrels.parquet", QRELS)
    if len(answers):
        write_table(iter([answers]), out / "answers.parquet", ANSWERS)
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
        facts["documents"] = _documents(config, rejected, repeats)
    return _write_statistics(out, passages, queries, facts)


def _nothing_in(config: CorpusConfig, rejected: Quarantine) -> str:
    kinds = rejected.kinds("docs")
    first = f". First: {'; '.join(rejected.examples('docs'))}" if kinds else ""
    layout = reader_of(config.format).layout
    return f"{config.name}: there is no passage in it{f' ({kinds})' if kinds else ''}; wanted is {layout}{first}"


def _documents(config: CorpusConfig, rejected: Quarantine, repeats: Repeats) -> dict[str, Any]:
    """Counts of files by ending, by encoding and of those left out, and of passages that repeat others; logs them."""
    groups = {name: dict(sorted(counts.items())) for name, counts in sorted(rejected.notes.items())}
    for name, words in (("files", "read"), ("encodings", "encodings"), ("files_left_out", "left out, no documents")):
        if counts := rejected.notes.get(name):
            log.info("%s: %s: %s", config.name, words, showing(counts))
    found = repeats.summary()
    if found["near_duplicates"]:
        log.info(
            "%s: %d passages are near-duplicates of others, in %d clusters (%d of all are exact copies); they are kept",
            config.name,
            found["near_duplicates"],
            found["near_duplicate_clusters"],
            found["exact_copies"],
        )
    return {**groups, "duplicates": found}


def _count(tables: Iterator[pa.Table], statistics: TextStatistics) -> Iterator[pa.Table]:
    for table in tables:
        statistics.add(table)
        yield table


def _write_self_matches(config: CorpusConfig, out: Place, queries: pa.Table, qrels: pa.Table) -> dict[str, Any]:
    """Writes the pairs of a query and the passage that it is, if there are any; returns their counts and the rule."""
    pairs, facts = self_matches(out / "docs", queries, qrels, config.self_matches)
    if facts["pairs"]:
        write_table(iter([pairs]), out / "self_matches.parquet", SELF_MATCHES)
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
        write_table(
            iter([pa.table([missing], schema=MISSING_PASSAGES)]), out / "missing_passages.parquet", MISSING_PASSAGES
        )
        log.warning("%s: %s", config.name, describe_missing(counts["judgements"]))
    return counts


def _write_statistics(out: Place, passages: TextStatistics, queries: pa.Table, facts: dict[str, Any]) -> dict[str, Any]:
    """Writes statistics.json, and gives the step's result."""
    asked = TextStatistics()
    asked.add(queries)
    statistics = {"passages": passages.summary(), "queries": asked.summary(), "titled": passages.titled, **facts}
    (out / "statistics.json").write_json(statistics)
    counts = {"passages": statistics["passages"]["count"], "queries": statistics["queries"]["count"]}
    return {**facts, **counts, "titled": passages.titled}


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
