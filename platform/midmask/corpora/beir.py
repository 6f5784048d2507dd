"""The BEIR layout (Thakur et al. 2021): `corpus.jsonl`, `queries.jsonl` (plain or .gz) and `qrels/SPLIT.tsv`.

Passages are `{"_id", "title", "text"}`; Pyserini's `{"id", "contents"}` is taken too. A folder that has neither queries
nor judgements is a collection of text only, good for pre-training.
"""

import json
from typing import Any

from midmask.artifact import Place
from midmask.corpora.corpus import CorpusPieces, find_file, split_names, text_pieces
from midmask.corpora.qrels import qrel_pieces
from midmask.corpora.reader import FolderReader

LAYOUT = "corpus.jsonl[.gz], queries.jsonl[.gz], qrels/SPLIT.tsv[.gz]"


def parse_passage(text: str) -> tuple[str, str, str]:
    """(doc_id, title, text) of one line."""
    return passage_values(json_object(text))


def parse_query(text: str) -> tuple[str, str]:
    """(query_id, text) of one line."""
    return query_values(json_object(text))


def passage_values(row: dict[str, Any]) -> tuple[str, str, str]:
    """(doc_id, title, text) of one row; ValueError where one is missing or of another type."""
    title = row.get("title")
    return _id(row), _read_text({"title": "" if title is None else title}, "title"), _read_text(row, "text", "contents")


def query_values(row: dict[str, Any]) -> tuple[str, str]:
    """(query_id, text) of one row; ValueError where one is missing or of another type."""
    return _id(row), _read_text(row, "text", "contents")


def json_object(text: str) -> dict[str, Any]:
    """The JSON object of one line; ValueError where there is none."""
    row = json.loads(text)
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")
    return row


def _id(row: dict[str, Any]) -> str:
    value = row.get("_id", row.get("id"))
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError("no _id")
    return str(value)


def _read_text(row: dict[str, Any], *names: str) -> str:
    for name in names:
        if isinstance(value := row.get(name), str):
            return value
    raise ValueError(f"no {names[0]}")


def open_beir(folder: Place, name: str, max_characters: int) -> CorpusPieces:
    """The corpus in a BEIR folder.

    Raises:
        UserError: naming what is missing, and the layout.
    """
    limits = {"max_characters": max_characters}
    passages = find_file(folder, ["corpus.jsonl", "corpus.jsonl.gz"], LAYOUT)
    docs = text_pieces("docs", folder, [passages], parse_passage, limits)
    inside = (folder / "qrels").names()
    files = split_names([f"qrels/{file}" for file in inside if file.endswith((".tsv", ".tsv.gz", ".txt"))], prefix="")
    queries = find_file(folder, ["queries.jsonl", "queries.jsonl.gz"], LAYOUT, optional=not files)
    if queries and not files:
        find_file(folder / "qrels", ["SPLIT.tsv"], LAYOUT)
    if not queries:
        return CorpusPieces(name, docs, (), ())
    return CorpusPieces(
        name, docs, text_pieces("queries", folder, [queries], parse_query, limits), qrel_pieces(folder, files, limits)
    )


READER = FolderReader(LAYOUT, open_beir)
