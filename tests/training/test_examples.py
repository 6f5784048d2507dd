"""What a row of a training is, against the tables that it comes from, read slowly; packed rows, pairs, excerpts."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import chisquare

from midmask.core.config import override
from midmask.errors import UserError
from midmask.experiment.plan import plan
from midmask.experiment.schema import Recipe
from midmask.experiment.steps import pretrain_setup
from midmask.recipes import RECIPES
from midmask.retrieve.blocks import cut_row
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.training.batches import batches_ahead
from midmask.training.examples import TextColumns, TokenTable, WorkerSteps, local_reader
from midmask.training.pairs import PairExamples
from midmask.training.pretraining_rows import PackedExamples, PassageExamples
from tests.support.training.fixtures import all_passages, write_weights

Pairs = dict[tuple[str, str], float]
LENGTH = 10
TRAIN = [f"q{row}" for row in range(60) if row % 4]


def mined() -> dict[str, list[str]]:
    """Each query's positive and five others."""
    return {query: [f"d{int(query[1:]) + k}" for k in range(6)] for query in TRAIN}


def scores_of(lists: dict[str, list[str]]) -> Pairs:
    """A score of its own for every candidate and every positive, and for some other pairs."""
    pairs = {(query, doc) for query, docs in lists.items() for doc in [*docs, f"d{query[1:]}", "d299"]}
    return {pair: float(np.float32(number / 7 - 3)) for number, pair in enumerate(sorted(pairs))}


def written(folder: Path, name: str, rows: list[dict[str, object]]) -> Place:
    pq.write_table(pa.Table.from_pylist(rows), folder / name, row_group_size=40)
    return Place(str(folder / name))


def pairs(
    tokens: Place, corpus: Place, folder: Path, lists: dict[str, list[str]], scores: Pairs | None, **changes: object
) -> PairExamples:
    """Rows of fine-tuning, with these candidates and scores, if any."""
    settings = {"split": "train", "fingerprint": "f", "per_query": 3, **changes}
    if lists:
        negatives = [{"query_id": query, "doc_id": doc} for query, docs in lists.items() for doc in docs]
        settings["negatives"] = written(folder, "negatives.parquet", negatives)
    if scores:
        table = [{"query_id": query, "doc_id": doc, "score": score} for (query, doc), score in scores.items()]
        settings["scores"] = written(folder, "scores.parquet", table)
    return PairExamples(tokens=tokens, corpus=corpus, **settings)


def asked(tokens: Place, texts: TextColumns) -> list[str]:
    """The ids of the rows' queries."""
    names = pq.read_table(f"{tokens}/queries.parquet")["query_id"]
    return [names[row].as_py() for row in texts["query"].rows]


def excerpts(tokens: Place, weights: Place | None = None) -> PassageExamples:
    return PassageExamples(tokens, "f", weights, excerpt=LENGTH)


def test_rows_are_read_in_any_order_and_again(tokens, monkeypatch):
    monkeypatch.setattr(TokenTable, "KEPT", 2)  # of the row groups, so that decoded ones are dropped and read again
    _, ids = all_passages(tokens)
    source = PassageExamples(tokens, "f").open()
    rows = np.random.default_rng(0).permutation(np.repeat(np.arange(source.count), 2))
    text = source.read(rows, 0, 0)["passage"]
    assert [piece.tolist() for piece in text.pieces()] == [ids[row] for row in rows]
    assert text.lengths.tolist() == [len(ids[row]) for row in rows]
    np.testing.assert_array_equal(text.rows, rows)
    assert PassageExamples(tokens, "f", by_length=False).open().lengths is None


def test_weights_are_padded_beside_their_tokens_in_every_micro_batch(tokens, tmp_path):
    examples = PassageExamples(tokens, "f", write_weights(tokens, tmp_path))
    worker = WorkerSteps(examples, batch_size=10, seed=0, rank=0, size=1, start=0, stop=3)
    for one in batches_ahead(local_reader, worker, steps=6, pad_id=0, micro_batch=4, pin=False):
        assert {batch.progress for batch in one.micro} == {one.step / 6}
        assert [len(batch.texts["passage"].ids_BL) for batch in one.micro] == [4, 4, 2]
        for batch in one.micro:
            rows = batch.texts["passage"]
            assert rows.weights_BL is not None
            assert rows.weights_BL.tolist() == (rows.ids_BL / 4096).tolist(), "padding has id 0 and weight 0"


def test_a_teachers_vectors_are_those_of_the_rows_in_every_micro_batch(tokens, vectors):
    all_vectors = np.concatenate([np.load(f"{vectors}/dense/{name}") for name in (vectors / "dense").names()])
    examples = PassageExamples(tokens, "f", vectors=vectors, by_length=False)
    worker = WorkerSteps(examples, batch_size=10, seed=0, rank=0, size=1, start=0, stop=40)
    plain = {step: texts["passage"].rows for step, texts in local_reader(worker)}
    for one in batches_ahead(local_reader, worker, steps=40, pad_id=0, micro_batch=4, pin=False):
        assert [len(batch.teacher) for batch in one.micro] == [4, 4, 2]
        read = np.concatenate([batch.teacher.numpy() for batch in one.micro])
        np.testing.assert_array_equal(read, all_vectors[plain[one.step]])


def test_vectors_of_other_tokens_are_refused(tokens, vectors, tmp_path):
    (tmp_path / "dense").mkdir()
    for name in (vectors / "dense").names():
        np.save(tmp_path / "dense" / name, np.load(f"{vectors}/dense/{name}")[1:])
    with pytest.raises(ValueError, match="119 vectors for 120 passages"):
        PassageExamples(tokens, "f", vectors=Place(str(tmp_path))).open().read(np.arange(4), 0, 0)


def test_weights_of_other_tokens_are_refused(tokens, tmp_path):
    place = write_weights(tokens, tmp_path)
    name = (tokens / "passages").names()[0]
    rows = pq.read_table(f"{place}/weights/{name}")["weights"].to_pylist()
    pq.write_table(pa.table({"weights": [row[1:] for row in rows]}), f"{place}/weights/{name}")
    with pytest.raises(ValueError, match=r"term weights for .* tokens"):
        PassageExamples(tokens, "f", place).open().read(np.arange(4), 0, 0)


def test_a_pair_is_a_query_of_the_split_with_its_positive_first(tokens, corpus, tmp_path):
    doc_ids, ids = all_passages(tokens)
    qrels = pq.read_table(f"{corpus}/qrels.parquet").to_pylist()
    relevant = {row["query_id"]: row["doc_id"] for row in qrels if row["split"] == "train"}
    source = pairs(tokens, corpus, tmp_path, {}, None).open()
    assert source.count == len(relevant) == 45
    rows = np.arange(source.count)
    texts = source.read(rows, 0, 0)
    names = asked(tokens, texts)
    passages = texts["passage"].rows.reshape(-1, 4)
    assert [doc_ids[row] for row in passages[:, 0]] == [relevant[name] for name in names]
    for group in passages:
        assert len(set(group.tolist())) == 4, "a passage twice in one group"
    assert [piece.tolist() for piece in texts["passage"].pieces()] == [ids[row] for row in passages.reshape(-1)]
    queries = {row["query_id"]: row["ids"] for row in pq.read_table(f"{tokens}/queries.parquet").to_pylist()}
    assert [piece.tolist() for piece in texts["query"].pieces()] == [queries[name] for name in names]


def test_queries_with_too_few_negatives_get_random_passages(tokens, corpus, tmp_path):
    doc_ids, _ = all_passages(tokens)
    source = pairs(tokens, corpus, tmp_path, {"q1": ["d200"]}, None, per_query=2).open()
    texts = source.read(np.arange(source.count), 0, 0)
    groups = texts["passage"].rows.reshape(-1, 3)
    assert doc_ids[groups[asked(tokens, texts).index("q1"), 1]] == "d200"
    assert all(len(set(group.tolist())) == 3 for group in groups)
    with pytest.raises(UserError, match="tokens lack"):
        pairs(tokens, corpus, tmp_path, {"q1": ["elsewhere"]}, None).open()
    with pytest.raises(UserError, match=r"split 'test'.*no query has a relevant passage"):
        pairs(tokens, corpus, tmp_path, {}, None, split="test").open()


def test_choices_depend_on_seed_epoch_and_query_alone(tokens, corpus, tmp_path):
    source = pairs(tokens, corpus, tmp_path, {}, None).open()
    rows = np.arange(source.count)
    whole = source.read(rows, 0, 0)["passage"].rows.reshape(-1, 4)
    np.testing.assert_array_equal(whole, source.read(rows[::-1].copy(), 0, 0)["passage"].rows.reshape(-1, 4)[::-1])
    for seed, epoch in ((1, 0), (0, 1)):
        assert (source.read(rows, seed, epoch)["passage"].rows.reshape(-1, 4)[:, 1:] != whole[:, 1:]).mean() > 0.9


def test_a_cut_text_ends_with_its_separator():
    assert cut_row(np.array([2, 7, 8, 9, 3], np.int32), 4).tolist() == [2, 7, 8, 3]
    assert cut_row(np.array([2, 7, 3], np.int32), 4).tolist() == [2, 7, 3]


def packed(ids: list[list[int]], group: int, length: int) -> tuple[list[list[int]], int]:
    """The slow way: groups end to end, cut into rows, the rest of each group thrown away and counted."""
    rows, dropped = [], 0
    for first in range(0, len(ids), group):
        flat = [token for row in ids[first : first + group] for token in row]
        rows += [flat[at : at + length] for at in range(0, len(flat) - length + 1, length)]
        dropped += len(flat) % length
    return rows, dropped


@pytest.mark.parametrize(("group", "length"), [(1000, 16), (1000, 64), (7, 50), (2, 90)])  # the last leaves groups out
def test_rows_are_passages_end_to_end(tokens, group, length, monkeypatch):
    monkeypatch.setattr("midmask.training.pretraining_rows.PACKED_GROUP", group)
    _, ids = all_passages(tokens)
    expected, dropped = packed(ids, group, length)
    source = PackedExamples(tokens, "f", length).open()
    assert (source.count, source.dropped) == (len(expected), dropped)
    rows = np.random.default_rng(0).permutation(np.repeat(np.arange(source.count), 2))
    text = source.read(rows, 0, 0)["passage"]
    assert [piece.tolist() for piece in text.pieces()] == [expected[row] for row in rows]
    assert text.lengths.tolist() == [length] * len(rows)


def test_term_weights_are_packed_with_their_tokens(tokens, tmp_path):
    source = PackedExamples(tokens, "f", 32, write_weights(tokens, tmp_path)).open()
    text = source.read(np.arange(0, source.count, 3), 0, 0)["passage"]
    np.testing.assert_array_equal(text.weights, text.flat / np.float32(4096))


def test_rows_longer_than_all_passages_are_refused(tokens):
    with pytest.raises(UserError, match="tokens do not fill one packed row"):
        PackedExamples(tokens, "f", 100_000).open()


def groups(tokens: Place, found: PairExamples, epoch: int = 0) -> dict[str, list[tuple[str, float]]]:
    """query -> (passage, score) of its group, the positive first."""
    source = found.open()
    rows = np.arange(source.count)
    texts = source.read(rows, 0, epoch)
    text = texts["passage"]
    assert text.teacher.dtype == np.float32
    pairs = list(zip(TokenTable(tokens / "passages").doc_ids(text.rows), text.teacher.tolist(), strict=True))
    return {name: pairs[row * source.group :][: source.group] for row, name in enumerate(asked(tokens, texts))}


def test_every_passage_of_a_group_has_its_own_score(tokens, corpus, tmp_path):
    lists = mined()
    scores = scores_of(lists)
    found = pairs(tokens, corpus, tmp_path, lists, scores)
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
    found = pairs(tokens, corpus, tmp_path, lists, scores)
    worker = WorkerSteps(found, batch_size=10, seed=0, rank=0, size=1, start=0, stop=3)
    plain = {step: texts for step, texts in local_reader(worker)}
    for one in batches_ahead(local_reader, worker, steps=3, pad_id=0, micro_batch=4, pin=False):
        assert [tuple(batch.teacher.shape) for batch in one.micro] == [(4, 4), (4, 4), (2, 4)]
        flat = [score for batch in one.micro for score in batch.teacher.reshape(-1).tolist()]
        names = asked(tokens, plain[one.step])
        docs = TokenTable(tokens / "passages").doc_ids(plain[one.step]["passage"].rows)
        assert flat == [scores[names[place // 4], doc] for place, doc in enumerate(docs)]


@pytest.mark.parametrize("doc", ["d3", "d1"])
def test_a_missing_score_names_query_and_passage(tokens, corpus, tmp_path, doc):
    scores = scores_of(mined())
    del scores["q1", doc]
    with pytest.raises(UserError, match=rf"no score for query 'q1' and its \w+ passage '{doc}', 1 in all"):
        pairs(tokens, corpus, tmp_path, mined(), scores).open()


def test_a_positive_without_a_score_may_take_the_highest_of_its_query(tokens, corpus, tmp_path):
    """The SIGIR'23 benchmark's rule."""
    scores = scores_of(mined())
    del scores["q1", "d1"]
    found = groups(tokens, pairs(tokens, corpus, tmp_path, mined(), scores, missing_positive_score="highest"))
    assert found["q1"][0] == ("d1", max(scores["q1", doc] for doc in mined()["q1"][1:]))
    assert found["q2"][0] == ("d2", scores["q2", "d2"])
    alone = {pair: score for pair, score in scores.items() if pair[0] != "q1"}
    with pytest.raises(UserError, match="no score for query 'q1'"):
        pairs(tokens, corpus, tmp_path, mined(), alone, missing_positive_score="highest").open()


def test_too_few_scored_negatives_come_again_and_queries_without_one_are_left_out(tokens, corpus, tmp_path, caplog):
    """No unscored passage stands in. d1 is q1's positive."""
    lists = {**mined(), "q1": ["d200", "d1"]}
    del lists["q6"]
    scores = scores_of(lists)
    found = groups(tokens, pairs(tokens, corpus, tmp_path, lists, scores))
    assert found["q1"] == [("d1", scores["q1", "d1"])] + [("d200", scores["q1", "d200"])] * 3
    assert set(found) == set(TRAIN) - {"q6"} and "1 queries have no negative to be scored" in caplog.text


def test_only_the_queries_of_a_subset_are_trained_on(tokens, corpus, tmp_path):
    subset = written(tmp_path, "queries.parquet", [{"query_id": name} for name in ("q9", "q2", "q41")])
    source = pairs(tokens, corpus, tmp_path, mined(), None, queries=subset).open()
    assert sorted(asked(tokens, source.read(np.arange(source.count), 0, 0))) == ["q2", "q41", "q9"]
    strange = written(tmp_path, "other.parquet", [{"query_id": name} for name in ("q9", "q4")])
    with pytest.raises(UserError, match="1 of its queries, such as 'q4', have no relevant passage in split 'train'"):
        pairs(tokens, corpus, tmp_path, mined(), None, queries=strange).open()


def test_an_excerpt_is_whole_tokens_in_a_row_between_first_and_last(tokens, tmp_path):
    """And its term weights are those of its tokens."""
    _, ids = all_passages(tokens)
    source = excerpts(tokens, write_weights(tokens, tmp_path)).open()
    rows = np.random.default_rng(0).permutation(source.count)
    text = source.read(rows, 0, 0)["passage"]
    np.testing.assert_array_equal(text.weights, text.flat / np.float32(4096))
    np.testing.assert_array_equal(text.rows, rows)
    assert min(map(len, ids)) <= LENGTH < max(map(len, ids)), "both kinds are there"
    for row, piece in zip(rows, text.pieces(), strict=True):
        whole, read = ids[row], piece.tolist()
        windows = [whole[place : place + LENGTH - 2] for place in range(1, len(whole) - LENGTH + 2)]
        expected = [whole] if len(whole) <= LENGTH else [[whole[0], *window, whole[-1]] for window in windows]
        assert read in expected
        assert len(read) == source.lengths[row]


def test_every_place_is_as_likely_and_a_visit_can_be_repeated(tokens):
    _, ids = all_passages(tokens)
    row = max(range(len(ids)), key=lambda number: len(ids[number]))
    source = excerpts(tokens).open()
    visits: Counter[tuple[int, ...]] = Counter()
    for epoch in range(3000):
        (piece,) = source.read(np.array([row]), 7, epoch)["passage"].pieces()
        visits[tuple(piece.tolist())] += 1
    places = len(ids[row]) - LENGTH + 1
    inner = [ids[row][place : place + LENGTH - 2] for place in range(1, places + 1)]
    expected = Counter((ids[row][0], *text, ids[row][-1]) for text in inner)
    assert visits.keys() == expected.keys()
    assert chisquare([visits[text] for text in expected], [3000 / places * n for n in expected.values()]).pvalue > 1e-4

    rows = np.arange(source.count)
    together = list(source.read(rows, 7, 5)["passage"].pieces())
    for number in rows[::7]:
        (alone,) = excerpts(tokens).open().read(np.array([number]), 7, 5)["passage"].pieces()
        np.testing.assert_array_equal(alone, together[number])


def recipe(name: str = "retromae", **changes: Any) -> Recipe:
    return override(RECIPES[name](), changes)


@pytest.mark.parametrize("name", ["retromae", "cotmae_qc"])
def test_a_training_reads_excerpts_and_is_another_one(name, tokens):
    none, some = (plan(recipe(name, excerpt=length)).pretrained for length in (None, 16))
    assert some is not None and none.fingerprint != some.fingerprint
    read = Artifact(tokens, {"fingerprint": "f", "result": {}, "config": {"max_length": 48}})
    setup = pretrain_setup(plan(recipe(excerpt=16)).pretrained.config, {"tokens": read})
    assert setup.rows == PassageExamples(tokens, "f", excerpt=16) and setup.longest == 16


def test_where_there_is_nothing_to_choose_it_is_refused():
    for name, length in (("retromae", 48), ("cocondenser", 16), ("none", 16)):
        with pytest.raises(UserError, match=f"excerpt = {length}"):
            recipe(name, excerpt=length)
