"""A sample of a large collection: all passages that its queries are about, and as many others."""

import pytest

from midmask.artifact import Artifact, Place
from midmask.choice.samples import OTHERS, Sampler
from midmask.choice.traces import passages_in, queries_of, relevant_of
from midmask.queries.collection import write_collection
from midmask.queries.made import Passage

COUNT = 2 * OTHERS + 1
QRELS = {
    split: [(f"{split}-{number}", f"p{row}") for number, row in enumerate(range(first, COUNT, 100))]
    for first, split in enumerate(("dev", "test"))
}


@pytest.fixture
def sampler(tmp_path) -> Sampler:
    folder = Place(str(tmp_path / "whole"))
    passages = (Passage(f"p{row}", f"title {row}", f"text {row}") for row in range(COUNT))
    queries = [(query, f"text of {query}", "titles", "d") for pairs in QRELS.values() for query, _ in pairs]
    write_collection(folder, passages, queries, QRELS)
    made = Artifact(folder, {"fingerprint": "one"})
    return Sampler(made, folder, "whole", COUNT, Place(str(tmp_path / "store")))


@pytest.mark.parametrize("split", list(QRELS))
def test_all_that_the_queries_of_a_split_are_about_and_as_many_others(sampler, split) -> None:
    sample = sampler.sample(split)
    folder = Place(sample.corpus.name.removeprefix("beir:"))
    kept = [one.doc_id for one in passages_in(folder)]
    wanted = {doc_id for _, doc_id in QRELS[split]}
    assert wanted < set(kept) and len(kept) == sample.passages == len(wanted) + OTHERS
    assert relevant_of(folder, split) == {query: [doc_id] for query, doc_id in QRELS[split]}
    assert set(queries_of(folder)) == {query for query, _ in QRELS[split]}, "no query of another split"
    assert kept == sorted(kept, key=lambda name: int(name[1:])), "in the order of the whole"
    rows = {int(doc_id[1:]) for doc_id in set(kept) - wanted}
    assert 0.45 < sum(row < COUNT / 2 for row in rows) / OTHERS < 0.55, "from all over the collection"


def test_made_once(sampler) -> None:
    first = sampler.sample("dev")
    assert sampler.sample("dev") == first != sampler.sample("test")


def test_a_collection_that_is_hardly_larger_is_searched_whole(sampler) -> None:
    small = Sampler(sampler.made, sampler.collection, "whole", 2 * OTHERS, sampler.storage)
    assert small.sample("test") is None
