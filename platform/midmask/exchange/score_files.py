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

from midmask.corpora.tables import columns_told, is_id, is_list_of_ids, is_list_of_numbers, readable
from midmask.corpora.text_files import parse_lines, text_lines
from midmask.errors import UserError, quoted
from midmask.exchange.negatives_files import id_in
from midmask.store.place import Place

LIST = pa.schema([("query_id", pa.string()), ("corpus_id", pa.list_(pa.string())), ("score", pa.list_(pa.float32()))])

LINES = '{"query_id", "corpus_id": [ids], "score": [numbers]}, or SimLM\'s {"query_id", "positives", "negatives"}'

LAYOUT = "wanted is Parquet with the columns query_id, corpus_id (a list of ids) and score (a list of numbers)"

HIGHEST = 3.4028234e38
"""The largest number in single precision, in which scores are stored."""

ROWS = 1_024
"""Number of queries in memory at a time."""

Scored = tuple[str, str, float]
"""A query, a passage, a score."""


def read_score_lists(place: Place) -> Iterator[Scored]:
    """
    Raises:
        UserError: for a damaged file, other columns, and rows whose lists differ in length.
    """
    with readable(place, LAYOUT), place.reading() as stream:
        file = pq.ParquetFile(stream)
        _check_columns(place, file.schema_arrow)
        number = 0
        for batch in file.iter_batches(batch_size=ROWS, columns=LIST.names):
            for row in batch.to_pylist():
                yield from _read_row(place, number, row["query_id"], row["corpus_id"], row["score"], "row (from 0)")
                number += 1


def _check_columns(place: Place, schema: pa.Schema) -> None:
    columns = zip(LIST.names, (is_id, is_list_of_ids, is_list_of_numbers), strict=True)
    if not all(schema.names.count(name) == 1 and fits(schema.field(name).type) for name, fits in columns):
        raise UserError(f"{place}: its columns are {columns_told(schema)}; {LAYOUT}")


def _read_row(
    place: Place,
    number: int,
    query: Any,
    ids: list[Any] | None,
    scores: list[Any] | None,
    kind: str = "line",
) -> Iterator[Scored]:
    """The pairs of a row or line of the list layout; number and kind, for messages."""
    if query is None or ids is None or scores is None or len(ids) != len(scores):
        raise UserError(f"{place}, {kind} {number}: query {query!r} has not one score for each of its passages")
    for doc_id, score in zip(ids, scores, strict=True):
        yield _pair(place, query, doc_id, score)


def read_score_lines(place: Place) -> Iterator[Scored]:
    """
    Raises:
        UserError: naming file and line, for a line of another layout, and lists that differ in length.
    """
    for number, (query, lists) in parse_lines(place, _score_lists, LINES):
        for ids, scores in lists:
            yield from _read_row(place, number, query, ids, scores)


def _score_lists(row: Any) -> tuple[Any, list[tuple[list[Any], list[Any]]]]:
    """A line's query, and its passages with their scores."""
    parts = [row["positives"], row["negatives"]] if "positives" in row else [{**row, "doc_id": row["corpus_id"]}]
    lists = [(part["doc_id"], part["score"]) for part in parts]
    if not all(isinstance(column, list) for pair in lists for column in pair):
        raise ValueError("its ids or scores are no list")
    return row["query_id"], lists


def read_score_columns(place: Place) -> Iterator[Scored]:
    """
    Raises:
        UserError: naming file and line, for a line that is not an id, an id and a number.
    """
    for number, line in text_lines(place):
        try:
            query, passage, score = line.split()
            yield _pair(place, query, passage, float(score.strip("[]")))
        except ValueError:
            raise UserError(
                f"{place}, line {number}: wanted is a query, a passage and a score, found {line[:80]!r}"
            ) from None


READERS = {
    ".parquet": read_score_lists,
    ".jsonl": read_score_lines,
    ".tsv": read_score_columns,
    ".txt": read_score_columns,
}
"""The end of a file's name, .gz apart -> its reader."""


def read_scores_file(place: Place) -> Iterator[Scored]:
    """The scores of a file, by the end of its name.

    Raises:
        UserError: for a name with another end, a damaged file, or one of another layout.
    """
    name = place.uri.removesuffix(".gz")
    for end, read in READERS.items():
        if name.endswith(end):
            return read(place)
    if name.endswith(".pkl"):
        raise UserError(
            f"{place}: pickles are not read, because they can run code; convert one that you trust to .tsv "
            "(docs/protocols.md has the two lines)"
        )
    raise UserError(f"{place}: no file of scores by its name; it must end in {', '.join(READERS)}, perhaps with .gz")


def _pair(place: Place, query_id: object, doc_id: object, score: object) -> Scored:
    """
    Raises:
        UserError: for ids that are no texts or whole numbers, and a score that single precision cannot hold.
    """
    where = f"{place}: query {quoted(query_id)}, passage {quoted(doc_id)}"
    try:
        names = id_in(query_id), id_in(doc_id)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None
    if isinstance(score, bool) or not isinstance(score, int | float) or not abs(score) <= HIGHEST:
        raise UserError(f"{where}: {quoted(score)} is not a finite score")
    return *names, float(score)
