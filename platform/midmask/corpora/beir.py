"""Folders in BEIR's layout (Thakur et al. 2021).

`corpus.jsonl`, `queries.jsonl` (plain or .gz) and `qrels/SPLIT.tsv`. Passages are `{"_id", "title", "text"}`;
Pyserini's `{"id", "contents"}` is taken too. A folder that has neither queries nor judgements is a collection of text
only, good for pre-training.
"""

from typing import Any

from midmask.corpora.chunks import read_id, read_text, read_title
from midmask.corpora.corpus import CorpusPieces, data_files, find_file, qrel_pieces, split_names, text_pieces
from midmask.corpora.reader import folder_reader
from midmask.store.place import Place

SPLIT_ENDS = (".tsv", ".tsv.gz", ".txt", ".txt.gz")
LAYOUT = "corpus.jsonl[.gz], queries.jsonl[.gz], qrels/SPLIT.tsv[.gz]"


def passage_values(row: dict[str, Any]) -> tuple[str, str, str]:
    """(doc_id, title, text) of one row; Fault where one is missing or of another type."""
    return read_id(row, "_id", "id"), read_title(row), read_text(row, "text", "contents")


def query_values(row: dict[str, Any]) -> tuple[str, str]:
    """(query_id, text) of one row; Fault where one is missing or of another type."""
    return read_id(row, "_id", "id"), read_text(row, "text", "contents")


def open_beir(folder: Place) -> CorpusPieces:
    """The corpus in a BEIR folder."""
    passages = find_file(folder, ["corpus.jsonl"], LAYOUT)
    docs = text_pieces("docs", folder, [passages], passage_values, of_objects=True)
    files = split_names([f"qrels/{file}" for file in data_files(folder / "qrels", SPLIT_ENDS)], prefix="")
    queries = find_file(folder, ["queries.jsonl"], LAYOUT, optional=not files)
    if queries and not files:
        find_file(folder / "qrels", ["SPLIT.tsv"], LAYOUT)
    if not queries:
        return CorpusPieces(docs)
    query_pieces = text_pieces("queries", folder, [queries], query_values, of_objects=True)
    return CorpusPieces(docs, query_pieces, qrel_pieces(folder, files))


READER = folder_reader(LAYOUT, open_beir)
