"""From the artifacts of a benchmark's cells to results."""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

import pyarrow.parquet as pq

from midmask.artifact import RECORD, Artifact, Place, load
from midmask.benchmark.cells import BenchmarkCell
from midmask.benchmark.results import Result, Results
from midmask.experiment.costs import Costs, costs_of
from midmask.experiment.reading_notes import left_out_notes


def collect(
    cells: Iterable[BenchmarkCell], storage: Place, recorded: Mapping[str, Results] = MappingProxyType({})
) -> Results:
    """What lies in the storage of these cells; an evaluation that has not been made gives no result.

    Args:
        recorded: cell's name -> its results as they were recorded elsewhere, which are taken instead.
    """
    return Results(result for cell in cells for result in recorded.get(cell.name) or _results(cell, storage))


def describe_left_out(cells: Iterable[BenchmarkCell], storage: Place) -> list[str]:
    """A line for each rule by which something is not measured as the collections' files have it, with its count; of the
    evaluations that lie in the storage.
    """
    steps = {f"{cell.name} on {' '.join(on)}": step for cell in cells for on, step in cell.evaluations.items()}
    return left_out_notes(
        {name: load(step.place(storage)) for name, step in steps.items() if step.is_finished(storage)}
    )


def _results(cell: BenchmarkCell, storage: Place) -> Iterator[Result]:
    """One per evaluation, and one for each slice of its queries, which is like a split."""
    for (corpus, split), step in cell.evaluations.items():
        place = step.place(storage)
        if (place / RECORD).exists():
            done, costs = load(place), costs_of(step, storage)
            yield _result(cell, done, corpus, split, costs)
            for name in done.result["slices"]:
                yield _result(cell, done, corpus, name, costs)


def _result(cell: BenchmarkCell, done: Artifact, corpus: str, split: str, costs: Costs) -> Result:
    """`corpus` is the label of the benchmark; the file bears the collection's own name."""
    means = done.result["measures"] if split == done.result["split"] else done.result["slices"][split]["measures"]
    with (done.place / "per_query" / f"{done.result['corpus']}.{split}.parquet").reading() as stream:
        per_query = pq.read_table(stream)
    return Result(cell.key, cell.seed, corpus, split, means, per_query, costs, further=bool(cell.further))
