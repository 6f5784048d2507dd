"""A verdict's systems over its collection, asked by hand: what each of them finds for a typed query, and how fast.

VERDICT/verdict.json     which systems, their model folders, the collection
VERDICT/search/          what the searches need, computed once: vectors of all passages, BM25's index
"""

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow.parquet as pq

from midmask.artifact import Artifact, Place
from midmask.choice.rankers import FusedRanker, Ranker, ScoredDocument, SearchStore, Show, reads_titles
from midmask.choice.verdict import SystemEstimate, Verdict
from midmask.corpora import CorpusConfig
from midmask.errors import UserError, reason, unknown
from midmask.randomness.texts import fixed_sample
from midmask.retrieve.searcher import Hit
from midmask.retrieve.stored_passages import StoredPassages

FILE = "verdict.json"

DEPTH = 100
"""Passages ranked for a query, however many are shown: judgements and rank changes look further than the eye."""

ANSWERS_KEPT = 4096
"""Ranked lists that stay in memory, so that a page that is drawn again does not search again."""


@dataclass(frozen=True)
class RankedAnswer:
    """A system's ranked list for one query. seconds: that the search took, from the text to the list; reading the
    texts, loading the model and encoding the collection do not count. how: what was scored.
    """

    scored: tuple[ScoredDocument, ...]
    seconds: float
    how: str

    @property
    def doc_ids(self) -> tuple[str, ...]:
        return tuple(doc_id for doc_id, _ in self.scored)


class SideBySide:
    """The systems of a verdict's folder. Safe to use from several threads.

    Args:
        folder: holds `verdict.json`. Paths in it that are not absolute are relative to the folder.

    Raises:
        UserError: if there is no verdict, or its collection is not there.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser().absolute()
        self.verdict = read_verdict(self.folder)
        self.collection = self._path(self.verdict.collection)
        if not self.collection.is_dir():
            raise UserError(
                f"{self.folder / FILE}: its collection {str(self.collection)!r} is not there; put it back, or run "
                f"again: {self.verdict.command}"
            )
        corpus = CorpusConfig(name=f"beir:{self.collection}", splits="official")
        self._store = SearchStore(corpus, Place(str(self.folder / "search")))
        self._prepared: Artifact | None = None
        self._open: dict[str, Ranker] = {}
        self._answers: OrderedDict[tuple[str, str, int], RankedAnswer] = OrderedDict()
        self._opening, self._searching = threading.RLock(), threading.RLock()

    @cached_property
    def systems(self) -> tuple[str, ...]:
        """Labels of the systems that can be asked, the verdict's best first."""
        return tuple(one.label for one in self._ranked() if one.label not in self.missing)

    @cached_property
    def missing(self) -> Mapping[str, str]:
        """Label of each system that cannot be asked -> why."""
        folders = {one.label: self._path(one.model) for one in self._ranked() if one.model}
        return {
            label: f"its model folder {folder} is not there"
            for label, folder in folders.items()
            if not (folder / "config.json").is_file()
        }

    @property
    def recommended(self) -> str:
        """Label of the recommended system."""
        wanted = self.verdict.recommendation.name
        found = (one.label for one in self._ranked() if one.name == wanted)
        return next(found, self._ranked()[0].label)

    @property
    def baseline(self) -> str:
        return self.verdict.baseline

    @property
    def opened(self) -> tuple[str, ...]:
        """Labels of the systems that answer at once, the verdict's best first."""
        return tuple(label for label in self.systems if label in self._open)

    def estimate(self, label: str) -> SystemEstimate:
        """What the verdict says of a system.

        Raises:
            UserError: for a label that the verdict does not have.
        """
        found = {one.label: one for one in self._ranked()}
        if label not in found:
            raise unknown("system", label, found)
        return found[label]

    def model_of(self, label: str) -> Path | None:
        """A system's model folder; None for BM25."""
        name = self.estimate(label).model
        return self._path(name) if name else None

    def open(self, label: str, show: Show | None = None) -> Ranker:
        """Loads a system. The first time ever this encodes the collection, which may take minutes.

        Args:
            show: takes lines of progress.

        Raises:
            UserError: for an unknown label, or a model that cannot be read.
        """
        if label not in self.systems:
            self.estimate(label)
            raise UserError(f"{label}: {self.missing[label]}; choose one of {', '.join(self.systems)}")
        with self._opening:
            if label not in self._open:
                ranker = self._make(self.estimate(label), show or _ignore)
                ranker.rank("warm up", 1)  # opens files and weights, which is no part of a search's time
                self._open[label] = ranker
        return self._open[label]

    def rank(self, label: str, query: str, k: int = DEPTH) -> RankedAnswer:
        """The best `k` passages of a query by one system; a query that was asked before is not searched again.

        Raises:
            UserError: as `open`, and if k is below 1.
        """
        if k < 1:
            raise UserError(f"k = {k}: a search gives at least 1 passage")
        ranker = self.open(label)
        key = (label, query, k)
        with self._searching:
            if key not in self._answers:
                began = time.perf_counter()
                scored = tuple(ranker.rank(query, k))
                self._answers[key] = RankedAnswer(scored, time.perf_counter() - began, ranker.how)
                while len(self._answers) > ANSWERS_KEPT:
                    self._answers.popitem(last=False)
            self._answers.move_to_end(key)
            return self._answers[key]

    def search(self, label: str, query: str, k: int = 10) -> list[Hit]:
        """The best `k` passages of a query with their texts; `rank` gives the same list with its time.

        Raises:
            UserError: as `rank`.
        """
        scored = self.rank(label, query, max(k, DEPTH) if k >= 1 else k).scored[:k]
        passages = self.passages([doc_id for doc_id, _ in scored])
        return [Hit(doc_id, score, *passages[doc_id][1:]) for doc_id, score in scored]

    def passages(self, doc_ids: Sequence[str]) -> dict[str, tuple[str, str, str]]:
        """Document id -> (document id, title, text); ids that the collection lacks are left out."""
        with self._searching:
            return self._stored.find(doc_ids)

    @cached_property
    def _stored(self) -> StoredPassages:
        return StoredPassages(self._corpus().place)

    @cached_property
    def made_queries(self) -> Mapping[str, str]:
        """At most 200 of the verdict's test queries by id, in the order of a hash; empty if it has none."""
        corpus = self._corpus().place
        qrels = pq.read_table((corpus / "qrels.parquet").local(), columns=["split", "query_id"]).to_pylist()
        test = sorted({row["query_id"] for row in qrels if row["split"] == "test"})
        rows = pq.read_table((corpus / "queries.parquet").local(), columns=["query_id", "text"]).to_pylist()
        texts = {row["query_id"]: row["text"] for row in rows}
        return {name: texts[name] for name in fixed_sample(test, min(200, len(test)))}

    @property
    def quarantined(self) -> int:
        """Passages of the collection that cannot be read and no system finds."""
        return sum(self._corpus().result["rows_by_kind"]["docs"]["quarantined"].values())

    def _corpus(self, show: Show | None = None) -> Artifact:
        """The collection as it was prepared."""
        with self._opening:
            if self._prepared is None:
                self._prepared = self._store.open_corpus(show or _ignore)
            return self._prepared

    def _make(self, system: SystemEstimate, show: Show) -> Ranker:
        self._corpus(show)  # read once, whatever systems are opened side by side
        if not system.model:
            return self._store.open_bm25(show, titles=self._titles)
        folder = self._path(system.model)
        encoder = self._store.open_encoder(folder, self._stored, show)
        if not system.is_joined:
            return encoder
        return FusedRanker(encoder, self._store.open_bm25(show, titles=reads_titles(folder)))

    @cached_property
    def _titles(self) -> bool:
        """Whether BM25 reads titles: as the best system with a model does, which it was compared with."""
        folders = [self._path(one.model) for one in self._ranked() if one.model and one.label in self.systems]
        return not folders or reads_titles(folders[0])

    def _ranked(self) -> list[SystemEstimate]:
        return sorted(self.verdict.systems, key=lambda one: one.rank)

    def _path(self, name: str) -> Path:
        return (self.folder / Path(name).expanduser()).absolute()


def read_verdict(folder: Path) -> Verdict:
    """The verdict in a folder.

    Raises:
        UserError: if there is none, or it cannot be read.
    """
    try:
        verdict = Verdict.from_json((folder / FILE).read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"--verdict {folder}: there is no {FILE}; name the folder that `midmask choose` wrote"
        ) from None
    except (OSError, json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{folder / FILE}: not a verdict ({reason(error)}); run `midmask choose` again") from None
    if not verdict.systems:
        raise UserError(f"{folder / FILE}: a verdict without systems; run `midmask choose` again")
    return verdict


def rank_changes(own: Sequence[str], other: Sequence[str]) -> list[int | None]:
    """How many ranks higher each document of a list stands there than in another list; below 0: lower. None: the other
    list lacks it.
    """
    places = {doc_id: rank for rank, doc_id in enumerate(other)}
    return [places[doc_id] - rank if doc_id in places else None for rank, doc_id in enumerate(own)]


def _ignore(line: str) -> None:
    """Shows nothing."""
