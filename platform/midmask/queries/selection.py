"""Selection of made queries: screening, the round trip by BM25 or an encoder, and each source's share.

Screening drops, before any search, queries without a word, of copied passages, made twice, or repeated in the rest of
their passage. The round trip tests whether a search, in the collection as it will be searched, finds a query's passage.
An encoder takes part because BM25 alone would keep only queries that it answers (docs/results/made_queries.md).
"""

import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import numpy as np
import pyarrow as pa

from midmask.core.process import usable_cores
from midmask.corpora.writer import DOCS, GROUP_ROWS, write_shards
from midmask.encoders.precision import Precision
from midmask.encoders.representation import Side
from midmask.queries.collection import (
    CollectionFacts,
    MadeQuery,
    draw_passages,
    read_as_searched,
    without_hidden,
)
from midmask.queries.config import JUDGE, TRAIN, QueriesConfig
from midmask.queries.sources import Candidate, Roles
from midmask.retrieve.bm25.index import BM25_INDEX, BM25_WORDS, Bm25IndexConfig, Bm25WordsConfig
from midmask.retrieve.bm25.search import Bm25Index
from midmask.retrieve.text_encoder import TextEncoder
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.text.tokens import TokensConfig


def normalised(text: str) -> str:
    """The text's words in lower case, one space between them: equal for queries that count as the same."""
    return " ".join(re.findall(r"\w+", text.lower()))


NO_WORD = "no word"
MANY_COPIES = "its passage has too many copies"
COPY_SHOWS_IT = "a copy of its passage has what it hides"
AMBIGUOUS = "other passages make the same query"
REPEATED = "the same query again"
STANDS_THERE = "it stands in its passage"
ENOUGH = "its passage has enough queries"
OVERLAPS = "another query hides the same part"
LITTLE_LEFT = "little of its passage would be left"

FEWEST_WORDS = 8
"""Words of a passage that are left when all its queries' parts are hidden; fewer only if it had fewer."""

COPIED_WORDS = 3
"""Fewest words of a hidden text whose second occurrence in its passage gives the passage away."""


def screen(candidates: Sequence[Candidate], known: CollectionFacts, config: QueriesConfig) -> None:
    """Drops unusable candidates before any search, by setting their `reason`."""
    for query in candidates:
        size = len(known.copies_of(query.made.doc_id))
        if not known.stems(query.made.text):
            query.reason = NO_WORD
        elif size > config.copies:
            query.reason = MANY_COPIES
        elif size > 1 and hides(query.made):
            query.reason = COPY_SHOWS_IT
    _drop_repeated(candidates, known)
    _take_per_passage(candidates, config.per_passage)


def hides(made: MadeQuery) -> bool:
    """Whether a made query hides its passage's title or a part of its text."""
    return made.hides_title or made.hidden is not None


def _drop_repeated(candidates: Sequence[Candidate], known: CollectionFacts) -> None:
    """Drops candidates with equal texts: all but one if their passages are near-duplicates, otherwise all."""
    by_text: dict[str, list[Candidate]] = {}
    for query in candidates:
        by_text.setdefault(normalised(query.made.text), []).append(query)
    for same in by_text.values():
        clusters = {known.copies_of(query.made.doc_id)[0] for query in same}
        left = sorted((query for query in same if query.is_in), key=lambda query: (query.draw_key, query.query_id))
        for query in left if len(clusters) > 1 else left[1:]:
            query.reason = AMBIGUOUS if len(clusters) > 1 else REPEATED


def _take_per_passage(candidates: Sequence[Candidate], each: int) -> None:
    """Keeps up to `each` candidates of every passage, in the order of their draw keys."""
    taken: dict[str, list[MadeQuery]] = {}
    left = [query for query in candidates if query.is_in]
    for query in sorted(left, key=lambda query: (query.draw_key, query.query_id)):
        others = taken.setdefault(query.made.doc_id, [])
        query.reason = _fault(query, others, each)
        if query.is_in:
            others.append(query.made)


def _fault(candidate: Candidate, others: Sequence[MadeQuery], each: int) -> str:
    made, passage = candidate.made, candidate.passage
    if len(others) >= each:
        return ENOUGH
    for other in others:
        if made.hidden and other.hidden and made.hidden[0] < other.hidden[1] and other.hidden[0] < made.hidden[1]:
            return OVERLAPS
    if not hides(made):
        return ""
    left = without_hidden(passage, [*others, made])
    if len(left.text.split()) < min(FEWEST_WORDS, len(passage.text.split())):
        return LITTLE_LEFT
    words = normalised(made.text)
    rest = f"{normalised(left.title)} {normalised(left.text)}".strip()
    copied = f" {words} " in f" {rest} " and len(words.split()) >= COPIED_WORDS
    return STANDS_THERE if copied or words == rest else ""


def hiding_of(candidates: Iterable[Candidate]) -> dict[str, list[MadeQuery]]:
    """doc_id -> queries that were made of the passage."""
    hiding: dict[str, list[MadeQuery]] = {}
    for query in candidates:
        hiding.setdefault(query.made.doc_id, []).append(query.made)
    return hiding


def bm25_over(corpus: Place, hiding: Mapping[str, Sequence[MadeQuery]], folder: Place) -> Bm25Index:
    """Builds a BM25 index of the corpus without the parts that these queries hide, in the folder."""
    passages = read_as_searched(corpus, hiding)
    blocks = iter(lambda: list(islice(passages, GROUP_ROWS)), [])
    tables = (pa.Table.from_pylist([passage._asdict() for passage in block], DOCS) for block in blocks)
    write_shards(tables, folder / "docs")
    words = folder / "words"
    counts = BM25_WORDS(Bm25WordsConfig(), {"corpus": Artifact(folder, {})}, words)
    BM25_INDEX(Bm25IndexConfig(), {"words": Artifact(words, {"result": counts})}, folder / "index")
    return Bm25Index(folder / "index")


def search_again(candidates: Sequence[Candidate], known: CollectionFacts, depth: int) -> None:
    """Searches the candidates with BM25 to this depth, and sets their `rank`.

    The searched passages lack what these candidates hide, and nothing else.
    """
    hiding = hiding_of(candidates)
    with tempfile.TemporaryDirectory() as folder:
        index = bm25_over(known.corpus, hiding, Place(folder))
        texts = [query.made.text for query in candidates]
        ranked = index.search([query.query_id for query in candidates], texts, depth)
        del index  # its arrays are memory maps of the folder's files
    relevant = {query.query_id: known.copies_of(query.made.doc_id) for query in candidates}
    ranks: dict[str, int] = {}
    columns = [ranked[name].to_pylist() for name in ("query_id", "doc_id", "rank")]
    for query_id, doc_id, rank in zip(*columns, strict=True):
        if doc_id in relevant[query_id]:
            ranks[query_id] = min(rank, ranks.get(query_id, rank))
    for query in candidates:
        query.rank = ranks.get(query.query_id)


OTHERS = 2_000
"""Passages that are searched beside the relevant ones: encoding a whole collection would take too long."""


def find_by_encoder(
    candidates: Sequence[Candidate],
    inputs: Mapping[str, Artifact],
    known: CollectionFacts,
    depth: int,
    precision: Precision,
) -> None:
    """Searches the candidates that BM25 does not find within `depth` with the encoder, and sets their `by_encoder`.

    The searched passages lack what all candidates hide. Only a sample of the collection is searched, so the depth is
    scaled by its share: rank 4 in a fifth of the passages stands for rank 20 in all.

    Args:
        inputs: encoder and tokens of the step.
    """
    lost = [query for query in candidates if query.rank is None or query.rank > depth]
    if not lost:
        return
    pool = {doc_id for query in lost for doc_id in known.copies_of(query.made.doc_id)}
    pool.update(draw_passages(known.doc_ids, 0, "round trip", OTHERS))
    hiding = hiding_of(candidates)
    searched = [passage for passage in read_as_searched(known.corpus, hiding) if passage.doc_id in pool]
    row = {passage.doc_id: number for number, passage in enumerate(searched)}

    def reader(side: Side) -> TextEncoder:
        return TextEncoder(inputs["encoder"], inputs["tokens"], side, threads=usable_cores(), precision=precision)

    of_passages = reader("passage")
    cut = TokensConfig.model_validate(inputs["tokens"].record["config"]).cut_passages(of_passages.tokenizer)
    rows, _ = cut([passage.title for passage in searched], [passage.text for passage in searched])
    passages_PD = of_passages.encode([np.array(ids) for ids in rows]).dense_ND
    queries_QD = reader("query").encode_queries([query.made.text for query in lost]).dense_ND
    assert passages_PD is not None and queries_QD is not None, "the step's encoder is scored by its dense vectors"
    allowed = max(1, depth * len(searched) // len(known.doc_ids))
    for query, query_D in zip(lost, queries_QD, strict=True):
        scores_P = passages_PD @ query_D
        best = max(float(scores_P[row[doc_id]]) for doc_id in known.copies_of(query.made.doc_id))
        query.by_encoder = int((scores_P > best).sum()) < allowed


NOT_FOUND = "its passage is not found again"
NOT_DRAWN = "enough queries"


def drop_unretrieved(candidates: Iterable[Candidate], depth: int) -> bool:
    """Drops candidates that neither BM25 within `depth` nor the encoder finds; returns whether any was dropped."""
    lost = [query for query in candidates if not query.by_encoder and (query.rank is None or query.rank > depth)]
    for query in lost:
        query.reason = NOT_FOUND
    return bool(lost)


def draw_shares(candidates: Sequence[Candidate], roles: Roles, config: QueriesConfig) -> None:
    """Drops candidates beyond the number wanted for training and for judging; each source keeps its share."""
    for splits in ((TRAIN,), JUDGE):
        group = [query for query in candidates if query.split in splits]
        _draw(group, roles.of(splits[0]), sum(map(config.most_queries, splits)))


def _draw(candidates: Sequence[Candidate], weights: Mapping[str, float], total: int) -> None:
    """Keeps at most `total`, each source its share by weight, in the order of their draw keys."""
    by_source: dict[str, list[Candidate]] = {source: [] for source in weights}
    for query in sorted(candidates, key=lambda query: (query.draw_key, query.query_id)):
        by_source[query.source].append(query)
    counts = shares(weights, {source: len(of_source) for source, of_source in by_source.items()}, total)
    for source, of_source in by_source.items():
        for query in of_source[counts[source] :]:
            query.reason = NOT_DRAWN


def shares(weights: Mapping[str, float], available: Mapping[str, int], total: int) -> dict[str, int]:
    """source -> its number of queries: its weight's share of `total`.

    What a source lacks is divided among the others by weight; remainders go to the largest fractions, ties by name.
    """
    counts: dict[str, int] = {}
    left = min(total, sum(available.values()))
    open_ = dict(weights)
    while open_:
        whole = sum(open_.values())
        short = [source for source, weight in open_.items() if available[source] <= left * weight / whole]
        if not short:
            exact = {source: left * weight / whole for source, weight in open_.items()}
            counts |= {source: int(value) for source, value in exact.items()}
            rest = left - sum(counts[source] for source in exact)
            for source in sorted(exact, key=lambda source: (counts[source] - exact[source], source))[:rest]:
                counts[source] += 1
            return counts
        for source in short:
            counts[source] = available[source]
            del open_[source]
        left -= sum(available[source] for source in short)
    return counts
