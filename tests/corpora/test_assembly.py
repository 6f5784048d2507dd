"""What a corpus is put together with, against slow definitions: ids, lengths, splits, copies."""

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midmask.corpora.duplicates import clusters, signatures, similar_pairs
from midmask.corpora.ids import IdTable
from midmask.corpora.splits import OFFICIAL, Rule, assign_splits
from midmask.corpora.statistics import TextStatistics
from midmask.randomness.texts import uniform

texts = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), max_size=30)


@given(st.lists(texts, max_size=8), texts, st.sampled_from([1, 4, 64]))
def test_the_table_equals_a_dictionary_even_when_hashes_collide(batches, asked, hash_bits) -> None:
    table = IdTable(hash_bits)
    oracle: dict[str, int] = {}
    for batch in batches:
        wanted = []
        for text in batch:
            wanted.append(text not in oracle)
            oracle.setdefault(text, len(oracle))
        assert table.add(batch).tolist() == wanted
    assert len(table) == len(oracle)
    assert [table[row] for row in range(len(table))] == list(oracle)
    assert table.rows(asked).tolist() == [oracle.get(text, -1) for text in asked]


def test_draws_are_uniform_and_depend_on_the_salt() -> None:
    names = [str(n) for n in range(20_000)]
    draw = uniform(names, "a")
    assert 0 <= draw.min() and draw.max() < 1
    for bound in (0.1, 0.5, 0.8):
        assert abs((draw < bound).mean() - bound) < 0.015
    assert abs(((draw < 0.5) & (uniform(names, "b") < 0.5)).mean() - 0.25) < 0.015


@given(st.lists(st.integers(0, 50), min_size=1), st.integers(1, 7))
def test_streamed_lengths_equal_numpy_on_all_at_once(lengths: list[int], block: int) -> None:
    statistics = TextStatistics()
    for start in range(0, len(lengths), block):
        part = lengths[start : start + block]
        statistics.add(pa.table({"words": part, "question": [length % 2 == 0 for length in part]}))
    summary = statistics.summary()
    array = np.array(lengths, np.float64)
    assert summary["words"]["mean"] == pytest.approx(array.mean())
    assert summary["words"]["median"] == np.percentile(array, 50, method="inverted_cdf")
    assert summary["words"]["p90"] == np.percentile(array, 90, method="inverted_cdf")
    assert summary["words"]["max"] == array.max()
    assert summary["question_share"] == pytest.approx((array % 2 == 0).mean())


QUERIES = [f"q{n}" for n in range(4000)]


@pytest.mark.parametrize("names", [{"test"}, {"train"}, {"dev", "test"}])
def test_without_train_or_with_train_only_all_are_divided(names: set[str]) -> None:
    splits, rule = assign_splits([sorted(names)[0]] * 4000, QUERIES, names, 0)
    assert rule.words.startswith("60/20/20") and rule.made == ("dev", "test", "train")
    for split, share in {"train": 0.6, "dev": 0.2, "test": 0.2}.items():
        assert splits.count(split) / 4000 == pytest.approx(share, abs=0.03)


def test_a_missing_dev_is_drawn_from_train_and_test_stays() -> None:
    official = ["train", "test"] * 2000
    splits, rule = assign_splits(official, QUERIES, set(official), 0)
    assert "tenth of train" in rule.words and rule.made == ("dev", "train")
    assert [split for split, own in zip(splits, official, strict=True) if own == "test"] == ["test"] * 2000
    assert splits.count("dev") / 2000 == pytest.approx(0.1, abs=0.03)


def test_a_missing_test_is_half_of_dev_and_train_stays() -> None:
    official = ["train", "dev"] * 2000
    splits, rule = assign_splits(official, QUERIES, set(official), 0)
    assert rule.made == ("dev", "test")
    assert splits.count("train") == 2000 and splits.count("test") / 2000 == pytest.approx(0.5, abs=0.05)


def test_all_judgements_of_a_query_go_to_one_split_whatever_else_there_is() -> None:
    twice = QUERIES + QUERIES[::-1]
    splits, _ = assign_splits(["test"] * 8000, twice, {"test"}, 3)
    assert splits[:4000] == splits[:3999:-1]
    alone, _ = assign_splits(["test"], ["q7"], {"test"}, 3)
    assert alone == [splits[7]]


def test_slices_and_trecs_splits_stay_whatever_is_divided() -> None:
    official = ["test", "test.long", "dl19", "dl20"] * 1000
    splits, rule = assign_splits(official, QUERIES, set(official), 0)
    assert rule.words.startswith("60/20/20") and rule.made == ("dev", "test", "train")
    for split in ("test.long", "dl19", "dl20"):
        assert [found for found, own in zip(splits, official, strict=True) if own == split] == [split] * 1000
    assert {found for found, own in zip(splits, official, strict=True) if own == "test"} == {"train", "dev", "test"}
    for whole in (["dl19", "test.long"] * 2000, ["train", "dev", "test", "extra"] * 1000):
        assert assign_splits(whole, QUERIES, set(whole), 0) == (whole, Rule(OFFICIAL))


WORDS = [f"w{n}" for n in range(500)]


def exact(left: str, right: str) -> float:
    sets = [{tuple(text.split()[n : n + 5]) for n in range(max(1, len(text.split()) - 4))} for text in (left, right)]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def edited(words: list[str], changes: int, draw: random.Random) -> list[str]:
    copy = list(words)
    for place in draw.sample(range(len(copy)), changes):
        copy[place] = draw.choice(WORDS)
    return copy


def test_estimates_are_close_to_the_exact_similarity_and_pairs_above_are_found() -> None:
    draw = random.Random(1)
    texts = []
    for changes in range(120):
        base = [draw.choice(WORDS) for _ in range(120)]
        texts += [" ".join(base), " ".join(edited(base, changes // 12, draw))]
    minima = signatures(texts)
    agreement = (minima[::2] == minima[1::2]).mean(axis=1)
    similarity = np.array([exact(texts[n], texts[n + 1]) for n in range(0, len(texts), 2)])
    assert np.abs(agreement - similarity).max() < 0.2 and np.abs(agreement - similarity).mean() < 0.05
    found = {tuple(pair) for pair in similar_pairs(minima).tolist()}
    assert {(2 * n, 2 * n + 1) for n in np.flatnonzero(similarity > 0.7)} <= found
    assert all(left + 1 == right and left % 2 == 0 for left, right in found)


def test_clusters_equal_a_slow_closure() -> None:
    draw = np.random.default_rng(0)
    pairs = draw.integers(0, 60, (40, 2))
    reached = np.eye(60, dtype=bool)
    for left, right in pairs:
        reached[left, right] = reached[right, left] = True
    for _ in range(60):
        reached = (reached.astype(int) @ reached.astype(int)) > 0
    assert clusters(60, pairs).tolist() == reached.argmax(axis=1).tolist()
