"""A teacher's scores from others' files; what a pickle may and may not hold."""

import gzip
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.exchange.score_files import read_pickled_scores, read_score_lists
from tests.support.teacher.score_lists import write_score_lists

numbers = st.floats(-50, 50, width=32)
tables = st.dictionaries(
    st.text("q01", min_size=1), st.dictionaries(st.text("d23", min_size=1), numbers, min_size=1), max_size=5
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scores")


def flat(scores: dict[str, dict[str, float]]) -> list[tuple[str, str, float]]:
    return [(query, doc, score) for query, own in scores.items() for doc, score in own.items()]


@settings(max_examples=40)
@given(tables)
def test_the_list_layout_comes_back(folder: Path, scores: dict[str, dict[str, float]]) -> None:
    place = Place(str(folder / "scores.parquet"))
    write_score_lists(place, flat(scores))
    assert list(read_score_lists(place)) == flat(scores)
    table = pq.read_table(folder / "scores.parquet")
    assert table.column_names == ["query_id", "corpus_id", "score"] and len(table) == len(scores)


@settings(max_examples=40)
@given(tables, st.sampled_from([float, np.float32, np.float64, int, np.int64]), st.integers(0, 5), st.booleans())
def test_plain_pickles_are_read_numpy_numbers_among_them(folder, scores, kind, protocol, zipped) -> None:
    held = {query: {doc: kind(score) for doc, score in own.items()} for query, own in scores.items()}
    data = pickle.dumps(held, protocol)
    (folder / "scores.pkl").write_bytes(gzip.compress(data) if zipped else data)
    assert list(read_pickled_scores(Place(str(folder / "scores.pkl")))) == [
        (query, doc, float(score)) for query, own in held.items() for doc, score in own.items()
    ]


class Harmful:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.path),))


@pytest.mark.parametrize("protocol", [0, 5])
def test_nothing_in_a_pickle_is_executed(tmp_path: Path, protocol: int) -> None:
    made = tmp_path / "made"
    for value in (Harmful(made), {"q": {"d": Harmful(made)}}, {"q": {Harmful(made): 1.0}}):
        (tmp_path / "x.pkl").write_bytes(pickle.dumps(value, protocol))
        with pytest.raises(UserError, match="not a pickle of plain numbers and texts"):
            list(read_pickled_scores(Place(str(tmp_path / "x.pkl"))))
    assert not made.exists()
    pickle.loads((tmp_path / "x.pkl").read_bytes())
    assert made.exists(), "the pickle would have done it"


@pytest.mark.parametrize(
    ("value", "said"),
    [([1], "a pickled list"), ({"q": [1.0]}, "query 'q' has a list"), ({"q": {"d": "1"}}, "'1' is not a finite score"),
     ({"q": {"d": float("nan")}}, "nan is not a finite score")],
)  # fmt: skip
def test_other_contents_are_named(tmp_path: Path, value: object, said: str) -> None:
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(value))
    with pytest.raises(UserError, match=said):
        list(read_pickled_scores(Place(str(tmp_path / "x.pkl"))))
