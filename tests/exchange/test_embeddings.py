"""Embeddings go out and come back bit for bit; Tevatron's pickles are read, and nothing in a pickle is ever run."""

import itertools
import json
import pickle
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.exchange.embeddings import Floats, read_embeddings, read_tevatron, write_embeddings
from midmask.exchange.pickles import read_pickle

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
ids_of = st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), min_size=1)


@st.composite
def named(draw: st.DrawFn) -> tuple[list[str], Floats]:
    names = draw(st.lists(ids_of, min_size=1, max_size=7, unique=True))
    return names, draw(hnp.arrays(np.float32, (len(names), draw(st.integers(1, 5))), elements=finite))


@settings(deadline=None, max_examples=50)
@given(found=named(), cuts=st.lists(st.integers(0, 7), max_size=3))
def test_a_folder_comes_back_bit_for_bit_whatever_its_shards(
    tmp_path_factory: pytest.TempPathFactory, found: tuple[list[str], Floats], cuts: list[int]
) -> None:
    names, vectors_ND = found
    folder = tmp_path_factory.mktemp("embeddings")
    edges = [0, *sorted(min(cut, len(names)) for cut in cuts), len(names)]
    pairs = list(itertools.pairwise(edges))
    rows = write_embeddings(Place(str(folder)), ((names[a:b], vectors_ND[a:b]) for a, b in pairs))
    again = read_embeddings(folder)
    assert rows == len(names) and again.ids == names and again.width == vectors_ND.shape[1]
    assert np.concatenate(again.shards).tobytes() == vectors_ND.tobytes()
    assert [name for block, _ in again.blocks() for name in block] == names
    assert all(len(block) == len(shard) for block, shard in again.blocks())
    assert not list(folder.glob("*.pkl"))


def test_vectors_stay_on_disk(tmp_path: Path) -> None:
    write_embeddings(Place(str(tmp_path)), [(["a", "b"], np.ones((2, 3), np.float32))])
    assert isinstance(read_embeddings(tmp_path).shards[0], np.memmap)


@settings(deadline=None, max_examples=60)
@given(
    found=named(),
    protocol=st.integers(0, pickle.HIGHEST_PROTOCOL),
    dtype=st.sampled_from(["<f4", ">f4", "<f8", "<f2"]),
    order=st.sampled_from("CF"),
    kind=st.sampled_from(["texts", "integers", "array of texts", "array of integers", "numpy scalars"]),
)
def test_a_pickle_of_tevatron_is_read_as_pickle_would(
    tmp_path_factory: pytest.TempPathFactory,
    found: tuple[list[str], Floats],
    protocol: int,
    dtype: str,
    order: str,
    kind: str,
) -> None:
    names, vectors_ND = found
    with np.errstate(over="ignore"):
        array = np.array(np.clip(vectors_ND, -6e4, 6e4), dtype=dtype, order=order)  # type: ignore[call-overload]
    numbers = list(range(len(names)))
    ids: Any = {
        "texts": names,
        "integers": numbers,
        "array of texts": np.array([f"d{number}" for number in numbers]),
        "array of integers": np.array(numbers),
        "numpy scalars": [np.int64(number) for number in numbers],
    }[kind]
    path = tmp_path_factory.mktemp("tevatron") / "corpus.pkl"
    path.write_bytes(pickle.dumps((array, ids), protocol=protocol))
    theirs, their_ids = pickle.loads(path.read_bytes())
    ours = read_tevatron(Place(str(path)))
    assert ours.ids == [str(name) for name in their_ids]
    assert ours.shards[0].dtype == np.float32
    np.testing.assert_array_equal(ours.shards[0], theirs.astype(np.float32))


ran: list[str] = []


def boom(*inputs: object) -> None:
    ran.append("boom")


class Trap:
    """Runs code when it is unpickled: by a function, or by a state."""

    def __init__(self, how: Callable[..., object], *inputs: object, state: object = None) -> None:
        self.reduced = (how, inputs) if state is None else (how, inputs, state)

    def __reduce__(self) -> Any:
        return self.reduced


ONE = np.ones((1, 2), np.float32)
RECONSTRUCT = ONE.__reduce__()[0]
TRAPS: dict[str, Any] = {
    "a function of ours": (ONE, [Trap(boom)]),
    "a builtin": (ONE, [Trap(eval, "1 + 1")]),
    "in the place of the array": (Trap(boom), ["a"]),
    "numpy's file reader": (ONE, [Trap(np.load, "x.npy", None, True)]),
    "a state that is no bytes": (ONE, [Trap(RECONSTRUCT, np.ndarray, (0,), b"b", state=(1, (1,), "O", False, [boom]))]),
    "an array of objects": (np.array([[boom]], dtype=object), ["a"]),
    "elements with fields": (np.zeros(2, dtype=[("a", "f4")]), ["a", "b"]),
    "an object": (ONE, [Path("a")]),
}


@pytest.mark.parametrize("protocol", [2, 5])
@pytest.mark.parametrize("trap", TRAPS)
def test_a_pickle_that_is_more_than_data_is_refused_before_anything_runs(
    trap: str, protocol: int, tmp_path: Path
) -> None:
    ran.clear()
    (tmp_path / "trap.pkl").write_bytes(pickle.dumps(TRAPS[trap], protocol=protocol))
    with pytest.raises(UserError, match=r"trap\.pkl: not a pickle of plain numbers and texts .*numpy\.save") as error:
        read_pickle(Place(str(tmp_path / "trap.pkl")))
    assert ran == [] and "\n" not in str(error.value)


def test_scores_by_query_and_passage_are_plain_data(tmp_path: Path) -> None:
    scores = {"q1": {"d1": 1.5, "d2": np.float32(-2.0)}, 7: {9: 0.25}}
    (tmp_path / "scores.pkl").write_bytes(pickle.dumps(scores))
    assert read_pickle(Place(str(tmp_path / "scores.pkl"))) == scores


PAIRS: dict[str, tuple[Any, str]] = {
    "no pair": (ONE, "not a pair"),
    "one vector": ((np.ones(2, np.float32), ["a", "b"]), r"float32 \(2,\) instead of floats"),
    "integers": ((np.ones((1, 2), np.int64), ["a"]), "instead of floats"),
    "ids that are floats": ((ONE, [1.5]), "not a list of texts or integers"),
    "too many ids": ((ONE, ["a", "b"]), "2 ids for 1 vectors"),
    "an id twice": ((np.ones((2, 2), np.float32), ["1", 1]), "'1' stands twice"),
    "not finite": ((np.full((1, 2), np.nan, np.float32), ["a"]), "vector of 'a' is not finite"),
}


@pytest.mark.parametrize("case", PAIRS)
def test_a_pickle_that_is_no_embeddings_is_refused(case: str, tmp_path: Path) -> None:
    content, message = PAIRS[case]
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(content))
    with pytest.raises(UserError, match=message):
        read_tevatron(Place(str(tmp_path / "x.pkl")))


def test_half_a_pickle_is_refused(tmp_path: Path) -> None:
    whole = pickle.dumps((np.ones((50, 8), np.float32), [str(row) for row in range(50)]))
    (tmp_path / "x.pkl").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="not a pickle of plain"):
        read_tevatron(Place(str(tmp_path / "x.pkl")))


BLOCKS: dict[str, tuple[list[tuple[list[str], Floats]], type[Exception], str]] = {
    "an id twice": ([(["a"], ONE), (["a"], ONE)], UserError, "'a' stands twice"),
    "an empty id": ([([""], ONE)], UserError, "'' is empty"),
    "a line break": ([(["a\nb"], ONE)], UserError, "line break"),
    "not finite": ([(["a"], ONE * np.inf)], UserError, "vector of 'a' is not finite"),
    "nothing": ([], UserError, "no embeddings to write"),
    "another width": ([(["a"], ONE), (["b"], np.ones((1, 3), np.float32))], ValueError, "of width 2 before"),
    "too few ids": ([(["a"], np.ones((2, 2), np.float32))], ValueError, "1 ids"),
}


@pytest.mark.parametrize("case", BLOCKS)
def test_what_is_not_written(case: str, tmp_path: Path) -> None:
    blocks, error, message = BLOCKS[case]
    with pytest.raises(error, match=message):
        write_embeddings(Place(str(tmp_path)), blocks)
    assert not (tmp_path / "manifest.json").exists()


def test_a_folder_whose_files_are_not_the_manifests_is_refused(tmp_path: Path) -> None:
    write_embeddings(Place(str(tmp_path)), [(["a"], ONE), (["b"], ONE)])
    manifest = json.loads((tmp_path / "manifest.json").read_text())

    def said(**values: Any) -> None:
        (tmp_path / "manifest.json").write_text(json.dumps({**manifest, **values}))

    for values, message in (
        ({"format": 2}, "Use a newer one"),
        ({"rows": 3}, "2 ids and shards"),
        ({"width": 3}, "2 ids and shards"),
        ({"shards": [{"file": "../0.npy", "rows": 2}]}, "outside of the folder"),
        ({"shards": manifest["shards"][:1]}, "2 ids and shards"),
    ):
        said(**values)
        with pytest.raises(UserError, match=message):
            read_embeddings(tmp_path)
    said()
    np.save(tmp_path / "00001.npy", np.array([[boom]], dtype=object), allow_pickle=True)
    with pytest.raises(UserError, match="no embeddings can be read there"):
        read_embeddings(tmp_path)


@contextmanager
def room(size: int) -> Iterator[None]:
    """Lets this process take `size` bytes of address space beyond what it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_a_header_that_promises_gigabytes_is_refused(tmp_path: Path) -> None:
    write_embeddings(Place(str(tmp_path)), [(["a"], ONE)])
    (tmp_path / "00000.npy").write_bytes(b"\x93NUMPY\x02\x00\xff\xff\xff\x7f{}")
    with pytest.raises(UserError, match="no embeddings can be read there"), room(1 << 28):
        read_embeddings(tmp_path)
