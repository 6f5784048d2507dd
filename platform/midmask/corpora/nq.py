"""Natural Questions (or TriviaQA, WebQuestions, …) in DPR's layout, each file plain or .gz.

- `psgs_w100.tsv`: id, text, title, with that header, in CSV's quotes;
- `nq-SPLIT.csv` or `nq-SPLIT.qa.csv`: question and a list of answer strings, as Python or JSON writes it, divided by a
  tab. They have no ids: a query's is SPLIT-N, N being its row, from 0, as Pyserini numbers them;
- `biencoder-nq-SPLIT.json` or `nq-SPLIT.json`, what DPR trains with: one JSON array of objects with question, answers
  and positive_ctxs (also negatives, which are not read here). Of the positives the first is judged relevant, the one
  DPR trains with; the others only hold an answer. Where the file is there, the questions of the split are its own,
  numbered by their place in it, and the split's .csv is not read.

DPR judges a passage by whether it holds an answer (`evaluation.step`); the answers are kept as data.
"""

import ast
import codecs
import csv
import json
import logging
import re
import warnings
from collections.abc import Iterator
from functools import partial
from typing import BinaryIO

from midmask.corpora.chunks import Fault, Record, check_columns, is_nothing, lines, read_id, read_text
from midmask.corpora.corpus import (
    CorpusPieces,
    data_files,
    find_file,
    one_file_each,
    text_pieces,
)
from midmask.corpora.opening import BrokenFile, open_text
from midmask.corpora.reader import folder_reader
from midmask.errors import UserError, quoted
from midmask.store.place import Place

log = logging.getLogger(__name__)


CHUNK = 4 << 20
"""Characters read at a time; an object is some 100,000 characters long."""


_BEGINNING, _SEPARATOR = re.compile(r"\s*\[?\s*"), re.compile(r"\s*,?\s*")


def cut_array(split: str, stream: BinaryIO, limit: int) -> Iterator[Record]:
    """The objects of an array as records, `SPLIT-N` and a tab before each, N counting from 0; their lines from 1. Only
    the objects of a chunk are in memory.

    Raises:
        BrokenFile: where the array cannot be read any further: nobody could tell where the next object begins.
        UnicodeDecodeError: for a file that is not UTF-8.
    """
    decode = json.JSONDecoder().raw_decode
    reader = codecs.getreader("utf-8-sig")(stream)
    text, count, place, last = "", 0, 0, False
    while True:
        place = (_SEPARATOR if count else _BEGINNING).match(text, place).end()  # type: ignore[union-attr]
        if text[place : place + 1] == "]":
            return
        try:
            _, stop = decode(text, place)
        except (ValueError, RecursionError):
            if last or len(text) - place > limit + CHUNK:
                raise BrokenFile(f"object {count} (from 0) of the JSON array is broken or cut off") from None
            more = reader.read(CHUNK)
            text, place, last = text[place:] + more, 0, not more
            continue
        data = f"{split}-{count}\t{text[place:stop]}".encode()
        count += 1
        yield Record(count, data if stop - place < limit else None)
        place = stop


def parse_training_question(text: str) -> tuple[str, str, list[str] | None]:
    """(query_id, question, answers) of one record; an object without answers gives None."""
    query_id, question, answers, _ = _parse_item(text)
    return query_id, question, [answer for answer in answers if answer.strip()] or None


def parse_training_positive(text: str) -> tuple[str, str, int]:
    """(query_id, doc_id, 1): the first positive of one record."""
    query_id, _, _, doc_id = _parse_item(text)
    return query_id, doc_id, 1


def _parse_item(text: str) -> tuple[str, str, list[str], str]:
    """(query_id, question, answers, id of the first positive); ValueError for what is no such object."""
    query_id, _, data = text.partition("\t")
    row = json.loads(data)
    positives = row.get("positive_ctxs") if isinstance(row, dict) else None
    if not isinstance(positives, list) or not positives or not isinstance(positives[0], dict):
        raise ValueError(f"positive_ctxs is {quoted(positives)}, not a list of objects")
    answers = [] if is_nothing(row.get("answers")) else row["answers"]
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        raise ValueError(f"answers is {quoted(answers)}, not a list of texts")
    return query_id, read_text(row, "question"), answers, read_id(positives[0], "passage_id", "psg_id")


LAYOUT = (
    "psgs_w100.tsv[.gz] (id, text, title), NAME-SPLIT.csv or NAME-SPLIT.qa.csv (question, list of answers) with SPLIT "
    "train, dev or test, such as nq-test.csv; for fine-tuning biencoder-nq-train.json"
)
QUESTIONS = re.compile(r".+-(train|dev|test)(\.qa)?\.csv(\.gz)?")
TRAINING = re.compile(r".+-(train|dev|test)\.json(\.gz)?")
NO_ANSWER = "no answer"
LONGEST = 100_000
"""Characters of a list of answers; a longer one is malformed."""


def number_lines(split: str, stream: BinaryIO, limit: int) -> Iterator[Record]:
    """Lines, each with `SPLIT-N` and a tab before it, N being the number of the row, from 0."""
    for row, (line, data) in enumerate(lines(stream, limit)):
        yield Record(line, data and f"{split}-{row}\t".encode() + data.removeprefix(codecs.BOM_UTF8))


def parse_passage(text: str) -> tuple[str, str, str]:
    """(doc_id, title, text) of one line of psgs_w100.tsv."""
    doc_id, passage, title = _split_cells(text, "id", "text", "title")
    return doc_id.strip(), title, passage


def parse_question(text: str) -> tuple[str, str, list[str]]:
    """(query_id, question, answers) of one numbered line.

    Raises:
        Fault: without a single answer, since no passage could be judged.
    """
    query_id, question, answers = _split_cells(text, "id", "question", "answers")
    found_answers = [answer for answer in parse_answers(answers) if answer.strip()]
    if not found_answers:
        raise Fault(NO_ANSWER, f"answers are {quoted(answers)}")
    "".join(found_answers).encode()  # a lone surrogate is no text
    return query_id, question, found_answers


def parse_answers(text: str) -> list[str]:
    """The strings of a list as JSON or Python writes it; nothing is evaluated but literals.

    Raises:
        ValueError: if it is no list of strings, or an overlong one.
    """
    if len(text) > LONGEST:
        raise ValueError("overlong list of answers")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        try:
            with warnings.catch_warnings(action="ignore"):  # of backslashes that escape nothing
                value = ast.literal_eval(text)
        except (SyntaxError, MemoryError, RecursionError) as error:
            raise ValueError(f"no list: {error}") from None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError("not a list of strings")
    return value


def _split_cells(text: str, *names: str) -> list[str]:
    try:
        return check_columns(next(csv.reader([text], delimiter="\t")), *names)
    except csv.Error as error:
        raise ValueError(str(error)) from None


def open_nq(folder: Place) -> CorpusPieces:
    """The corpus in a folder of DPR's files."""
    passages = find_file(folder, ["psgs_w100.tsv"], LAYOUT)
    names = data_files(folder)
    trained, questions = (
        one_file_each(((match[1], match[0]) for match in map(pattern.fullmatch, names) if match), "questions")
        for pattern in (TRAINING, QUESTIONS)
    )
    if not questions and not trained:
        raise UserError(f"{folder}: nq-test.csv or the like is missing; wanted layout: {LAYOUT}")
    for split in trained.keys() & questions.keys():
        log.info("skipping %s: its %s questions are the questions of %s", questions.pop(split), split, trained[split])
    with open_text(folder / passages) as stream:
        header = int(stream.read(64).removeprefix(codecs.BOM_UTF8).startswith(b"id\t"))
    docs = text_pieces("docs", folder, [passages], parse_passage, skip=header)
    queries, qrels = [], []
    for split, file in sorted(questions.items()):
        cut = partial(number_lines, split)
        queries += text_pieces("queries", folder, [file], parse_question, split=split, cut=cut)
    for split, file in sorted(trained.items()):
        cut = partial(cut_array, split)
        queries += text_pieces("queries", folder, [file], parse_training_question, split=split, cut=cut)
        qrels += text_pieces("qrels", folder, [file], parse_training_positive, split=split, cut=cut)
    return CorpusPieces(docs, queries, qrels)


READER = folder_reader(LAYOUT, open_nq)
