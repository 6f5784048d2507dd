from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from midmask.artifact import Artifact, Place
from midmask.corpora.writer import SELF_MATCHES, write_table
from midmask.mining.mine import MineConfig, mine
from midmask.retrieve import ranked
from midmask.retrieve.self_matches import without_self
from tests.support.retrieve.collection import write_parts

DOCS = [f"d{row}" for row in range(8)]
lists = st.dictionaries(
    st.sampled_from(["q1", "q2", "q3", "d1"]), st.lists(st.sampled_from(DOCS), unique=True, min_size=1), max_size=4
)
own = st.sets(st.tuples(st.sampled_from(["q1", "q2", "q3", "d1", "other"]), st.sampled_from(DOCS)), max_size=8)


def table(found: dict[str, list[str]]) -> pa.Table:
    rows = [(query, doc, 10.0 - place) for query, docs in found.items() for place, doc in enumerate(docs)]
    columns = [[row[index] for row in rows] for index in range(3)]
    types = [pa.string(), pa.string(), pa.float32()]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return ranked.order(pa.table(arrays, names=["query_id", "doc_id", "score"]))


def as_pairs(found: set[tuple[str, str]]) -> pa.Table:
    rows = sorted(found)
    return pa.table(
        {
            "query_id": pa.array([row[0] for row in rows], pa.string()),
            "doc_id": pa.array([row[1] for row in rows], pa.string()),
        }
    )


@given(lists, own, st.one_of(st.none(), st.integers(1, 5)))
def test_the_list_is_as_if_the_query_had_not_been_in_the_corpus(
    found: dict[str, list[str]], pairs: set[tuple[str, str]], depth: int | None
) -> None:
    kept, count = without_self(table(found), as_pairs(pairs), depth)
    clean = {query: [doc for doc in docs if (query, doc) not in pairs] for query, docs in found.items()}
    wanted = [(query, doc, rank) for query in sorted(clean) for rank, doc in enumerate(clean[query][:depth], start=1)]
    rows = [(row["query_id"], row["doc_id"], row["rank"]) for row in kept.to_pylist()]
    assert rows == wanted and kept.schema.equals(ranked.SCHEMA)
    assert count == sum(len(docs) for docs in found.values()) - sum(len(docs) for docs in clean.values())
    scores = {(row["query_id"], row["doc_id"]): row["score"] for row in table(found).to_pylist()}
    assert all(scores[row["query_id"], row["doc_id"]] == row["score"] for row in kept.to_pylist())


def test_a_query_is_never_mined_as_its_own_negative(tmp_path: Path) -> None:
    """Query q1 stands first in its own list, and nothing else is in q2's."""
    docs = [(name, "", f"passage {name}") for name in ("q1", "q2", *DOCS)]
    queries = [("q1", "passage q1"), ("q2", "passage q2")]
    judged = [("train", "q1", "d0", 1), ("train", "q2", "d1", 1)]
    corpus = write_parts(Place(str(tmp_path / "corpus")), docs=docs, queries=queries, qrels=judged)
    itself = pa.table([["q1", "q2"], ["q1", "q2"]], schema=SELF_MATCHES)
    write_table(iter([itself]), corpus.place / "self_matches.parquet", SELF_MATCHES)
    lists = Place(str(tmp_path / "ranked"))
    ranked.write(lists / "ranked" / "train.parquet", [table({"q1": ["q1", "d0", "d3", "q2"], "q2": ["q2"]})])
    given_lists = Artifact(lists, {"fingerprint": "lists", "result": {"source": "made up"}})
    out = Place(str(tmp_path / "out"))
    result = mine(MineConfig(depth=10), {"corpus": corpus, "ranked": given_lists}, out)
    rows = pq.read_table((out / "negatives.parquet").uri).to_pylist()
    assert [(row["query_id"], row["doc_id"]) for row in rows] == [("q1", "d3"), ("q1", "q2")]
    assert (result["self_matches"], result["queries_without"]) == (2, 1)
