"""Configuration of made queries: their sources, their number, and the rules for keeping them."""

import math
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from midmask.core.config import Config, runtime
from midmask.queries.query_model import PASSAGE, GenerateConfig
from midmask.queries.sources import canonical

PLAIN = ("titles", "sentences", "spans", "keyphrases")
"""Sources that need nothing but the passages."""

SPLITS = (TRAIN, DEV, TEST) = ("train", "dev", "test")
JUDGE = (DEV, TEST)
"""The splits that systems are judged by."""

ALL = "all"
"""Value of `judged_by` that stands for every source."""

SOURCES = (*PLAIN, "file:PATH", "model:FOLDER", "http:URL")


class QueriesConfig(Config):
    """Queries without people."""

    sources: dict[str, float] = Field(
        {"titles": 1.0, "sentences": 1.0, "keyphrases": 1.0},
        min_length=1,
        description="source -> weight: titles, sentences, spans, keyphrases, file:PATH, model:FOLDER or http:URL; a "
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
    margin: float = Field(
        0.1,
        ge=0,
        description="file: how much more than its second passage, as a share, BM25 must score the first for a query",
    )
    round_trip: Literal["none", "bm25", "either"] = Field(
        "either",
        description="a query is kept if this search finds its passage again; either: BM25 or the encoder that systems "
        "start from, if that was trained before, so that neither is favoured",
    )
    round_trip_depth: int = Field(20, ge=1, le=1000, description="ranks within which the passage has to be found")
    bm25_target: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="RR@10 that BM25 may reach at most on the queries of each source: the easiest ones are dropped; "
        "none: all stay",
    )
    dev_share: float = Field(0.15, gt=0, lt=1, description="share of the queries that are for choosing, by document")
    test_share: float = Field(0.25, gt=0, lt=1, description="share of the queries that are for reporting, by document")
    precision: Literal["fp32", "bf16"] = Field("fp32", description="of the encoder that takes part in the round trip")
    seed: int = Field(0, ge=0, description="of the hashes that draw queries and splits")
    generate: GenerateConfig = Field(
        default_factory=GenerateConfig,
        description="model: how it writes queries; of a server its max_tokens, top_p and seed",
    )
    server_model: str | None = Field(None, description="http: name of the model; none: the server's only one")
    server_prompt: str = Field(
        "Write {count} different queries that a person who does not know the passage below could type into a search "
        "engine and that this passage answers. Use your own words where you can. Write one query a line, without "
        "numbers, quotes or explanations. Passage: {passage}",
        description="http: the message of a request, with {passage}, and {count} for the number of queries",
        max_length=20_000,
    )
    server_characters: int = Field(
        4_000, ge=100, description="http: characters of a passage that are sent; the rest is cut"
    )
    server_temperature: float = Field(0.7, ge=0, le=2, description="http: temperature of the answers")
    server_max_requests: int | None = Field(
        None,
        description="http: largest number of passages that the server is asked about; the rest get no query; none: all",
        ge=1,
    )
    server_max_tokens: int | None = Field(
        None,
        description="http: tokens of prompts and answers, as the server counts them, after which no more are asked for",
        ge=1,
    )
    server_seconds: float = runtime(120.0, "http: seconds that an answer may take", gt=0)
    server_retries: int = runtime(5, "http: how often a request is repeated that failed for a passing reason", ge=0)
    server_concurrency: int = runtime(4, "http: requests at once", ge=1, le=256)

    @field_validator("sources")
    @classmethod
    def _known_sources(cls, sources: dict[str, float]) -> dict[str, float]:
        weights: dict[str, float] = {}
        for source, weight in sources.items():
            if not (weight > 0 and math.isfinite(weight)):
                raise ValueError(f"{source} has the weight {weight}; weights are above 0, leave the source out instead")
            name = canonical(source, SOURCES)
            if name in weights:
                raise ValueError(f"{name} is named twice")
            weights[name] = weight
        return weights

    @field_validator("judged_by")
    @classmethod
    def _canonical_judges(cls, sources: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(source if source == ALL else canonical(source, SOURCES) for source in sources)

    @model_validator(mode="after")
    def _judges_are_sources(self) -> Self:
        for source in self.judged_by:
            if source not in (*self.sources, ALL):
                raise ValueError(
                    f"judged_by names {source}, which is no source; the sources are {', '.join(self.sources)}"
                )
        return self

    @model_validator(mode="after")
    def _room_for_train(self) -> "QueriesConfig":
        if self.dev_share + self.test_share >= 1:
            raise ValueError(f"dev_share + test_share = {self.dev_share + self.test_share}: nothing is left for train")
        return self

    @model_validator(mode="after")
    def _prompt_holds_the_passage_once(self) -> Self:
        if self.server_prompt.count(PASSAGE) != 1:
            raise ValueError(f"server_prompt must contain {PASSAGE} once, where the passage is put")
        return self

    def wanted(self, split: str) -> int:
        """The most queries that are kept for a split."""
        judged = {DEV: round(self.dev_share * self.max_queries), TEST: round(self.test_share * self.max_queries)}
        return self.max_queries - sum(judged.values()) if split == TRAIN else judged[split]
