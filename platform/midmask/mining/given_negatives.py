"""The read_negatives step: candidates from a file of another tool, checked against the corpus.

    lists/00000.parquet …   candidates (`negatives.CANDIDATES`, without scores), sorted by query within each file
    quarantine.jsonl        every entry that was not taken, with the reason

The file has a layout of `exchange.negatives_files`, each system being a source of its own. The mining step then chooses
from it as from a ranking.
"""

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from midmask.artifact import Artifact, Place
from midmask.corpora.ids import IdTable
from midmask.errors import UserError, unknown
from midmask.exchange.hard_negatives_file import HardNegatives
from midmask.exchange.negatives_files import read_negatives_file
from midmask.identity import Config, file_fingerprint
from midmask.mining.negatives import CANDIDATES

log = logging.getLogger(__name__)

QUERIES = 20_000
"""Lines that are sorted at a time."""

ROWS = 1 << 15
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
    if not Path(config.file).is_file():
        raise UserError(f"negatives file:{config.file}: there is no such file")
    return {Path(config.file).name: file_fingerprint(config.file)}


def read_negatives(config: ReadNegativesConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The step; input corpus.

    Raises:
        UserError: for a line of another layout, a query that is on two lines, a system that the file lacks, and
            ids that the corpus lacks, unless these are to be counted.
    """
    with (out / "quarantine.jsonl").writing() as quarantine:
        reading = _Reading(config, inputs["corpus"].place, quarantine)
        entries = read_negatives_file(Place(config.file))
        for number, block in enumerate(iter(lambda: list(islice(entries, QUERIES)), [])):
            table = reading.candidates(block)
            with (out / "lists" / f"{number:05d}.parquet").writing() as stream:
                pq.write_table(table, stream, row_group_size=ROWS, compression="zstd")
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
            self._docs.add(_column(corpus / "docs" / name, "doc_id"))
        self._queries.add(_column(corpus / "queries.parquet", "query_id"))
        self.seen: set[str] = set()
        self.systems: set[str] = set()
        self.refused: Counter[str] = Counter()
        self.candidates_read = 0

    def candidates(self, block: list[HardNegatives]) -> pa.Table:
        """The candidates of some lines, by query, system and rank."""
        rows = [row for entry in sorted(block, key=lambda entry: entry.query_id) for row in self._of(entry)]
        known = self._docs.rows([doc_id for _, doc_id, _, _ in rows]) >= 0
        kept = []
        for row, is_known in zip(rows, known.tolist(), strict=True):
            if is_known:
                kept.append(row)
            else:
                self._refuse("unknown passage", row[0], row[1], strange=True)
        self.candidates_read += len(kept)
        names = ("query_id", "doc_id", "rank", "source")
        columns = dict(zip(names, zip(*kept, strict=True) if kept else [()] * 4, strict=True))
        arrays = [
            pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(len(kept), field.type)
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


def _column(place: Place, name: str) -> list[str]:
    with place.reading() as stream:
        values: list[str] = pq.read_table(stream, columns=[name])[name].to_pylist()
    return values
