"""Files of hard negatives as other tools write them, told apart by their endings and by the keys of a line.

    hard negatives   {"qid", "pos": [ids], "neg": {system: [ids]}}                    sentence-transformers
    tevatron         {"query_id", "positive_passages": [{"docid"}], "negative_passages": [{"docid"}]}
    tevatron2        {"query_id", "positive_document_ids": [ids], "negative_document_ids": [ids]}
    simlm            {"query_id", "positives": {"doc_id": [ids]}, "negatives": {"doc_id": [ids]}}
    lists            query <tab> id,id,…, in a file .tsv or .txt: RetroMAE, LexMAE, Tevatron's BM25 negatives

All may be gzip'd. A list without a system's name bears the layout's. FlagEmbedding's lines are refused: they hold texts
in place of ids.
"""

from collections.abc import Callable, Iterator
from typing import Any

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.exchange.hard_negatives_file import HardNegatives, entry_of, id_in, ids_in
from midmask.retrieve.lines import parse_lines, text_lines

LAYOUT = (
    'a line such as {"qid", "pos": [ids], "neg": {system: [ids]}}, or one of Tevatron or SimLM with "query_id" and the '
    "ids of passages"
)
LISTED = "a query's id, a tab, and the ids of passages divided by commas"


def _tevatron(row: Any) -> HardNegatives:
    positives, negatives = (
        [id_in(passage["docid"]) for passage in row[name]] for name in ("positive_passages", "negative_passages")
    )
    return HardNegatives(id_in(row["query_id"]), positives, {"tevatron": negatives})


def _tevatron2(row: Any) -> HardNegatives:
    positives, negatives = (ids_in(row[name]) for name in ("positive_document_ids", "negative_document_ids"))
    return HardNegatives(id_in(row["query_id"]), positives, {"tevatron2": negatives})


def _simlm(row: Any) -> HardNegatives:
    positives, negatives = (ids_in(row[name]["doc_id"]) for name in ("positives", "negatives"))
    return HardNegatives(id_in(row["query_id"]), positives, {"simlm": negatives})


LAYOUTS: dict[str, Callable[[Any], HardNegatives]] = {
    "qid": entry_of,
    "positive_passages": _tevatron,
    "positive_document_ids": _tevatron2,
    "positives": _simlm,
}
"""The key by which a line's layout is known -> its reader."""


def read_negatives_file(place: Place) -> Iterator[HardNegatives]:
    """The queries of a file with their negatives, line by line.

    Raises:
        UserError: naming file and line, for a line of another layout.
    """
    if has_columns(place):
        return _read_lists(place)
    return (entry for _, entry in parse_lines(place, _entry, LAYOUT))


def has_columns(place: Place) -> bool:
    """Whether a file's name says that its lines are columns."""
    return place.uri.removesuffix(".gz").endswith((".tsv", ".txt"))


def _entry(row: Any) -> HardNegatives:
    reader = next((reader for key, reader in LAYOUTS.items() if key in row), None)
    if reader is None and "pos" in row:
        raise ValueError("no ids in it: FlagEmbedding's lines name passages by their texts")
    if reader is None:
        raise ValueError(f"its keys are {', '.join(map(str, row)) or 'missing'}")
    return reader(row)


def _read_lists(place: Place) -> Iterator[HardNegatives]:
    for number, line in text_lines(place):
        query, tab, listed = line.partition("\t")
        ids = [one.strip() for one in listed.split(",")]
        if not (query and tab and all(ids)):
            raise UserError(f"{place}, line {number}: wanted is {LISTED}, found {line[:80]!r}")
        yield HardNegatives(query.strip(), [], {"lists": ids})
