"""A teacher's scores as others store them.

    list layout   Parquet, a row a query: query_id, corpus_id: [ids], score: [numbers] (Hugging Face)
    lines         JSON, a query a line: the list layout; or {"query_id", "positives": {"doc_id": [ids], "score":
                  [numbers]}, "negatives": the same} (SimLM)
    columns       query, passage, score, divided by white space, the score perhaps in brackets (RetroMAE)

Pickles such as cross-encoder-ms-marco-MiniLM-L-6-v2-scores.pkl.gz are refused: reading one may run its code.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from midmask.corpora.opening import parse_lines, text_lines
from midmask.errors import UserError, quoted
from midmask.exchange.negatives_files import id_in
from midmask.store.place import Place
from midmask.store.tables import describe_columns, readable

LIST = pa.schema([("query_id", pa.string()), ("corpus_id", pa.list_(pa.string())), ("score", pa.list_(pa.float32()))])

LINES = '{"query_id", "corpus_id": [ids], "score": [numbers]}, or SimLM\'s {"query_id", "positives", "negatives"}'

LAYOUT = "wanted is Parquet with the columns query_id, corpus_id (a list of ids) and score (a list of numbers)"

HIGHEST = 3.4028234e38
"""The largest number in single precision, in which scores are stored."""

ROWS = 1_024
"""Number of queries in memory at a time."""

Scored = tuple[str, str, float]
"""A query, a passage, a score."""

ScoreList = tuple[str, Any, Any, Any]
"""Line or row, query, ids of passages, their scores; not checked yet."""


def _read_parquet(place: Place) -> Iterator[ScoreList]:
    with readable(place, LAYOUT), place.reading() as stream:
        file = pq.ParquetFile(stream)
        if sorted(name for name in file.schema_arrow.names if name in LIST.names) != sorted(LIST.names):
            raise UserError(f"{place}: its columns are {describe_columns(file.schema_arrow)}; {LAYOUT}")
        number = 0
        for batch in file.iter_batches(batch_size=ROWS, columns=LIST.names):
            for row in batch.to_pylist():
                yield f"row {number} (from 0)", row["query_id"], row["corpus_id"], row["score"]
                number += 1


def _read_lines(place: Place) -> Iterator[ScoreList]:
    def lists_in(row: Any) -> list[tuple[Any, Any, Any]]:
        if "positives" not in row:
            return [(row["query_id"], row["corpus_id"], row["score"])]
        return [(row["query_id"], row[kind]["doc_id"], row[kind]["score"]) for kind in ("positives", "negatives")]

    for number, lists in parse_lines(place, lists_in, LINES):
        yield from ((f"line {number}", *row) for row in lists)


def _read_columns(place: Place) -> Iterator[ScoreList]:
    for number, line in text_lines(place):
        try:
            query, passage, score = line.split()
            yield f"line {number}", query, [passage], [float(score.strip("[]"))]
        except ValueError:
            raise UserError(
                f"{place}, line {number}: wanted is a query, a passage and a score, found {line[:80]!r}"
            ) from None


READERS = {".parquet": _read_parquet, ".jsonl": _read_lines, ".tsv": _read_columns, ".txt": _read_columns}
"""The end of a file's name, .gz apart -> its reader."""


def read_scores_file(place: Place) -> Iterator[Scored]:
    """The scores of a file, by the end of its name.

    Raises:
        UserError: for a name with another end, a damaged file, one of another layout, ids that are no texts or whole
            numbers, and a score that single precision cannot hold.
    """
    name = place.uri.removesuffix(".gz")
    read = next((READERS[end] for end in READERS if name.endswith(end)), None)
    if read is None:
        raise UserError(
            f"{place}: files of scores end in {', '.join(READERS)}, perhaps with .gz. Pickles are not read, because "
            "they can run code; docs/protocols.md has two lines that convert one that you trust"
        )
    for where, query, ids, scores in read(place):
        if not isinstance(ids, list) or not isinstance(scores, list) or len(ids) != len(scores):
            raise UserError(f"{place}, {where}: query {quoted(query)} has not one score for each of its passages")
        for doc_id, score in zip(ids, scores, strict=True):
            yield _pair(place, query, doc_id, score)


def _pair(place: Place, query_id: object, doc_id: object, score: object) -> Scored:
    where = f"{place}: query {quoted(query_id)}, passage {quoted(doc_id)}"
    try:
        names = id_in(query_id), id_in(doc_id)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None
    if isinstance(score, bool) or not isinstance(score, int | float) or not abs(score) <= HIGHEST:
        raise UserError(f"{where}: {quoted(score)} is not a finite score")
    return *names, float(score)
