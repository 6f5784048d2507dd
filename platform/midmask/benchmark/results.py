"""Results of a benchmark: one per system, seed, corpus and split, with its values per query and its costs."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from midmask.evaluation.measures import aggregate
from midmask.evaluation.statistics.intervals import Weighted, read_sample
from midmask.experiment.costs import Costs
from midmask.store.place import Place
from midmask.store.tables import writing_table

COSTS, ABOUT = b"midmask.costs", b"midmask.about"
"""Keys in the schema metadata of a results file: costs by result, and what else its writer states."""


@dataclass(frozen=True)
class SystemKey:
    """The identity of a compared system: its middle training, representation and fine-tuning."""

    system: str  # a recipe's name, or bm25
    # That the middle training read: "corpus" (the fine-tuning's), "none", or a label of the benchmark's collections.
    collection: str
    representation: str  # dense, splade or hybrid; bm25 for BM25
    setting: str  # the fine-tuning: a protocol's name or a label of the benchmark; none for BM25

    @property
    def is_encoder(self) -> bool:
        """Whether it is trained, so that seeds differ; BM25 is not."""
        return self.system != "bm25"


@dataclass(frozen=True)
class Result:
    """One system's evaluation on one split of one corpus."""

    key: SystemKey
    seed: int  # of the fine-tuning
    corpus: str
    split: str
    measures: Mapping[str, float]  # ir-measures name -> mean
    per_query: pa.Table  # query_id, measure, value
    costs: Costs | None = None
    pretrain_seed: int | None = None  # of the middle training; None where the benchmark trains each method once


class Results(tuple[Result, ...]):
    """Results in the order in which the benchmark lists its cells."""

    def where(self, **fields: str | int | None) -> "Results":
        """Those with these fields, of the key (`system`, …) or of the result (`corpus`, …); None matches any value."""
        fixed = {name: value for name, value in fields.items() if value is not None}
        return Results(result for result in self if all(_field(result, name) == value for name, value in fixed.items()))

    def names(self, field: str) -> tuple[str, ...]:
        """The different values of such a field, in order of appearance."""
        return tuple(dict.fromkeys(_field(result, field) for result in self))

    def per_query(
        self, corpus: str, split: str, by: Callable[[SystemKey], str] = lambda key: key.system
    ) -> dict[str, list[pa.Table]]:
        """Label -> a table (query_id, measure, value) for each repetition, as `evaluation.tables` takes them: one per
        middle training, with the mean over its fine-tuning seeds, where a system has several; else one per seed.

        Raises:
            ValueError: if two systems get one label: narrow the results with `where`, or label by more of the key.
        """
        matching: dict[str, list[Result]] = {}
        owners: dict[str, SystemKey] = {}
        for result in self.where(corpus=corpus, split=split):
            label = by(result.key)
            if owners.setdefault(label, result.key) != result.key:
                raise ValueError(f"label {label!r} stands for {owners[label]} and for {result.key}")
            matching.setdefault(label, []).append(result)
        return {label: [_mean_table(group) for group in _repetitions(results)] for label, results in matching.items()}

    def write(self, place: Place, about: Mapping[str, Any] | None = None) -> None:
        """As one Parquet file: a row per value (the columns of `SCHEMA`), a row group per result, the costs beside the
        schema, and `about`, plain data.
        """
        costs = [None if result.costs is None else asdict(result.costs) for result in self]
        schema = SCHEMA.with_metadata({COSTS: json.dumps(costs), ABOUT: json.dumps(about or {})})
        with writing_table(place, schema) as writer:
            for result in self:
                writer.write_table(_with_names(result).cast(schema))


def _field(result: Result, name: str) -> Any:
    return getattr(result.key if hasattr(result.key, name) else result, name)


def home(results: Results) -> str:
    """The corpus that systems are fine-tuned on: benchmarks list its results first."""
    return results[0].corpus


def order_splits(splits: Sequence[str], preferred: str = "") -> list[str]:
    """These splits, the one to report first: the preferred one if it is there, then test, then dev."""
    return [split for split in dict.fromkeys([preferred, "test", "dev", *splits]) if split in splits]


def _repetitions(results: Sequence[Result]) -> list[list[Result]]:
    """The results of one system on one split, divided into what was trained independently of the rest: by middle
    training where there are several of it, else by fine-tuning seed. Seeds ascend.
    """
    several = len({result.pretrain_seed for result in results}) > 1
    groups: dict[int | None, list[Result]] = {}
    for result in sorted(results, key=_seeds):
        groups.setdefault(result.pretrain_seed if several else result.seed, []).append(result)
    return list(groups.values())


def _seeds(result: Result) -> tuple[int, int]:
    return -1 if result.pretrain_seed is None else result.pretrain_seed, result.seed


def _mean_table(results: Sequence[Result]) -> pa.Table:
    """Values per query as means over these results."""
    if len(results) == 1:
        return results[0].per_query
    values = pa.concat_tables(result.per_query for result in results)
    means = values.group_by(["query_id", "measure"], use_threads=False).aggregate([("value", "mean")])
    return means.rename_columns(["query_id", "measure", "value"])


def weigh(key: SystemKey, weight: float, results: Results, places: Sequence[tuple[str, str]], measure: str) -> Weighted:
    """A system as a term of a contrast: its values on each of these corpora and splits, in the order of its seeds.

    With several middle trainings, each of them is one seed of the contrast, with the mean over its fine-tuning seeds:
    the variance between such means is the middle trainings' and, divided by their number, the fine-tunings'.

    Raises:
        ValueError: if it has no result on one of the places, or other seeds than on the first.
    """
    samples, seeds = [], set()
    for corpus, split in places:
        matching = results.where(corpus=corpus, split=split, **vars(key))
        if not matching:
            raise ValueError(f"no result of {key} on {corpus} {split}")
        samples.append(read_sample(key.system, [_mean_table(group) for group in _repetitions(matching)], measure))
        seeds.add(tuple(sorted(map(_seeds, matching))))
    if len(seeds) > 1:
        raise ValueError(f"{key} was not measured with the same seeds on all corpora")
    return Weighted(key.system, weight, samples, is_drawn=key.is_encoder)


NAMES = ("system", "collection", "representation", "setting", "pretrain_seed", "seed", "corpus", "split")

SCHEMA = pa.schema(
    [
        *((name, pa.int64() if name.endswith("seed") else pa.string()) for name in NAMES),
        ("query_id", pa.string()),
        ("measure", pa.string()),
        ("value", pa.float64()),
    ]
)


def _with_names(result: Result) -> pa.Table:
    """The table of values per query, with columns for the result's key, seeds, corpus and split in front."""
    if not len(result.per_query):  # no file could tell it from one that is missing
        raise ValueError(f"{result.key} on {result.corpus} {result.split} has no values")
    named = {**vars(result.key), **{name: getattr(result, name) for name in NAMES[4:]}}
    columns = [pa.array([named[name]] * len(result.per_query), SCHEMA.field(name).type) for name in NAMES]
    values = [result.per_query[name] for name in ("query_id", "measure", "value")]
    return pa.table([*columns, *values], schema=SCHEMA)


def read_results(place: Place) -> tuple[Results, dict[str, Any]]:
    """Reads a file of `Results.write`; returns the results and `about`.

    Raises:
        ValueError, KeyError, TypeError: for a file that is not of this form.
    """
    with place.reading() as stream:
        file = pq.ParquetFile(stream)
        metadata = file.schema_arrow.metadata or {}
        costs: list[dict[str, Any] | None] = json.loads(metadata[COSTS])
        results = [_result(file.read_row_group(number), cost) for number, cost in enumerate(costs)]
        return Results(results), json.loads(metadata.get(ABOUT, b"{}"))


def _result(table: pa.Table, costs: dict[str, Any] | None) -> Result:
    known: list[Any] = [table[name][0].as_py() if name in table.column_names else None for name in NAMES]
    *key, pretrain_seed, seed, corpus, split = known
    per_query = table.select(["query_id", "measure", "value"]).replace_schema_metadata()
    cost = None if costs is None else Costs(**costs)
    measures = aggregate(per_query)
    return Result(SystemKey(*key), seed, corpus, split, measures, per_query, cost, pretrain_seed)
