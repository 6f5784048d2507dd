"""One cell of a benchmark: a system under one condition with one seed, and the evaluations that measure it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from midmask.benchmark.design import BM25, NONE, Benchmark
from midmask.benchmark.results import SystemKey
from midmask.corpora import CorpusConfig
from midmask.errors import UserError
from midmask.experiment.plan import Plan, Step, plan
from midmask.experiment.schema import Recipe
from midmask.experiment.survey import Survey
from midmask.experiment.zero_shot import SPLIT, collections


@dataclass(frozen=True)
class BenchmarkCell:
    """One system under one condition with one seed.

    evaluations: (short name of the corpus, split) -> step; the corpus's own splits come first, test last of them.
    further: short name of the corpus where it is a further collection of the benchmark; empty: it is the first.
    """

    key: SystemKey
    seed: int
    recipe: Recipe
    evaluations: Mapping[tuple[str, str], Step]
    further: str = ""

    @property
    def main(self) -> tuple[str, str]:
        """The last split of the corpus itself."""
        corpus = self.recipe.corpus.short_name
        return [name for name in self.evaluations if name[0] == corpus][-1]

    @property
    def name(self) -> str:
        where = f", on {self.further}" if self.further else ""
        if self.key.system == BM25:
            return f"{BM25}{where}"
        conditions = (self.key.collection, self.key.representation, self.key.setting)
        return f"{self.key.system}, {', '.join(part for part in conditions if part != NONE)}{where}, seed {self.seed}"


def is_fine_tuned(benchmark: Benchmark, key: SystemKey) -> bool:
    """Whether a key has any fine-tuning stage."""
    return key.system != BM25 and benchmark.settings[key.setting].stages != 0


def cell_of(
    benchmark: Benchmark, key: SystemKey, recipe: Recipe, seed: int, survey: Survey, *, first: str = ""
) -> BenchmarkCell:
    """The evaluations of a recipe under a key's conditions, on the benchmark's splits and its other collections.

    Args:
        first: the collection whose middle trainings and tokenizer serve the recipe; empty: the recipe's own.
    """
    is_further = first not in ("", recipe.corpus.name)
    planned = _plan_further(recipe, first, survey) if is_further else plan(recipe, survey)
    evaluate = evaluator(benchmark, key, planned)
    evaluations: dict[tuple[str, str], Step] = {}
    for split in benchmark.splits:
        config = recipe.evaluation.model_copy(update={"split": split})
        evaluations[recipe.corpus.short_name, split] = evaluate(config)
    elsewhere = recipe.evaluation.model_copy(update={"split": SPLIT})
    for label, corpus in searched_only(benchmark).items():
        evaluations[label, SPLIT] = evaluate(elsewhere, on=planned.elsewhere(corpus))
    return BenchmarkCell(key, seed, recipe, evaluations, recipe.corpus.short_name if is_further else "")


def _plan_further(recipe: Recipe, first: str, survey: Survey) -> Plan:
    """The steps of a recipe on a further collection. A middle training that reads other collections is that of the
    recipe on the first collection; one that reads the corpus itself reads the further collection.
    """
    read = recipe.pretrain_on or ((recipe.corpus.name,) if recipe.objective else ())
    corpus = recipe.corpus.model_copy(update={"name": first})
    return plan(recipe.model_copy(update={"corpus": corpus, "pretrain_on": read}), survey, tuned_on=recipe.corpus)


def cell_on(
    benchmark: Benchmark, cell: BenchmarkCell, corpus: CorpusConfig, split: str, survey: Survey, **changes: Any
) -> BenchmarkCell:
    """A cell's system, measured on a split of another collection alone.

    Args:
        changes: of fields of the evaluation.
    """
    planned = plan(cell.recipe, survey)
    wanted = cell.recipe.evaluation.model_copy(update={"split": split, **changes})
    step = evaluator(benchmark, cell.key, planned)(wanted, on=planned.elsewhere(corpus))
    return replace(cell, evaluations={(cell.recipe.corpus.short_name, split): step})


def evaluator(benchmark: Benchmark, key: SystemKey, planned: Plan) -> Callable[..., Step]:
    """What gives the evaluation of a key's system, as `Plan.evaluation` does: of BM25, of the encoder before any
    fine-tuning, or of the last stage's.
    """
    if key.system == BM25:
        return planned.bm25_evaluation
    if is_fine_tuned(benchmark, key):
        return planned.evaluation
    return partial(planned.evaluation, model=planned.untuned)


def searched_only(benchmark: Benchmark) -> dict[str, CorpusConfig]:
    """Label -> collection of the benchmark that is only searched. A set of BEIR's that has the name of a collection
    that is fine-tuned on is `beir-NAME`: NQ by its answers is not BEIR's NQ.

    Raises:
        UserError: for a collection that is not BEIR's and has such a name.
    """
    if not (found := collections(benchmark.zero_shot)):
        return {}
    tuned = {CorpusConfig(name=name).short_name for name in benchmark.corpora}
    for label, corpus in found.items():
        if label in tuned and corpus.format != "beir":
            raise UserError(
                f"--zero-shot {corpus.name}: {label!r} is the name of a --corpus too, and results could not tell them "
                "apart; rename one of the folders"
            )
    return {f"beir-{label}" if label in tuned else label: corpus for label, corpus in found.items()}
