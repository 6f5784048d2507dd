"""Published scores in place of a teacher: both layouts, what is left out, and what is refused."""

import gzip
import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midmask.artifact import Artifact, Place
from midmask.errors import UserError
from midmask.teacher.given_scores import ReadScoresConfig, read_scores, scores_content
from tests.support.teacher.score_lists import write_score_lists

SCORES = [("q2", "d9", 1.5), ("q1", "d3", -2.25), ("q1", "d1", 4.0), ("elsewhere", "d1", 7.0)]


@pytest.fixture
def corpus(tmp_path) -> dict[str, Artifact]:
    (tmp_path / "corpus").mkdir()
    pq.write_table(pa.table({"query_id": ["q2", "q1", "q3"]}), tmp_path / "corpus" / "queries.parquet")
    return {"corpus": Artifact(Place(str(tmp_path / "corpus")), {})}


@pytest.mark.parametrize("layout", ["lists.parquet", "scores.pkl.gz"])
def test_both_layouts_give_sorted_pairs_of_the_corpus(layout, corpus, tmp_path):
    file = tmp_path / layout
    if layout.endswith(".parquet"):
        write_score_lists(Place(str(file)), SCORES)
    else:
        nested: dict[str, dict[str, float]] = {}
        for query_id, doc_id, score in SCORES:
            nested.setdefault(query_id, {})[doc_id] = score
        data = pickle.dumps(nested)
        file.write_bytes(gzip.compress(data) if layout.endswith(".gz") else data)
    result = read_scores(ReadScoresConfig(file=str(file)), corpus, Place(str(tmp_path / "out")))
    rows = pq.read_table(tmp_path / "out" / "scores.parquet").to_pylist()
    assert [tuple(row.values()) for row in rows] == [("q1", "d1", 4.0), ("q1", "d3", -2.25), ("q2", "d9", 1.5)]
    assert result == {"pairs": 3, "pairs_of_unknown_queries": 1}


def test_repeated_pairs_and_files_of_other_corpora_are_refused(corpus, tmp_path):
    out = Place(str(tmp_path / "out"))
    write_score_lists(Place(str(tmp_path / "twice.parquet")), [*SCORES, ("q1", "d3", 0.0)])
    with pytest.raises(UserError, match="query q1, passage d3 is scored more than once"):
        read_scores(ReadScoresConfig(file=str(tmp_path / "twice.parquet")), corpus, out)
    write_score_lists(Place(str(tmp_path / "other.parquet")), SCORES[-1:])
    with pytest.raises(UserError, match="none of its 1 pairs is of a query of this corpus"):
        read_scores(ReadScoresConfig(file=str(tmp_path / "other.parquet")), corpus, out)
    with pytest.raises(UserError, match=r"teacher\.scores = .*nowhere\.parquet: there is no such file"):
        scores_content(str(tmp_path / "nowhere.parquet"))
