"""Many indexes of one encoding, listed in a YAML file: their evaluations, their times side by side, a table of both.

encoding (once) ─┬► index ─► search ─► evaluation    for each index; one exact sample for the recall of all
                 └► all searches in one process, in turn ─► milliseconds
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from midmask.core.config import Config, override
from midmask.core.words import number_cell
from midmask.errors import UserError
from midmask.evaluation.measures import expand
from midmask.evaluation.rendering import markdown
from midmask.evaluation.statistics.ranks import on_front
from midmask.experiment.costs import costs_of
from midmask.experiment.graph import Step
from midmask.experiment.notes import notes
from midmask.experiment.plan import Plan
from midmask.experiment.schema import Recipe
from midmask.experiment.searching import query_sample
from midmask.retrieve.index import IndexFields
from midmask.retrieve.search import TimingConfig
from midmask.store.artifact import Artifact, load
from midmask.store.place import Place
from midmask.sweep.space import load_fields


class IndexPoint(IndexFields):
    """One index with its parameters."""

    @property
    def label(self) -> str:
        """The factory string, and the parameters that are not at their default: `IVF256,Flat nprobe 4`."""
        given = self.model_dump(exclude={"index"}, exclude_defaults=True)
        return " ".join([self.index, *(f"{name} {value}" for name, value in given.items())])


class IndexSpace(Config):
    """Indexes of one encoding, all searched to one depth."""

    depth: int = Field(100, ge=1, le=100_000, description="passages ranked for each query")
    measure: str = Field("nDCG@10", description="retrieval measure beside recall, speed and bytes")
    points: tuple[IndexPoint, ...] = Field(min_length=1, description="factory strings with their parameters")

    @model_validator(mode="after")
    def _points_differ_and_the_measure_is_known(self) -> Self:
        expand((self.measure,))
        labels = [point.label for point in self.points]
        if twice := next((label for label in labels if labels.count(label) > 1), None):
            raise ValueError(f"points: {twice} is listed twice; leave one out")
        return self


def load_index_space(path: Path) -> IndexSpace:
    """Reads a YAML file.

    Raises:
        UserError: if the file is missing, is no YAML mapping, or has a wrong field; the line names the field.
    """
    wanted = f"{path}: a mapping of fields is wanted, with a list of points; see search_spaces/indexes"
    return load_fields(path, IndexSpace, wanted)


TIMES = "milliseconds"
"""Name of the target that times all searches."""


@dataclass(frozen=True)
class IndexSweep:
    """The steps of an index sweep, in the order of its space."""

    space: IndexSpace
    recipes: Mapping[str, Recipe]  # label of an index -> the recipe that searches with it
    evaluations: Mapping[str, Step]  # label of an index -> its evaluation
    times: Step  # times all searches

    @property
    def targets(self) -> dict[str, Step]:
        return {**self.evaluations, TIMES: self.times}


def plan_index_sweep(space: IndexSpace, recipe: Recipe, planned: Plan, split: str, model: Step | None) -> IndexSweep:
    """The evaluations and the timing of a space's indexes.

    Args:
        planned: of the recipe. split: whose queries are searched. model: a folder in place of the last stage.

    Raises:
        UserError: for an index that cannot be built of the model's vectors.
    """
    recipes = {point.label: _with_index(recipe, space, point, split) for point in space.points}
    evaluations = {label: planned.evaluation(own.evaluation, model=model) for label, own in recipes.items()}
    searches = [step.inputs["ranked"] for step in evaluations.values()]
    shared = searches[0].inputs
    inputs = {name: shared[name] for name in ("passages", "tokens")}
    inputs["queries"] = query_sample(shared["queries"])
    for number, search in enumerate(searches):
        if "index" in search.inputs:
            inputs[f"index{number}"] = search.inputs["index"]
    configs = tuple(search.config.model_copy(update={"threads": 1}) for search in searches)
    timing = TimingConfig.model_validate({"searches": configs, "threads": recipe.evaluation.threads})
    return IndexSweep(space, recipes, evaluations, Step("time_searches", timing, inputs))


def _with_index(recipe: Recipe, space: IndexSpace, point: IndexPoint, split: str) -> Recipe:
    if recipe.evaluation.bm25_share:
        raise UserError("evaluation.bm25_share: indexes are compared by the encoder's ranking alone; leave it at 0")
    fields = {**point.model_dump(), "split": split, "depth": space.depth, "measures": [space.measure]}
    return override(recipe, {f"evaluation.{name}": value for name, value in fields.items()})


def index_table(sweep: IndexSweep, done: Mapping[str, Artifact], storage: Place) -> str:
    """One row per index, with what it finds, its time, bytes and seconds of its build; then what the columns mean."""
    measure, times = sweep.space.measure, done[TIMES].result
    rows, values = [], []
    for number, (label, step) in enumerate(sweep.evaluations.items()):
        costs, search = costs_of(step, storage), step.inputs["ranked"]
        mean, milliseconds = done[label].result["measures"][measure], times["milliseconds"][str(number)]
        built = load(search.inputs["index"].place(storage)).result["seconds"] if "index" in search.inputs else None
        values.append((mean, milliseconds, costs.bytes_per_passage or 0.0))
        rows.append(
            [
                *(label, f"{mean:.4f}", number_cell(costs.index_recall_at_10, ".4f")),
                *(number_cell(costs.index_recall_at_100, ".4f"), f"{milliseconds:.3g}"),
                *(number_cell(costs.bytes_per_passage, ",.0f"), number_cell(built, ".1f")),
            ]
        )
    front = on_front(values, ("max", "min", "min"))
    for row, best in zip(rows, front, strict=True):
        row.append("yes" if best else "")
    heads = ["index", measure, "recall@10", "recall@100", "ms a query", "bytes a passage", "build s", "front"]
    lines = [
        "recall: against the exact search, on a sample of the queries. "
        f"ms a query: {times['queries']:,} queries in one batch, all indexes in turn in one process, median of "
        f"{times['rounds']} rounds.",
        f"front: no other index is at least as good in {measure}, ms and bytes, and better in one.",
    ]
    return "\n".join([markdown(heads, rows), "", *lines, notes({"all": done[next(iter(sweep.evaluations))]})])
