"""The BEIR layout (Thakur et al. 2021): `corpus.jsonl`, `queries.jsonl` (plain or .gz) and `qrels/SPLIT.tsv`.

Passages are `{"_id", "title", "text"}`; Pyserini's `{"id", "contents"}` is taken too. A folder that has neither queries
nor judgements is a collection of text only, good for pre-training.
"""

import json
from typing import Any

from midmask.artifact import Place
from midmask.corpora.chunks import EMPTY_PASSAGE, EMPTY_QUERY, Fault
from midmask.corpora.corpus import CorpusPieces, find_file, split_names, text_pieces
from midmask.corpora.qrels import qrel_pieces
from midmask.corpora.reader import FolderReader
from midmask.corpora.strays import data_files
from midmask.corpora.values import read_id, read_text, read_title
from midmask.errors import quoted

SPLIT_ENDS = (".tsv", ".tsv.gz", ".txt", ".txt.gz")
LAYOUT = "corpus.jsonl[.gz], queries.jsonl[.gz], qrels/SPLIT.tsv[.gz]"


def parse_passage(text: str) -> tuple[str, str, str]:
    """(doc_id, title, text) of one line."""
    return passage_values(json_object(text))


def parse_query(text: str) -> tuple[str, str]:
    """(query_id, text) of one line."""
    return query_values(json_object(text))


def passage_values(row: dict[str, Any]) -> tuple[str, str, str]:
    """(doc_id, title, text) of one row; Fault where one is missing or of another type, or neither title nor text holds
    anything.
    """
    doc_id, title, text = read_id(row, "_id", "id"), read_title(row), read_text(row, "text", "contents")
    if not title.strip() and not text.strip():
        raise Fault(EMPTY_PASSAGE, f"text is {quoted(row.get('text', row.get('contents')))}, without a title")
    return doc_id, title, text


def query_values(row: dict[str, Any]) -> tuple[str, str]:
    """(query_id, text) of one row; Fault where one is missing, of another type, or the text holds nothing."""
    query_id, text = read_id(row, "_id", "id"), read_text(row, "text", "contents")
    if not text.strip():
        raise Fault(EMPTY_QUERY, f"text is {quoted(row.get('text', row.get('contents')))}")
    return query_id, text


def json_object(text: str) -> dict[str, Any]:
    """The JSON object of one line; ValueError where there is none."""
    row = json.loads(text)
    if not isinstance(row, dict):
        raise ValueError(f"not a JSON object but {quoted(row)}")
    return row


def open_beir(folder: Place, name: str, max_characters: int) -> CorpusPieces:
    """The corpus in a BEIR folder.

    Raises:
        UserError: naming what is missing, and the layout.
    """
    limits = {"max_characters": max_characters, "form": "json lines"}
    passages = find_file(folder, ["corpus.jsonl", "corpus.jsonl.gz"], LAYOUT)
    docs = text_pieces("docs", folder, [passages], parse_passage, limits)
    files = split_names([f"qrels/{file}" for file in data_files(folder / "qrels", SPLIT_ENDS)], prefix="")
    queries = find_file(folder, ["queries.jsonl", "queries.jsonl.gz"], LAYOUT, optional=not files)
    if queries and not files:
        find_file(folder / "qrels", ["SPLIT.tsv"], LAYOUT)
    if not queries:
        return CorpusPieces(name, docs, (), ())
    return CorpusPieces(
        name,
        docs,
        text_pieces("queries", folder, [queries], parse_query, limits),
        qrel_pieces(folder, files, max_characters),
    )


READER = FolderReader(LAYOUT, open_beir)
