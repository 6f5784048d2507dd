"""DPR's training files, `biencoder-nq-train.json` and the like: one JSON array of objects with question, answers and
positive_ctxs (also negatives, which are not read here). Of the positives the first is judged relevant, the one DPR
trains with; the others only hold an answer.
"""

import codecs
import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from midmask.corpora.chunks import Record
from midmask.corpora.gzipped import BrokenFile
from midmask.corpora.values import is_nothing, read_id, read_text
from midmask.errors import quoted

CHUNK = 4 << 20
"""Characters read at a time; an object is some 100,000 characters long."""


class Items:
    """The objects of an array as records, `SPLIT-N` and a tab before each, N counting from 0. `line` is N + 1.

    Only the objects of a chunk are in memory.
    """

    def __init__(self, split: str) -> None:
        self._split = split
        self.count = 0

    def __call__(self, stream: BinaryIO, end: int | None, limit: int) -> Iterator[Record]:
        """
        Raises:
            BrokenFile: where the array cannot be read any further: nobody could tell where the next object begins.
            UnicodeDecodeError: for a file that is not UTF-8.
        """
        decode = json.JSONDecoder().raw_decode
        reader = codecs.getreader("utf-8-sig")(stream)
        text, place, last = "", 0, False
        while True:
            place = _skip_sign(text, place, "[" if not self.count else ",")
            if text[place : place + 1] == "]":
                return
            try:
                _, stop = decode(text, place)
            except (ValueError, RecursionError):
                if last or len(text) - place > limit + CHUNK:
                    raise BrokenFile(f"object {self.count} (from 0) of the JSON array is broken or cut off") from None
                more = reader.read(CHUNK)
                text, place, last = text[place:] + more, 0, not more
                continue
            data = f"{self._split}-{self.count}\t{text[place:stop]}".encode()
            self.count += 1
            yield Record(self.count, data if stop - place < limit else None)
            place = stop


def _skip_sign(text: str, place: int, sign: str) -> int:
    """The place after blanks, one sign and blanks."""
    while place < len(text) and (text[place].isspace() or text[place] == sign):
        sign = "" if text[place] == sign else sign
        place += 1
    return place


def parse_question(text: str) -> tuple[str, str, list[str] | None]:
    """(query_id, question, answers) of one record; an object without answers gives None."""
    query_id, row = _object(text)
    answers = [answer for answer in _answers(row) if answer.strip()]
    return query_id, read_text(row, "question"), answers or None


def parse_positive(text: str) -> tuple[str, str, int]:
    """(query_id, doc_id, 1): the first positive of one record."""
    query_id, row = _object(text)
    return query_id, read_id(row["positive_ctxs"][0], "passage_id", "psg_id"), 1


def _object(text: str) -> tuple[str, dict[str, Any]]:
    """Raises ValueError for what is no object with a question, answers that are texts, and positives with an id."""
    query_id, _, data = text.partition("\t")
    row = json.loads(data)
    positives = row.get("positive_ctxs") if isinstance(row, dict) else None
    if not isinstance(positives, list) or not positives or not isinstance(positives[0], dict):
        raise ValueError(f"positive_ctxs is {quoted(positives)}, not a list of objects")
    answers = _answers(row)
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        raise ValueError(f"answers is {quoted(answers)}, not a list of texts")
    read_text(row, "question")
    read_id(positives[0], "passage_id", "psg_id")
    return query_id, row


def _answers(row: dict[str, Any]) -> Any:
    answers = row.get("answers")
    return [] if is_nothing(answers) else answers
