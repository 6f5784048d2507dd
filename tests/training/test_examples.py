"""What a row of a training run is, against the tables it comes from, read slowly; packed rows against lists."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.training import packing
from midmask.training.examples import PassageExamples
from midmask.training.order import Order, local_reader
from midmask.training.packing import PackedExamples
from midmask.training.pairs import PairExamples, cut_rows
from midmask.training.reader import reads
from midmask.training.table import TokenTable
from tests.support.training.examples import all_passages, write_weights


def pairs(tokens: Place, corpus: Place, **changes: object) -> PairExamples:
    settings = {"split": "train", "fingerprint": "f", "query_length": 8, "passage_length": 48, **changes}
    return PairExamples(tokens=tokens, corpus=corpus, **settings)


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
    order = Order(examples, batch_size=10, seed=0, rank=0, size=1, start=0, stop=3)
    for read in reads(local_reader, order, steps=6, pad_id=0, micro_batch=4, pin=False):
        assert {batch.progress for batch in read.micro} == {read.step / 6}
        assert [len(batch.texts["passage"].ids_BL) for batch in read.micro] == [4, 4, 2]
        for batch in read.micro:
            rows = batch.texts["passage"]
            assert rows.weights_BL is not None
            assert rows.weights_BL.tolist() == (rows.ids_BL / 4096).tolist(), "padding has id 0 and weight 0"


def test_weights_of_other_tokens_are_refused(tokens, tmp_path):
    place = write_weights(tokens, tmp_path)
    name = (tokens / "passages").names()[0]
    rows = pq.read_table(f"{place}/weights/{name}")["weights"].to_pylist()
    pq.write_table(pa.table({"weights": [row[1:] for row in rows]}), f"{place}/weights/{name}")
    with pytest.raises(ValueError, match=r"term weights for .* tokens"):
        PassageExamples(tokens, "f", place).open().read(np.arange(4), 0, 0)


def test_a_pair_is_a_query_of_the_split_with_its_positive_first(tokens, corpus):
    doc_ids, ids = all_passages(tokens)
    qrels = pq.read_table(f"{corpus}/qrels.parquet").to_pylist()
    relevant = {row["query_id"]: row["doc_id"] for row in qrels if row["split"] == "train"}
    source = pairs(tokens, corpus, per_query=3).open()
    assert source.count == len(relevant) == 45
    rows = np.arange(source.count)
    texts = source.read(rows, 0, 0)
    names = source.names(rows)
    passages = texts["passage"].rows.reshape(-1, 4)
    assert [doc_ids[row] for row in passages[:, 0]] == [relevant[name] for name in names]
    for group in passages:
        assert len(set(group.tolist())) == 4, "a passage twice in one group"
    assert [piece.tolist() for piece in texts["passage"].pieces()] == [ids[row] for row in passages.reshape(-1)]
    queries = {row["query_id"]: row["ids"] for row in pq.read_table(f"{tokens}/queries.parquet").to_pylist()}
    assert [piece.tolist() for piece in texts["query"].pieces()] == [queries[name] for name in names]


def write_negatives(folder: Path, lists: dict[str, list[str]]) -> Place:
    rows = [{"query_id": query, "doc_id": doc} for query, docs in lists.items() for doc in docs]
    pq.write_table(pa.Table.from_pylist(rows), folder / "negatives.parquet")
    return Place(str(folder / "negatives.parquet"))


def test_mined_negatives_are_used_and_a_positive_never_is(tokens, corpus, tmp_path):
    doc_ids, _ = all_passages(tokens)
    mined = {f"q{query}": [f"d{query + k}" for k in range(6)] for query in range(60)}  # the first is the positive
    source = pairs(tokens, corpus, per_query=2, negatives=write_negatives(tmp_path, mined)).open()
    rows = np.arange(source.count)
    seen: dict[str, set[str]] = {}
    for epoch in range(30):
        groups = source.read(rows, 0, epoch)["passage"].rows.reshape(-1, 3)
        for name, group in zip(source.names(rows), groups, strict=True):
            negatives = {doc_ids[row] for row in group[1:]}
            assert len(negatives) == 2 and negatives <= set(mined[name][1:])
            seen.setdefault(name, set()).update(negatives)
    assert all(len(names) == 5 for names in seen.values()), "some mined negatives are never drawn"


def test_queries_with_too_few_negatives_get_random_passages(tokens, corpus, tmp_path):
    doc_ids, _ = all_passages(tokens)
    source = pairs(tokens, corpus, per_query=2, negatives=write_negatives(tmp_path, {"q1": ["d200"]})).open()
    groups = source.read(np.arange(source.count), 0, 0)["passage"].rows.reshape(-1, 3)
    assert doc_ids[groups[source.names(np.arange(source.count)).index("q1"), 1]] == "d200"
    assert all(len(set(group.tolist())) == 3 for group in groups)
    with pytest.raises(UserError, match="tokens lack"):
        pairs(tokens, corpus, per_query=1, negatives=write_negatives(tmp_path, {"q1": ["elsewhere"]})).open()
    with pytest.raises(UserError, match=r"split 'test'.*no query has a relevant passage"):
        pairs(tokens, corpus, split="test").open()


def test_choices_depend_on_seed_epoch_and_query_alone(tokens, corpus):
    source = pairs(tokens, corpus, per_query=3).open()
    rows = np.arange(source.count)
    whole = source.read(rows, 0, 0)["passage"].rows.reshape(-1, 4)
    backwards = source.read(rows[::-1].copy(), 0, 0)["passage"].rows.reshape(-1, 4)
    np.testing.assert_array_equal(whole, backwards[::-1])
    for seed, epoch in ((1, 0), (0, 1)):
        other = source.read(rows, seed, epoch)["passage"].rows.reshape(-1, 4)
        assert (other[:, 1:] != whole[:, 1:]).mean() > 0.9


def test_a_cut_text_ends_with_its_separator():
    assert cut_rows(np.array([2, 7, 8, 9, 3], np.int32), 4).tolist() == [2, 7, 8, 3]
    assert cut_rows(np.array([2, 7, 3], np.int32), 4).tolist() == [2, 7, 3]


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
    monkeypatch.setattr(packing, "GROUP", group)
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


def test_a_row_is_named_by_the_passage_it_begins_in(tokens):
    doc_ids, ids = all_passages(tokens)
    owner = [doc_id for doc_id, row in zip(doc_ids, ids, strict=True) for _ in row]
    source = PackedExamples(tokens, "f", 40).open()
    assert source.names(np.array([0, 3, 9])) == [owner[0], owner[120], owner[360]]
    with pytest.raises(UserError, match="tokens do not fill one packed row"):
        PackedExamples(tokens, "f", 100_000).open()
