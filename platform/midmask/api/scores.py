"""`midmask.evaluate`: a retriever's measures on a corpus with judgements."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import pyarrow as pa

from midmask.api.corpus import Corpus
from midmask.api.run import Run
from midmask.api.storage import computed, open_store, runner_in
from midmask.artifact import Artifact
from midmask.corpora import CorpusConfig, judged_splits
from midmask.errors import UserError, unknown
from midmask.evaluation.measures import by_query
from midmask.evaluation.rendering import html_table
from midmask.evaluation.retriever import EvaluateConfig
from midmask.experiment.model_folder import as_folder_reads
from midmask.experiment.needed_splits import usual_split
from midmask.experiment.plan import adopted, plan
from midmask.experiment.reading_notes import notes
from midmask.experiment.report import evaluations_table, per_query
from midmask.experiment.schema import Recipe
from midmask.experiment.step import Step
from midmask.identity import override
from midmask.recipes import RECIPES

BM25 = "bm25"
"""The name by which BM25 is evaluated."""


@dataclass(frozen=True)
class Scores:
    """The measures of one system on one split of a corpus. Prints as a table.

    system: what tables call it. artifact: the evaluation in the store, with its files.
    """

    system: str
    artifact: Artifact

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
        return evaluations_table(f"{self.corpus} {self.split}", {self.system: self.artifact})

    def _repr_html_(self) -> str:
        headers = [f"{self.corpus} {self.split}", "queries", *self.measures]
        values = [f"{value:.4f}" for value in self.measures.values()]
        row = [self.system, str(self.artifact.result["queries"]), *values]
        cells = [[escape(cell) for cell in line] for line in (headers, row)]
        return html_table(cells[0], cells[1:], notes({self.system: self.artifact}))


def evaluate(
    model: Run | str | Path,
    corpus: Corpus | None = None,
    *,
    split: str | None = None,
    measures: Sequence[str] = (),
    depth: int = 100,
    max_queries: int | None = None,
    storage: str | Path | None = None,
    progress: bool = True,
) -> Scores:
    """Searches all documents for a split's queries and measures what is found. Ties rank by document id.

    Args:
        model: a run, a model folder (transformers or sentence-transformers), or "bm25".
        corpus: with queries and judgements; none: the run's own.
        split: whose queries; none: dev, else test, else the first that there is. Choose settings on dev; report test.
            Only a corpus that the run was trained on is divided as for training; another keeps the splits of its files.
        measures: ir-measures names, such as "nDCG@10" or "R(rel=2)@100"; none: nDCG@10, RR@10 and R@100.
        depth: documents ranked for each query.
        max_queries: of a larger split, so many queries, always the same; none: all.
        storage: as for `train`; a run uses its own.
        progress: prints to standard error what is computed.

    Raises:
        UserError: for a corpus without judgements, an unknown split or measure, or a folder that holds no model.
    """
    if isinstance(model, Run):
        if storage is not None:
            raise UserError(f"storage = {str(storage)!r}: a run is evaluated in its own store; leave storage out")
        runner, recipe = model.runner, model.recipe
    else:
        runner, recipe = runner_in(open_store(storage), ray=False, progress=progress), RECIPES["none"]()
    if corpus is None and not isinstance(model, Run):
        raise UserError(f"evaluate({str(model)!r}): name the corpus too: evaluate(model, corpus)")
    where = recipe.corpus if corpus is None else corpus.in_store(runner.storage)
    if not isinstance(model, Run) or where.name != recipe.corpus.name:
        where = where.model_copy(update={"splits": "official"})
    else:
        where = recipe.corpus
    asked = {"measures": tuple(measures), "depth": depth, "max_queries": max_queries, "split": _split(where, split)}
    config = override(recipe.evaluation, asked)
    system, step = _evaluation(model, recipe, where, config)
    return Scores(system, computed(runner, step))


def _split(corpus: CorpusConfig, asked: str | None) -> str:
    """
    Raises:
        UserError: if the corpus has no judged queries, or not this split.
    """
    there = judged_splits(corpus)
    if not there:
        raise UserError(
            f"{corpus.short_name} has no judged queries; Corpus.from_texts(texts, queries=…, relevant=…) gives it some"
        )
    split = asked or usual_split(there)
    if split not in there:
        raise unknown(f"split of {corpus.short_name}", split, there)
    return split


def _evaluation(
    model: Run | str | Path, recipe: Recipe, corpus: CorpusConfig, config: EvaluateConfig
) -> tuple[str, Step]:
    """The system's name, and the step that evaluates it."""
    if isinstance(model, Run):
        on = None if corpus == recipe.corpus else model.plan.elsewhere(corpus)
        return recipe.name, model.plan.evaluation(config, model=model.step, on=on)
    recipe = override(recipe, {"corpus": corpus.model_dump()})
    if model == BM25:
        return BM25, plan(recipe).bm25_evaluation(config)
    folder = Path(model).expanduser().absolute()
    return folder.name, plan(as_folder_reads(recipe, folder, ())).evaluation(config, model=adopted(str(folder)))
