"""Collections by their id in ir_datasets (MacAvaney et al. 2021): `beir/scifact`, `msmarco-passage/dev/small`.

Splits. An id with children that have judgements, and none itself (`beir/scifact`, `msmarco-passage`) or some of them
named train, dev or test (`mr-tydi/en`), is made up of these children, a split each: `valid`, `val` and `validation` are
dev, `training` is train, `trec-dl-2019` is dl19, others keep their names. Any other id is one split: what the last of
its parts that says so calls it (`antique/train/split200-valid` is dev, `msmarco-passage/dev/small` too), else test.

Queries are those of the splits. Passages have their record's title and text (or body), else its default_text().

Nothing is fetched unless MIDMASK_ALLOW_DOWNLOAD=1 (the flag --allow-download) is set. The package has no switch for
that, but all its downloads ask `ir_datasets.lazy_libs.requests` for the library requests, which is refused while
records are read here. What it needs to unpack or to index, it writes to its own folder (IR_DATASETS_HOME, else
~/.ir_datasets).
"""

import contextlib
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from threading import RLock
from typing import Any

from midmask.core.process import ALLOW_DOWNLOAD, is_on
from midmask.corpora.chunks import Piece, read_text, read_title, whole_grade
from midmask.corpora.config import CorpusConfig
from midmask.corpora.corpus import CorpusPieces
from midmask.corpora.reader import Reader
from midmask.errors import UserError, how_to_install, unknown

BLOCK_ROWS = 2_048

_LOCK = RLock()
"""Held while records are read, since downloads are refused in all of the package meanwhile."""


def _refuse() -> None:
    """In place of the package's function that imports requests, for its every download."""
    raise ConnectionRefusedError("something would have been fetched, which is not allowed")


def records(dataset_id: str, rows: str) -> Iterator[Any]:
    """The documents ("docs"), queries or judgements ("qrels") of an id, as the package's named tuples.

    Raises:
        UserError: for a file that is not here, and for whatever else the package raises.
    """
    with _reading(dataset_id, rows):
        iterator = iter(getattr(dataset(dataset_id), f"{rows}_iter")())
    while True:
        with _reading(dataset_id, rows):
            several = list(islice(iterator, BLOCK_ROWS))
        if not several:
            return
        yield from several


def dataset(dataset_id: str) -> Any:
    """
    Raises:
        UserError: without the package, and for an id that the package does not have.
    """
    library = _library()
    try:
        return library.load(dataset_id)
    except KeyError:
        raise unknown("ir_datasets id", dataset_id, library.registry) from None


def children(dataset_id: str) -> list[str]:
    """Ids one step below."""
    depth = dataset_id.count("/") + 1
    return sorted(
        name for name in _library().registry if name.startswith(f"{dataset_id}/") and name.count("/") == depth
    )


def _library() -> Any:
    """The package; importing it makes its folder, so it is not imported before it is asked for."""
    try:
        import ir_datasets
    except ImportError:
        raise UserError(
            "corpora ir_datasets:ID need the package ir-datasets, which is not installed; type: "
            f"{how_to_install('ir-datasets')}"
        ) from None
    return ir_datasets


@contextlib.contextmanager
def _reading(dataset_id: str, rows: str) -> Iterator[None]:
    """In here downloads are refused unless they are allowed, and what the package raises is an error for people."""
    libraries = _library().lazy_libs
    with _LOCK:
        import_requests = libraries.requests
        libraries.requests = import_requests if is_on(ALLOW_DOWNLOAD) else _refuse
        try:
            yield
        except UserError:
            raise
        except Exception as error:  # readers of two hundred formats
            text = " ".join(str(error).split())[:300]
            raise UserError(
                f"ir_datasets:{dataset_id}: its {rows} cannot be read: {type(error).__name__}: {text}. To have fetched "
                f"what is not on this machine, or see where to ask: --allow-download ({ALLOW_DOWNLOAD}=1), or type: "
                f"ir_datasets export {dataset_id} {rows} > /dev/null"
            ) from None
        finally:
            libraries.requests = import_requests


WORDS = {
    "train": "train",
    "training": "train",
    "test": "test",
    "trec-dl-2019": "dl19",
    "trec-dl-2020": "dl20",
    **dict.fromkeys(("dev", "val", "valid", "validation"), "dev"),
}
"""Parts of ids, and words in them -> the split that they name."""


@dataclass(frozen=True, kw_only=True)
class IrPiece(Piece):
    """All documents ("docs"), queries or judgements ("qrels") of an id; its lines are the package's records."""

    dataset_id: str
    size: int = 2 << 20
    """A guess: the package tells no size before it has read everything."""

    def records(self) -> Iterator[tuple[int, Any]]:
        """
        Raises:
            UserError: if something that it needs is not on this machine, or it cannot make sense of its files.
        """
        return enumerate(records(self.dataset_id, self.rows), start=1)

    def quote(self, record: Any) -> str:
        return "\t".join(map(str, record))

    def fingerprint(self) -> str:
        """Fingerprint of all records, which are read for it."""
        digest = hashlib.sha256()
        for record in records(self.dataset_id, self.rows):
            digest.update(repr(tuple(record)).encode("utf-8", "surrogatepass") + b"\n")
        return digest.hexdigest()[:16]


def open_id(config: CorpusConfig) -> CorpusPieces:
    """The corpus of an id; without judgements in it or its children, it is text only.

    Raises:
        UserError: if the package or the id is not there, the id has no documents, or it has queries that nobody
            judged; and if files are not on this machine, with how to fetch them.
    """
    dataset_id = config.place
    collection = dataset(dataset_id)
    if not collection.has_docs():
        below = ", ".join(children(dataset_id)) or "the other ids"
        raise UserError(f"ir_datasets:{dataset_id} has no documents of its own; name one of {below}")
    splits = split_ids(dataset_id)
    if not splits and collection.has_queries():
        raise UserError(f"ir_datasets:{dataset_id} has queries but no judgements; name another id of its collection")
    docs, queries, qrels = (
        [
            IrPiece(rows=rows, file=f"ir_datasets:{child} ({rows})", parse=values, split=split, dataset_id=child)
            for split, child in ids.items()
        ]
        for rows, values, ids in (
            ("docs", _passage, {"": dataset_id}),
            ("queries", _query, splits),
            ("qrels", _judgement, splits),
        )
    )
    for piece in (*docs, *queries, *qrels):  # refuses what is missing before anything is read
        next(piece.records(), None)
    return CorpusPieces(docs, queries, qrels).limited_to(config.max_characters)


def records_identity(config: CorpusConfig) -> dict[str, Any]:
    """Fingerprints of all records, which are read for it."""
    corpus = open_id(config)
    pieces = (*corpus.docs, *corpus.queries, *corpus.qrels)
    return {"records": {piece.file: piece.fingerprint() for piece in pieces if isinstance(piece, IrPiece)}}


def split_ids(dataset_id: str) -> dict[str, str]:
    """split -> the id that holds its judgements, in order of the splits; see the module.

    Raises:
        UserError: if two children are the same split.
    """
    parent = dataset(dataset_id)
    by_split: dict[str, list[str]] = {}
    for child in children(dataset_id):
        below = dataset(child)
        if below.has_qrels() and below.docs_handler() == parent.docs_handler():
            part = child.rsplit("/", 1)[-1]  # dots are replaced, because `test.head` means slice head of split test
            by_split.setdefault(WORDS.get(part, part.replace(".", "-")), []).append(child)
    if twice := [ids for ids in by_split.values() if len(ids) > 1]:
        raise UserError(f"ir_datasets:{dataset_id}: {' and '.join(twice[0])} are the same split; name one of them")
    if by_split and (not parent.has_qrels() or by_split.keys() & {"train", "dev", "test"}):
        return {split: by_split[split][0] for split in sorted(by_split)}
    return {split_of(dataset_id): dataset_id} if parent.has_qrels() else {}


def split_of(dataset_id: str) -> str:
    """Name of the split that an id of ir_datasets is."""
    for part in reversed(dataset_id.split("/")[1:]):
        for word in (part, *re.findall("[a-z]+", part.lower())):
            if word in WORDS:
                return WORDS[word]
    return "test"


def _row(record: Any) -> dict[str, Any]:
    """A record's fields; of one without a text of its own, its default text alone."""
    row: dict[str, Any] = record._asdict()
    if not row.keys() & {"text", "body"} and hasattr(record, "default_text"):
        return {"text": record.default_text()}
    return row


def _passage(record: Any) -> tuple[str, str, str]:
    """(doc_id, title, text)."""
    row = _row(record)
    return str(record.doc_id), read_title(row), read_text(row, "text", "body")


def _query(record: Any) -> tuple[str, str]:
    """(query_id, text)."""
    return str(record.query_id), read_text(_row(record), "text")


def _judgement(record: Any) -> tuple[str, str, int]:
    """(query_id, doc_id, grade)."""
    return str(record.query_id), str(record.doc_id), whole_grade(record.relevance, "relevance")


READER = Reader(
    "an id, such as beir/scifact or msmarco-passage/dev/small; needs the extra ir-datasets; what is not on this "
    "machine is fetched with --allow-download alone",
    open_id,
    records_identity,
)
