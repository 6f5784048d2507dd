"""Natural Questions (or TriviaQA, WebQuestions, …) in DPR's layout, each file plain or .gz:

- `psgs_w100.tsv`: id, text, title, with that header, in CSV's quotes;
- `nq-SPLIT.csv` or `nq-SPLIT.qa.csv`: question and a list of answer strings, as Python or JSON writes it, divided by a
  tab. They have no ids: a query's is SPLIT-N, N being its row, from 0, as Pyserini numbers them;
- `qrels.SPLIT.tsv`, if you have judgements by such ids: fine-tuning needs them.

DPR judges a passage by whether it holds an answer (`evaluate.answers`); the answers are kept as data.
"""

import ast
import codecs
import csv
import json
import re
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any, BinaryIO

from midmask.artifact import Place
from midmask.corpora.corpus import Corpus, found, split_names, text_pieces
from midmask.corpora.pieces import Fault, Lines, Record, TextPiece, opened
from midmask.corpora.qrels import qrel_pieces
from midmask.errors import UserError

LAYOUT = (
    "psgs_w100.tsv[.gz] (id, text, title), NAME-SPLIT.csv or NAME-SPLIT.qa.csv (question, list of answers) with SPLIT "
    "train, dev or test, such as nq-test.csv; qrels.SPLIT.tsv[.gz] if there are judgements"
)
QUESTIONS = re.compile(r".+-(train|dev|test)(\.qa)?\.csv(\.gz)?")
NO_ANSWER = "no answer"
LONGEST = 100_000
"""Characters of a list of answers; a longer one is malformed."""


class Numbered:
    """Lines, each with `SPLIT-N` and a tab before it, N being the number of the row, from 0."""

    def __init__(self, split: str) -> None:
        self._split = split
        self.count = 0

    def __call__(self, stream: BinaryIO, end: int | None, limit: int) -> Iterator[Record]:
        lines = Lines()
        for row, (line, data) in enumerate(lines(stream, end, limit)):
            id_cell = f"{self._split}-{row}\t".encode()
            yield Record(line, None if data is None else id_cell + data.removeprefix(codecs.BOM_UTF8))
        self.count = lines.count


def parse_passage(text: str) -> tuple[str, str, str]:
    """(doc_id, title, text) of one line of psgs_w100.tsv."""
    doc_id, passage, title = _cells(text)
    return doc_id.strip(), title, passage


def parse_question(text: str) -> tuple[str, str, list[str]]:
    """(query_id, question, answers) of one numbered line.

    Raises:
        Fault: without a single answer, since no passage could be judged.
    """
    query_id, question, answers = _cells(text)
    found_answers = [answer for answer in parse_answers(answers) if answer.strip()]
    if not found_answers:
        raise Fault(NO_ANSWER)
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
        value = _literal(text)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError("not a list of strings")
    return value


def _literal(text: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of backslashes that escape nothing
            return ast.literal_eval(text)
    except (SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError(f"no list: {error}") from None


def _cells(text: str) -> list[str]:
    try:
        return next(csv.reader([text], delimiter="\t"))
    except csv.Error as error:
        raise ValueError(str(error)) from None


def open_nq(folder: Place, name: str, max_characters: int) -> Corpus:
    """The corpus in a folder of DPR's files.

    Raises:
        UserError: naming what is missing, and the layout.
    """
    limits = {"max_characters": max_characters}
    passages = found(folder, ["psgs_w100.tsv", "psgs_w100.tsv.gz"], LAYOUT)
    names = folder.names()
    questions = _question_files(folder, names)
    queries: list[TextPiece] = []
    for split, file in sorted(questions.items()):
        about = {**limits, "split": split}
        cut = partial(Numbered, split)
        queries += text_pieces("queries", folder, [file], parse_question, about, cut=cut, first_number=len(queries))
    qrels = split_names([file for file in names if file.startswith("qrels.")], prefix="qrels")
    header = {**limits, "skip": 1 if _has_header(folder, passages) else 0}
    return Corpus(
        name,
        text_pieces("docs", folder, [passages], parse_passage, header),
        tuple(queries),
        qrel_pieces(folder, qrels, limits),
    )


def _question_files(folder: Place, names: list[str]) -> dict[str, str]:
    files: dict[str, str] = {}
    for file in names:
        if match := QUESTIONS.fullmatch(file):
            if match[1] in files:
                raise UserError(
                    f"{folder}: {files[match[1]]} and {file} both are questions of {match[1]}; keep one of them"
                )
            files[match[1]] = file
    if not files:
        raise UserError(f"{folder}: nq-test.csv or the like is missing; wanted layout: {LAYOUT}")
    return files


def _has_header(folder: Place, file: str) -> bool:
    with opened(folder, file) as stream:
        return stream.read(64).removeprefix(codecs.BOM_UTF8).startswith(b"id\t")
