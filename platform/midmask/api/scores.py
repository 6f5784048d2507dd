"""`midmask.evaluate`: a retriever's measures on a corpus."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from midmask.api.calls import as_changes, check_reach, open_store, read_as, recipe_for_model, runner_in
from midmask.api.corpus import Corpus
from midmask.api.train import Run
from midmask.core.config import override
from midmask.corpora.config import CorpusConfig
from midmask.corpora.reader import judged_splits
from midmask.errors import UserError, unknown
from midmask.evaluation.measures import by_query
from midmask.experiment.evaluations import usual_split
from midmask.experiment.graph import Step
from midmask.experiment.plan import plan
from midmask.experiment.report import per_query, results_table
from midmask.experiment.run import Runner
from midmask.retrieve.bm25 import BM25
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.pretrained import PRETRAINED

READ = ("corpus", "evaluation")
"""Sections of a recipe that every evaluation depends on."""


@dataclass(frozen=True, repr=False)
class Scores:
    """The measures of one system on one split of a corpus. Prints as a table."""

    system: str  # the system's name in tables
    artifact: Artifact  # the evaluation in the store, with its files

    @property
    def corpus(self) -> str:
        return str(self.artifact.result["corpus"])

    @property
    def split(self) -> str:
        return str(self.artifact.result["split"])

    @property
    def measures(self) -> dict[str, float]:
        """Measure -> its mean over all judged queries of the split."""
        return dict(self.artifact.result["measures"])

    def __getitem__(self, measure: str) -> float:
        """The mean of a measure, as scores["nDCG@10"].

        Raises:
            UserError: for one that was not computed.
        """
        if measure not in self.measures:
            hint = f"midmask.evaluate(…, measures=[{measure!r}]) computes it."
            raise unknown("measure", measure, self.measures, hint=hint)
        return self.measures[measure]

    def per_query(self, measure: str) -> Mapping[str, float]:
        """Query id -> value.

        Raises:
            UserError: for a measure that was not computed.
        """
        return by_query(self.table, measure)

    @property
    def table(self) -> pa.Table:
        """All values: query_id, measure, value."""
        return per_query(self.artifact)

    def __str__(self) -> str:
        return results_table({self.system: self.artifact}, f"{self.corpus} {self.split}")

    def __repr__(self) -> str:
        return str(self)


def evaluate(
    model: Run | str | Path,
    corpus: Corpus | Run | None = None,
    *,
    split: str | None = None,
    measures: Sequence[str] = (),
    settings: Mapping[str, object] | None = None,
    storage: str | Path | None = None,
    progress: bool = True,
) -> Scores:
    """Searches all documents for a split's queries and measures what is found. Ties rank by document id.

    Args:
        model: a run, "bm25", "minilm" (of the extra `pretrained`), a model folder (transformers or
            sentence-transformers), or the id of a hub model that is in the cache.
        corpus: with queries and judgements; none: the run's own. Give a run to measure another system, such as "bm25",
            on the very queries of that run: train, dev and test may have been drawn for its training. Any other corpus
            keeps the splits of its files.
        split: whose queries; none: dev, else test, else the first that there is. Choose settings on dev; report test.
        measures: ir-measures names, such as "nDCG@10" or "R(rel=2)@100"; none: nDCG@10, RR@10 and R@100.
        settings: how corpus and texts are read and searched: dotted path -> value, of `corpus` and `evaluation`, such
            as {"evaluation.bm25_share": 0.5}, and of `tokens` for a model that is not a run. They win over the
            arguments.
        storage: as for `train`; where a run is given, its store is used.
        progress: prints to standard error what is computed.

    Raises:
        UserError: for a corpus without judgements, an unknown split or measure, or a folder that holds no model.
    """
    home = next((run for run in (model, corpus) if isinstance(run, Run)), None)
    runner = _runner(home, storage, progress=progress)
    changes = as_changes(settings)
    is_run = isinstance(model, Run)
    check_reach(changes, READ if is_run else (*READ, "tokens"), f"the evaluation of {'a run' if is_run else model}")
    where = read_as(_collection(model, corpus, runner.storage), changes)
    arguments = {"evaluation.measures": tuple(measures), "evaluation.split": find_split(where, split)}
    system, step = _evaluation(model, corpus, where, arguments | changes)
    return Scores(system, runner.compute(step))


def _runner(run: Run | None, storage: str | Path | None, *, progress: bool) -> Runner:
    """The run's own runner, which has its store; without a run, a new one."""
    if run is None:
        return runner_in(open_store(storage), progress=progress)
    if storage is not None:
        raise UserError(f"storage = {str(storage)!r}: a run is evaluated in its own store; leave storage out")
    return run.runner


def _collection(model: Run | str | Path, corpus: Corpus | Run | None, storage: Place) -> CorpusConfig:
    """The collection that is searched; a run's own is divided as it was for the training, others as their files are."""
    if isinstance(corpus, Run):
        return corpus.recipe.corpus
    run_corpus = model.recipe.corpus if isinstance(model, Run) else None
    if corpus is None:
        if run_corpus is None:
            raise UserError(f"evaluate({str(model)!r}): name the corpus too: evaluate(model, corpus)")
        return run_corpus
    collection = corpus.in_store(storage)
    if run_corpus is not None and collection.name == run_corpus.name:
        return run_corpus
    return collection.model_copy(update={"splits": "official"})


def find_split(corpus: CorpusConfig, name: str | None) -> str:
    """The split that is asked for, else the usual one.

    Raises:
        UserError: if the corpus has no judged queries, or not this split.
    """
    splits = judged_splits(corpus)
    if not splits:
        raise UserError(
            f"{corpus.short_name} has no judged queries; Corpus.from_texts(texts, queries=…, relevant=…) gives it some"
        )
    split = name or usual_split(splits)
    if split not in splits:
        raise unknown(f"split of {corpus.short_name}", split, splits)
    return split


def _evaluation(
    model: Run | str | Path, corpus: Corpus | Run | None, where: CorpusConfig, changes: dict[str, object]
) -> tuple[str, Step]:
    """The system's name, and the step that evaluates it."""
    changes = {path: value for path, value in changes.items() if path.partition(".")[0] != "corpus"}
    if isinstance(model, Run):
        recipe, planned = model.recipe, model.plan
        on = None if where == recipe.corpus else planned.elsewhere(where)
        config = override(recipe, changes).evaluation
        return config.name_of(recipe.name), planned.evaluation(config, model=model.step, on=on)
    recipe, encoder = recipe_for_model(model, where, changes)
    config = recipe.evaluation
    if encoder is None:
        if config.bm25_share:
            raise UserError(f"bm25_share = {config.bm25_share}: BM25's list is joined with an encoder's; name a model")
        planned = corpus.plan if isinstance(corpus, Run) else plan(recipe)
        return BM25, planned.bm25_evaluation(config)
    name = str(model) if model in PRETRAINED else Path(model).expanduser().absolute().name
    return config.name_of(name), plan(recipe).evaluation(config, model=encoder)
