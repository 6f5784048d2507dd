"""`midmask.evaluate`, a retriever's measures on a corpus, and `midmask.evaluate_run`, those of another tool's lists."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import get_args

import pyarrow as pa

from midmask.api.calls import as_changes, check_reach, compute, open_store, read_as, recipe_for_model, runner_in
from midmask.api.corpus import Corpus
from midmask.api.train import Run
from midmask.core.config import override
from midmask.corpora import CorpusConfig, judged_splits
from midmask.errors import UserError, unknown
from midmask.evaluation.measures import by_query
from midmask.evaluation.rendering import html_table
from midmask.evaluation.step import EvaluateConfig
from midmask.experiment.evaluations import (
    EVALUATION_FIELDS,
    collection_step,
    run_file_evaluation,
    run_names,
    usual_split,
)
from midmask.experiment.graph import Step
from midmask.experiment.notes import notes
from midmask.experiment.plan import plan
from midmask.experiment.report import per_query, results_table
from midmask.experiment.run import Runner
from midmask.retrieve.bm25 import BM25
from midmask.retrieve.ranked import Fusion, TieRule
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

    def _repr_html_(self) -> str:
        headers = [f"{self.corpus} {self.split}", "queries", *self.measures]
        values = [f"{value:.4f}" for value in self.measures.values()]
        row = [self.system, str(self.artifact.result["queries"]), *values]
        cells = [[escape(cell) for cell in line] for line in (headers, row)]
        return html_table(cells[0], cells[1:], notes({self.system: self.artifact}))


def evaluate(
    model: Run | str | Path,
    corpus: Corpus | Run | None = None,
    *,
    split: str | None = None,
    measures: Sequence[str] = (),
    depth: int = 100,
    max_queries: int | None = None,
    bm25_share: float = 0.0,
    fusion: Fusion = "rrf",
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
        depth: documents ranked for each query.
        max_queries: of a larger split, so many queries, always the same; none: all.
        bm25_share: above 0, the encoder's list is joined with BM25's; 0.5 counts both alike.
        fusion: how they are joined: by reciprocal ranks ("rrf"), or by scores ("convex"), each list's from 0 to 1 for
            every query.
        settings: how corpus and texts are read and searched: dotted path -> value, of `corpus` and `evaluation`, and of
            `tokens` for a model that is not a run. They win over the arguments.
        storage: as for `train`; where a run is given, its store is used.
        progress: prints to standard error what is computed.

    Raises:
        UserError: for a corpus without judgements, an unknown split or measure, or a folder that holds no model.
    """
    home = next((given for given in (model, corpus) if isinstance(given, Run)), None)
    runner = _runner(home, storage, progress=progress)
    changes = as_changes(settings)
    is_run = isinstance(model, Run)
    check_reach(changes, READ if is_run else (*READ, "tokens"), f"the evaluation of {'a run' if is_run else model}")
    where = read_as(find_collection(model, corpus, runner.storage), changes)
    fields: dict[str, object] = {
        "measures": tuple(measures),
        "depth": depth,
        "max_queries": max_queries,
        "bm25_share": bm25_share,
        "fusion": fusion,
        "split": find_split(where, split),
    }
    system, step = _evaluation(
        model, corpus, where, {f"evaluation.{name}": value for name, value in fields.items()} | changes
    )
    return Scores(system, compute(runner, step))


def _runner(run: Run | None, storage: str | Path | None, *, progress: bool) -> Runner:
    """The run's own runner, which has its store; without a run, a new one."""
    if run is None:
        return runner_in(open_store(storage), ray=False, progress=progress)
    if storage is not None:
        raise UserError(f"storage = {str(storage)!r}: a run is evaluated in its own store; leave storage out")
    return run.runner


def find_collection(model: Run | str | Path, corpus: Corpus | Run | None, storage: Place) -> CorpusConfig:
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


def find_split(corpus: CorpusConfig, asked: str | None) -> str:
    """
    Raises:
        UserError: if the corpus has no judged queries, or not this split.
    """
    splits = judged_splits(corpus)
    if not splits:
        raise UserError(
            f"{corpus.short_name} has no judged queries; Corpus.from_texts(texts, queries=…, relevant=…) gives it some"
        )
    split = asked or usual_split(splits)
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


def evaluate_run(
    file: str | Path,
    corpus: Corpus | Run,
    *,
    name: str | None = None,
    split: str | None = None,
    measures: Sequence[str] = (),
    depth: int = 100,
    max_queries: int | None = None,
    ties: TieRule = "midmask",
    leave_out_copies: bool = False,
    settings: Mapping[str, object] | None = None,
    storage: str | Path | None = None,
    progress: bool = True,
) -> Scores:
    """Measures the ranked lists in a TREC run file as they are, by trec_eval's definitions.

    Args:
        file: plain or gzip'd, lines `query Q0 document rank score tag`. Scores decide the order; ranks are not read.
        corpus: with queries and judgements. Give a run of `midmask.train` for the very queries of that run.
        name: what tables call the system; none: the tag in the file, unless midmask wrote it, else the file's name.
        split, measures, depth, max_queries: as for `evaluate`.
        ties: order of documents of equal score: by id ascending as everywhere in midmask, or by id descending as
            trec_eval has it ("trec_eval").
        leave_out_copies: removes passages that are the query itself (`corpus.self_matches`), as `evaluate` does.
        settings: how the corpus is read and what is measured: dotted path -> value, of `corpus`, and of the fields that
            are arguments here. They win over the arguments.
        storage: as for `train`; where a run is given, its store is used.
        progress: prints to standard error what is computed.

    Raises:
        UserError: for a file that is not there or is no run file, a run of other queries or of another collection, an
            unknown split, measure or rule of ties.
    """
    if ties not in get_args(TieRule):
        raise unknown("ties", ties, get_args(TieRule))
    runner = _runner(corpus if isinstance(corpus, Run) else None, storage, progress=progress)
    path = Path(file).expanduser().absolute()
    (system,) = run_names([path], [name] if name else [])
    changes = as_changes(settings)
    check_reach(changes, ("corpus", *(f"evaluation.{name}" for name in EVALUATION_FIELDS)), "a run file")
    where = read_as(find_collection(path, corpus, runner.storage), changes)
    given = {
        "measures": tuple(measures),
        "depth": depth,
        "max_queries": max_queries,
        "split": find_split(where, split),
    }
    typed = {
        path.removeprefix("evaluation."): value for path, value in changes.items() if path.startswith("evaluation.")
    }
    config = override(EvaluateConfig(), given | typed)
    step = run_file_evaluation(path, collection_step(where), config, ties, leave_out_copies=leave_out_copies)
    return Scores(system, compute(runner, step))
