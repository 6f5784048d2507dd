"""Files of hard negatives, ours and those of other tools, told apart by their endings and by the keys of a line.

    hard negatives   {"qid", "pos": [ids], "neg": {system: [ids]}}                    sentence-transformers, and ours
    tevatron         {"query_id", "positive_passages": [{"docid"}], "negative_passages": [{"docid"}]}
    tevatron2        {"query_id", "positive_document_ids": [ids], "negative_document_ids": [ids]}
    simlm            {"query_id", "positives": {"doc_id": [ids]}, "negatives": {"doc_id": [ids]}}
    lists            query <tab> id,id,…, in a file .tsv or .txt: RetroMAE, LexMAE, Tevatron's BM25 negatives

All may be gzip'd. Ids may be integers or strings; they come back as strings. Negatives are best first. A list without a
system's name bears the layout's. FlagEmbedding's lines are refused: they hold texts in place of ids.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from midmask.corpora.opening import parse_lines, text_lines
from midmask.errors import UserError, quoted
from midmask.store.place import Place


class HardNegatives(NamedTuple):
    """A query's relevant passages, and its negatives by the system that found them, best first."""

    query_id: str
    positives: list[str]
    negatives: dict[str, list[str]]


def line_of(entry: HardNegatives) -> bytes:
    """A line of the layout."""
    row = {"qid": entry.query_id, "pos": entry.positives, "neg": entry.negatives}
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def ids_in(value: object) -> list[str]:
    """A list of ids as strings.

    Raises:
        ValueError: if it is no list (a string is not), or holds anything but whole numbers and strings.
    """
    if not isinstance(value, list):
        raise ValueError(f"{quoted(value)} is not a list")
    return [id_in(item) for item in value]


def id_in(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{quoted(value)} is not an id")
    text = str(value)
    text.encode()  # a lone surrogate, written as an escape, is no text
    return text


LAYOUT = (
    'a line such as {"qid", "pos": [ids], "neg": {system: [ids]}}, or one of Tevatron or SimLM with "query_id" and the '
    "ids of passages"
)
LISTED = "a query's id, a tab, and the ids of passages divided by commas"


def read_negatives_file(place: Place) -> Iterator[HardNegatives]:
    """The queries of a file with their negatives, line by line.

    Raises:
        UserError: naming file and line, for a line of another layout.
    """
    if place.uri.removesuffix(".gz").endswith((".tsv", ".txt")):
        return _read_lists(place)
    return (entry for _, entry in parse_lines(place, _entry, LAYOUT))


def _entry(row: Any) -> HardNegatives:
    if "qid" in row:
        negatives = {id_in(system): ids_in(ids) for system, ids in row["neg"].items()}
        return HardNegatives(id_in(row["qid"]), ids_in(row["pos"]), negatives)
    if "positive_passages" in row:
        system, (positives, others) = (
            "tevatron",
            ([passage["docid"] for passage in row[f"{kind}_passages"]] for kind in ("positive", "negative")),
        )
    elif "positive_document_ids" in row:
        system, positives, others = "tevatron2", row["positive_document_ids"], row["negative_document_ids"]
    elif "positives" in row:
        system, positives, others = "simlm", row["positives"]["doc_id"], row["negatives"]["doc_id"]
    else:
        raise ValueError(f"its keys are {', '.join(map(str, row)) or 'missing'}")
    return HardNegatives(id_in(row["query_id"]), ids_in(positives), {system: ids_in(others)})


def _read_lists(place: Place) -> Iterator[HardNegatives]:
    for number, line in text_lines(place):
        query, tab, listed = line.partition("\t")
        ids = [doc_id.strip() for doc_id in listed.split(",")]
        if not (query and tab and all(ids)):
            raise UserError(f"{place}, line {number}: wanted is {LISTED}, found {line[:80]!r}")
        yield HardNegatives(query.strip(), [], {"lists": ids})
