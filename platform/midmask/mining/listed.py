"""The lists that negatives are taken from: ranked lists of a search or of BM25, or a file of another tool.

They are read side by side, some queries at a time, since they may be larger than memory. The read_negatives step checks
the candidates of a file against the corpus.
"""

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from midmask.core.config import Config, file_fingerprint
from midmask.corpora.ids import IdTable
from midmask.errors import UserError, unknown
from midmask.exchange.negatives_files import HardNegatives, read_negatives_file
from midmask.mining.negatives import CANDIDATES, SCORES, NegativeList
from midmask.retrieve import ranked
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.tables import read_row_groups, read_table, write_table

log = logging.getLogger(__name__)


class Cursor:
    """Reads a table sorted by `query_id` from its start; keeps little more than the rows of the last query in memory.

    Args:
        tables: its rows, cut anywhere.
        name: for messages.
        schema: the columns that are wanted.

    Raises:
        UserError: where the rows are not sorted.
    """

    def __init__(self, tables: Iterator[pa.Table], name: str, schema: pa.Schema) -> None:
        self._tables, self._name, self._schema = tables, name, schema
        self._held: list[pa.Table] = []
        self.last: str | None = ""  # the last query that has been read; None when the tables have ended
        self._load_next_table()

    def _load_next_table(self) -> None:
        """Loads the next table that is not empty; sets `last` to None at the end.

        Raises:
            UserError: if query_id is not sorted.
        """
        for table in self._tables:
            if len(table):
                names = table["query_id"].combine_chunks()
                falls = pc.any(pc.less(names[1:], names[:-1])).as_py()
                if falls or names[0].as_py() < self.last:
                    raise UserError(f"{self._name}: the rows are not sorted by query_id; sort them by this column")
                self.last = str(names[-1].as_py())
                self._held.append(table.select(self._schema.names).cast(self._schema))
                return
        self.last = None

    def until(self, bound: str) -> pa.Table:
        """The next rows, up to the last one of the query `bound`."""
        while self.last is not None and self.last <= bound:
            self._load_next_table()
        held = pa.concat_tables([self._schema.empty_table(), *self._held])
        within = pc.sum(pc.less_equal(held["query_id"], bound)).as_py() or 0
        self._held = [held.slice(within)] if within < len(held) else []
        return held.slice(0, within)


def align(cursors: Sequence[Cursor]) -> Iterator[list[pa.Table]]:
    """The cursors' rows of the same stretch of queries, stretch by stretch; every query is whole."""
    while bounds := [cursor.last for cursor in cursors if cursor.last is not None]:
        yield [cursor.until(min(bounds)) for cursor in cursors]


@dataclass(frozen=True)
class Listed:
    """An artifact with lists to take negatives from, and its sources by their own names."""

    artifact: Artifact
    sources: Mapping[str, NegativeList]

    def cursors(self, split: str) -> Iterator[Cursor]:
        """Its lists, read from their starts, with the sources' full names."""
        lists = self.artifact.place / "lists"
        for name in lists.names():
            yield Cursor(map(self._name_sources, read_row_groups(lists / name)), str(lists / name), CANDIDATES)
        if not lists.names():
            (source,) = self.sources.values()
            place = ranked.of_split(self.artifact.place, split)
            tables = (
                table.append_column("source", pa.repeat(source.name, len(table))) for table in read_row_groups(place)
            )
            yield Cursor(tables, str(place), CANDIDATES)

    def _name_sources(self, table: pa.Table) -> pa.Table:
        short = pa.array(list(self.sources), pa.string())
        full = pa.array([source.name for source in self.sources.values()], pa.string())
        names = full.take(pc.index_in(table["source"], value_set=short).combine_chunks())
        return table.set_column(table.column_names.index("source"), "source", names)


def find_listed(lists: Sequence[Artifact]) -> list[Listed]:
    """The lists that negatives are taken from; sources with the same name are distinguished by their artifacts'
    fingerprints.

    Raises:
        UserError: if there are none, or one of them twice.
    """
    twice = [name for name, count in Counter(artifact.fingerprint for artifact in lists).items() if count > 1]
    if twice:
        raise UserError(f"mine: the list {twice[0]} is given twice; name each list once")
    if not lists:
        raise UserError("mine: there is no list to take negatives from; give it an input `ranked`")
    systems = [
        artifact.result.get("systems", [artifact.result.get("source", artifact.record.get("step", "ranked"))])
        for artifact in lists
    ]
    count = Counter(name for names in systems for name in names)
    return [
        Listed(artifact, {name: _source(artifact, name, count[name]) for name in names})
        for artifact, names in zip(lists, systems, strict=True)
    ]


def _source(artifact: Artifact, name: str, namesakes: int) -> NegativeList:
    full = name if namesakes == 1 else f"{name}@{artifact.fingerprint}"
    return NegativeList(full, artifact.fingerprint, artifact.record.get("config", {}).get("index"))


def stretches(
    listed: Sequence[Listed], scores: Artifact | None, query_ids: Sequence[str], split: str, depth: int
) -> Iterator[tuple[pa.Table, pa.Table | None]]:
    """Candidates of the wanted queries up to the depth, with the teacher's scores of the same queries."""
    cursors = [cursor for artifact in listed for cursor in artifact.cursors(split)]
    if scores is not None:
        place = scores.place / "scores.parquet"
        cursors.append(Cursor(read_row_groups(place), str(place), SCORES))
    wanted = pa.array(query_ids, pa.string())
    for tables in align(cursors):
        scored = tables.pop() if scores is not None else None
        table = pa.concat_tables(tables)
        usable = pc.and_(pc.is_in(table["query_id"], value_set=wanted), pc.less_equal(table["rank"], depth))
        if len(table := table.filter(usable)):
            yield table, scored


SORTED_AT_ONCE = 20_000
"""Lines that are sorted at a time."""

ROWS_OF_GROUP = 1 << 15
"""Candidates of a row group."""


class ReadNegativesConfig(Config):
    """Candidates from a file."""

    file: str = Field(
        description="negatives by query: .jsonl as msmarco-hard-negatives, Tevatron or SimLM write it, or .tsv of lists"
    )
    systems: tuple[str, ...] = Field((), description="systems whose lists are taken; none named: all")
    unknown_ids: Literal["refuse", "count"] = Field(
        "refuse", description="queries and passages that the corpus lacks: an error, or quarantined and counted"
    )


def negatives_content(config: ReadNegativesConfig) -> dict[str, str]:
    """Fingerprint of the file, for the step's identity.

    Raises:
        UserError: if there is no such file.
    """
    return {Path(config.file).name: file_fingerprint(config.file, f"negatives file:{config.file}")}


def read_negatives(config: ReadNegativesConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The step; input corpus.

    Raises:
        UserError: for a line of another layout, a query that is on two lines, a system that the file lacks, and
            ids that the corpus lacks, unless these are to be counted.
    """
    with (out / "quarantine.jsonl").writing() as quarantine:
        reading = _Reading(config, inputs["corpus"].place, quarantine)
        entries = read_negatives_file(Place(config.file))
        for number, block in enumerate(iter(lambda: list(islice(entries, SORTED_AT_ONCE)), [])):
            table = reading.candidates(block)
            write_table(table, out / "lists" / f"{number:05d}.parquet", row_group_size=ROWS_OF_GROUP)
    for system in config.systems:
        if system not in reading.systems:
            raise unknown("system", system, reading.systems, hint=f"These are the systems of {config.file}.")
    if reading.refused:
        log.warning("%s: entries that were not taken: %s", config.file, dict(reading.refused))
    return {
        "systems": sorted(reading.systems if not config.systems else config.systems),
        "queries": len(reading.seen),
        "candidates": reading.candidates_read,
        "refused": dict(sorted(reading.refused.items())),
    }


class _Reading:
    """One reading of a file: what is known of the corpus, what has been seen and what was refused."""

    def __init__(self, config: ReadNegativesConfig, corpus: Place, quarantine: BinaryIO) -> None:
        self._config, self._quarantine = config, quarantine
        self._docs, self._queries = IdTable(), IdTable()
        for name in (corpus / "docs").names():
            self._docs.add(read_table(corpus / "docs" / name, ["doc_id"])["doc_id"].to_pylist())
        self._queries.add(read_table(corpus / "queries.parquet", ["query_id"])["query_id"].to_pylist())
        self.seen: set[str] = set()
        self.systems: set[str] = set()
        self.refused: Counter[str] = Counter()
        self.candidates_read = 0

    def candidates(self, block: list[HardNegatives]) -> pa.Table:
        """The candidates of some lines, by query, system and rank."""
        rows = [row for entry in sorted(block, key=lambda entry: entry.query_id) for row in self._of(entry)]
        known = self._docs.rows([doc_id for _, doc_id, _, _ in rows]) >= 0
        accepted = []
        for row, is_known in zip(rows, known.tolist(), strict=True):
            if is_known:
                accepted.append(row)
            else:
                self._refuse("unknown passage", row[0], row[1], strange=True)
        self.candidates_read += len(accepted)
        names = ("query_id", "doc_id", "rank", "source")
        columns = dict(zip(names, zip(*accepted, strict=True) if accepted else [()] * 4, strict=True))
        arrays = [
            pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(len(accepted), field.type)
            for field in CANDIDATES
        ]
        return pa.table(arrays, schema=CANDIDATES)

    def _of(self, entry: HardNegatives) -> Iterator[tuple[str, str, int, str]]:
        """(query, passage, rank, system) of a line's fair candidates; a rank is the place in the system's list."""
        if entry.query_id in self.seen:
            raise UserError(f"{self._config.file}: query {entry.query_id!r} stands on two lines; join them into one")
        self.seen.add(entry.query_id)
        self.systems.update(entry.negatives)
        if self._queries.rows([entry.query_id])[0] < 0:
            self._refuse("unknown query", entry.query_id, "", strange=True)
            return
        for system, doc_ids in sorted(entry.negatives.items()):
            if self._config.systems and system not in self._config.systems:
                continue
            listed: set[str] = set(entry.positives)
            for rank, doc_id in enumerate(doc_ids, start=1):
                if doc_id in listed:
                    kind = "positive of its line" if doc_id in entry.positives else "repeated"
                    self._refuse(kind, entry.query_id, doc_id)
                else:
                    listed.add(doc_id)
                    yield entry.query_id, doc_id, rank, system

    def _refuse(self, kind: str, query_id: str, doc_id: str, *, strange: bool = False) -> None:
        if strange and self._config.unknown_ids == "refuse":
            raise UserError(
                f"{self._config.file}: {kind} {doc_id or query_id!r} (query {query_id!r}): the corpus has no such id; "
                "name the collection that the file belongs to, or take such ids out of the file"
            )
        self.refused[kind] += 1
        line = {"kind": kind, "query_id": query_id, "doc_id": doc_id}
        self._quarantine.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
