"""Texts for pre-training: `*.jsonl` files of `{"text": …}` lines (plain or .gz), as FlagEmbedding has them.

A text without an id is known by a hash of what it says, so that files can be put together and read again in any order;
a text that stands there twice is one passage, and its copies are counted as duplicates.
"""

import hashlib
from typing import Any

from midmask.artifact import Place
from midmask.corpora.beir import json_object, passage_values
from midmask.corpora.corpus import CorpusPieces, text_pieces
from midmask.corpora.reader import FolderReader
from midmask.corpora.strays import data_files
from midmask.corpora.values import is_nothing, read_text, read_title
from midmask.errors import UserError

ENDS = (".jsonl", ".jsonl.gz")
LAYOUT = '*.jsonl or *.jsonl.gz files of {"text": …} lines, for pre-training alone'


def parse_text(line: str) -> tuple[str, str, str]:
    """(doc_id, title, text) of one line."""
    return text_values(json_object(line))


def text_values(row: dict[str, Any]) -> tuple[str, str, str]:
    """(doc_id, title, text) of one row; Fault where the text is missing or of another type."""
    if all(is_nothing(row.get(name)) for name in ("_id", "id")):
        text = read_text(row, "text", "contents") or read_title(row)
        row = {**row, "_id": hashlib.sha256(text.encode()).hexdigest()[:16]}
    return passage_values(row)


def open_texts(folder: Place, name: str, max_characters: int) -> CorpusPieces:
    """All files of a folder, in the order of their names; there are neither queries nor judgements.

    Raises:
        UserError: if there is no such file in it.
    """
    files = data_files(folder, ENDS)
    if not files:
        raise UserError(f"{folder}: no *.jsonl or *.jsonl.gz in it; wanted are {LAYOUT}")
    limits = {"max_characters": max_characters, "form": "json lines"}
    return CorpusPieces(name, text_pieces("docs", folder, files, parse_text, limits), (), ())


READER = FolderReader(LAYOUT, open_texts)
