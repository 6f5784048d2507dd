"""Folders of texts for pre-training, as FlagEmbedding has them: `*.jsonl` of `{"text": …}` lines (plain or .gz).

A text without an id is known by a hash of what it says, so that files can be put together and read again in any order;
a text that stands there twice is one passage, and its copies are counted as duplicates.
"""

import hashlib
from typing import Any

from midmask.corpora.beir import passage_values
from midmask.corpora.chunks import is_nothing, read_text, read_title
from midmask.corpora.corpus import CorpusPieces, data_files, text_pieces
from midmask.corpora.reader import folder_reader
from midmask.errors import UserError
from midmask.store.place import Place

ENDS = (".jsonl", ".jsonl.gz")
LAYOUT = '*.jsonl or *.jsonl.gz files of {"text": …} lines, for pre-training alone'


def text_values(row: dict[str, Any]) -> tuple[str, str, str]:
    """As `passage_values`; a row without an id gets one."""
    if all(is_nothing(row.get(name)) for name in ("_id", "id")):
        text = read_text(row, "text", "contents") or read_title(row)
        row = {**row, "_id": hashlib.sha256(text.encode()).hexdigest()[:16]}
    return passage_values(row)


def open_texts(folder: Place) -> CorpusPieces:
    """All files of a folder, in the order of their names; there are neither queries nor judgements."""
    files = data_files(folder, ENDS)
    if not files:
        raise UserError(f"{folder}: no *.jsonl or *.jsonl.gz in it; wanted are {LAYOUT}")
    return CorpusPieces(text_pieces("docs", folder, files, text_values, of_objects=True))


READER = folder_reader(LAYOUT, open_texts)
