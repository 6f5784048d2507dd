"""The round trip by an encoder: does it find the passage of a query that BM25 does not find?

If BM25 alone decided which queries stay, all that stay would be queries that it answers: of the sentences of three
collections it finds 61 to 74%, and its nDCG@10 on these is 10 to 13 points higher than on those that it or minilm finds
(docs/results/made_queries.md).
"""

from collections.abc import Mapping, Sequence

import numpy as np

from midmask.arrays import Floats
from midmask.artifact import Artifact
from midmask.encoders.pooling import Side
from midmask.encoders.precision import Precision
from midmask.processes import usable_cores
from midmask.queries.candidates import Candidate
from midmask.queries.collection import CollectionFacts, draw_passages, read_as_searched
from midmask.queries.made import Passage
from midmask.queries.round_trip import hiding_of, relevant_of
from midmask.retrieve.text_encoder import TextEncoder
from midmask.retrieve.views import Views
from midmask.tokens import TokensConfig

OTHERS = 2_000
"""Passages that are searched beside those of the queries: a whole collection would take most of a small budget."""


def find_by_encoder(
    candidates: Sequence[Candidate],
    inputs: Mapping[str, Artifact],
    known: CollectionFacts,
    depth: int,
    precision: Precision,
) -> None:
    """Sets `by_encoder` of those that BM25 does not find within these ranks. Hidden is what all candidates hide.

    A sample of the collection is searched, and the depth is its share of that of the whole: a passage is expected among
    the first 20 of all where it is among the first 4 of a fifth of them.

    Args:
        inputs: encoder, tokens and corpus of the step.
    """
    lost = [one for one in candidates if one.rank is None or one.rank > depth]
    if not lost:
        return
    relevant = relevant_of(lost, known)
    pool = {doc_id for own in relevant.values() for doc_id in own}
    pool.update(draw_passages(known.doc_ids, 0, "round trip", OTHERS))
    hiding = hiding_of(candidates)
    searched = [one for one in read_as_searched(inputs["corpus"].place, hiding) if one.doc_id in pool]
    row = {one.doc_id: number for number, one in enumerate(searched)}
    passages_PD = _encode_passages(searched, inputs, precision)
    queries_QD = _encode_queries([one.made.text for one in lost], inputs, precision)
    allowed = max(1, depth * len(searched) // len(known.doc_ids))
    for one, query_D in zip(lost, queries_QD, strict=True):
        scores_P = passages_PD @ query_D
        best = max(float(scores_P[row[doc_id]]) for doc_id in relevant[one.query_id])
        one.by_encoder = int((scores_P > best).sum()) < allowed


def _encode_passages(passages: Sequence[Passage], inputs: Mapping[str, Artifact], precision: Precision) -> Floats:
    """Dense vectors [P, D]."""
    reader = _reader("passage", inputs, precision)
    cut = TokensConfig.model_validate(inputs["tokens"].record["config"]).cut_passages(reader.tokenizer)
    rows, _ = cut([one.title for one in passages], [one.text for one in passages])
    return _dense(reader.encode([np.array(row) for row in rows]))


def _encode_queries(texts: Sequence[str], inputs: Mapping[str, Artifact], precision: Precision) -> Floats:
    """Dense vectors [Q, D]."""
    return _dense(_reader("query", inputs, precision).encode_queries(texts))


def _reader(side: Side, inputs: Mapping[str, Artifact], precision: Precision) -> TextEncoder:
    return TextEncoder(inputs["encoder"], inputs["tokens"], side, threads=usable_cores(), precision=precision)


def _dense(views: Views) -> Floats:
    assert views.dense_ND is not None, "the step's encoder is scored by its dense vectors"
    return views.dense_ND
