"""The table of the formats of collections, and the configuration of a collection and of how it is read.

A format's own module is imported when something of it is read, so that neither `--help` nor a collection's name waits
for Arrow.
"""

from typing import Literal

from pydantic import Field, field_validator

from midmask.core.config import Config, added, runtime
from midmask.core.registry import Registry
from midmask.corpora.documents import KINDS, ending
from midmask.errors import UserError, unknown

FORMATS: Registry[Literal["FOLDER", "ID", ""]] = Registry(
    "corpus format",
    {
        "pydocs": "",  # docstrings of installed packages
        "beir": "FOLDER",  # Thakur et al. 2021: jsonl files and qrels/SPLIT.tsv
        "msmarco": "FOLDER",  # the official passage files, TREC Deep Learning
        "nq": "FOLDER",  # Natural Questions and the like, as DPR distributes them
        "tripclick": "FOLDER",  # Rekabsaz et al. 2021: queries by head, torso and tail
        "hf": "FOLDER",  # saved to disk by Hugging Face's `datasets`
        "texts": "FOLDER",  # jsonl files of texts, for pre-training
        "docs": "FOLDER",  # documents of people, cut into passages
        "ir_datasets": "ID",  # MacAvaney et al. 2021
    },
)
"""Format, and module of this package with its `READER` -> what stands after `NAME:` in a corpus's name: a FOLDER (or
URI), an ID, or nothing for a collection that is built in.
"""


def name_forms() -> str:
    """How a corpus can be named, for help and errors: `pydocs, FORMAT:FOLDER with FORMAT beir, … or texts, or …:ID`."""
    built_in, folders, ids = ([name for name in FORMATS if FORMATS[name] == p] for p in ("", "FOLDER", "ID"))
    forms = [*built_in, f"FORMAT:FOLDER with FORMAT {', '.join(folders[:-1])} or {folders[-1]}"]
    return ", ".join(forms) + "".join(f", or {name}:ID" for name in ids)


def refuse_unknown_form(name: str) -> None:
    """Raises UserError for a corpus's name whose format is unknown, or whose place is missing or one too many."""
    kind, colon, place = name.partition(":")
    if kind not in FORMATS:
        raise unknown(FORMATS.kind, kind, FORMATS, hint=f"Write {name_forms()}.")
    place_form = FORMATS[kind]
    if colon and not place_form:
        raise UserError(f"corpus {name!r}: {kind} takes no place; write {kind}")
    if place_form and not place:
        raise UserError(f"corpus {name!r}: the {place_form.lower()} is missing; write {kind}:{place_form}")


def has_folder(name: str) -> bool:
    """Whether a corpus of this format is named by a folder or URI; True for names that are no format, such as groups of
    collections.
    """
    return name not in FORMATS or FORMATS[name] == "FOLDER"


PACKAGES = tuple(
    "torch numpy scipy pandas ray transformers mlflow optuna pyarrow sklearn networkx matplotlib sympy streamlit "
    "sqlalchemy huggingface_hub".split()
)
"""Import names of packages that midmask's own dependencies install, so they are on every machine where midmask is."""


class CorpusConfig(Config):
    """A collection of passages, queries and judgements.

    Raises:
        UserError: for a name of an unknown format, or a format without a place.
    """

    name: str = Field(
        "pydocs",
        description=f"{name_forms()}; a FOLDER may be a URI. An ID whose children are judged (beir/scifact: train, "
        "test) has these as splits; any other is one split: train, dev or test, as its parts say "
        "(antique/train/split200-valid is dev), test if none does",
    )
    max_passages: int | None = Field(
        None,
        ge=1,
        description="largest number of passages, chosen by a hash of the id (pydocs: of the near-duplicate cluster); "
        "judgements of the others are left out, and queries that have neither a relevant passage left nor answer "
        "strings; none: all",
    )
    max_characters: int = Field(
        50_000,
        ge=1,
        description="longest passage in characters, title not counted; a longer one is quarantined as oversized",
    )
    bad_rows_threshold: float = runtime(
        0.01,
        "largest share of bad rows, of the documents, the queries and the judgements each, before reading stops; files "
        "of docs: that cannot be read are quarantined but do not count",
        ge=0,
        le=1,
    )
    splits: Literal["complete", "official"] = Field(
        "complete",
        description="complete: those of train, dev and test that the collection lacks are drawn from the others, "
        "because a recipe needs all three; official: the splits of the files, as in published results",
    )
    self_matches: Literal["auto", "id", "none"] = Field(
        "auto",
        description="how a query that is itself a passage is recognised, to leave it out of its own results (ArguAna, "
        "Quora): id: the same id; none: no query is a passage; auto: chosen from the data",
    )
    split_seed: int = Field(0, description="seed of the hashes that draw splits and samples")
    packages: tuple[str, ...] = Field(
        PACKAGES, min_length=1, description="pydocs only: import names of the packages to read"
    )

    passage_words: int = added(
        120,
        "docs: only: largest size of a passage in words; documents are cut along headings, paragraphs and sentences",
        ge=10,
    )
    text_column: str | None = added(
        None,
        "docs: only: column of a table's texts; none: text",
    )
    title_column: str | None = added(
        None, "docs: only: column of a table's titles; none: title, or there are no titles"
    )

    @field_validator("name")
    @classmethod
    def _refuse_unknown_format(cls, name: str) -> str:
        refuse_unknown_form(name)
        return name

    @property
    def format(self) -> str:
        return self.name.partition(":")[0]

    @property
    def place(self) -> str:
        """The folder, URI or id after the colon; empty for pydocs."""
        return self.name.partition(":")[2]

    @property
    def short_name(self) -> str:
        """Name in metrics and tables: `pydocs`, an id with hyphens for slashes, or the last folder of the place; of
        a place that is one document, its name without the ending.
        """
        if FORMATS[self.format] == "ID":
            return self.place.replace("/", "-")
        last = self.place.rstrip("/").rsplit("/", 1)[-1] if self.place else self.name
        return last[: -len(ending(last))] if self.format == "docs" and ending(last) in KINDS else last
