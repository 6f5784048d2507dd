"""The report of a benchmark: its tables, and the results as one Parquet file.

What `midmask_papers` knows beside them, published values and claims, it adds itself, where it is installed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from midmask.benchmark.design import NONE, Benchmark
from midmask.benchmark.figures import gains
from midmask.benchmark.layout import Layout, group_by_reason
from midmask.benchmark.overlap import Row, collect_overlaps, describe_overlaps, warnings_of
from midmask.benchmark.records import collect, describe_left_out
from midmask.benchmark.results import Results, SystemKey
from midmask.evaluation.rendering import Style, as_csv, as_latex, as_markdown
from midmask.evaluation.tables import ComparisonProtocol, ResultTable, by_measure, tabulate
from midmask.retrieve.bm25 import BM25
from midmask.store.place import Place

PAPERS = "midmask_papers"
"""The package whose module `answers` gives tables before a report's own, and sections after them."""


@dataclass(frozen=True)
class NamedTable:
    """A table with the name of its files and its heading."""

    name: str
    heading: str
    table: ResultTable
    style: Style = field(default_factory=Style)
    warnings: tuple[str, ...] = ()  # lines below it

    def markdown(self) -> str:
        return "\n\n".join([as_markdown(self.table, self.style), *self.warnings])

    def files(self) -> dict[str, str]:
        """Ending -> text: the table as Markdown, LaTeX and CSV."""
        tex, csv = as_latex(self.table, self.style), as_csv(self.table, self.style)
        return {"md": self.markdown(), "tex": tex, "csv": csv}


def report_of(layout: Layout, storage: Place, folder: Path, failed: Mapping[str, str]) -> str:
    """Writes a benchmark's report to the folder, from the storage: `report.md`, `tables/*.{md,csv,tex}` and
    `results.parquet`; returns the text of the report.

    Args:
        failed: cell -> why it could not be run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    benchmark, results = layout.benchmark, collect(layout.cells, storage, layout.recorded)
    printed, sections = [], []
    if find_spec(PAPERS) is not None:
        printed, sections = import_module(f"{PAPERS}.answers").additions(results, benchmark, folder)
    overlaps = collect_overlaps(layout, storage)
    remarks = [*describe_left_out(layout.cells, storage), *warnings_of(overlaps)]
    tables = [*printed, *tables_of(results, benchmark, overlaps)]
    (folder / "tables").mkdir(exist_ok=True)
    for table in tables:
        for ending, text in table.files().items():
            (folder / "tables" / f"{table.name}.{ending}").write_text(text, encoding="utf-8")
    results.write(Place(str(folder / "results.parquet")))
    parts = [f"# {benchmark.title}", _conditions(results, benchmark, remarks)]
    parts += [f"## {table.heading}\n\n{table.markdown()}" for table in tables]
    parts += sections
    if overlaps:
        parts.append(f"## What the trainings have read\n\n{describe_overlaps(overlaps)}")
    if gained := gains(results, benchmark.baseline, benchmark.measure):
        parts.append(f"## What middle training gains\n\n{gained}")
    if failed:
        parts.append("## Not measured\n\n" + "\n".join(f"- {cell}: {reason}" for cell, reason in failed.items()))
    if layout.left_out:
        parts.append("## Left out\n\n" + "\n".join(group_by_reason(layout.left_out)))
    text = "\n\n".join(parts) + "\n"
    (folder / "report.md").write_text(text, encoding="utf-8")
    return text


def tables_of(results: Results, benchmark: Benchmark, overlaps: Sequence[Row]) -> Iterator[NamedTable]:
    """One table per corpus, split, representation and setting: systems × measures, all pairs compared; with the
    warnings of what was read of its corpus and split.
    """
    for corpus, split in dict.fromkeys((result.corpus, result.split) for result in results):
        here = results.where(corpus=corpus, split=split)
        warnings = tuple(warnings_of(row for row in overlaps if (row["corpus"], row["split"]) == (corpus, split)))
        for kind, setting in dict.fromkeys((result.key.representation, result.key.setting) for result in here):
            if kind == BM25:
                continue
            rows = here.where(representation=kind, setting=setting)
            systems = Results([*rows, *here.where(system=BM25)])
            per_query = systems.per_query(corpus, split, by=lambda key: label(key, benchmark))
            measures = [name for name in rows[0].measures if all(name in result.measures for result in systems)]
            protocol = ComparisonProtocol(seeds=bool(benchmark.pretrain_seeds))
            table = tabulate(by_measure(per_query, measures), protocol)
            name, heading = f"{corpus}.{split}.{kind}.{setting}", f"{corpus} {split}, {kind}, {setting}"
            yield NamedTable(name, heading, table, warnings=warnings)


def label(key: SystemKey, benchmark: Benchmark) -> str:
    """A row's name: the system, and the collection of its middle training where rows differ in it."""
    several = len(benchmark.collections) > 1 and key.collection != NONE
    return f"{key.system} ({key.collection})" if several else key.system


def _conditions(results: Results, benchmark: Benchmark, remarks: Sequence[str]) -> str:
    seeds = ", ".join(map(str, benchmark.seeds))
    middle = ", ".join(map(str, benchmark.pretrain_seeds))
    trained = f"middle trainings {middle} of each method, fine-tuned {len(benchmark.seeds)} times each; ± is over them"
    repeated = trained if middle else f"fine-tuning seeds {seeds}, which share one middle training"
    lines = [f"Fine-tuned on {benchmark.corpus}; {repeated}; {len(results)} evaluations."]
    for name, read in benchmark.collections.items():
        lines.append(f"Middle training on {name}: {', '.join(read) or 'the corpus itself'}.")
    return "\n".join(f"- {line}" for line in (*lines, *benchmark.notes, *remarks))
