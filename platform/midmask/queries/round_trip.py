"""The round trip: does BM25 find a query's passage again, in the collection as it will be searched?"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from midmask.artifact import Place
from midmask.queries.candidates import Candidate
from midmask.queries.collection import CollectionFacts, read_as_searched, without_hidden
from midmask.queries.made import MadeQuery, Passage
from midmask.retrieve.bm25_index import Bm25IndexConfig, index_texts
from midmask.retrieve.bm25_search import Bm25Index

AT_ONCE = 2_048


def hiding_of(candidates: Iterable[Candidate]) -> dict[str, list[MadeQuery]]:
    """Passage -> its queries."""
    found: dict[str, list[MadeQuery]] = {}
    for one in candidates:
        found.setdefault(one.made.doc_id, []).append(one.made)
    return found


def bm25_over(corpus: Place, hiding: Mapping[str, Sequence[MadeQuery]], folder: Place) -> Bm25Index:
    """Index of the corpus without what these queries hide, written to the folder."""
    index_texts(Bm25IndexConfig(), _texts(read_as_searched(corpus, hiding)), folder, str(corpus))
    return Bm25Index(folder)


def _texts(passages: Iterator[Passage]) -> Iterator[tuple[list[str], list[str]]]:
    ids: list[str] = []
    texts: list[str] = []
    for passage in passages:
        ids.append(passage.doc_id)
        texts.append(f"{passage.title} {passage.text}")
        if len(ids) == AT_ONCE:
            yield ids, texts
            ids, texts = [], []
    yield ids, texts


def relevant_of(candidates: Sequence[Candidate], known: CollectionFacts) -> dict[str, list[str]]:
    """Query -> its passage and that passage's near-duplicates, sorted."""
    numbers = {one.query_id: known.cluster_of(one.made.doc_id) for one in candidates}
    members = known.members(sorted(set(numbers.values())))
    return {query_id: members[number] for query_id, number in numbers.items()}


def search_again(
    candidates: Sequence[Candidate],
    corpus: Place,
    passages: Mapping[str, Passage],
    known: CollectionFacts,
    depth: int,
) -> pa.Table:
    """Sets rank and overlap of the candidates, and returns BM25's ranked list of them to this depth. Hidden is what
    these candidates hide, and nothing else.
    """
    hiding = hiding_of(candidates)
    with tempfile.TemporaryDirectory() as folder:
        index = bm25_over(corpus, hiding, Place(folder))
        ranked = index.search([one.query_id for one in candidates], [one.made.text for one in candidates], depth)
        del index  # its arrays are memory maps of the folder's files
    relevant = relevant_of(candidates, known)
    ranks: dict[str, int] = {}
    columns = [ranked[name].to_pylist() for name in ("query_id", "doc_id", "rank")]
    for query_id, doc_id, rank in zip(*columns, strict=True):
        if doc_id in relevant[query_id]:
            ranks[query_id] = min(rank, ranks.get(query_id, rank))
    for one in candidates:
        passage = without_hidden(passages[one.made.doc_id], hiding[one.made.doc_id])
        one.rank = ranks.get(one.query_id)
        one.overlap = known.weights.overlap(one.made.text, f"{passage.title} {passage.text}")
    return ranked
