"""A verdict's systems over its collection, asked by hand: what each of them finds for a typed query.

    VERDICT/verdict.json     which systems, their model folders, the collection
    VERDICT/search/          what the searches need, computed once: vectors of all passages, BM25's index

What a system needs (the collection as it tokenises it, the vectors of all passages, BM25's index) is computed by the
steps of an experiment, in this process, into a store beside the verdict. A step's fingerprint covers the contents of
the collection and of the model's files, so another model is encoded anew and the same one never twice.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from midmask.benchmark.design import BM25_SHARE
from midmask.choice.contenders import FUSION
from midmask.choice.verdict import Verdict
from midmask.core.config import as_user_error, override
from midmask.core.process import usable_cores
from midmask.corpora import CorpusConfig
from midmask.encoders.model_settings import read_facts
from midmask.errors import UserError, reason, unknown
from midmask.experiment.changes import as_folder_reads, check_folder
from midmask.experiment.events import Begun, Observer, StepEvent
from midmask.experiment.kinds import LOCAL
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner
from midmask.experiment.searching import adopted, bm25_index, passage_encoding_step
from midmask.experiment.training_steps import Survey
from midmask.recipes import RECIPES
from midmask.retrieve import ranked
from midmask.retrieve.blocks import StoredPassages
from midmask.retrieve.bm25.search import Bm25Config, Bm25Index
from midmask.retrieve.ranked import fuse
from midmask.retrieve.searcher import Hit, Searcher
from midmask.store.artifact import Artifact
from midmask.store.place import Place

Show = Callable[[str], None]
"""Takes a line of progress."""

ScoredDocument = tuple[str, float]
"""A document id and the score of the query with it; larger is better."""

JOINED_DEPTH = 101
"""Passages of each list that are joined, as in an evaluation of the usual depth: a deeper list would rank otherwise."""


Ranker = Callable[[str, int], list[ScoredDocument]]
"""query, k -> the best passages in order; ties by document id."""


def fused_ranker(encoder: Ranker, bm25: Ranker) -> Ranker:
    """An encoder's list and BM25's as one, joined as in the contest."""

    def rank(query: str, k: int) -> list[ScoredDocument]:
        lists = [_as_table(ranker(query, max(k, JOINED_DEPTH))) for ranker in (encoder, bm25)]
        return _scored(fuse(lists[0], lists[1], BM25_SHARE, k, FUSION))

    return rank


def _as_table(found: list[ScoredDocument]) -> pa.Table:
    doc_ids, scores = [doc_id for doc_id, _ in found], [score for _, score in found]
    return ranked.order(pa.table({"query_id": ["query"] * len(found), "doc_id": doc_ids, "score": scores}))


def _scored(table: pa.Table) -> list[ScoredDocument]:
    return list(zip(table["doc_id"].to_pylist(), table["score"].to_pylist(), strict=True))


class SearchStore:
    """A collection, and the vectors and indexes that systems need to search it, computed into `store` on first use."""

    def __init__(self, corpus: CorpusConfig, store: Place) -> None:
        self._config = corpus
        self._store = store
        self._survey = Survey()

    def open_corpus(self, show: Show) -> Artifact:
        """The collection as it was prepared; bad rows are in its `result`.

        Raises:
            UserError: if there is no BEIR folder.
        """
        return self._runner(show).compute(plan(self._recipe(), self._survey).corpus)

    def open_encoder(self, folder: Path, show: Show) -> Ranker:
        """Exact search with a model's vectors of the collection; raises as `open_searcher`."""
        stored = StoredPassages(self.open_corpus(show).place)
        searcher = self.open_searcher(folder, show)

        def rank(query: str, k: int) -> list[ScoredDocument]:
            scores_QK, rows_QK = searcher.find([query], k)
            pairs = zip(rows_QK[0].tolist(), scores_QK[0].tolist(), strict=True)
            return [(stored.doc_ids[row].as_py(), score) for row, score in pairs if row >= 0]

        return rank

    def open_searcher(self, folder: Path, show: Show) -> Searcher:
        """The exact search with a model folder's vectors of the collection, which are encoded if they are missing.

        Raises:
            UserError: if the folder holds no model, or one that midmask cannot follow.
        """
        recipe = as_folder_reads(self._recipe(), folder, ())
        check_folder(recipe, folder)
        planned = plan(recipe, self._survey)
        config = recipe.evaluation.model_copy(update={"threads": usable_cores()}).settled(planned.precision)
        passages = passage_encoding_step(planned.tokens, adopted(str(folder)), config)
        runner = self._runner(show)
        encoded = runner.compute(passages)
        model, tokens = (runner.compute(passages.inputs[name]) for name in ("model", "tokens"))
        corpus = runner.compute(planned.corpus)
        return Searcher(model=model, corpus=corpus, tokens=tokens, passages=encoded)

    def open_bm25(self, show: Show, *, titles: bool) -> Ranker:
        """BM25 with the settings of its evaluation; passages that share no word with the query are not in its list.

        Args:
            titles: a passage is 'title text' instead of the text alone.
        """
        step = bm25_index(plan(self._recipe(), self._survey).corpus, Bm25Config(titles=titles))
        index = Bm25Index(self._runner(show).compute(step).place)
        return lambda query, k: _scored(index.search(["query"], [query], k))

    def _recipe(self) -> Any:
        return override(RECIPES["none"](), {"corpus": self._config.model_dump()})

    def _runner(self, show: Show) -> Runner:
        return Runner(self._store, LOCAL, _step_lines(show))


def reads_titles(folder: Path) -> bool:
    """Whether a model folder's passages are 'title text': unless it says that it was trained without titles.

    Raises:
        UserError: if the folder's files contradict each other.
    """
    return read_facts(folder).form.titles is not False


STEP_LINES: Mapping[str, str] = {
    "prepare": "Reading the collection",
    "tokenise": "Cutting the passages into tokens",
    "encode": "Encoding the passages",
    "bm25_words": "Counting the words of all passages",
    "bm25_index": "Indexing the words of all passages",
}
"""Step -> the line that is shown when it begins."""


def _step_lines(show: Show) -> Observer:
    def observe(event: StepEvent) -> None:
        if isinstance(event, Begun) and event.step.name in STEP_LINES:
            show(STEP_LINES[event.step.name])

    return observe


FILE = "verdict.json"


def _ignore(line: str) -> None:
    """Shows nothing."""


DEPTH = 100
"""Passages of a list, however many are shown: rank changes look further than the eye."""


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
        self.baseline, self.recommended = self.verdict.baseline, self.verdict.recommended.label
        self.collection = self._path(self.verdict.collection)
        if not self.collection.is_dir():
            raise UserError(
                f"{self.folder / FILE}: its collection {str(self.collection)!r} is not there; put it back, or run "
                f"again: {self.verdict.command}"
            )
        corpus = CorpusConfig(name=f"beir:{self.collection}", splits="official")
        self._store = SearchStore(corpus, Place(str(self.folder / "search")))
        self._estimates = {one.label: one for one in sorted(self.verdict.systems, key=lambda one: one.rank)}
        self._open: dict[str, Ranker] = {}
        self._opening, self._searching = threading.RLock(), threading.RLock()

    @property
    def systems(self) -> tuple[str, ...]:
        """Labels of the systems, the verdict's best first."""
        return tuple(self._estimates)

    def is_open(self, label: str) -> bool:
        """Whether a system answers at once."""
        return label in self._open

    def model_of(self, label: str) -> Path | None:
        """A system's model folder; None for BM25."""
        name = self._estimates[label].model
        return self._path(name) if name else None

    def open(self, label: str, show: Show = _ignore) -> Ranker:
        """Loads a system. The first time ever this encodes the collection, which may take minutes.

        Args:
            show: takes lines of progress.

        Raises:
            UserError: for an unknown label, or a model that cannot be read.
        """
        if label not in self._estimates:
            raise unknown("system", label, self._estimates)
        with self._opening:
            if label not in self._open:
                self._open[label] = self._make(label, show)
        return self._open[label]

    def rank(self, label: str, query: str, k: int = DEPTH) -> list[ScoredDocument]:
        """The best `k` passages of a query by one system.

        Raises:
            UserError: as `open`, and if k is below 1.
        """
        if k < 1:
            raise UserError(f"k = {k}: a search gives at least 1 passage")
        ranker = self.open(label)
        with self._searching:
            return ranker(query, k)

    def search(self, label: str, query: str, k: int = 10) -> list[Hit]:
        """The best `k` passages of a query with their texts."""
        scored = self.rank(label, query, k)
        passages = self.passages([doc_id for doc_id, _ in scored])
        return [Hit(doc_id, score, *passages[doc_id][1:]) for doc_id, score in scored]

    def passages(self, doc_ids: Sequence[str]) -> dict[str, tuple[str, str, str]]:
        """Document id -> (document id, title, text); ids that the collection lacks are left out."""
        with self._searching:
            return self._stored.find(doc_ids)

    @cached_property
    def _stored(self) -> StoredPassages:
        return StoredPassages(self._store.open_corpus(_ignore).place)

    def _make(self, label: str, show: Show) -> Ranker:
        folder = self.model_of(label)
        if folder is None:
            return self._store.open_bm25(show, titles=self._titles)
        encoder = self._store.open_encoder(folder, show)
        if not self._estimates[label].joined:
            return encoder
        return fused_ranker(encoder, self._store.open_bm25(show, titles=reads_titles(folder)))

    @property
    def _titles(self) -> bool:
        """Whether BM25 reads titles: as the verdict's model does, which it was compared with."""
        return not self.verdict.model or reads_titles(self._path(self.verdict.model))

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
    except (OSError, ValueError) as error:
        why = as_user_error(error, "") if isinstance(error, ValidationError) else reason(error)
        raise UserError(f"{folder / FILE}: not a verdict of this version ({why}); run `midmask choose` again") from None
    if not verdict.systems:
        raise UserError(f"{folder / FILE}: a verdict without systems; run `midmask choose` again")
    return verdict


def rank_changes(own: Sequence[str], other: Sequence[str]) -> list[int | None]:
    """Ranks that each document of a list gains over another list; negative if it is lower, None if missing there."""
    places = {doc_id: rank for rank, doc_id in enumerate(other)}
    return [places[doc_id] - rank if doc_id in places else None for rank, doc_id in enumerate(own)]
