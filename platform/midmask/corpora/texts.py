"""Texts for pre-training: `*.jsonl` files of `{"text": …}` lines (plain or .gz), as FlagEmbedding has them.

A text without an id is known by a hash of what it says, so that files can be put together and read again in any order;
a text that stands there twice is one passage, and its copies are counted as duplicates.
"""

import hashlib
import json
from typing import Any

from midmask.artifact import Place
from midmask.corpora.beir import parse_passage
from midmask.corpora.corpus import Corpus, text_pieces
from midmask.errors import UserError

ENDS = (".jsonl", ".jsonl.gz")


def parse_text(line: str) -> tuple[str, str, str]:
    """(doc_id, title, text) of one line."""
    row: Any = json.loads(line)
    if isinstance(row, dict) and isinstance(row.get("text"), str) and not {"_id", "id"} & row.keys():
        row = {**row, "_id": hashlib.sha256(row["text"].encode()).hexdigest()[:16]}
        return parse_passage(json.dumps(row))
    return parse_passage(line)


def open_texts(folder: Place, name: str, max_characters: int) -> Corpus:
    """All files of a folder, in the order of their names; there are neither queries nor judgements.

    Raises:
        UserError: if there is no such file in it.
    """
    files = sorted(file for file in folder.names() if file.endswith(ENDS))
    if not files:
        raise UserError(f'{folder}: no *.jsonl or *.jsonl.gz in it; wanted are files of {{"text": …}} lines')
    return Corpus(name, text_pieces("docs", folder, files, parse_text, {"max_characters": max_characters}), (), ())
