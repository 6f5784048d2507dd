"""The table of sources, and what of each is part of an artifact's identity."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from midmask.artifact import Place
from midmask.corpora.sentences import splitter
from midmask.errors import UserError
from midmask.identity import library_versions, model_content
from midmask.queries.config import PLAIN, QueriesConfig, kind_and_place
from midmask.queries.files import FileQueries
from midmask.queries.keyphrases import KeyphraseQueries
from midmask.queries.made import Source
from midmask.queries.sentences import SentenceQueries
from midmask.queries.spans import SpanQueries
from midmask.queries.titles import TitleQueries
from midmask.queries.words import TermWeights
from midmask.retrieve.bm25_search import Bm25Index

WHOLE = ("titles", "file")
"""Kinds that go through all passages: most of these give no query, and it costs nothing."""


@dataclass(frozen=True)
class Known:
    """What sources need to know of the whole collection. titles: title -> number of passages with it. index: BM25 over
    the passages as they were; none where no source asks for it.
    """

    weights: TermWeights
    titles: Mapping[str, int]
    index: Bm25Index | None = None


def open_source(source: str, config: QueriesConfig, known: Known, limit: int, cache: Place) -> Source:
    """The source of this name (`QueriesConfig.sources`).

    Args:
        limit: number of queries that are enough of it. cache: where a model's or a server's answers are kept until
            the step has ended.

    Raises:
        UserError: if its file, model or server is not what it should be.
    """
    kind, place = kind_and_place(source)
    if kind in PLAIN:
        return open_plain(kind, config, known)
    if kind == "file":
        assert known.index is not None
        return FileQueries(Place(place), known.index, config.margin, limit, config.seed)
    # Both import large libraries, or reach for a network.
    module, name = {"model": ("generator", "ModelQueries"), "http": ("server", "ServerQueries")}[kind]
    opened: Source = getattr(import_module(f"midmask.queries.{module}"), name)(place, config, cache=cache)
    return opened


def open_plain(kind: str, config: QueriesConfig, known: Known) -> Source:
    """A source that needs nothing but the passages."""
    if kind == "titles":
        return TitleQueries(known.titles, config.copies)
    if kind == "sentences":
        return SentenceQueries(config.seed, config.per_passage)
    if kind == "spans":
        return SpanQueries(config.seed, config.per_passage)
    return KeyphraseQueries(known.weights, config.seed, config.per_passage)


def queries_content(config: QueriesConfig) -> dict[str, Any]:
    """Fingerprints of the files and models that the sources name, and versions of the libraries that decide what the
    queries are, as a part of the artifact's identity. A server is known by its URL alone.

    Raises:
        UserError: if a file or a model is not there.
    """
    found: dict[str, Any] = {"libraries": library_versions(("bm25s", "PyStemmer"))}
    for source in config.sources:
        kind, place = kind_and_place(source)
        if kind == "sentences":
            found["sentences"] = splitter()
        if kind == "file":
            if not Place(place).exists() or Place(place).is_folder():
                raise UserError(f"queries.sources, {source}: there is no such file")
            found[source] = Place(place).digest()
        if kind == "model":
            found[source] = model_content(Path(place), "queries.sources")
    return found
