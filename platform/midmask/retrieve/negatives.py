"""Hard negatives from ranked lists: a pure function of the list, the judgements and a seed."""

import gzip
import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from midmask.artifact import Artifact, Place
from midmask.errors import UserError
from midmask.retrieve.selection import read_qrels

SCHEMA = pa.schema(
    [
        ("query_id", pa.string()),
        ("doc_id", pa.string()),
        ("rank", pa.int32()),
        ("score", pa.float32()),
        ("source", pa.string()),
    ]
)
"""rank and score are those of the list that the negative was taken from; source says which system made it."""


@dataclass(frozen=True)
class Choice:
    """Which passages of a list may be negatives: ranks min_rank .. max_rank, `per_query` of them, drawn by `seed`."""

    per_query: int
    min_rank: int
    max_rank: int
    seed: int


@dataclass(frozen=True)
class Known:
    """What is never a negative: query -> relevant passages (all splits), passage -> passages of the same text."""

    positives: Mapping[str, frozenset[str]]
    twins: Mapping[str, frozenset[str]]

    def refused(self, query_id: str) -> frozenset[str]:
        positives = self.positives.get(query_id, frozenset())
        return positives.union(*(self.twins.get(doc_id, frozenset()) for doc_id in positives))


def known_of(corpus: Artifact) -> Known:
    """From a corpus artifact: judgements of all splits with grade >= 1, and exact duplicates of texts."""
    qrels = read_qrels(corpus)
    positives: dict[str, set[str]] = {}
    rows = zip(*(qrels[name].to_pylist() for name in ("query_id", "doc_id", "grade")), strict=True)
    for query_id, doc_id, grade in rows:
        if grade >= 1:
            positives.setdefault(query_id, set()).add(doc_id)
    return Known({query: frozenset(docs) for query, docs in positives.items()}, twins_of(corpus.place))


def twins_of(corpus: Place) -> dict[str, frozenset[str]]:
    """Passage -> the passages with the same text, white space and case aside; only passages that have such twins."""
    names: list[pa.ChunkedArray] = []
    hashes: list[NDArray[np.uint64]] = []
    for shard in (corpus / "docs").names():
        with (corpus / "docs" / shard).reading() as stream:
            for batch in pq.ParquetFile(stream).iter_batches(columns=["doc_id", "text"]):
                names.append(batch["doc_id"])
                hashes.append(np.array([_text_hash(text) for text in batch["text"].to_pylist()], dtype=np.uint64))
    if not names:
        return {}
    all_hashes = np.concatenate(hashes)
    _, group, count = np.unique(all_hashes, return_inverse=True, return_counts=True)
    shared = np.flatnonzero(count[group] > 1)
    ids = pa.chunked_array(names).take(pa.array(shared)).to_pylist()
    members: dict[int, list[str]] = {}
    for doc_id, number in zip(ids, group[shared].tolist(), strict=True):
        members.setdefault(number, []).append(doc_id)
    return {doc_id: frozenset(group) - {doc_id} for group in members.values() for doc_id in group}


def _text_hash(text: str) -> int:
    plain = " ".join(text.split()).casefold()
    return int.from_bytes(hashlib.blake2b(plain.encode(), digest_size=8).digest(), "big")


def choose(ranked: pa.Table, known: Known, choice: Choice, source: str) -> pa.Table:
    """Negatives of every query of a ranked list, by query and rank (see SCHEMA).

    From the allowed passages of a query, `per_query` are drawn without replacement by a generator of (seed, query id),
    so a query's negatives do not depend on which other queries are there; with fewer allowed passages all of them are
    taken.
    """
    rank = ranked["rank"].to_numpy()
    ranked = ranked.filter(pa.array((rank >= choice.min_rank) & (rank <= choice.max_rank)))
    doc_ids = ranked["doc_id"].to_pylist()
    kept: list[NDArray[np.int64]] = []
    for query_id, start, stop in _groups(ranked["query_id"].to_pylist()):
        refused = known.refused(query_id)
        allowed = np.array([row for row in range(start, stop) if doc_ids[row] not in refused], dtype=np.int64)
        if len(allowed) > choice.per_query:
            draw = np.random.default_rng([choice.seed, *hashlib.sha256(query_id.encode()).digest()])
            allowed = np.sort(draw.choice(allowed, choice.per_query, replace=False))
        kept.append(allowed)
    rows = ranked.take(pa.array(np.concatenate([np.empty(0, np.int64), *kept])))
    return rows.append_column("source", pa.repeat(source, len(rows))).select(SCHEMA.names).cast(SCHEMA)


def _groups(names: list[str]) -> Iterator[tuple[str, int, int]]:
    """(name, start, stop) for each run of equal names."""
    start = 0
    for stop in range(1, len(names) + 1):
        if stop == len(names) or names[stop] != names[start]:
            yield names[start], start, stop
            start = stop


def shortfall(negatives: pa.Table, query_ids: Iterable[str], per_query: int) -> dict[str, int]:
    """How many queries were left with fewer negatives than asked for, and with none at all."""
    names, counts = np.unique(np.array(negatives["query_id"].to_pylist(), dtype=object), return_counts=True)
    have = dict(zip(names.tolist(), counts.tolist(), strict=True))
    found = [have.get(query_id, 0) for query_id in query_ids]
    return {"queries_short": sum(count < per_query for count in found), "queries_without": found.count(0)}


def jsonl_lines(negatives: pa.Table, positives: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """The msmarco-hard-negatives layout: a line `{"qid", "pos": [...], "neg": {system: [...]}}` a query, best first."""
    columns = [negatives[name].to_pylist() for name in ("query_id", "doc_id", "source")]
    for query_id, start, stop in _groups(columns[0]):
        systems: dict[str, list[str]] = {}
        for row in range(start, stop):
            systems.setdefault(columns[2][row], []).append(columns[1][row])
        line = {"qid": query_id, "pos": sorted(positives.get(query_id, ())), "neg": systems}
        yield json.dumps(line, ensure_ascii=False) + "\n"


def read_jsonl(place: Place) -> Iterator[tuple[str, list[str], dict[str, list[str]]]]:
    """(query, positives, system -> negatives) of each line of an msmarco-hard-negatives file, plain or gzip'd.

    Ids may be integers or strings; they come back as strings.

    Raises:
        UserError: naming file and line, where `pos` or a system's negatives is not a list of ids.
    """
    with place.reading() as stream:
        zipped = stream.read(2) == b"\x1f\x8b"
        stream.seek(0)
        source = gzip.GzipFile(fileobj=stream) if zipped else stream
        for number, line in enumerate(io.TextIOWrapper(source, encoding="utf-8"), start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                negatives = {str(system): _ids(ids) for system, ids in row["neg"].items()}
                yield _id(row["qid"]), _ids(row["pos"]), negatives
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise UserError(
                    f'{place}, line {number}: {type(error).__name__} {error}; wanted is {{"qid": …, "pos": [ids], '
                    f'"neg": {{system: [ids]}}}}, found {line.strip()[:80]!r}'
                ) from None


def _ids(value: object) -> list[str]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r} is not a list")
    return [_id(item) for item in value]


def _id(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{value!r} is not an id")
    return str(value)
