"""The table of corpus formats, one line each: the choices in flags, fields, errors and the guide are made from it.

A format's own module is imported when a collection of it is read, so that `--help` does not wait for Arrow.
"""

from dataclasses import dataclass
from typing import Literal

from midmask.errors import UserError, unknown
from midmask.registry import Registry


@dataclass(frozen=True)
class Format:
    """A line of the table.

    module: in `midmask.corpora`; its READER reads the format. place: the kind of text after `NAME:` in a corpus's
    name: a FOLDER (or URI), an ID, or nothing for a collection that is built in. example: such a place.
    """

    module: str
    place: Literal["FOLDER", "ID", ""] = "FOLDER"
    example: str = "/data/cranfield"


FORMATS = Registry(
    "corpus format",
    {
        "pydocs": Format("pydocs", place="", example=""),  # docstrings of installed packages
        "beir": Format("beir"),  # Thakur et al. 2021: jsonl files and qrels/SPLIT.tsv
        "msmarco": Format("msmarco"),  # the official passage files, RocketQA's titles, TREC Deep Learning
        "trec": Format("trec"),  # <DOC> elements, topics and qrels
        "nq": Format("nq"),  # Natural Questions and the like, as DPR distributes them
        "tripclick": Format("tripclick"),  # Rekabsaz et al. 2021: queries by head, torso and tail
        "hf": Format("hf"),  # saved to disk by Hugging Face's `datasets`
        "texts": Format("texts"),  # jsonl files of texts, for pre-training
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
