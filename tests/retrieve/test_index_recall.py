"""The recall of approximate searches, against sets of plain Python, and the sample that it is measured on."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midmask.artifact import Artifact, Place
from midmask.evaluation.retriever import EvaluateConfig, evaluate_retriever
from midmask.retrieve import ranked
from midmask.retrieve.blocks import QUERY_BLOCK, SELECTION
from midmask.retrieve.fusion import FuseConfig, fuse_lists
from midmask.retrieve.index import IndexConfig
from midmask.retrieve.index_recall import SampleConfig, draw_sample, measure_recall
from midmask.retrieve.search import SearchConfig, search
from midmask.retrieve.sparse import SparseRows
from midmask.retrieve.views import Views, read_views
from tests.support.retrieve.collection import encoded, made, with_index

IVF, DEPTH = "IVF16,Flat", 25
CONFIG = SearchConfig(depth=DEPTH, index=IVF, nprobe=2)


def lists_of(artifact: Place) -> dict[str, list[str]]:
    """Query -> its documents, the best first."""
    table = ranked.read(artifact / "ranked" / "train.parquet")
    found: dict[str, list[str]] = {}
    for query, document in zip(table["query_id"].to_pylist(), table["doc_id"].to_pylist(), strict=True):
        found.setdefault(query, []).append(document)
    return found


def share(best: dict[str, list[str]], own: dict[str, list[str]], cutoff: int) -> float:
    pairs = [(set(documents[:cutoff]), set(own[query][:cutoff])) for query, documents in best.items()]
    return sum(len(one & other) for one, other in pairs) / sum(len(one) for one, _ in pairs)


@pytest.mark.parametrize("queries", [256, 7])
def test_recall_is_the_share_of_the_exact_lists_that_is_found(inputs, out: Place, queries: int):
    vectors = encoded(inputs, out)
    exact = made(search, SearchConfig(depth=DEPTH), vectors, out / "all")
    given = with_index(vectors, out, IndexConfig(index=IVF), SearchConfig(depth=DEPTH), queries)
    result = search(CONFIG, given, out / "found")
    asked = set(lists_of(given["exact"].place))
    best = {query: found for query, found in lists_of(exact.place).items() if query in asked}
    own = lists_of(out / "found")
    assert lists_of(given["exact"].place) == best, "a sample's exact lists are those of all queries"
    shares = {f"at_{name}": round(share(best, own, cutoff), 4) for name, cutoff in (("10", 10), ("depth", DEPTH))}
    assert result["recall"] == {"queries": min(queries, len(own)), **shares}
    assert 0.2 < shares["at_depth"] < shares["at_10"] < 1.0
    assert "recall" not in exact.result


def test_passages_below_the_cutoff_do_not_count(out: Place):
    """The last of an exact list of 101 is found first, which is no recall at 100; 12 of the best 100 are not found."""

    def write(name: str, documents: list[int]) -> Place:
        scores = np.arange(len(documents), 0, -1, dtype=np.float32)
        columns = {"query_id": ["q"] * len(documents), "doc_id": [f"d{one:03}" for one in documents], "score": scores}
        ranked.write(out / name, [ranked.order(pa.table(columns))])
        return out / name

    exact, found = write("exact", list(range(101))), write("found", [100, *range(3), *range(15, 100)])
    assert measure_recall(exact, found, 101) == {"queries": 1, "at_10": 0.3, "at_100": 0.88, "at_depth": 0.8812}
    assert measure_recall(exact, found, 10) == {"queries": 1, "at_10": 0.3, "at_depth": 0.3}


def test_a_sample_holds_the_vectors_of_its_queries_from_all_blocks(out: Place):
    draw, count = np.random.default_rng(0), 2 * QUERY_BLOCK + 100
    names = sorted(f"q{number:05}" for number in draw.permutation(10 * count)[:count])
    dense_ND = draw.standard_normal((count, 6)).astype(np.float32)
    lexical = SparseRows.top(draw.standard_normal((count, 9)).astype(np.float32), 4)
    table = pa.table({"query_id": names, "ids": [[number] for number in range(count)]})
    with (out / "whole" / SELECTION).writing() as stream:
        pq.write_table(table, stream, row_group_size=QUERY_BLOCK)
    for block, start in enumerate(range(0, count, QUERY_BLOCK)):
        stop = min(start + QUERY_BLOCK, count)
        Views(dense_ND[start:stop], lexical.slice(start, stop)).write(out / "whole", f"{block:05d}")
    facts = {"views": ["dense", "lexical"], "model": "m", "tokens": "t", "split": "dev", "blocks": 3, "bytes": 1}
    whole = Artifact(out / "whole", {"fingerprint": "w", "result": {**facts, "rows": count}})
    result = draw_sample(SampleConfig(queries=50), {"queries": whole}, out / "sample")
    with (out / "sample" / SELECTION).reading() as stream:
        drawn = pq.read_table(stream)
    rows = np.array([ids[0] for ids in drawn["ids"].to_pylist()])
    assert [names[row] for row in rows] == drawn["query_id"].to_pylist() == sorted(drawn["query_id"].to_pylist())
    assert len(rows) == result["rows"] == 50 and len(set(rows // QUERY_BLOCK)) == 3, "all blocks have some"
    views = read_views(out / "sample", "00000", ("dense", "lexical"))
    np.testing.assert_array_equal(views.dense_ND, dense_ND[rows])
    own, expected = views.lexical, lexical.take(rows)
    assert own is not None and np.array_equal(own.offsets, expected.offsets)
    assert np.array_equal(own.terms, expected.terms) and np.array_equal(own.weights, expected.weights)
    assert (result["model"], result["tokens"], result["split"]) == ("m", "t", "dev") and "bytes" not in result


def test_an_evaluation_and_a_fused_ranking_pass_the_recall_on(inputs, out: Place):
    given = with_index(encoded(inputs, out), out, IndexConfig(index=IVF), SearchConfig(depth=DEPTH))
    found = made(search, CONFIG, given, out / "found")
    fused = made(
        fuse_lists, FuseConfig(split="train", depth=9, bm25_share=0.5), {"encoder": found, "bm25": found}, out / "f"
    )
    config = EvaluateConfig(split="train", depth=9, index=IVF, measures=("nDCG@5",))
    for source in (found, fused, given["exact"]):
        done = evaluate_retriever(config, {"ranked": source, "corpus": inputs["corpus"]}, out / source.place.uri[-5:])
        assert done["index_recall"] == source.result.get("recall", {})
    assert found.result["recall"]["at_10"] < 1.0
