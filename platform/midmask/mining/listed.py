"""The lists that negatives are taken from: ranked lists of a search or of BM25, and a file's."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from midmask.artifact import Artifact
from midmask.errors import UserError
from midmask.mining.aligned import Cursor, align, row_groups
from midmask.mining.negatives import CANDIDATES, SCORES, NegativeList
from midmask.retrieve import ranked


@dataclass(frozen=True)
class Listed:
    """An artifact with lists to take negatives from, and its sources by their own names."""

    artifact: Artifact
    sources: Mapping[str, NegativeList]

    def cursors(self, split: str) -> Iterator[Cursor]:
        """Its lists, read from their starts, with the sources' full names."""
        lists = self.artifact.place / "lists"
        for name in lists.names():
            yield Cursor(map(self._name_sources, row_groups(lists / name)), str(lists / name), CANDIDATES)
        if not lists.names():
            (source,) = self.sources.values()
            place = ranked.of_split(self.artifact.place, split)
            tables = (table.append_column("source", pa.repeat(source.name, len(table))) for table in row_groups(place))
            yield Cursor(tables, str(place), CANDIDATES)

    def _name_sources(self, table: pa.Table) -> pa.Table:
        own = pa.array(list(self.sources), pa.string())
        full = pa.array([source.name for source in self.sources.values()], pa.string())
        names = full.take(pc.index_in(table["source"], value_set=own).combine_chunks())
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
    own = [
        artifact.result.get("systems", [artifact.result.get("source", artifact.record.get("step", "ranked"))])
        for artifact in lists
    ]
    count = Counter(name for names in own for name in names)
    return [
        Listed(artifact, {name: _source(artifact, name, count[name]) for name in names})
        for artifact, names in zip(lists, own, strict=True)
    ]


def _source(artifact: Artifact, name: str, namesakes: int) -> NegativeList:
    full = name if namesakes == 1 else f"{name}@{artifact.fingerprint}"
    return NegativeList(full, artifact.fingerprint, artifact.record.get("config", {}).get("index"))


def stretches(
    listed: Sequence[Listed], scores: Artifact | None, query_ids: Sequence[str], split: str, depth: int
) -> Iterator[tuple[pa.Table, pa.Table | None]]:
    """Candidates of the wanted queries up to the depth, with the teacher's scores of the same queries."""
    cursors = [cursor for own in listed for cursor in own.cursors(split)]
    if scores is not None:
        place = scores.place / "scores.parquet"
        cursors.append(Cursor(row_groups(place), str(place), SCORES))
    wanted = pa.array(query_ids, pa.string())
    for tables in align(cursors):
        scored = tables.pop() if scores is not None else None
        table = pa.concat_tables(tables)
        kept = pc.and_(pc.is_in(table["query_id"], value_set=wanted), pc.less_equal(table["rank"], depth))
        if len(table := table.filter(kept)):
            yield table, scored
