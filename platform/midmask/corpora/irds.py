"""Collections by their id in ir_datasets (MacAvaney et al. 2021): `beir/scifact`, `msmarco-passage/dev/small`.

Splits. An id with children that have judgements, and none itself (`beir/scifact`, `msmarco-passage`) or some of them
named train, dev or test (`mr-tydi/en`), is made up of these children, a split each: `valid`, `val` and `validation` are
dev, `training` is train, `trec-dl-2019` is dl19, others keep their names. Any other id is one split: what the last of
its parts that says so calls it (`antique/train/split200-valid` is dev, `msmarco-passage/dev/small` too), else test.

Queries are those of the splits. Passages have their record's title and text (or body), else its default_text().

Nothing is fetched (`irds_library`).
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from midmask.corpora.chunks import PIECE_BYTES, Fault
from midmask.corpora.config import CorpusConfig
from midmask.corpora.corpus import CorpusPieces
from midmask.corpora.irds_library import MissingLibrary, children, dataset, missing_line, records
from midmask.corpora.records import record_blocks
from midmask.corpora.values import is_nothing, whole_grade
from midmask.errors import UserError, quoted

WORDS = {"train": "train", "training": "train", "test": "test"}
WORDS |= dict.fromkeys(("dev", "val", "valid", "validation"), "dev")
TREC_DL = re.compile(r"trec-dl-20(19|20)")
NO_TEXT = "no text"


@dataclass(frozen=True)
class IrPiece:
    """All documents ("docs"), queries or judgements ("qrels") of an id."""

    number: int
    rows: str
    dataset_id: str
    max_characters: int
    split: str = ""
    size: int = PIECE_BYTES
    """The package tells no size before it has read everything."""

    @property
    def file(self) -> str:
        return f"ir_datasets:{self.dataset_id} ({self.rows})"

    def read(self) -> Iterator[pa.Table]:
        """As `TextPiece.read`; `line` counts the package's records.

        Raises:
            UserError: if something that it needs is not on this machine, or it cannot make sense of its files.
        """
        return record_blocks(
            records(self.dataset_id, self.rows),
            _VALUES[self.rows],
            lambda record: "\t".join(map(str, record)),
            rows=self.rows,
            piece=self.number,
            max_characters=self.max_characters,
        )

    def fingerprint(self) -> str:
        """Of all records; reads them (MS MARCO's passages: about a minute)."""
        digest = hashlib.sha256()
        for record in records(self.dataset_id, self.rows):
            digest.update(repr(tuple(record)).encode("utf-8", "surrogatepass") + b"\n")
        return digest.hexdigest()[:16]

    def missing(self) -> str:
        """The file that the first record needs and this machine lacks; "" if none is missing."""
        try:
            next(records(self.dataset_id, self.rows), None)
        except MissingLibrary as error:
            return error.what
        return ""


def open_ir_dataset(dataset_id: str, name: str, max_characters: int) -> CorpusPieces:
    """The corpus of an id; without judgements in it or its children, it is text only.

    Raises:
        UserError: if the package or the id is not there, the id has no documents, or it has queries that nobody judged;
            and if files are not on this machine, naming all that is lacking and how to fetch it.
    """
    found = dataset(dataset_id)
    if not found.has_docs():
        below = ", ".join(children(dataset_id))
        raise UserError(f"ir_datasets:{dataset_id} has no documents of its own; name one of {below or 'the other ids'}")
    splits = split_ids(dataset_id)
    if not splits and found.has_queries():
        raise UserError(f"ir_datasets:{dataset_id} has queries but no judgements; name another id of its collection")
    docs = (IrPiece(0, "docs", dataset_id, max_characters),)
    queries, qrels = (
        tuple(IrPiece(number, rows, own, max_characters, split) for number, (split, own) in enumerate(splits.items()))
        for rows in ("queries", "qrels")
    )
    lacking = [(piece.dataset_id, piece.rows, what) for piece in (*docs, *queries, *qrels) if (what := piece.missing())]
    if lacking:
        raise UserError(missing_line(dataset_id, lacking))
    return CorpusPieces(name, docs, queries, qrels)


def fingerprints(corpus: CorpusPieces) -> dict[str, str]:
    """Of the records of each piece."""
    pieces = (*corpus.docs, *corpus.queries, *corpus.qrels)
    return {piece.file: piece.fingerprint() for piece in pieces if isinstance(piece, IrPiece)}


def split_ids(dataset_id: str) -> dict[str, str]:
    """split -> the id that holds its judgements, in order of the splits; see the module.

    Raises:
        UserError: if two children are the same split.
    """
    found = dataset(dataset_id)
    own: dict[str, list[str]] = {}
    for child in children(dataset_id):
        below = dataset(child)
        if below.has_qrels() and below.docs_handler() == found.docs_handler():
            own.setdefault(_name_of_child(child.rsplit("/", 1)[-1]), []).append(child)
    if twice := [ids for ids in own.values() if len(ids) > 1]:
        raise UserError(f"ir_datasets:{dataset_id}: {' and '.join(twice[0])} are the same split; name one of them")
    if own and (not found.has_qrels() or own.keys() & set(WORDS.values())):
        return {split: own[split][0] for split in sorted(own)}
    return {split_of(dataset_id): dataset_id} if found.has_qrels() else {}


def split_of(dataset_id: str) -> str:
    """What an id that is one split is called."""
    for part in reversed(dataset_id.split("/")[1:]):
        if match := TREC_DL.fullmatch(part):
            return f"dl{match[1]}"
        for word in re.findall("[a-z]+", part.lower()):
            if word in WORDS:
                return WORDS[word]
    return "test"


def _name_of_child(part: str) -> str:
    """Split name of a child dataset. Dots are replaced, because `test.head` means slice head of split test."""
    match = TREC_DL.fullmatch(part)
    return f"dl{match[1]}" if match else WORDS.get(part, part.replace(".", "-"))


def _passage(record: Any) -> tuple[str, str, str]:
    """(doc_id, title, text)."""
    body = next((name for name in ("text", "body") if name in record._fields), "")
    if not body:
        return str(record.doc_id), "", _default_text(record)
    title = getattr(record, "title", None)
    return (
        str(record.doc_id),
        _require_string("" if is_nothing(title) else title),
        _require_string(getattr(record, body)),
    )


def _query(record: Any) -> tuple[str, str]:
    """(query_id, text)."""
    text = _require_string(record.text) if "text" in record._fields else _default_text(record)
    return str(record.query_id), text


def _judgement(record: Any) -> tuple[str, str, int]:
    """(query_id, doc_id, grade)."""
    return str(record.query_id), str(record.doc_id), whole_grade(record.relevance, "relevance")


_VALUES = {"docs": _passage, "queries": _query, "qrels": _judgement}


def _default_text(record: Any) -> str:
    if not hasattr(record, "default_text"):
        raise Fault(NO_TEXT)
    return _require_string(record.default_text())


def _require_string(value: Any) -> str:
    if not isinstance(value, str):
        raise Fault(NO_TEXT, f"text is {quoted(value)}")
    return value


@dataclass(frozen=True)
class IrDatasetsReader:
    """Reads an id of ir_datasets; its records are what decides the rows."""

    layout: str = (
        "an id, such as beir/scifact or msmarco-passage/dev/small; needs the extra ir-datasets; nothing is fetched: "
        "what is not on this machine is named with the command that fetches it"
    )

    def open(self, config: CorpusConfig) -> CorpusPieces:
        return open_ir_dataset(config.place, config.short_name, config.max_characters)

    def identity(self, config: CorpusConfig) -> dict[str, Any]:
        return {"records": fingerprints(self.open(config))}


READER = IrDatasetsReader()
