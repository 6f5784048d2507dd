"""Approximate indexes: built once, searched as far as is asked, and what they do not find is counted."""

import logging

import numpy as np
import pytest

from midmask.artifact import Artifact, Place
from midmask.errors import UserError
from midmask.retrieve import ranked
from midmask.retrieve.dense import load_faiss
from midmask.retrieve.index import IndexConfig, IndexFields, build_faiss_index, set_search_parameters
from midmask.retrieve.index_training import VectorBlocks
from midmask.retrieve.search import SearchConfig, search
from tests.support.retrieve.collection import encoded, with_index

LISTS, DEPTH, QUERIES = 16, 25, 30
IVF = f"IVF{LISTS},Flat"


@pytest.fixture(scope="module")
def vectors(inputs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """Passages and queries with an index of 16 lists, 19 passages each on average."""
    root = Place(str(tmp_path_factory.mktemp("indexed")))
    return with_index(encoded(inputs, root), root, IndexConfig(index=IVF), SearchConfig(depth=DEPTH))


def exact_inputs(vectors: dict[str, Artifact]) -> dict[str, Artifact]:
    return {name: vectors[name] for name in ("passages", "queries", "tokens")}


def found(vectors: dict[str, Artifact], out: Place, **fields: object) -> tuple[dict[str, object], set[tuple[str, str]]]:
    """The result of a search, and what it listed."""
    config = SearchConfig.model_validate({"depth": DEPTH, **fields})
    inputs = vectors if not config.is_exact else exact_inputs(vectors)
    result = search(config, inputs, out)
    table = ranked.read(out / "ranked" / "train.parquet")
    return result, set(zip(table["query_id"].to_pylist(), table["doc_id"].to_pylist(), strict=True))


def test_more_lists_find_more_and_all_lists_find_everything(vectors, out, caplog):
    _, exact = found(vectors, out / "exact")
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
    index = build_faiss_index(VectorBlocks.of(vectors_ND), IndexConfig(index=f"IVF{lists},Flat"))
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

    one, other = VectorBlocks.of(vectors_ND), VectorBlocks([len(part) for part in parts], fetch)
    files = [load_faiss().serialize_index(build_faiss_index(blocks, config)).tobytes() for blocks in (one, other)]
    assert files[0] == files[1]
    assert read == [0, *range(4), *range(4)] if "PQ" in factory else read == [0, *range(4)]


WRONG = {
    "no lists": ({"index": "HNSW8", "nprobe": 4}, "nprobe = 4 with index = HNSW8: nprobe is of IVF"),
    "no graph": ({"index": "IVF16,Flat", "ef_search": 4}, "ef_search = 4 with index = IVF16,Flat"),
    "no candidates": ({"rescore": 4}, "rescore = 4 with index = Flat: all scores are exact"),
    "nothing to build": ({"ef_construction": 4}, "ef_construction = 4 with index = Flat"),
}


@pytest.mark.parametrize("case", WRONG)
def test_parameters_of_another_index_are_refused(case):
    fields, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        IndexFields.model_validate(fields)


def test_a_wrong_index_is_one_line_before_anything_is_built():
    for fields, message in [
        ({"index": "IVF16,Flta"}, r"evaluation\.index = 'IVF16,Flta': faiss knows no such index for 32 dimensions"),
        ({"index": "PQ5"}, r"evaluation\.index = 'PQ5'.* for 32 dimensions"),
        ({"index": IVF, "nprobe": 17}, r"evaluation\.nprobe = 17: index = IVF16,Flat has 16 lists"),
    ]:
        with pytest.raises(UserError, match=message) as error:
            IndexFields.model_validate(fields).check_index("evaluation", 32)
        assert "\n" not in str(error.value)
