"""Approximate indexes: what they learn from, how far they search, what they do not find, and whose scores rank."""

import logging
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midmask.errors import UserError
from midmask.evaluation.step import EvaluateConfig, evaluate_ranked
from midmask.retrieve import ranked
from midmask.retrieve.blocks import QUERY_BLOCK, SELECTION
from midmask.retrieve.dense import load_faiss
from midmask.retrieve.index import (
    IndexConfig,
    IndexFields,
    SampleConfig,
    VectorBlocks,
    build_faiss_index,
    draw_sample,
    measure_recall,
    open_index,
    set_search_parameters,
)
from midmask.retrieve.ranked import FuseConfig, fuse_lists
from midmask.retrieve.search import SearchConfig, search
from midmask.retrieve.sparse import top_rows
from midmask.retrieve.views import Views, read_views
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from tests.support.retrieve.collection import encoded, made, with_index
from tests.support.retrieve.vectors import in_memory

LISTS, DEPTH, QUERIES = 16, 25, 30
IVF = f"IVF{LISTS},Flat"


@pytest.fixture(scope="module")
def encodings(inputs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """Passages, queries and tokens."""
    return encoded(inputs, Place(str(tmp_path_factory.mktemp("encoded"))))


@pytest.fixture(scope="module")
def vectors(encodings, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """With an index of 16 lists, 19 passages each on average."""
    root = Place(str(tmp_path_factory.mktemp("indexed")))
    return with_index(encodings, root, IndexConfig(index=IVF), SearchConfig(depth=DEPTH))


def lists_of(artifact: Place) -> dict[str, list[str]]:
    """Query -> its documents, the best first."""
    table = ranked.read(artifact / "ranked" / "train.parquet")
    found: dict[str, list[str]] = {}
    for query, document in zip(table["query_id"].to_pylist(), table["doc_id"].to_pylist(), strict=True):
        found.setdefault(query, []).append(document)
    return found


def found(inputs: dict[str, Artifact], out: Place, **fields: object) -> tuple[dict[str, object], set[tuple[str, str]]]:
    """The result of a search, and what it listed."""
    result = search(SearchConfig.model_validate({"depth": DEPTH, **fields}), inputs, out)
    return result, {(query, document) for query, own in lists_of(out).items() for document in own}


def test_more_lists_find_more_and_all_lists_find_everything(encodings, vectors, out, caplog):
    _, exact = found(encodings, out / "exact")
    recall, empty = [], []
    for nprobe in (1, 2, 4, LISTS):
        with caplog.at_level(logging.WARNING):
            caplog.clear()
            result, listed = found(vectors, out / f"{nprobe}", index=IVF, nprobe=nprobe)
        recall.append(len(listed & exact) / len(exact))
        empty.append(result["splits"]["train"]["empty_slots"])
        assert empty[-1] == QUERIES * DEPTH - len(listed)
        assert ("result slots of train are empty" in caplog.text) == (empty[-1] > 0)
    assert recall == sorted(recall) and recall[0] < 0.7 and recall[-1] == 1.0
    assert empty[0] > 0 and empty[-1] == 0


@pytest.mark.parametrize(("lists", "wanted", "nprobe"), [(4, None, 4), (16, None, 8), (128, None, 16), (128, 5, 5)])
def test_without_nprobe_an_eighth_of_the_lists_is_searched_but_at_least_eight(lists, wanted, nprobe):
    vectors_ND = np.random.default_rng(0).standard_normal((lists * 2, 8)).astype(np.float32)
    index = build_faiss_index(in_memory(vectors_ND), IndexConfig(index=f"IVF{lists},Flat"))
    set_search_parameters(index, IndexFields(index=f"IVF{lists},Flat", nprobe=wanted), DEPTH)
    assert load_faiss().extract_index_ivf(index).nprobe == nprobe


@pytest.mark.parametrize("factory", ["IVF8,PQ4x4", "SQfp16"])
def test_blocks_are_read_one_after_another_and_their_cut_does_not_matter(factory):
    vectors_ND = np.random.default_rng(0).standard_normal((400, 8)).astype(np.float32)
    parts, config = np.split(vectors_ND, [30, 150, 390]), IndexConfig(index=factory, training_rows=300)
    read: list[int] = []

    def fetch(number: int) -> np.ndarray:
        read.append(number)
        return parts[number]

    one, other = in_memory(vectors_ND), VectorBlocks([len(part) for part in parts], fetch)
    files = [load_faiss().serialize_index(build_faiss_index(blocks, config)).tobytes() for blocks in (one, other)]
    assert files[0] == files[1]
    assert read == [0, *range(4), *range(4)] if "PQ" in factory else read == [0, *range(4)]


WRONG = [
    ({"index": "HNSW8", "nprobe": 4}, "nprobe = 4 with index = HNSW8"),
    ({"index": "IVF16,Flat", "ef_search": 4}, "ef_search = 4 with index = IVF16,Flat"),
    ({"rescore": 4}, "rescore = 4 with index = Flat"),
    ({"index": "SQ8", "rescore": 0}, "greater than or equal to 1"),
    ({"ef_construction": 4}, "ef_construction = 4 with index = Flat"),
]


def test_a_wrong_index_is_one_line_before_anything_is_built():
    for fields, message in WRONG:
        with pytest.raises(ValueError, match=message):
            IndexFields.model_validate(fields)
    for fields, message in [
        ({"index": "IVF16,Flta"}, r"evaluation\.index = 'IVF16,Flta': faiss knows no such index for 32 dimensions"),
        ({"index": "PQ5"}, r"evaluation\.index = 'PQ5'.* for 32 dimensions"),
        ({"index": IVF, "nprobe": 17}, r"evaluation\.nprobe = 17: index = IVF16,Flat has 16 lists"),
    ]:
        with pytest.raises(UserError, match=message) as error:
            IndexFields.model_validate(fields).check_index("evaluation", 32)
        assert "\n" not in str(error.value)


ROWS, WIDTH = 3000, 32
FACTORIES = ("SQ8", "HNSW8,SQ8", "IVF4,PQ8x4")


@pytest.fixture(scope="module")
def cloud() -> tuple[np.ndarray, np.ndarray]:
    """Queries [8, 32] and passages [3000, 32]."""
    draw = np.random.default_rng(3)
    return tuple(draw.standard_normal((rows, WIDTH)).astype(np.float32) for rows in (8, ROWS))  # type: ignore[return-value]


def test_an_index_learns_from_the_whole_of_a_sorted_collection():
    """One half of the passages lies around one point, the other around its opposite; faiss gives centres length 1."""
    draw = np.random.default_rng(0)
    around_ND = np.repeat([[5.0, 0.0], [-5.0, 0.0]], 1000, axis=0) + draw.standard_normal((2000, 2)) / 4
    vectors_ND = around_ND.astype(np.float32)
    config = IndexConfig(index="IVF2,Flat", training_rows=100)
    index = build_faiss_index(in_memory(vectors_ND), config)
    centres_KD = index.quantizer.reconstruct_n(0, 2)
    np.testing.assert_allclose(sorted(centres_KD.tolist()), [[-1, 0], [1, 0]], atol=0.05)
    whole = build_faiss_index(in_memory(vectors_ND), IndexConfig(index="IVF2,Flat"))
    assert not np.array_equal(whole.quantizer.reconstruct_n(0, 2), centres_KD), "all passages are more than 100"


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads Linux's list of mapped files")
@pytest.mark.parametrize("factory", FACTORIES)
def test_an_opened_index_is_a_mapped_file_that_finds_the_same(cloud, tmp_path: Path, factory: str):
    queries_QD, vectors_ND = cloud
    index = build_faiss_index(in_memory(vectors_ND), IndexConfig(index=factory))
    (tmp_path / "index").mkdir()
    file = tmp_path / "index" / "passages.faiss"
    load_faiss().write_index(index, str(file))
    set_search_parameters(index, IndexFields(index=factory), DEPTH)
    opened = open_index(tmp_path / "index", IndexFields(index=factory), DEPTH)
    assert str(file) in Path("/proc/self/maps").read_text()
    for expected, found in zip(index.search(queries_QD, 9), opened.search(queries_QD, 9), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("factory", FACTORIES)
def test_a_compressed_search_ends_in_exact_scores(encodings, out: Place, factory: str):
    """More candidates that are scored again find more."""
    given = with_index(encodings, out, IndexConfig(index=factory), SearchConfig(depth=10))
    recall, sizes = [], []
    for rescore in (1, 8):
        result = search(SearchConfig(depth=10, index=factory, rescore=rescore), given, out / f"{rescore}")
        recall.append(result["recall"]["at_10"])
        sizes.append(result["bytes_per_passage"])
    assert recall == sorted(recall) and recall[-1] > 0.99
    stored = (given["passages"].place / "dense").size()
    assert sizes[0] == sizes[1] == round((given["index"].result["bytes"] + stored) / 300, 2)
    exact = ranked.read(given["exact"].place / "ranked" / "train.parquet").to_pydict()
    known = dict(zip(zip(exact["query_id"], exact["doc_id"], strict=True), exact["score"], strict=True))
    found = ranked.read(out / "8" / "ranked" / "train.parquet").to_pydict()
    pairs = zip(found["query_id"], found["doc_id"], found["score"], strict=True)
    assert all(known.get((query, document), score) == score for query, document, score in pairs)


CONFIG = SearchConfig(depth=DEPTH, index=IVF, nprobe=2)


def share(best: dict[str, list[str]], own: dict[str, list[str]], cutoff: int) -> float:
    pairs = [(set(documents[:cutoff]), set(own[query][:cutoff])) for query, documents in best.items()]
    return sum(len(one & other) for one, other in pairs) / sum(len(one) for one, _ in pairs)


@pytest.mark.parametrize("queries", [256, 7])
def test_recall_is_the_share_of_the_exact_lists_that_is_found(encodings, out: Place, queries: int):
    exact = made(search, SearchConfig(depth=DEPTH), encodings, out / "all")
    given = with_index(encodings, out, IndexConfig(index=IVF), SearchConfig(depth=DEPTH), queries)
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
    lexical = top_rows(draw.standard_normal((count, 9)).astype(np.float32), 4)
    table = pa.table({"query_id": names, "ids": [[number] for number in range(count)]})
    with (out / "whole" / SELECTION).writing() as stream:
        pq.write_table(table, stream, row_group_size=QUERY_BLOCK)
    for block, start in enumerate(range(0, count, QUERY_BLOCK)):
        stop = min(start + QUERY_BLOCK, count)
        Views(dense_ND[start:stop], lexical[start:stop]).write(out / "whole", f"{block:05d}")
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
    assert views.lexical is not None
    np.testing.assert_array_equal(views.lexical.toarray(), lexical.toarray()[rows])
    assert (result["model"], result["tokens"], result["split"]) == ("m", "t", "dev") and "bytes" not in result


def test_an_evaluation_and_a_fused_ranking_pass_the_recall_on(inputs, encodings, out: Place):
    given = with_index(encodings, out, IndexConfig(index=IVF), SearchConfig(depth=DEPTH))
    found = made(search, CONFIG, given, out / "found")
    joined = FuseConfig(split="train", depth=9, bm25_share=0.5)
    fused = made(fuse_lists, joined, {"encoder": found, "bm25": found}, out / "f")
    config = EvaluateConfig(split="train", depth=9, index=IVF, measures=("nDCG@5",))
    for source in (found, fused, given["exact"]):
        done = evaluate_ranked(config, {"ranked": source, "corpus": inputs["corpus"]}, out / source.place.uri[-5:])
        assert done["index_recall"] == source.result.get("recall", {})
    assert found.result["recall"]["at_10"] < 1.0
