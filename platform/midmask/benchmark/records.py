"""Collects the results of a benchmark's cells, from their artifacts or from records of cells measured elsewhere.

A record is a small file for each cell: its values per query and its costs, neither weights nor vectors, so a folder of
records can be kept under version control. A cell whose record is there is not measured again, so that a benchmark goes
on where its store is not; the report takes its values from the record.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

from midmask.benchmark.layout import BenchmarkCell
from midmask.benchmark.results import Result, Results, read_results
from midmask.core.config import fingerprint
from midmask.encoders.precision import processor_model
from midmask.errors import UserError
from midmask.experiment.costs import Costs, costs_of
from midmask.experiment.events import Ended, StepEvent
from midmask.experiment.graph import Step
from midmask.experiment.notes import left_out_notes
from midmask.retrieve.encode import EncodeConfig
from midmask.store.artifact import RECORD, Artifact, load
from midmask.store.place import Place
from midmask.store.tables import read_table

log = logging.getLogger(__name__)


def collect(
    cells: Iterable[BenchmarkCell], storage: Place, recorded: Mapping[str, Results] = MappingProxyType({})
) -> Results:
    """The results of cells in the storage; an evaluation that has not been made gives none.

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
    """The results of a cell: one per evaluation, and one for each slice of its queries, which is like a split."""
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
    per_query = read_table(done.place / "per_query" / f"{done.result['corpus']}.{split}.parquet")
    return Result(cell.key, cell.seed, corpus, split, means, per_query, costs, cell.pretrain_seed)


ENDING = ".parquet"


@dataclass(frozen=True)
class Measurement:
    """Where and how a cell was measured."""

    identity: str  # of the computed values, as `identity_of_cell`
    fingerprint: str  # of the cell's tracked run, its tag `midmask.fingerprint`
    precision: str  # of the encodings; empty for BM25
    processor: str  # model name
    overlaps: Sequence[Any] = ()  # rows of the cell's steps `overlap`; records of before have none


@dataclass(frozen=True)
class CellRecord:
    """One record that was read."""

    measurement: Measurement
    results: Results


def identity_of_cell(cell: BenchmarkCell) -> str:
    """16 hexadecimal digits that depend on all that decides a cell's values, except the precision of products: with
    `auto`, machines choose it by their processors, and measures differ by less than 0.001
    (docs/results/pretrained.md).
    """
    known: dict[str, str] = {}
    return fingerprint({" ".join(name): _plain_identity(step, known) for name, step in cell.evaluations.items()})


def _plain_identity(step: Step, known: dict[str, str]) -> str:
    if step.fingerprint not in known:
        inputs = {name: _plain_identity(source, known) for name, source in step.inputs.items()}
        config = _without_precision(step.identity["config"])
        known[step.fingerprint] = fingerprint({**step.identity, "config": config, "inputs": inputs})
    return known[step.fingerprint]


def _without_precision(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_precision(item) for name, item in value.items() if name != "precision"}
    return [_without_precision(item) for item in value] if isinstance(value, list) else value


def read_records(folder: Place) -> dict[str, CellRecord]:
    """The records in a folder by identity; none if there is no folder yet.

    Raises:
        UserError: for a file that is no record.
    """
    records: dict[str, CellRecord] = {}
    for name in folder.names():
        if name.endswith(ENDING):
            try:
                results, about = read_results(folder / name)
                record = CellRecord(Measurement(**about), results)
            except (ValueError, TypeError, KeyError, OSError) as error:
                raise UserError(
                    f"--records {folder}: {name} is no record of a cell ({error}); delete it, and the cell is "
                    "measured again"
                ) from None
            records[record.measurement.identity] = record
    return records


def recorded_results(folder: Place) -> Results:
    """All results of the records in a folder.

    Raises:
        UserError: for a file that is no record.
    """
    return Results(result for record in read_records(folder).values() for result in record.results)


def known_records(cells: Iterable[BenchmarkCell], records: Mapping[str, CellRecord]) -> dict[str, CellRecord]:
    """Cell's name -> its record, for the cells that have one. Cells that compute the same under two settings' names
    share a record, and each has its results as its own.
    """
    known = {}
    for cell in cells:
        if record := records.get(identity_of_cell(cell)):
            results = Results(
                replace(result, key=cell.key, seed=cell.seed, pretrain_seed=cell.pretrain_seed)
                for result in record.results
            )
            known[cell.name] = replace(record, results=results)
    return known


def describe_records(known: Mapping[str, CellRecord]) -> list[str]:
    """Lines on the cells that have a record, one per processor and precision."""
    groups: dict[str, list[str]] = {}
    for name, record in known.items():
        processor = record.measurement.processor or "an unknown processor"
        where = " in ".join(part for part in (processor, record.measurement.precision) if part)
        groups.setdefault(where, []).append(name)
    return [f"Taken from records, measured on {where}: {'; '.join(names)}." for where, names in groups.items()]


class RecordWriter:
    """Writes the records of cells that have none yet: as an observer, each as soon as all of the cell is measured.

    Args:
        cells: without a record. storage: of their artifacts. fingerprint: of a cell's tracked run.
    """

    def __init__(
        self,
        folder: Place,
        cells: Iterable[BenchmarkCell],
        storage: Place,
        fingerprint: Callable[[BenchmarkCell], str],
    ) -> None:
        self._folder, self._storage, self._fingerprint = folder, storage, fingerprint
        self._left = {cell.name: cell for cell in cells}

    def __call__(self, event: StepEvent) -> None:
        if isinstance(event, Ended):
            self.write_measured()

    def write_measured(self) -> None:
        """Writes the records of the cells that are measured by now."""
        for cell in list(self._left.values()):
            if all(step.is_finished(self._storage) for step in cell.targets):
                self._write(self._left.pop(cell.name))

    def _write(self, cell: BenchmarkCell) -> None:
        configs = [step.config for last in cell.evaluations.values() for step in last.upstream()]
        precisions = sorted({config.precision for config in configs if isinstance(config, EncodeConfig)})
        overlaps = [row for step in cell.overlaps for row in load(step.place(self._storage)).result["overlaps"]]
        measured = Measurement(
            identity_of_cell(cell), self._fingerprint(cell), " and ".join(precisions), processor_model(), overlaps
        )
        name = re.sub(r"[^a-z0-9]+", "-", f"{cell.name} {measured.identity[:6]}".lower())
        collect([cell], self._storage).write(self._folder / f"{name}{ENDING}", asdict(measured))
        log.info("%s: recorded in %s", cell.name, self._folder / f"{name}{ENDING}")
