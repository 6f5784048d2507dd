"""Scores in the list layout, as Hugging Face's data sets of teachers have them."""

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter

import pyarrow as pa
import pyarrow.parquet as pq

from midmask.exchange.score_files import LIST, Scored
from midmask.store.place import Place


def write_score_lists(place: Place, scores: Iterable[Scored]) -> None:
    """One row a query; the scores of a query have to follow each other."""
    rows = [
        {"query_id": query_id, "corpus_id": [doc for _, doc, _ in own], "score": [score for *_, score in own]}
        for query_id, group in groupby(scores, itemgetter(0))
        for own in [list(group)]
    ]
    with place.writing() as stream:
        pq.write_table(pa.Table.from_pylist(rows, schema=LIST), stream, compression="zstd")
