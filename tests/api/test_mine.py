"""Hard negatives in one call: held against brute force, and read back as sentence-transformers' trainers read them."""

from pathlib import Path

import numpy as np
import pyarrow.json
import pytest
from sentence_transformers import SentenceTransformer

import midmask
from midmask import UserError
from tests.support.api import toy


def test_negatives_are_the_best_documents_of_brute_force_but_the_positive(corpus, run, store, tmp_path: Path) -> None:
    whole = {"tokens.query_length": 24}  # sentence-transformers cuts queries where it cuts documents
    mined = midmask.mine(run.model, corpus, per_query=4, choose="top", min_rank=2, settings=whole, storage=store)
    encoder, texts = SentenceTransformer(run.model, device="cpu", local_files_only=True), toy.texts()
    vectors, rows = encoder.encode_document(texts), list(mined)
    assert len(rows) == mined.queries > 30 and mined.negatives == 4 * len(rows)
    for row in rows:
        number, negatives = int(row.query_id), [int(doc_id) for doc_id in row.negative_ids]
        scores = vectors @ encoder.encode_query(row.query)
        best = [document for document in np.argsort(-scores)[1:] if document != number][:4]
        np.testing.assert_allclose(scores[negatives], scores[best], rtol=1e-5)  # order of near ties is open
        assert len({number, *negatives}) == 5 and row.negatives == [texts[document] for document in negatives]
        assert (row.query, row.positive_id, row.positive) == (toy.queries()[number], str(number), texts[number])
    assert mined.save(tmp_path / "negatives.jsonl.gz") == len(rows)
    table = pyarrow.json.read_json(tmp_path / "negatives.jsonl.gz")  # as `load_dataset("json")` does
    assert table.column_names == ["anchor", "positive", *(f"negative_{number}" for number in range(1, 5))]
    assert list(table.to_pylist()[3].values()) == [rows[3].query, rows[3].positive, *rows[3].negatives]


def test_bm25_mines_too_and_queries_with_too_few_are_left_out(corpus, store, tmp_path: Path) -> None:
    settings = {"stages.*.mine.filters.relative_margin": 0.5}
    mined = midmask.mine("bm25", corpus, depth=9, per_query=7, settings=settings, storage=store)
    full = [row for row in mined if len(row.negatives) == 7]
    assert 0 < len(full) < mined.queries
    assert mined.save(tmp_path / "some.jsonl") == len(full) == len((tmp_path / "some.jsonl").read_text().splitlines())
    none = midmask.mine("bm25", corpus, depth=9, per_query=10, storage=store)
    with pytest.raises(UserError, match="no query has 10 negatives"):
        none.save(tmp_path / "none.jsonl")
    assert not (tmp_path / "none.jsonl").exists()


def test_mistakes_are_refused(corpus, store) -> None:
    with pytest.raises(UserError, match="unknown model 'bm52'; did you mean 'bm25'"):
        midmask.mine("bm52", corpus, storage=store)
    with pytest.raises(UserError, match="alone has no judged queries"):
        midmask.mine("bm25", midmask.Corpus.from_texts(toy.texts(), name="alone"), storage=store)
    with pytest.raises(UserError, match="max_rank = 300"):
        midmask.mine("bm25", corpus, max_rank=300, storage=store)
