"""Training rows as other tools write and read them: a query with its relevant passages and its negatives.

    FlagEmbedding       {"query", "pos": [texts], "neg": [texts], "pos_scores": [...], "neg_scores": [...]} a line
    Tevatron, v1        {"query_id", "query", "positive_passages": [{"docid", "title", "text"}], "negative_passages"}
    Tevatron, v2        {"query_id", "query_text", "positive_document_ids": [ids], "negative_document_ids": [ids]}
    MS MARCO triples    query id, relevant passage id, other passage id, separated by tabs (qidpidtriples.*.tsv)
    n-tuples            Parquet columns anchor, positive, negative_1 … negative_n (sentence-transformers)

A reader refuses a line that has other fields or types, naming it: a string where a list of passages is wanted would be
read as a list of letters. What a layout cannot express (ids, titles, scores) is not in what comes back.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from midmask.artifact import Place
from midmask.corpora.tables import readable
from midmask.errors import UserError, quoted
from midmask.exchange.hard_negatives_file import id_in, ids_in
from midmask.retrieve.lines import parsed_lines, text_lines, written_lines


@dataclass(frozen=True)
class Passage:
    """A passage of a row; what a layout leaves out is empty, or none."""

    text: str = ""
    title: str = ""
    doc_id: str = ""
    score: float | None = None


@dataclass(frozen=True)
class TrainingRow:
    """A query with relevant and other passages."""

    query: str
    positives: tuple[Passage, ...]
    negatives: tuple[Passage, ...]
    query_id: str = ""


def write_flag_embedding(place: Place, rows: Iterable[TrainingRow]) -> None:
    """Scores are written where all passages of a row have one; a passage's title goes before its text."""

    def line(row: TrainingRow) -> dict[str, Any]:
        found: dict[str, Any] = {"query": row.query, "pos": _texts(row.positives), "neg": _texts(row.negatives)}
        scores = [[passage.score for passage in passages] for passages in (row.positives, row.negatives)]
        if all(score is not None for kind in scores for score in kind):
            found |= {"pos_scores": scores[0], "neg_scores": scores[1]}
        return found

    _write(place, rows, line)


def _texts(passages: Sequence[Passage]) -> list[str]:
    return [f"{passage.title} {passage.text}".strip() if passage.title else passage.text for passage in passages]


def read_flag_embedding(place: Place) -> Iterator[TrainingRow]:
    """
    Raises:
        UserError: naming file and line, for a line of another layout, or scores that are not one a passage.
    """
    layout = '{"query": text, "pos": [texts], "neg": [texts]} and, both or neither, "pos_scores" and "neg_scores"'

    def parse(line: Any) -> TrainingRow:
        if ("pos_scores" in line) != ("neg_scores" in line):
            raise ValueError("pos_scores and neg_scores come together")
        return TrainingRow(_string(line["query"]), _scored_texts(line, "pos"), _scored_texts(line, "neg"))

    return (row for _, row in parsed_lines(place, parse, layout))


def _scored_texts(line: Any, side: str) -> tuple[Passage, ...]:
    texts = _strings(line[side])
    scores = _numbers(line[f"{side}_scores"]) if f"{side}_scores" in line else [None] * len(texts)
    if len(scores) != len(texts):
        raise ValueError(f"{len(scores)} {side}_scores for {len(texts)} texts")
    return tuple(Passage(text, score=score) for text, score in zip(texts, scores, strict=True))


def write_tevatron(place: Place, rows: Iterable[TrainingRow], *, texts: bool = True) -> None:
    """Version 1 with the passages' texts, version 2 with their ids alone."""

    def line(row: TrainingRow) -> dict[str, Any]:
        sides = {"positive": row.positives, "negative": row.negatives}
        if not texts:
            ids = {f"{side}_document_ids": [passage.doc_id for passage in own] for side, own in sides.items()}
            return {"query_id": row.query_id, "query_text": row.query, **ids}
        return {
            "query_id": row.query_id,
            "query": row.query,
            **{
                f"{side}_passages": [
                    {"docid": passage.doc_id, "title": passage.title, "text": passage.text} for passage in own
                ]
                for side, own in sides.items()
            },
        }

    _write(place, rows, line)


def read_tevatron(place: Place) -> Iterator[TrainingRow]:
    """Both versions, told apart line by line.

    Raises:
        UserError: naming file and line, for a line of neither.
    """
    layout = (
        '{"query_id", "query", "positive_passages": [{"docid", "text"}], "negative_passages": [...]} or '
        '{"query_id", "query_text", "positive_document_ids": [ids], "negative_document_ids": [ids]}'
    )

    def passages(line: Any, side: str) -> tuple[Passage, ...]:
        if f"{side}_passages" not in line:
            return tuple(Passage(doc_id=doc_id) for doc_id in ids_in(line[f"{side}_document_ids"]))
        if not isinstance(line[f"{side}_passages"], list):
            raise ValueError(f"{side}_passages is not a list")
        return tuple(
            Passage(_string(one["text"]), _string(one.get("title") or ""), id_in(one["docid"]))
            for one in line[f"{side}_passages"]
        )

    def parse(line: Any) -> TrainingRow:
        query = line["query"] if "positive_passages" in line else line.get("query_text") or ""
        sides = passages(line, "positive"), passages(line, "negative")
        return TrainingRow(_string(query), *sides, query_id=id_in(line["query_id"]))

    return (row for _, row in parsed_lines(place, parse, layout))


def write_triples(place: Place, rows: Iterable[TrainingRow]) -> None:
    """A line for every pair of a relevant and another passage of a row.

    Raises:
        UserError: for an id with white space, which the format cannot express.
    """
    with written_lines(place) as stream:
        for row in rows:
            for positive in row.positives:
                for negative in row.negatives:
                    ids = (row.query_id, positive.doc_id, negative.doc_id)
                    if any(name.split() != [name] for name in ids):
                        raise UserError(
                            f"{place}: an id of {ids} is empty or holds white space; triples cannot hold it"
                        )
                    stream.write("\t".join(ids).encode() + b"\n")


def read_triples(place: Place) -> Iterator[tuple[str, str, str]]:
    """(query, relevant passage, other passage) of each line, as ids.

    Raises:
        UserError: naming file and line, for a line without three columns.
    """
    for number, line in text_lines(place):
        ids = line.split("\t")
        if len(ids) != 3 or any(name.split() != [name] for name in ids):
            raise UserError(f"{place}, line {number}: wanted is query<TAB>passage<TAB>passage, found {line[:80]!r}")
        yield ids[0], ids[1], ids[2]


def write_tuples(place: Place, rows: Iterable[TrainingRow], negatives: int) -> int:
    """A row for every relevant passage, with the first `negatives` negatives; returns how many rows of the input have
    too few of them and were left out, since a column cannot be empty.
    """
    names = ["anchor", "positive", *(f"negative_{number}" for number in range(1, negatives + 1))]
    columns: list[list[str]] = [[] for _ in names]
    short = 0
    for row in rows:
        if len(row.negatives) < negatives:
            short += 1
            continue
        for positive in _texts(row.positives):
            for column, text in zip(columns, [row.query, positive, *_texts(row.negatives[:negatives])], strict=True):
                column.append(text)
    with place.writing() as stream:
        pq.write_table(pa.table([pa.array(column, pa.string()) for column in columns], names=names), stream)
    return short


def read_tuples(place: Place) -> Iterator[TrainingRow]:
    """
    Raises:
        UserError: naming the columns, if they are not anchor, positive, negative_1 … in this order.
    """
    wanted_columns = "wanted are columns of texts anchor, positive, negative_1, negative_2, …"
    with readable(place, wanted_columns), place.reading() as stream:
        table = pq.read_table(stream)
        columns = [column.to_pylist() for column in table.columns]
    names = table.column_names
    wanted = ["anchor", "positive", *(f"negative_{number}" for number in range(1, len(names) - 1))]
    # With one negative, sentence-transformers calls the column `negative`.
    if names != wanted and names != ["anchor", "positive", "negative"]:
        raise UserError(f"{place}: the columns are {names}; {wanted_columns}")
    for number, (anchor, positive, *negatives) in enumerate(zip(*columns, strict=True)):
        if not all(isinstance(text, str) for text in (anchor, positive, *negatives)):
            raise UserError(f"{place}, row {number} (from 0): a value is missing, or no text; {wanted_columns}")
        yield TrainingRow(anchor, (Passage(positive),), tuple(Passage(text) for text in negatives))


def _write(place: Place, rows: Iterable[TrainingRow], line: Callable[[TrainingRow], dict[str, Any]]) -> None:
    with written_lines(place) as stream:
        for row in rows:
            stream.write(json.dumps(line(row), ensure_ascii=False, allow_nan=False).encode() + b"\n")


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{quoted(value)} is not a text")
    return value


def _strings(value: Any) -> list[str]:
    if not isinstance(value, list):
        raise ValueError(f"{quoted(value)} is not a list of texts")
    return [_string(item) for item in value]


def _numbers(value: Any) -> list[float]:
    if not isinstance(value, list):
        raise ValueError(f"{quoted(value)} is not a list of numbers")
    for item in value:
        if isinstance(item, bool) or not isinstance(item, int | float) or not math.isfinite(item):
            raise ValueError(f"{quoted(item)} is not a finite number")
    return [float(item) for item in value]
