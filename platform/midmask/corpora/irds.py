"""Collections by their id in ir_datasets (MacAvaney et al. 2021): `beir/scifact`, `msmarco-passage/dev/small`.

Splits. An id with children that have judgements, and none itself (`beir/scifact`, `msmarco-passage`) or some of them
named train, dev or test (`mr-tydi/en`), is made up of these children, a split each: `valid`, `val` and `validation` are
dev, `training` is train, `trec-dl-2019` is dl19, others keep their names. Any other id is one split: what the last of
its parts that says so calls it (`antique/train/split200-valid` is dev, `msmarco-passage/dev/small` too), else test.

Queries are those of the splits. Passages have their record's title and text (or body), else its default_text().

Nothing is fetched. The package fetches what it lacks and has no switch for that, so each of its downloads is refused
while it reads; what it needs to unpack or to index, it writes to its own folder (IR_DATASETS_HOME, else
~/.ir_datasets).
"""

import contextlib
import hashlib
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NoReturn

import pyarrow as pa

from midmask.corpora.chunks import PIECE_BYTES, Fault, is_nothing, record_blocks, whole_grade
from midmask.corpora.config import CorpusConfig
from midmask.corpora.corpus import CorpusPieces
from midmask.errors import UserError, how_to_install, quoted, unknown

BLOCK_ROWS = 2_048
_SWAP = threading.Lock()


class MissingLibrary(UserError):
    """Something is not on this machine; `what`: a file, or the address that it would be fetched from."""

    def __init__(self, dataset_id: str, rows: str, what: str) -> None:
        super().__init__(missing_line(dataset_id, [(dataset_id, rows, what)]))
        self.what = what


class _RefusedByLibrary(Exception):
    """The address of what would have been fetched."""


def records(dataset_id: str, rows: str) -> Iterator[Any]:
    """The documents ("docs"), queries or judgements ("qrels") of an id, as the package's named tuples.

    Raises:
        MissingLibrary: for a file that is not here. UserError: for whatever else the package raises.
    """
    read = getattr(dataset(dataset_id), f"{rows}_iter")
    with _offline(dataset_id, rows):
        own = iter(read())
    while True:
        with _offline(dataset_id, rows):
            several = list(islice(own, BLOCK_ROWS))
        if not several:
            return
        yield from several


def missing_line(dataset_id: str, lacking: list[tuple[str, str, str]]) -> str:
    """The error's line for a corpus that lacks parts: (id, rows, missing file) each."""
    parts = "; ".join(f"{rows} of {own} ({what})" for own, rows, what in lacking)
    commands = " && ".join(f"ir_datasets export {own} {rows} > /dev/null" for own, rows, _ in lacking)
    return (
        f"ir_datasets:{dataset_id}: not on this machine: {parts}. midmask fetches nothing; to have ir_datasets fetch "
        f"it, or say where to ask for it, type: {commands}"
    )


def children(dataset_id: str) -> list[str]:
    """Ids one step below."""
    depth = dataset_id.count("/") + 1
    return sorted(
        name for name in _library().registry if name.startswith(f"{dataset_id}/") and name.count("/") == depth
    )


def dataset(dataset_id: str) -> Any:
    """
    Raises:
        UserError: without the package, and for an id that the package does not have.
    """
    registry = _library().registry
    try:
        return registry[dataset_id]
    except KeyError:
        raise unknown("ir_datasets id", dataset_id, registry) from None


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
def _offline(dataset_id: str, rows: str) -> Iterator[None]:
    """In here all sources of the package but local files refuse, and what it raises becomes an error for people."""
    util = _library().util
    with _SWAP:
        kept = {kind: kind.stream for kind in util.BaseDownload.__subclasses__() if kind is not util.LocalDownload}
        try:
            for kind in kept:
                kind.stream = _refuse
            yield
        except Exception as error:  # readers of two hundred formats
            if what := _missing_file(error):
                raise MissingLibrary(dataset_id, rows, what) from None
            said = " ".join(str(error).split())[:300]
            raise UserError(
                f"ir_datasets:{dataset_id}: its {rows} cannot be read: {type(error).__name__}: {said}"
            ) from None
        finally:
            for kind, stream in kept.items():
                kind.stream = stream


def _refuse(source: Any) -> NoReturn:
    raise _RefusedByLibrary(getattr(source, "url", None) or getattr(source, "uri", repr(source)))


def _missing_file(error: Exception) -> str:
    """The source or file that is not there, if that is what is wrong."""
    tried = error.args[1] if isinstance(error, RuntimeError) and len(error.args) == 2 else []
    errors = [error, *(err for _, err in tried)] if isinstance(tried, list) else [error]
    for err in errors:
        # A file that has to be asked for is an OSError without a number.
        if isinstance(err, _RefusedByLibrary | FileNotFoundError) or (isinstance(err, OSError) and err.errno is None):
            return " ".join(str(err).split())
    return ""


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
        """Fingerprint of all records, which are read for it."""
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
    """Name of each piece -> fingerprint of its records."""
    pieces = (*corpus.docs, *corpus.queries, *corpus.qrels)
    return {piece.file: piece.fingerprint() for piece in pieces if isinstance(piece, IrPiece)}


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
            by_split.setdefault(_name_of_child(child.rsplit("/", 1)[-1]), []).append(child)
    if twice := [ids for ids in by_split.values() if len(ids) > 1]:
        raise UserError(f"ir_datasets:{dataset_id}: {' and '.join(twice[0])} are the same split; name one of them")
    if by_split and (not parent.has_qrels() or by_split.keys() & set(WORDS.values())):
        return {split: by_split[split][0] for split in sorted(by_split)}
    return {split_of(dataset_id): dataset_id} if parent.has_qrels() else {}


def split_of(dataset_id: str) -> str:
    """Name of the split that an id of ir_datasets is."""
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
