"""Shares, thinning and splits, on candidates made by hand."""

import random
from fractions import Fraction

import pytest

from midmask.queries.candidates import Candidate
from midmask.queries.config import QueriesConfig
from midmask.queries.documents import BY_DOCUMENT, BY_PASSAGE, split_by_document
from midmask.queries.made import MadeQuery
from midmask.queries.roles import Roles
from midmask.queries.selection import TOO_EASY, draw_shares, drop_unfound, reciprocal_rank, shares, thin

RANKS = [1, 1, 1, 1, 1, 1, 2, 2, 3, 5, 10, 11, 20]


def candidate(
    number: int, source: str = "spans", rank: int | None = 1, overlap: float = 0.5, split: str = "train"
) -> Candidate:
    made = MadeQuery(f"d{number}", f"query {number}", source)
    return Candidate(made, source, f"{source}-{number:04d}", split, float(number), rank=rank, overlap=overlap)


def many(source: str, seed: int, count: int = 60) -> list[Candidate]:
    random_ = random.Random(seed)
    return [candidate(n, source, random_.choice(RANKS), round(random_.random(), 2)) for n in range(count)]


@pytest.mark.parametrize(
    ("weights", "available", "total", "wanted"),
    [
        ({"a": 3, "b": 1}, {"a": 4, "b": 50}, 20, {"a": 4, "b": 16}),
        ({"a": 1, "b": 1, "c": 2}, {"a": 1, "b": 100, "c": 100}, 31, {"a": 1, "b": 10, "c": 20}),
        ({"a": 1, "b": 1, "c": 1}, {"a": 9, "b": 9, "c": 9}, 10, {"a": 4, "b": 3, "c": 3}),
        ({"a": 1, "b": 1}, {"a": 2, "b": 0}, 10, {"a": 2, "b": 0}),
    ],
)
def test_shares(weights: dict[str, float], available: dict[str, int], total: int, wanted: dict[str, int]) -> None:
    assert shares(weights, available, total) == wanted


def test_shares_never_exceed_what_is_there_and_use_all_that_is_asked_for() -> None:
    random_ = random.Random(0)
    for _ in range(300):
        weights = {name: random_.choice([0.1, 1, 1, 2.5]) for name in "abcd"}
        available = {name: random_.randint(0, 40) for name in "abcd"}
        total = random_.randint(1, 150)
        found = shares(weights, available, total)
        assert all(0 <= found[name] <= available[name] for name in "abcd")
        assert sum(found.values()) == min(total, sum(available.values()))
        full = [name for name in "abcd" if found[name] < available[name]]
        each = [Fraction(found[name]) / Fraction(weights[name]) for name in full]
        assert not each or max(each) - min(each) <= 20, "sources with room left have their weights' shares"


def test_the_first_by_place_are_kept() -> None:
    some = [candidate(n, "a") for n in range(6)] + [candidate(n, "b") for n in range(6)]
    random.Random(1).shuffle(some)
    judging = [candidate(n, "c", split=("dev", "test")[n % 2]) for n in range(40)]
    config = QueriesConfig(max_queries=30, dev_share=0.4, test_share=0.4)
    draw_shares([*some, *judging], Roles({"a": 2.0, "b": 1.0}, {"c": 1.0}), config)
    assert sorted(one.query_id for one in some if one.is_in) == [*(f"a-000{n}" for n in range(4)), "b-0000", "b-0001"]
    assert [one.is_in for one in judging] == [n < 24 for n in range(40)], "training takes none of their places"


def test_only_what_is_within_the_depth_is_found() -> None:
    some = [candidate(0, rank=20), candidate(1, rank=21), candidate(2, rank=None)]
    assert drop_unfound(some, 20) and [one.is_in for one in some] == [True, False, False]
    assert not drop_unfound(some[:1], 20)
    by_encoder = candidate(3, rank=None)
    by_encoder.by_encoder = True
    assert not drop_unfound([by_encoder], 20) and by_encoder.is_in


def mean(some: list[Candidate]) -> float:
    return sum(map(reciprocal_rank, some)) / len(some)


def test_thinning_reaches_its_target_by_dropping_the_easiest_and_no_more() -> None:
    before: set[str] = set()
    for target in (0.9, 0.6, 0.45, 0.3, 0.15):
        some = many("spans", 5) + many("keyphrases", 6) + [candidate(n, "file:/q.txt") for n in range(9)]
        thin(some, target)
        dropped = {one.query_id for one in some if not one.is_in}
        assert before <= dropped, "a lower target drops all that a higher one drops"
        assert all(one.is_in for one in some if one.source.startswith("file:")), "BM25 chose their positives"
        for source in ("spans", "keyphrases"):
            own = [one for one in some if one.source == source]
            kept = [one for one in own if one.is_in]
            gone = sorted((one for one in own if not one.is_in), key=lambda one: (one.overlap or 0, -(one.rank or 0)))
            assert mean(kept) <= target and all(one.reason == TOO_EASY for one in gone)
            assert not gone or mean([*kept, min(gone, key=lambda one: (reciprocal_rank(one), one.overlap))]) > target
            for one in gone:
                assert all(
                    (other.rank or 99, -(other.overlap or 0)) >= (one.rank, -(one.overlap or 0)) for other in kept
                )
        before = dropped
    assert before


def test_no_document_is_in_two_splits_and_shares_are_kept() -> None:
    random_ = random.Random(2)
    documents = {f"q{n}": [f"doc{random_.randint(0, 80)}"] for n in range(400)}
    documents |= {"both": ["doc1", "doc2"], "and": ["doc2", "doc3"]}
    passages = {query: [f"p{query}"] for query in documents}
    splits, rule = split_by_document(documents, passages, 0.15, 0.25, 0)
    assert rule == BY_DOCUMENT and set(splits) == set(documents)
    of: dict[str, set[str]] = {}
    for query, own in documents.items():
        for name in own:
            of.setdefault(name, set()).add(splits[query])
    assert all(len(found) == 1 for found in of.values()) and of["doc1"] == of["doc2"] == of["doc3"]
    for name, share in (("train", 0.6), ("dev", 0.15), ("test", 0.25)):
        assert abs(sum(split == name for split in splits.values()) / len(splits) - share) < 0.03
    backwards = dict(reversed(documents.items()))
    assert split_by_document(backwards, passages, 0.15, 0.25, 0)[0] == splits
    assert split_by_document(documents, passages, 0.15, 0.25, 1)[0] != splits


def test_one_large_document_is_divided_by_passage() -> None:
    documents = {f"q{n}": ["the book"] for n in range(100)}
    passages = {f"q{n}": [f"p{n // 2}"] for n in range(100)}
    splits, rule = split_by_document(documents, passages, 0.15, 0.25, 0)
    assert rule == BY_PASSAGE and set(splits.values()) == {"train", "dev", "test"}
    assert all(splits[f"q{n}"] == splits[f"q{n + 1}"] for n in range(0, 100, 2)), "a passage is in one split"
