"""Pickles of numbers, texts and arrays are read as pickle would read them, and nothing in a pickle is ever run."""

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
def test_a_pickle_of_vectors_and_ids_is_read_as_pickle_would(
    tmp_path_factory: pytest.TempPathFactory,
    found: tuple[list[str], NDArray[np.float32]],
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
    path = tmp_path_factory.mktemp("vectors") / "corpus.pkl"
    path.write_bytes(pickle.dumps((array, ids), protocol=protocol))
    theirs, their_ids = pickle.loads(path.read_bytes())
    ours, our_ids = read_pickle(Place(str(path)))
    assert list(getattr(our_ids, "values", our_ids)) == list(their_ids)
    assert ours.values.dtype.newbyteorder("=") == theirs.dtype.newbyteorder("=")
    np.testing.assert_array_equal(ours.values, theirs)


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
