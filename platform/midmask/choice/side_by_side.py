"""A verdict's systems over its collection, asked by hand: what each of them finds for a typed query.

    VERDICT/verdict.json     which systems, their model folders, the collection
    VERDICT/search/          what the searches need, computed once: vectors of all passages, BM25's index

What a system needs (the collection as it tokenises it, the vectors of all passages, BM25's index) is computed by the
steps of an experiment, in this process, into a store beside the verdict. A step's fingerprint covers the contents of
the collection and of the model's files, so another model is encoded anew and the same one never twice.
"""

import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pydantic import ValidationError

from midmask.benchmark.design import BM25_SHARE
from midmask.choice.contenders import FUSION
from midmask.choice.verdict import Verdict
from midmask.core.config import as_user_error, override
from midmask.core.process import usable_cores
from midmask.corpora.config import CorpusConfig
from midmask.encoders.model_settings import read_facts
from midmask.errors import UserError, reason, unknown
from midmask.experiment.changes import as_folder_reads, check_folder
from midmask.experiment.events import Observer, unobserved
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
from midmask.store.place import Place

JOINED_DEPTH = 101
"""Passages of each list that are joined, as in an evaluation of the usual depth: a deeper list would rank otherwise."""

Ranker = Callable[[str, int], list[Hit]]
"""query, k -> the best passages in order; ties by document id."""


def fused_ranker(encoder: Ranker, bm25: Ranker) -> Ranker:
    """An encoder's list and BM25's as one, joined as in the contest."""

    def rank(query: str, k: int) -> list[Hit]:
        rankings = [ranker(query, max(k, JOINED_DEPTH)) for ranker in (encoder, bm25)]
        hits = {hit.doc_id: hit for ranking in rankings for hit in ranking}
        joined = fuse(_as_table(rankings[0]), _as_table(rankings[1]), BM25_SHARE, k, FUSION)
        return [hits[row["doc_id"]]._replace(score=row["score"]) for row in joined.to_pylist()]

    return rank


def _as_table(hits: list[Hit]) -> pa.Table:
    doc_ids, scores = [hit.doc_id for hit in hits], [hit.score for hit in hits]
    return ranked.order(pa.table({"query_id": ["query"] * len(hits), "doc_id": doc_ids, "score": scores}))


class SearchStore:
    """A collection, and the vectors and indexes that systems need to search it, computed by `runner` on first use."""

    def __init__(self, corpus: CorpusConfig, runner: Runner) -> None:
        self._recipe = override(RECIPES["none"](), {"corpus": corpus.model_dump()})
        self._runner = runner
        self._survey = Survey()

    def open_encoder(self, folder: Path) -> Ranker:
        """Exact search with a model folder's vectors of the collection, which are encoded if they are missing.

        Raises:
            UserError: if the folder holds no model, or one that midmask cannot follow.
        """
        recipe = as_folder_reads(self._recipe, folder, ())
        check_folder(recipe, folder)
        planned = plan(recipe, self._survey)
        config = recipe.evaluation.model_copy(update={"threads": usable_cores()}).settled(planned.precision)
        passages = passage_encoding_step(planned.tokens, adopted(str(folder)), config)
        encoded = self._runner.compute(passages)
        model, tokens = (self._runner.compute(passages.inputs[name]) for name in ("model", "tokens"))
        corpus = self._runner.compute(planned.corpus)
        searcher = Searcher(model=model, corpus=corpus, tokens=tokens, passages=encoded)
        return lambda query, k: searcher.search([query], k)[0]

    def open_bm25(self, *, titles: bool) -> Ranker:
        """BM25 with the settings of its evaluation; passages that share no word with the query are not in its list.

        Args:
            titles: a passage is 'title text' instead of the text alone.
        """
        corpus = plan(self._recipe, self._survey).corpus
        index = Bm25Index(self._runner.compute(bm25_index(corpus, Bm25Config(titles=titles))).place)
        stored = StoredPassages(self._runner.compute(corpus).place)

        def rank(query: str, k: int) -> list[Hit]:
            ranking = index.search(["query"], [query], k)
            scores = dict(zip(ranking["doc_id"].to_pylist(), ranking["score"].to_pylist(), strict=True))
            return [Hit(doc_id, scores[doc_id], *texts) for doc_id, *texts in stored.find(list(scores)).values()]

        return rank


def reads_titles(folder: Path) -> bool:
    """Whether a model folder's passages are 'title text': unless it says that it was trained without titles.

    Raises:
        UserError: if the folder's files contradict each other.
    """
    return read_facts(folder).form.titles is not False


FILE = "verdict.json"


class SideBySide:
    """The systems of a verdict's folder. Safe to use from several threads.

    Args:
        folder: holds `verdict.json`. Paths in it that are not absolute are relative to the folder.
        observer: of the steps that systems need.

    Raises:
        UserError: if there is no verdict, or its collection is not there.
    """

    def __init__(self, folder: str | Path, observer: Observer = unobserved) -> None:
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
        self._store = SearchStore(corpus, Runner(Place(str(self.folder / "search")), LOCAL, observer))
        self._estimates = {row.label: row for row in sorted(self.verdict.systems, key=lambda row: row.rank)}
        self.systems = tuple(self._estimates)  # labels, the verdict's best first
        self._open: dict[str, Ranker] = {}
        self._opening, self._searching = threading.Lock(), threading.Lock()

    def model_of(self, label: str) -> Path | None:
        """A system's model folder; None for BM25."""
        name = self._estimates[label].model
        return self._path(name) if name else None

    def open(self, label: str) -> Ranker:
        """Loads a system. The first time ever this encodes the collection, which may take minutes.

        Raises:
            UserError: for an unknown label, or a model that cannot be read.
        """
        if label not in self._estimates:
            raise unknown("system", label, self._estimates)
        with self._opening:
            if label not in self._open:
                self._open[label] = self._make(label)
        return self._open[label]

    def search(self, label: str, query: str, k: int = 10) -> list[Hit]:
        """The best `k` passages of a query by one system, with their texts.

        Raises:
            UserError: as `open`, and if k is below 1.
        """
        if k < 1:
            raise UserError(f"k = {k}: a search gives at least 1 passage")
        ranker = self.open(label)
        with self._searching:
            return ranker(query, k)

    def _make(self, label: str) -> Ranker:
        folder = self.model_of(label)
        if folder is None:
            # It reads titles as the verdict's model does, which it was compared with.
            model = self.verdict.model
            return self._store.open_bm25(titles=not model or reads_titles(self._path(model)))
        encoder = self._store.open_encoder(folder)
        if not self._estimates[label].joined:
            return encoder
        return fused_ranker(encoder, self._store.open_bm25(titles=reads_titles(folder)))

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
