"""Pickles of numbers, texts and arrays are read as pickle would read them, and nothing in a pickle is ever run."""

import gzip
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.exchange.pickles import read_pickle
from midmask.exchange.score_files import read_pickled_scores

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
ids_of = st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), min_size=1)


@st.composite
def named(draw: st.DrawFn) -> tuple[list[str], NDArray[np.float32]]:
    names = draw(st.lists(ids_of, min_size=1, max_size=7, unique=True))
    return names, draw(hnp.arrays(np.float32, (len(names), draw(st.integers(1, 5))), elements=finite))


@settings(max_examples=60)
@given(
    found=named(),
    protocol=st.integers(0, pickle.HIGHEST_PROTOCOL),
    dtype=st.sampled_from(["<f4", ">f4", "<f8", "<f2"]),
    order=st.sampled_from("CF"),
    kind=st.sampled_from(["texts", "integers", "array of texts", "array of integers", "numpy scalars"]),
)
def test_a_pickle_of_vectors_and_ids_is_read_as_pickle_would(tmp_path_factory, found, protocol, dtype, order, kind):
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
    path = tmp_path_factory.mktemp("vectors") / "corpus.pkl"
    path.write_bytes(pickle.dumps((array, ids), protocol=protocol))
    theirs, their_ids = pickle.loads(path.read_bytes())
    ours, our_ids = read_pickle(Place(str(path)))
    assert list(getattr(our_ids, "values", our_ids)) == list(their_ids)
    assert ours.values.dtype.newbyteorder("=") == theirs.dtype.newbyteorder("=")
    np.testing.assert_array_equal(ours.values, theirs)


numbers = st.floats(-50, 50, width=32)
tables = st.dictionaries(
    st.text("q01", min_size=1), st.dictionaries(st.text("d23", min_size=1), numbers, min_size=1), max_size=5
)


@settings(max_examples=40)
@given(tables, st.sampled_from([float, np.float32, np.float64, int, np.int64]), st.integers(0, 5), st.booleans())
def test_scores_are_read_numpy_numbers_among_them(tmp_path_factory, scores, kind, protocol, zipped) -> None:
    held = {query: {doc: kind(score) for doc, score in own.items()} for query, own in scores.items()}
    data, path = pickle.dumps(held, protocol), tmp_path_factory.mktemp("scores") / "scores.pkl"
    path.write_bytes(gzip.compress(data) if zipped else data)
    assert list(read_pickled_scores(Place(str(path)))) == [
        (query, doc, float(score)) for query, own in held.items() for doc, score in own.items()
    ]


OTHERS: list[tuple[object, str]] = [
    ([1], "a pickled list"),
    ({"q": [1.0]}, "query 'q' has a list"),
    ({"q": {"d": "1"}}, "'1' is not a finite score"),
    ({"q": {"d": float("nan")}}, "nan is not a finite score"),
]


@pytest.mark.parametrize(("value", "said"), OTHERS)
def test_other_contents_than_scores_are_named(tmp_path: Path, value: object, said: str) -> None:
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(value))
    with pytest.raises(UserError, match=said):
        list(read_pickled_scores(Place(str(tmp_path / "x.pkl"))))


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
    "among scores": {"q": {"d": Trap(boom)}},
    "as a name of scores": {"q": {Trap(boom): 1.0}},
}


@pytest.mark.parametrize("protocol", [2, 5])
@pytest.mark.parametrize("trap", TRAPS)
def test_a_pickle_that_is_more_than_data_is_refused_before_anything_runs(trap, protocol, tmp_path) -> None:
    ran.clear()
    (tmp_path / "trap.pkl").write_bytes(pickle.dumps(TRAPS[trap], protocol=protocol))
    for read in (read_pickle, lambda place: list(read_pickled_scores(place))):
        with pytest.raises(UserError, match=r"trap\.pkl: not a pickle of plain numbers and texts") as error:
            read(Place(str(tmp_path / "trap.pkl")))
        assert ran == [] and "\n" not in str(error.value)
    if "scores" in trap:
        pickle.loads((tmp_path / "trap.pkl").read_bytes())
        assert ran, "the pickle would have done it"
