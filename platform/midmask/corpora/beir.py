"""Folders of jsonl files: BEIR's layout (Thakur et al. 2021), and texts for pre-training, as FlagEmbedding has them.

BEIR: `corpus.jsonl`, `queries.jsonl` (plain or .gz) and `qrels/SPLIT.tsv`. Passages are `{"_id", "title", "text"}`;
Pyserini's `{"id", "contents"}` is taken too. A folder that has neither queries nor judgements is a collection of text
only, good for pre-training.

Texts: `*.jsonl` of `{"text": …}` lines (plain or .gz). A text without an id is known by a hash of what it says, so that
files can be put together and read again in any order; a text that stands there twice is one passage, and its copies are
counted as duplicates.
"""

import hashlib
from typing import Any

from midmask.corpora.chunks import EMPTY_PASSAGE, EMPTY_QUERY, Fault, is_nothing, read_id, read_text, read_title
from midmask.corpora.corpus import CorpusPieces, data_files, find_file, qrel_pieces, split_names, text_pieces
from midmask.corpora.reader import FolderReader
from midmask.errors import UserError, quoted
from midmask.store.place import Place

SPLIT_ENDS = (".tsv", ".tsv.gz", ".txt", ".txt.gz")
LAYOUT = "corpus.jsonl[.gz], queries.jsonl[.gz], qrels/SPLIT.tsv[.gz]"


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


def open_beir(folder: Place) -> CorpusPieces:
    """The corpus in a BEIR folder."""
    passages = find_file(folder, ["corpus.jsonl"], LAYOUT)
    docs = text_pieces("docs", folder, [passages], passage_values, "json lines")
    files = split_names([f"qrels/{file}" for file in data_files(folder / "qrels", SPLIT_ENDS)], prefix="")
    queries = find_file(folder, ["queries.jsonl"], LAYOUT, optional=not files)
    if queries and not files:
        find_file(folder / "qrels", ["SPLIT.tsv"], LAYOUT)
    if not queries:
        return CorpusPieces(docs)
    asked = text_pieces("queries", folder, [queries], query_values, "json lines")
    return CorpusPieces(docs, asked, qrel_pieces(folder, files))


READER = FolderReader(LAYOUT, open_beir)


TEXTS_ENDS = (".jsonl", ".jsonl.gz")
TEXTS_LAYOUT = '*.jsonl or *.jsonl.gz files of {"text": …} lines, for pre-training alone'


def text_values(row: dict[str, Any]) -> tuple[str, str, str]:
    """As `passage_values`; a row without an id gets one."""
    if all(is_nothing(row.get(name)) for name in ("_id", "id")):
        text = read_text(row, "text", "contents") or read_title(row)
        row = {**row, "_id": hashlib.sha256(text.encode()).hexdigest()[:16]}
    return passage_values(row)


def open_texts(folder: Place) -> CorpusPieces:
    """All files of a folder, in the order of their names; there are neither queries nor judgements."""
    files = data_files(folder, TEXTS_ENDS)
    if not files:
        raise UserError(f"{folder}: no *.jsonl or *.jsonl.gz in it; wanted are {TEXTS_LAYOUT}")
    return CorpusPieces(text_pieces("docs", folder, files, text_values, "json lines"))


TEXTS = FolderReader(TEXTS_LAYOUT, open_texts)
