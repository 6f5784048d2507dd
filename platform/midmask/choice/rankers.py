"""A verdict's systems, ready to be asked: the ranked passages of one query, from a model folder or from BM25.

What a system needs (the collection as it tokenises it, the vectors of all passages, BM25's index) is computed by the
steps of an experiment, in this process, into a store beside the verdict. A step's fingerprint covers the contents of
the collection and of the model's files, so another model is encoded anew and the same one never twice.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from midmask.artifact import Artifact, Place
from midmask.benchmark.design import BM25_SHARE
from midmask.choice.contenders import FUSION
from midmask.corpora import CorpusConfig
from midmask.encoders.model_settings import read_facts
from midmask.encoders.representation import Representation
from midmask.experiment.kinds import LOCAL
from midmask.experiment.model_folder import as_folder_reads, check_folder
from midmask.experiment.plan import adopted, plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.searching import bm25_index, passage_encoding_step
from midmask.experiment.step import Step
from midmask.experiment.survey import Survey
from midmask.identity import override
from midmask.processes import usable_cores
from midmask.recipes import RECIPES
from midmask.retrieve import ranked
from midmask.retrieve.bm25 import Bm25Config
from midmask.retrieve.bm25_search import Bm25Index
from midmask.retrieve.encode import Encode, EncodeConfig, EncodeWorker
from midmask.retrieve.fusion import fuse
from midmask.retrieve.searcher import Hit, Searcher
from midmask.retrieve.stored_passages import StoredPassages
from midmask.training.run import Log

Show = Callable[[str], None]
"""Takes a line of progress."""

ScoredDocument = tuple[str, float]
"""A document id and the score of the query with it; larger is better."""

JOINED_DEPTH = 101
"""Passages of each list that are joined, as in an evaluation of the usual depth: a deeper list would rank otherwise."""


class Ranker(Protocol):
    """One system over one collection. how: what is scored, in words."""

    @property
    def how(self) -> str: ...

    def rank(self, query: str, k: int) -> list[ScoredDocument]:
        """The best `k` passages, the best first; ties rank by document id."""


class EncoderRanker:
    """Exact search with a model's vectors.

    Args:
        searcher: of the model over the collection. stored: the collection's passages. representation: of the model.
    """

    def __init__(self, searcher: Searcher, stored: StoredPassages, representation: Representation) -> None:
        self.how = " + ".join(representation.views)
        self._searcher = searcher
        self._stored = stored

    def rank(self, query: str, k: int) -> list[ScoredDocument]:
        scores_QK, rows_QK = self._searcher.find([query], k)
        doc_ids = self._stored.doc_ids
        pairs = zip(rows_QK[0].tolist(), scores_QK[0].tolist(), strict=True)
        return [(doc_ids[row].as_py(), score) for row, score in pairs if row >= 0]

    def hits(self, query: str, k: int) -> list[Hit]:
        """The best `k` passages with their texts."""
        return self._searcher.search([query], k)[0]


class Bm25Ranker:
    """BM25; passages that share no word with the query are not in its list."""

    how = "words"

    def __init__(self, index: Bm25Index) -> None:
        self._index = index

    def rank(self, query: str, k: int) -> list[ScoredDocument]:
        return _scored(self._index.search(["query"], [query], k))


class FusedRanker:
    """An encoder's list and BM25's as one, joined as in the contest."""

    def __init__(self, encoder: Ranker, bm25: Ranker) -> None:
        self.how = f"{encoder.how}, joined with BM25"
        self._encoder = encoder
        self._bm25 = bm25

    def rank(self, query: str, k: int) -> list[ScoredDocument]:
        lists = [_as_table(ranker.rank(query, max(k, JOINED_DEPTH))) for ranker in (self._encoder, self._bm25)]
        return _scored(fuse(lists[0], lists[1], BM25_SHARE, k, FUSION))


def _as_table(found: list[ScoredDocument]) -> pa.Table:
    columns = [["query"] * len(found), [doc_id for doc_id, _ in found], [score for _, score in found]]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, ranked.SCHEMA.types[:3], strict=True)]
    return ranked.order(pa.table(arrays, names=ranked.SCHEMA.names[:3]))


def _scored(table: pa.Table) -> list[ScoredDocument]:
    return list(zip(table["doc_id"].to_pylist(), table["score"].to_pylist(), strict=True))


class SearchStore:
    """A collection, and what systems need to search it, computed when it is first asked for.

    Args:
        store: where results are kept.
    """

    def __init__(self, corpus: CorpusConfig, store: Place) -> None:
        self.config = corpus
        self._store = store
        self._survey = Survey()

    def open_corpus(self, show: Show) -> Artifact:
        """The collection as it was prepared; bad rows are in its `result`.

        Raises:
            UserError: if there is no BEIR folder.
        """
        return self._runner(show).run(plan(self._recipe(), self._survey).corpus)

    def open_encoder(self, folder: Path, stored: StoredPassages, show: Show) -> EncoderRanker:
        """A model folder over the collection.

        Raises:
            UserError: as `open_searcher`.
        """
        return EncoderRanker(self.open_searcher(folder, show), stored, read_facts(folder).representation)

    def open_searcher(self, folder: Path, show: Show) -> Searcher:
        """The exact search with a model folder's vectors of the collection, which are encoded if they are missing.

        Raises:
            UserError: if the folder holds no model, or one that midmask cannot follow.
        """
        recipe = as_folder_reads(self._recipe(), folder, ())
        check_folder(recipe, folder)
        planned = plan(recipe, self._survey)
        wanted = recipe.evaluation.model_copy(update={"threads": usable_cores()}).settled(planned.precision)
        passages = passage_encoding_step(planned.tokens, adopted(str(folder)), wanted)
        runner = self._runner(show)
        encoded = runner.run(passages)
        model, tokens = (runner.run(passages.inputs[name]) for name in ("model", "tokens"))
        corpus = runner.run(planned.corpus)
        return Searcher(model=model, corpus=corpus, tokens=tokens, passages=encoded)

    def open_bm25(self, show: Show, *, titles: bool) -> Bm25Ranker:
        """BM25 with the settings of its evaluation.

        Args:
            titles: whether a passage is 'title text' instead of the text alone.
        """
        index = bm25_index(plan(self._recipe(), self._survey).corpus, Bm25Config(titles=titles))
        return Bm25Ranker(Bm25Index(self._runner(show).run(index).place))

    def _recipe(self) -> Any:
        return override(RECIPES["none"](), {"corpus": self.config.model_dump()})

    def _runner(self, show: Show) -> Runner:
        return Runner(self._store, {**LOCAL, "encode": partial(_encode, show)}, _StepLines(show))


def reads_titles(folder: Path) -> bool:
    """Whether a model folder's passages are 'title text': unless it says that it was trained without titles.

    Raises:
        UserError: if the folder's files contradict each other.
    """
    return read_facts(folder).form.titles is not False


class _StepLines(Silent):
    """Shows a line when a step begins."""

    TEXTS: Mapping[str, str] = {
        "prepare": "Reading the collection",
        "tokenise": "Cutting the passages into tokens",
        "encode": "Encoding the passages",
        "bm25_words": "Counting the words of all passages",
        "bm25_index": "Indexing the words of all passages",
    }

    def __init__(self, show: Show) -> None:
        self._show = show

    def begin(self, step: Step) -> None:
        if step.name in self.TEXTS:
            self._show(self.TEXTS[step.name])


def _encode(
    show: Show, config: EncodeConfig, inputs: Mapping[str, Artifact], out: Place, *, log: Log
) -> dict[str, Any]:
    """The one-process step, with a line for each block of passages."""
    work = Encode(config, inputs, out)
    work.begin()
    worker = EncodeWorker(work)
    last = work.blocks[-1]
    for number, block in enumerate(work.blocks):
        show(f"Encoding the passages: {block.start:,} of {last.start + last.rows:,}")
        worker.encode(number)
    return work.finish()
