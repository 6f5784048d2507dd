"""The lists that negatives are taken from: ranked lists of a search or of BM25, or a file of another tool.

They are read some queries at a time, since they may be larger than memory. The read_negatives step checks the
candidates of a file against the corpus.
"""

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from midmask.core.config import Config, file_fingerprint
from midmask.errors import UserError
from midmask.exchange.negatives_files import HardNegatives, read_negatives_file
from midmask.mining.negatives import CANDIDATES
from midmask.retrieve import ranked
from midmask.retrieve.searched_queries import are_passages
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.tables import read_table, write_table

log = logging.getLogger(__name__)


QUERIES_AT_ONCE = 1024
"""Queries whose candidates are in memory together."""


@dataclass(frozen=True)
class Listed:
    """An artifact with lists to take negatives from. sources: as they are called in it -> as the mining calls them."""

    artifact: Artifact
    sources: Mapping[str, str]

    def read(self, split: str, query_ids: Sequence[str]) -> Iterator[pa.Table]:
        """The candidates (CANDIDATES) of some queries, file by file."""
        lists = self.artifact.place / "lists"
        for name in lists.names():
            table = ranked.read_queries(lists / name, query_ids)
            index = pc.index_in(table["source"], value_set=pa.array(list(self.sources), pa.string()))
            names = pa.array(list(self.sources.values()), pa.string()).take(index.combine_chunks())
            yield table.drop_columns("source").append_column("source", names).select(CANDIDATES.names)
        if not lists.names():
            (name,) = self.sources.values()
            table = ranked.read_queries(ranked.of_split(self.artifact.place, split), query_ids)
            table = table.append_column("source", pa.repeat(name, len(table)))
            yield table.select(CANDIDATES.names).cast(CANDIDATES)


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
        Listed(artifact, {name: name if count[name] == 1 else f"{name}@{artifact.fingerprint}" for name in names})
        for artifact, names in zip(lists, systems, strict=True)
    ]


def stretches(
    listed: Sequence[Listed], scores: Artifact | None, query_ids: Sequence[str], split: str, depth: int | None = None
) -> Iterator[tuple[pa.Table, pa.Table | None]]:
    """Candidates of the wanted queries, and the teacher's scores of these; some queries at a time, in their order.

    Args:
        depth: last rank of a candidate; none: any.
    """
    for first in range(0, len(query_ids), QUERIES_AT_ONCE):
        some = query_ids[first : first + QUERIES_AT_ONCE]
        table = pa.concat_tables(chain.from_iterable(lists.read(split, some) for lists in listed))
        if depth is not None:
            table = table.filter(pc.less_equal(table["rank"], depth))
        if len(table):
            yield table, None if scores is None else ranked.read_queries(scores.place / "scores.parquet", some)


SORTED_AT_ONCE = 20_000
"""Lines that are sorted at a time."""

ROWS_OF_GROUP = 1 << 15
"""Candidates of a row group."""


class ReadNegativesConfig(Config):
    """Candidates from a file."""

    WITHDRAWN = (("systems", ()), ("unknown_ids", "refuse"))

    file: str = Field(
        description="negatives by query: .jsonl as msmarco-hard-negatives, Tevatron or SimLM write it, or .tsv of lists"
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
        UserError: for a line of another layout, a query that is on two lines, and ids that the corpus lacks.
    """
    with (out / "quarantine.jsonl").writing() as quarantine:
        reading = _Reading(config.file, inputs["corpus"].place, quarantine)
        entries = read_negatives_file(Place(config.file))
        for number, block in enumerate(iter(lambda: list(islice(entries, SORTED_AT_ONCE)), [])):
            table = reading.candidates(block)
            write_table(table, out / "lists" / f"{number:05d}.parquet", row_group_size=ROWS_OF_GROUP)
    if reading.refused:
        log.warning("%s: entries that were not taken: %s", config.file, dict(reading.refused))
    return {
        "systems": sorted(reading.systems),
        "queries": len(reading.seen),
        "candidates": reading.candidates_read,
        "refused": dict(sorted(reading.refused.items())),
    }


class _Reading:
    """One reading of a file: what is known of the corpus, what has been seen and what was refused."""

    def __init__(self, file: str, corpus: Place, quarantine: BinaryIO) -> None:
        self._file, self._corpus, self._quarantine = file, corpus, quarantine
        self._queries = read_table(corpus / "queries.parquet", ["query_id"])["query_id"]
        self.seen: set[str] = set()
        self.systems: set[str] = set()
        self.refused: Counter[str] = Counter()
        self.candidates_read = 0

    def candidates(self, block: list[HardNegatives]) -> pa.Table:
        """The candidates of some lines, by query, system and rank."""
        rows = [row for entry in sorted(block, key=lambda entry: entry.query_id) for row in self._of(entry)]
        listed = pa.array([entry.query_id for entry in block], pa.string())
        self._refuse_unknown("query", listed.filter(pc.invert(pc.is_in(listed, value_set=self._queries))))
        doc_ids = pa.array([row[1] for row in rows], pa.string()).unique()
        self._refuse_unknown("passage", doc_ids.filter(pa.array(~are_passages(self._corpus, doc_ids))))
        self.candidates_read += len(rows)
        columns = zip(*rows, strict=True) if rows else [()] * len(CANDIDATES)
        return pa.table([list(column) for column in columns], schema=CANDIDATES)

    def _of(self, entry: HardNegatives) -> Iterator[tuple[str, str, int, None, str]]:
        """The row of each fair candidate of a line (CANDIDATES); a rank is the place in the system's list."""
        if entry.query_id in self.seen:
            raise UserError(f"{self._file}: query {entry.query_id!r} stands on two lines; join them into one")
        self.seen.add(entry.query_id)
        self.systems.update(entry.negatives)
        for system, doc_ids in sorted(entry.negatives.items()):
            listed: set[str] = set(entry.positives)
            for rank, doc_id in enumerate(doc_ids, start=1):
                if doc_id in listed:
                    kind = "positive of its line" if doc_id in entry.positives else "repeated"
                    self._refuse(kind, entry.query_id, doc_id)
                else:
                    listed.add(doc_id)
                    yield entry.query_id, doc_id, rank, None, system

    def _refuse_unknown(self, what: str, lacking: pa.Array) -> None:
        if len(lacking):
            raise UserError(
                f"{self._file}: unknown {what} {lacking[0].as_py()!r}: the corpus has no such id; name the collection "
                "that the file belongs to, or take such ids out of the file"
            )

    def _refuse(self, kind: str, query_id: str, doc_id: str) -> None:
        self.refused[kind] += 1
        line = {"kind": kind, "query_id": query_id, "doc_id": doc_id}
        self._quarantine.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
