"""Tables of the formats of corpora and of the kinds of documents: the choices in flags, fields, errors and the guide.

A format's or a kind's own module is imported when something of it is read, so that neither `--help` nor a collection's
name waits for Arrow.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, NamedTuple

from midmask.core.registry import Registry
from midmask.errors import UserError, how_to_install, unknown

if TYPE_CHECKING:
    from midmask.corpora.documents.blocks import BadRow, DocumentFile, ParsedDocument


@dataclass(frozen=True)
class Format:
    """A line of the table.

    module: in `midmask.corpora`; place: the kind of text after `NAME:` in a corpus's name: a FOLDER (or URI), an ID,
    or nothing for a collection that is built in. example: such a place. reader: the name of the format's reader in the
    module.
    """

    module: str
    place: Literal["FOLDER", "ID", ""] = "FOLDER"
    example: str = "/data/cranfield"
    reader: str = "READER"


FORMATS = Registry(
    "corpus format",
    {
        "pydocs": Format("pydocs", place="", example=""),  # docstrings of installed packages
        "beir": Format("beir"),  # Thakur et al. 2021: jsonl files and qrels/SPLIT.tsv
        "msmarco": Format("msmarco"),  # the official passage files, TREC Deep Learning
        "nq": Format("nq"),  # Natural Questions and the like, as DPR distributes them
        "tripclick": Format("tripclick"),  # Rekabsaz et al. 2021: queries by head, torso and tail
        "hf": Format("hf"),  # saved to disk by Hugging Face's `datasets`
        "texts": Format("beir", reader="TEXTS"),  # jsonl files of texts, for pre-training
        "docs": Format("docs", example="/data/manuals"),  # documents of people, cut into passages
        "ir_datasets": Format("irds", place="ID", example="beir/scifact"),  # MacAvaney et al. 2021
    },
)


def name_forms() -> str:
    """How a corpus can be named, for help and errors: `pydocs, FORMAT:FOLDER with FORMAT beir, … or texts, or …:ID`."""
    built_in, folders, ids = ([name for name in FORMATS if FORMATS[name].place == p] for p in ("", "FOLDER", "ID"))
    forms = [*built_in, f"FORMAT:FOLDER with FORMAT {', '.join(folders[:-1])} or {folders[-1]}"]
    return ", ".join(forms) + "".join(f", or {name}:ID" for name in ids)


def refuse_unknown_form(name: str) -> None:
    """Raises UserError for a corpus's name whose format is unknown, or whose place is missing or one too many."""
    kind, colon, place = name.partition(":")
    if kind == "trec":
        raise UserError(
            f"corpus {name!r}: files of TREC's <DOC> elements are not read; write ir_datasets:ID, for example "
            "ir_datasets:trec-robust04, or put the rows into a BEIR folder"
        )
    if kind not in FORMATS:
        raise unknown(FORMATS.kind, kind, FORMATS, hint=f"Write {name_forms()}.")
    wanted = FORMATS[kind]
    if colon and not wanted.place:
        raise UserError(f"corpus {name!r}: {kind} takes no place; write {kind}")
    if wanted.place and not place:
        raise UserError(
            f"corpus {name!r}: the {wanted.place.lower()} is missing; write {kind}:{wanted.place}, for example "
            f"{kind}:{wanted.example}"
        )


def has_folder(name: str) -> bool:
    """Whether a corpus of this format is named by a folder or URI; True for names that are no format, such as groups of
    collections.
    """
    return name not in FORMATS or FORMATS[name].place == "FOLDER"


class Kind(NamedTuple):
    """module: in `midmask.corpora.documents`. reader: its function. package: an optional one that the module needs, ""
    for none. share: of the file's bytes that are text, about, to estimate a collection's size. version: raised whenever
    files of this kind give other text.
    """

    module: str
    reader: str = "read_documents"
    package: str = ""
    share: float = 1.0
    version: int = 1

    def read(self, source: "DocumentFile") -> Iterator["ParsedDocument | BadRow"]:
        """The documents of a file.

        Raises:
            UserError: for a column that the user named and the table lacks.
            Unreadable: where the file gives no text, or no more of it.
        """
        read: Callable[[DocumentFile], Iterator[ParsedDocument | BadRow]] = getattr(
            import_module(f"midmask.corpora.documents.{self.module}"), self.reader
        )
        yield from read(source)


KINDS = {
    ".txt": Kind("blocks", "read_plain"),
    ".rst": Kind("blocks", "read_plain", version=2),
    ".md": Kind("markdown"),
    ".html": Kind("html", package="lxml", share=0.3),
    ".htm": Kind("html", package="lxml", share=0.3),
    ".pdf": Kind("pdf", package="pypdf", share=0.1),
    ".csv": Kind("rows", "read_separated"),
    ".tsv": Kind("rows", "read_separated"),
    ".jsonl": Kind("rows", "read_jsonl"),
    ".parquet": Kind("rows", "read_parquet"),
}


def ending(name: str) -> str:
    """The ending of a file's name in lower case, with its dot; "" if it has none."""
    stem, dot, end = name.rsplit("/", 1)[-1].rpartition(".")
    return f".{end.lower()}" if dot and stem else ""


def refuse_missing_packages(counts: dict[str, int], place: object) -> None:
    """
    Args:
        counts: ending -> number of files.

    Raises:
        UserError: if a package that some of the files need is not installed.
    """
    for end, count in counts.items():
        package = KINDS[end].package
        if package and find_spec(package) is None:
            raise UserError(
                f"{place}: {count:,} {end} file{'s' if count > 1 else ''} need{'s' if count == 1 else ''} the package "
                f"{package}, which is not installed; type: {how_to_install('documents')}"
            )
