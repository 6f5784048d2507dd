"""Fine-tuning rows with a teacher's scores, held against the score table itself."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.training.order import Order, local_reader
from midmask.training.pairs import PairExamples
from midmask.training.reader import reads
from midmask.training.table import TokenTable

Pairs = dict[tuple[str, str], float]

TRAIN = [f"q{row}" for row in range(60) if row % 4]


def mined(per_query: int = 5) -> dict[str, list[str]]:
    return {query: [f"d{(int(query[1:]) + k) % 300}" for k in range(1, per_query + 1)] for query in TRAIN}


def scores_of(lists: dict[str, list[str]]) -> Pairs:
    """A score of its own for every candidate and every positive, and for some other pairs."""
    pairs = {(query, doc) for query, docs in lists.items() for doc in [*docs, f"d{query[1:]}", "d299"]}
    return {pair: float(np.float32(number / 7 - 3)) for number, pair in enumerate(sorted(pairs))}


def written(folder: Path, name: str, rows: list[dict[str, object]], group: int = 40) -> Place:
    pq.write_table(pa.Table.from_pylist(rows), folder / name, row_group_size=group)
    return Place(str(folder / name))


def examples(
    tokens: Place, corpus: Place, folder: Path, lists: dict[str, list[str]], scores: Pairs | None, **changes: object
) -> PairExamples:
    negatives = [{"query_id": query, "doc_id": doc} for query, docs in lists.items() for doc in docs]
    settings = {"per_query": 3, "negatives": written(folder, "negatives.parquet", negatives), **changes}
    if scores:
        table = [{"query_id": query, "doc_id": doc, "score": score} for (query, doc), score in scores.items()]
        settings["scores"] = written(folder, "scores.parquet", table)
    return PairExamples(tokens, corpus, "train", "f", **settings)


def groups(tokens: Place, found: PairExamples, epoch: int = 0) -> dict[str, list[tuple[str, float]]]:
    """query -> (passage, score) of its group, the positive first."""
    source = found.open()
    rows = np.arange(source.count)
    text = source.read(rows, 0, epoch)["passage"]
    assert text.scores.dtype == np.float32
    names = TokenTable(tokens / "passages").doc_ids(text.rows)
    pairs = list(zip(names, text.scores.tolist(), strict=True))
    return {name: pairs[row * source.group :][: source.group] for row, name in enumerate(source.names(rows))}


def test_every_passage_of_a_group_has_its_own_score(tokens, corpus, tmp_path):
    lists = mined()
    scores = scores_of(lists)
    found = examples(tokens, corpus, tmp_path, lists, scores)
    seen = set()
    for epoch in range(8):
        for query, group in groups(tokens, found, epoch).items():
            assert [score for _, score in group] == [scores[query, doc] for doc, _ in group]
            assert group[0][0] == f"d{query[1:]}" and len({doc for doc, _ in group}) == 4
            seen |= {(query, doc) for doc, _ in group[1:]}
    assert len(seen) == 45 * 5, "some scored negatives are never drawn"


def test_scores_lie_beside_their_queries_in_every_micro_batch(tokens, corpus, tmp_path):
    lists = mined()
    scores = scores_of(lists)
    found = examples(tokens, corpus, tmp_path, lists, scores)
    order = Order(found, batch_size=10, seed=0, rank=0, size=1, start=0, stop=3)
    plain = {step: texts for step, texts in local_reader(order)}
    for read in reads(local_reader, order, steps=3, pad_id=0, micro_batch=4, pin=False):
        assert [tuple(batch.teacher_QG.shape) for batch in read.micro] == [(4, 4), (4, 4), (2, 4)]
        flat = [score for batch in read.micro for score in batch.teacher_QG.reshape(-1).tolist()]
        names = found.open().names(order.plan().share(read.step, 0, 1))
        docs = TokenTable(tokens / "passages").doc_ids(plain[read.step]["passage"].rows)
        assert flat == [scores[names[place // 4], doc] for place, doc in enumerate(docs)]


@pytest.mark.parametrize("doc", ["d3", "d1"])
def test_a_missing_score_names_query_and_passage(tokens, corpus, tmp_path, doc):
    scores = scores_of(mined())
    del scores["q1", doc]
    with pytest.raises(UserError, match=rf"no score for query 'q1' and its \w+ passage '{doc}', 1 in all"):
        examples(tokens, corpus, tmp_path, mined(), scores).open()


def test_a_positive_without_a_score_may_take_the_highest_of_its_query(tokens, corpus, tmp_path):
    """The SIGIR'23 benchmark's rule."""
    scores = scores_of(mined())
    del scores["q1", "d1"]
    found = groups(tokens, examples(tokens, corpus, tmp_path, mined(), scores, missing_positive_score="highest"))
    assert found["q1"][0] == ("d1", max(scores["q1", doc] for doc in mined()["q1"]))
    assert found["q2"][0] == ("d2", scores["q2", "d2"])
    alone = {pair: score for pair, score in scores.items() if pair[0] != "q1"}
    with pytest.raises(UserError, match="no score for query 'q1'"):
        examples(tokens, corpus, tmp_path, mined(), alone, missing_positive_score="highest").open()


def test_too_few_scored_negatives_come_again_and_queries_without_one_are_left_out(tokens, corpus, tmp_path, caplog):
    """No unscored passage stands in. d1 is q1's positive."""
    lists = {**mined(), "q1": ["d200", "d1"]}
    del lists["q6"]
    scores = scores_of(lists)
    found = groups(tokens, examples(tokens, corpus, tmp_path, lists, scores))
    assert found["q1"] == [("d1", scores["q1", "d1"])] + [("d200", scores["q1", "d200"])] * 3
    assert set(found) == set(TRAIN) - {"q6"} and "1 queries have no negative to be scored" in caplog.text


def test_only_the_queries_of_a_subset_are_trained_on(tokens, corpus, tmp_path):
    subset = written(tmp_path, "queries.parquet", [{"query_id": name} for name in ("q9", "q2", "q41")])
    source = examples(tokens, corpus, tmp_path, mined(), None, queries=subset).open()
    assert sorted(source.names(np.arange(source.count))) == ["q2", "q41", "q9"]
    strange = written(tmp_path, "other.parquet", [{"query_id": name} for name in ("q9", "q4")])
    with pytest.raises(UserError, match="1 of its queries, such as 'q4', have no relevant passage in split 'train'"):
        examples(tokens, corpus, tmp_path, mined(), None, queries=strange).open()
