"""Texts, judgements and ranked lists behind an evaluation, a few queries at a time, read from its artifacts.

Files are read by row groups, so that of a large collection only ids pass through memory, and the texts asked for.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from midmask.artifact import Artifact, Place
from midmask.leaderboard.lineage import artifact_of
from midmask.retrieve.self_matches import excluded_pairs, without_self


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation's record leads to. corpus, ranked: None where they cannot be reached; missing: which, and why.

    split: of the queries; the evaluation of a slice lies with its split. depth: of the list that was judged.
    """

    corpus: Artifact | None = None
    ranked: Artifact | None = None
    split: str = ""
    depth: int | None = None
    missing: tuple[str, ...] = ()


def evaluated(place: Place | None) -> Evaluated:
    """What can be reached from an evaluation's artifact.

    Args:
        place: None for a run that does not tell where its artifact lies.
    """
    if place is None:
        return Evaluated(missing=("the run does not tell where its artifact lies",))
    evaluation, why = artifact_of(place)
    if evaluation is None:
        return Evaluated(missing=(f"the evaluation {place}: {why}",))
    found: dict[str, Artifact | None] = {}
    missing = []
    for role in ("corpus", "ranked"):
        source = evaluation.record["inputs"].get(role)
        found[role], why = artifact_of(Place(source)) if source else (None, "the record does not name it")
        if found[role] is None:
            missing.append(f"its {role} {source or ''}: {why}")
    split, depth = str(evaluation.result.get("split", "")), evaluation.record["config"].get("depth")
    return Evaluated(found["corpus"], found["ranked"], split, depth, tuple(missing))


def query_texts(corpus: Artifact, query_ids: Collection[str]) -> dict[str, str]:
    return _texts(corpus.place / "queries.parquet", "query_id", ["text"], query_ids, {})["text"]


def passage_texts(corpus: Artifact, doc_ids: Collection[str]) -> dict[str, tuple[str, str]]:
    """Passage id -> (title, text), for those that the corpus has."""
    found: dict[str, dict[str, str]] = {}
    docs = corpus.place / "docs"
    for name in docs.names():
        found = _texts(docs / name, "doc_id", ["title", "text"], doc_ids, found)
    return {doc_id: (found["title"][doc_id] or "", text) for doc_id, text in found.get("text", {}).items()}


def grades(corpus: Artifact, split: str, query_ids: Collection[str]) -> dict[str, dict[str, int]]:
    """Query -> passage -> grade of the split's judgements, for these queries."""
    with (corpus.place / "qrels.parquet").reading() as stream:
        table = pq.read_table(stream, filters=[("split", "=", split), ("query_id", "in", sorted(query_ids))])
    found: dict[str, dict[str, int]] = {query_id: {} for query_id in query_ids}
    for row in table.select(["query_id", "doc_id", "grade"]).to_pylist():
        found[row["query_id"]][row["doc_id"]] = row["grade"]
    return found


def ranked_lists(source: Evaluated, query_ids: Collection[str]) -> dict[str, list[str]]:
    """Query -> passages that were judged as found for it, the first first; where the corpus can be reached, without
    those that the evaluation left out because they are the query itself.
    """
    assert source.ranked is not None, "asked for where it was reached"
    with (source.ranked.place / "ranked" / f"{source.split}.parquet").reading() as stream:
        table = pq.read_table(stream, filters=[("query_id", "in", sorted(query_ids))])
    table = table.sort_by([("query_id", "ascending"), ("rank", "ascending")])
    if source.corpus is not None:
        table, _ = without_self(table, excluded_pairs(source.ranked, source.corpus), source.depth)
    found: dict[str, list[str]] = {query_id: [] for query_id in query_ids}
    for query_id, doc_id in zip(table["query_id"].to_pylist(), table["doc_id"].to_pylist(), strict=True):
        found[query_id].append(doc_id)
    return found


def _texts(
    file: Place, name: str, columns: list[str], wanted: Collection[str], found: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, str]]:
    """Column -> id -> text of the wanted ids in a file, added to what was found before."""
    gathered = {column: dict(found.get(column, {})) for column in columns}
    ids = pa.array(sorted(wanted), pa.string())
    with file.reading() as stream:
        parquet = pq.ParquetFile(stream)
        for group in range(parquet.num_row_groups):
            here = pc.is_in(parquet.read_row_group(group, columns=[name])[name], value_set=ids)
            if pc.any(here).as_py():
                table = parquet.read_row_group(group, columns=[name, *columns]).filter(here)
                for column in columns:
                    pairs = zip(table[name].to_pylist(), table[column].to_pylist(), strict=True)
                    gathered[column].update(pairs)
    return gathered
