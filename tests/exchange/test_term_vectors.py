"""Lexical views go to Pyserini's and Seismic's files and come back; what those cannot say is refused or counted."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.exchange.term_vectors import (
    PYSERINI,
    SEISMIC,
    Layout,
    TermVector,
    named_rows,
    read_term_vectors,
    rows_over,
    write_term_vectors,
)
from midmask.retrieve.sparse import SparseRows

TERMS = ["[CLS]", "dog", "##s", "Ġdog", "été", "\u2028", '"', "a b"]

positive = st.floats(2**-20, 2**20, width=32)
weights_of = st.dictionaries(st.sampled_from(TERMS), positive)
vectors_of = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), weights_of).map(
    lambda found: [TermVector(name, weights) for name, weights in found.items()]
)


@settings(deadline=None, max_examples=60)
@given(vectors=vectors_of, engine=st.sampled_from(["pyserini", "seismic"]), suffix=st.sampled_from(["", ".gz"]))
def test_weights_that_are_not_rounded_come_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, vectors: list[TermVector], engine: str, suffix: str
) -> None:
    place = Place(str(tmp_path_factory.mktemp("vectors") / f"vectors.jsonl{suffix}"))
    layout = Layout("pyserini" if engine == "pyserini" else "seismic")
    written = write_term_vectors(place, vectors, layout)
    assert list(read_term_vectors(place, layout)) == vectors
    assert written.rows == len(vectors) and written.rounded_away == 0
    assert written.terms == len({term for vector in vectors for term in vector.weights})


@settings(deadline=None, max_examples=60)
@given(vectors=vectors_of, factor=st.sampled_from([1.0, 100.0, 255.0]))
def test_rounded_weights_are_integers_half_a_step_away_at_most(
    tmp_path_factory: pytest.TempPathFactory, vectors: list[TermVector], factor: float
) -> None:
    place = Place(str(tmp_path_factory.mktemp("vectors") / "vectors.jsonl"))
    layout = Layout("pyserini", factor)
    written = write_term_vectors(place, vectors, layout)
    for line in place.read().decode().split("\n")[:-1]:
        assert all(type(weight) is int and weight > 0 for weight in json.loads(line)["vector"].values())
    lost = 0
    for before, after in zip(vectors, read_term_vectors(place, layout), strict=True):
        assert before.id == after.id
        for term, weight in before.weights.items():
            assert abs(weight - after.weights.get(term, 0.0)) <= 0.5 / factor * (1 + 1e-9)
            lost += term not in after.weights
    assert written.rounded_away == lost


def test_lines_are_those_the_engines_read(tmp_path: Path) -> None:
    vectors = [TermVector("d1", {"dog": 1.234, "##s": 0.5})]
    for layout, expected in (
        (PYSERINI, {"id": "d1", "contents": "", "vector": {"dog": 123, "##s": 50}}),
        (SEISMIC, {"id": "d1", "content": "", "vector": {"dog": 1.234, "##s": 0.5}}),
    ):
        place = Place(str(tmp_path / f"{layout.engine}.jsonl"))
        write_term_vectors(place, vectors, layout)
        assert [json.loads(line) for line in place.read().splitlines()] == [expected]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.dictionaries(st.integers(0, len(TERMS) - 1), positive), max_size=6))
def test_rows_over_a_vocabulary_come_back(rows: list[dict[int, float]]) -> None:
    dense_NV = np.zeros((len(rows), len(TERMS)), np.float32)
    for number, row in enumerate(rows):
        for column, weight in row.items():
            dense_NV[number, column] = weight
    lengths = [np.count_nonzero(row_V) for row_V in dense_NV]
    terms = np.nonzero(dense_NV)[1].astype(np.int32)
    sparse = SparseRows(np.cumsum([0, *lengths]).astype(np.int64), terms, dense_NV[dense_NV != 0], len(TERMS))
    ids = [f"d{number}" for number in range(len(rows))]
    vectors = list(named_rows(ids, sparse, TERMS))
    assert [dict(vector.weights) for vector in vectors] == [
        {TERMS[column]: row_V[column] for column in np.flatnonzero(row_V)} for row_V in dense_NV
    ]
    again_ids, again = rows_over(vectors, TERMS)
    assert again_ids == ids and again.width == len(TERMS)
    for name in ("offsets", "terms", "weights"):
        np.testing.assert_array_equal(getattr(again, name), getattr(sparse, name))


def test_another_vocabulary_is_refused() -> None:
    with pytest.raises(UserError, match=r"'d1' has the term 'cat', which the tokenizer does not know"):
        rows_over([TermVector("d1", {"cat": 1.0})], TERMS)
    empty = SparseRows(np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), 2)
    for ids, terms in ((["a"], ["x", "x"]), (["a"], ["x"]), (["a", "b"], ["x", "y"])):
        with pytest.raises(ValueError, match="columns"):
            list(named_rows(ids, empty, terms))


def test_more_terms_than_seismic_numbers_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    place = Place(str(tmp_path / "x.jsonl"))
    write_term_vectors(place, [TermVector("d", {str(term): 1.0 for term in range(65_535)})], SEISMIC)
    assert not caplog.records
    write_term_vectors(place, [TermVector("d", {str(term): 1.0 for term in range(65_536)})], SEISMIC)
    assert "65536 terms, more than 65535; index it with SeismicIndexLV" in caplog.text


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_a_weight_that_no_engine_takes_is_refused(weight: float, tmp_path: Path) -> None:
    place = Place(str(tmp_path / "x.jsonl"))
    with pytest.raises(UserError, match=r"text 'd' gives 'dog' the weight"):
        write_term_vectors(place, [TermVector("d", {"dog": weight})], SEISMIC)
    assert not place.exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "d", "vector": {"dog": 0}}', "the weight 0 of 'dog'"),
        ('{"id": "d", "vector": {"dog": "heavy"}}', "heavy"),
        ('{"id": "d", "vector": [1, 2]}', "the vector no object"),
        ('{"id": null, "vector": {}}', "the id is no text"),
        ('{"vector": {}}', "'id'"),
        ('{"id": "first", "vector": {}}', "'first' stands twice"),
        ("[", "wanted is"),
    ],
)
def test_a_bad_line_is_named(line: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"id": "first", "content": "", "vector": {"dog": 1}}\n' + line + "\n")
    with pytest.raises(UserError, match=rf"x\.jsonl, line 2: .*{message}"):
        list(read_term_vectors(Place(str(tmp_path / "x.jsonl")), SEISMIC))


def test_a_factor_must_be_above_0() -> None:
    with pytest.raises(UserError, match="quantisation = 0"):
        Layout("pyserini", 0.0)
