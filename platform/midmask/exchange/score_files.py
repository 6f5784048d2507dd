"""A teacher's scores as others store them.

list layout   Parquet, a row a query: query_id, corpus_id: [ids], score: [numbers] (Hugging Face; read and written)
pickle        scores[query][passage] (cross-encoder-ms-marco-MiniLM-L-6-v2-scores.pkl.gz; read only)
"""

import math
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.exchange.hard_negatives_file import id_in
from midmask.exchange.pickles import read_pickle

LIST = pa.schema([("query_id", pa.string()), ("corpus_id", pa.list_(pa.string())), ("score", pa.list_(pa.float32()))])

Scored = tuple[str, str, float]
"""A query, a passage, a score."""


def write_score_lists(place: Place, scores: Iterable[Scored]) -> None:
    """One row a query; the scores of a query have to follow each other."""
    rows = [
        {"query_id": query_id, "corpus_id": [doc for _, doc, _ in own], "score": [score for *_, score in own]}
        for query_id, group in groupby(scores, itemgetter(0))
        for own in [list(group)]
    ]
    with place.writing() as stream:
        pq.write_table(pa.Table.from_pylist(rows, schema=LIST), stream, compression="zstd")


def read_score_lists(place: Place) -> Iterator[Scored]:
    """
    Raises:
        UserError: for other columns, and rows whose lists differ in length.
    """
    with place.reading() as stream:
        table = pq.read_table(stream)
    if set(LIST.names) - set(table.column_names):
        raise UserError(f"{place}: the columns are {table.column_names}; wanted are {', '.join(LIST.names)}")
    for row in table.select(LIST.names).to_pylist():
        ids, scores = row["corpus_id"], row["score"]
        if ids is None or scores is None or len(ids) != len(scores):
            raise UserError(f"{place}: query {row['query_id']!r} has not one score for each of its passages")
        for doc_id, score in zip(ids, scores, strict=True):
            yield id_in(row["query_id"]), id_in(doc_id), _score(place, row["query_id"], doc_id, score)


def read_pickled_scores(place: Place) -> Iterator[Scored]:
    """Nothing in the file is executed (`exchange.pickles`); it may be gzip'd.

    Raises:
        UserError: if it is no pickle of scores[query][passage] made of plain dictionaries and numbers.
    """
    scores = read_pickle(place)
    if not isinstance(scores, dict):
        raise UserError(f"{place}: a pickled {type(scores).__name__}; wanted is scores[query][passage]")
    for query_id, own in scores.items():
        if not isinstance(own, dict):
            raise UserError(f"{place}: query {query_id!r} has a {type(own).__name__}; wanted is scores[query][passage]")
        for doc_id, score in own.items():
            yield id_in(query_id), id_in(doc_id), _score(place, query_id, doc_id, score)


def _score(place: Place, query_id: object, doc_id: object, score: Any) -> float:
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        raise UserError(f"{place}: query {query_id!r}, passage {doc_id!r}: {score!r} is not a finite score")
    return float(score)
