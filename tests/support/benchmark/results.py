"""A benchmark's results, read from the file that it writes."""

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from midmask.artifact import Place
from midmask.benchmark.results import COSTS, NAMES, Result, Results, SystemKey
from midmask.evaluation.measures import aggregate
from midmask.experiment.costs import Costs


def read_results(place: Place) -> Results:
    """What `Results.write` has written."""
    with place.reading() as stream:
        file = pq.ParquetFile(stream)
        costs: list[dict[str, Any] | None] = json.loads(file.schema_arrow.metadata[COSTS])
        return Results(_result(file.read_row_group(number), cost) for number, cost in enumerate(costs))


def _result(table: pa.Table, costs: dict[str, Any] | None) -> Result:
    *key, seed, corpus, split = (table[name][0].as_py() for name in NAMES)
    per_query = table.select(["query_id", "measure", "value"]).replace_schema_metadata()
    known = None if costs is None else Costs(**costs)
    return Result(SystemKey(*key), seed, corpus, split, aggregate(per_query), per_query, known)
