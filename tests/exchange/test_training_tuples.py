"""Mined negatives as texts: held against brute force, and read back as sentence-transformers' trainers read them."""

from pathlib import Path

import numpy as np
import pyarrow.json
import pytest
from sentence_transformers import SentenceTransformer

import midmask
from midmask.errors import UserError
from midmask.exchange.training_tuples import TrainingTuple, training_tuples, write_training_tuples
from midmask.experiment.graph import Step
from midmask.store.place import Place
from tests.support.api import toy


def mined(run: midmask.Run, model: Step | None, **fields: object) -> list[TrainingTuple]:
    """The tuples of a mining by the model, else by BM25."""
    config = run.recipe.stages[0].mine.model_copy(update={"query_length": 24, **fields})
    negatives = run.runner.compute(run.plan.mining(config, model=model))
    return list(training_tuples(negatives, run.runner.compute(run.plan.corpus), titles=run.recipe.tokens.titles))


def test_negatives_are_the_best_documents_of_brute_force_but_the_positive(run, tmp_path: Path) -> None:
    rows = mined(run, run.step, per_query=4, choose="top", min_rank=2)
    encoder, texts = SentenceTransformer(str(run.model), device="cpu", local_files_only=True), toy.texts()
    vectors = encoder.encode_document(texts)
    assert len(rows) > 30
    for row in rows:
        number, negatives = int(row.query_id), [int(doc_id) for doc_id in row.negative_ids]
        scores = vectors @ encoder.encode_query(row.query)
        best = [document for document in np.argsort(-scores)[1:] if document != number][:4]
        np.testing.assert_allclose(scores[negatives], scores[best], rtol=1e-5)  # order of near ties is open
        assert len({number, *negatives}) == 5 and row.negatives == [texts[document] for document in negatives]
        assert (row.query, row.positive_id, row.positive) == (toy.queries()[number], str(number), texts[number])
    assert write_training_tuples(rows, 4, Place(str(tmp_path / "negatives.jsonl.gz"))) == len(rows)
    table = pyarrow.json.read_json(tmp_path / "negatives.jsonl.gz")  # as `load_dataset("json")` does
    assert table.column_names == ["anchor", "positive", *(f"negative_{number}" for number in range(1, 5))]
    assert list(table.to_pylist()[3].values()) == [rows[3].query, rows[3].positive, *rows[3].negatives]


def test_queries_with_too_few_negatives_are_left_out(run, tmp_path: Path) -> None:
    rows = mined(run, None, depth=9, per_query=8)
    full = [row for row in rows if len(row.negatives) == 8]
    assert write_training_tuples(rows, 8, Place(str(tmp_path / "some.jsonl"))) == len(full)
    with pytest.raises(UserError, match="no query has 10 negatives"):
        write_training_tuples(rows, 10, Place(str(tmp_path / "none.jsonl")))
    assert not (tmp_path / "none.jsonl").exists()
