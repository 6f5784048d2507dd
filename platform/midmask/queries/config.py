"""The table of sources of queries, their names, and the configuration of made queries.

A source's name is KIND or KIND:PLACE. A new source is a class in a file of its own
(`sources.Source`) and a line in this table.
"""

import math
from collections.abc import Collection
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from midmask.core.config import Config
from midmask.errors import UserError
from midmask.queries.query_model import GenerateConfig
from midmask.store.place import Place

QUERY_SOURCES = {  # name as it is typed -> module and class, imported when the source is used
    "titles": ("source_classes", "TitleQueries"),
    "sentences": ("source_classes", "SentenceQueries"),
    "keyphrases": ("source_classes", "KeyphraseQueries"),
    "file:PATH": ("source_classes", "FileQueries"),
    "model:FOLDER": ("source_classes", "ModelQueries"),
}


def listed(choices: Collection[str]) -> str:
    """`a, b or c`."""
    *others, last = choices
    return f"{', '.join(others)} or {last}"


def kind_and_place(source: str) -> tuple[str, str]:
    """A source's kind (`titles`, …, `file`, `model`) and its path, "" if it has none."""
    kind, _, place = source.partition(":")
    return kind, place


def canonical(source: str, choices: Collection[str]) -> str:
    """One name for each source: paths absolute, since workers run in other folders.

    Args:
        choices: as people are told them: KIND, `file:PATH`, `model:FOLDER`.

    Raises:
        ValueError: if the source is none of the choices.
    """
    kind, place = kind_and_place(source)
    if place and any(choice.startswith(f"{kind}:") for choice in choices):
        return source if "://" in place else f"{kind}:{Path(place).expanduser().absolute()}"
    if source in choices:
        return source
    raise ValueError(f"there is no source {source!r}; choose {listed(choices)}")


def file_content(path: str, named: str) -> str:
    """A file's fingerprint.

    Args:
        named: the field and its value, for the error's text.

    Raises:
        UserError: if there is no such file.
    """
    if not Place(path).exists() or Place(path).is_folder():
        raise UserError(f"{named}: there is no such file")
    return Place(path).digest()


SPLITS = (TRAIN, DEV, TEST) = ("train", "dev", "test")
JUDGE = (DEV, TEST)
"""The splits that systems are judged by."""

ALL = "all"
"""Value of `judged_by` that stands for every source."""


class QueriesConfig(Config):
    """Queries without people."""

    sources: dict[str, float] = Field(
        {"titles": 1.0, "sentences": 1.0, "keyphrases": 1.0},
        min_length=1,
        description=f"source -> weight: {listed(QUERY_SOURCES)}; a "
        "source's share of the queries is its weight's share, as far as it has so many",
    )
    judged_by: tuple[str, ...] = Field(
        (),
        description="sources whose queries are for dev and test alone, while the others train: no system is judged by "
        "queries of a kind that it has learned; none: titles where passages have their own, else sentences; "
        "all: each source does both",
    )
    max_queries: int = Field(3_000, ge=30, description="largest number of queries that are kept")
    per_passage: int = Field(2, ge=1, description="largest number of queries of a passage that are kept")
    candidates: float = Field(
        3.0,
        ge=1,
        le=1000,
        description="passages that a source reads for each query of its share, chosen by a hash; more are read where "
        "few queries pass the filters, and models are asked more often",
    )
    copies: int = Field(
        3, ge=1, description="largest number of passages with one title, or nearly one text, that a query is made for"
    )
    round_trip: Literal["none", "bm25", "either"] = Field(
        "either",
        description="a query is kept if this search finds its passage again; either: BM25 or the encoder that systems "
        "start from, if that was trained before, so that neither is favoured",
    )
    round_trip_depth: int = Field(20, ge=1, le=1000, description="ranks within which the passage has to be found")
    dev_share: float = Field(0.15, gt=0, lt=1, description="share of the queries that are for choosing, by document")
    test_share: float = Field(0.25, gt=0, lt=1, description="share of the queries that are for reporting, by document")
    precision: Literal["fp32", "bf16"] = Field("fp32", description="of the encoder that takes part in the round trip")
    seed: int = Field(0, ge=0, description="of the hashes that draw queries and splits")
    generate: GenerateConfig = Field(default_factory=GenerateConfig, description="model: how it writes queries")

    @field_validator("sources")
    @classmethod
    def _known_sources(cls, sources: dict[str, float]) -> dict[str, float]:
        weights: dict[str, float] = {}
        for source, weight in sources.items():
            if not (weight > 0 and math.isfinite(weight)):
                raise ValueError(f"{source} has the weight {weight}; weights are above 0, leave the source out instead")
            name = canonical(source, QUERY_SOURCES)
            if name in weights:
                raise ValueError(f"{name} is named twice")
            weights[name] = weight
        return weights

    @field_validator("judged_by")
    @classmethod
    def _canonical_judges(cls, sources: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(source if source == ALL else canonical(source, QUERY_SOURCES) for source in sources)

    @model_validator(mode="after")
    def _fields_fit_together(self) -> Self:
        for source in self.judged_by:
            if source not in (*self.sources, ALL):
                raise ValueError(
                    f"judged_by names {source}, which is no source; the sources are {', '.join(self.sources)}"
                )
        if self.dev_share + self.test_share >= 1:
            raise ValueError(f"dev_share + test_share = {self.dev_share + self.test_share}: nothing is left for train")
        return self

    def most_queries(self, split: str) -> int:
        """The most queries that are kept for a split."""
        judged = {DEV: round(self.dev_share * self.max_queries), TEST: round(self.test_share * self.max_queries)}
        return self.max_queries - sum(judged.values()) if split == TRAIN else judged[split]
