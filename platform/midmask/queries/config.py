"""Which queries are made, how many, and which of them are kept."""

from typing import Literal

from pydantic import Field

from midmask.identity import Config


class QueriesConfig(Config):
    """Queries without people."""

    sources: dict[str, float] = Field(
        {"titles": 1.0, "sentences": 1.0, "keyphrases": 1.0},
        min_length=1,
        description="source -> weight: titles, sentences, spans, keyphrases, file:PATH, model:FOLDER or http:URL; a "
        "source's share of the queries is its weight's share, as far as it has so many",
    )
    max_queries: int = Field(3_000, ge=30, description="largest number of queries that are kept")
    per_passage: int = Field(2, ge=1, description="largest number of queries of a passage that are kept")
    round_trip: Literal["none", "bm25", "encoder", "either"] = Field(
        "bm25", description="a query is kept if this search finds its passage again"
    )
    round_trip_depth: int = Field(20, ge=1, description="ranks within which the passage has to be found")
    dev_share: float = Field(0.15, gt=0, lt=1, description="share of the documents whose queries are for choosing")
    test_share: float = Field(0.25, gt=0, lt=1, description="share of the documents whose queries are for reporting")
    seed: int = Field(0, ge=0, description="of the hashes that draw queries and splits")
