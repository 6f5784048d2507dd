"""The report of a benchmark: tables, claims and figures, and the results as one Parquet file.

The paper's tables; one table per representation and setting; the claims; the figure of the spread.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from midmask.benchmark.design import BM25, NONE, Benchmark
from midmask.benchmark.layout import Layout, LeftOut, group_by_reason
from midmask.benchmark.records import collect, describe_left_out
from midmask.benchmark.results import Results, SystemKey
from midmask.core.words import MISSING
from midmask.evaluation.rendering import markdown
from midmask.evaluation.tables import by_measure, tabulate
from midmask.store.place import Place
from midmask_papers.answers import claims_csv, claims_report, verdicts
from midmask_papers.figures import collections_figure, spread_figure
from midmask_papers.gains import gains_figure
from midmask_papers.published import tuned_on
from midmask_papers.ruling import read_shipped, read_statistics
from midmask_papers.tables import NamedTable, paper_tables

log = logging.getLogger(__name__)

STATISTICS = "statistics.yaml"


def report_of(layout: Layout, storage: Place, folder: Path, failed: Mapping[str, str]) -> str:
    """Writes the report of a benchmark's results in the storage to the folder; returns its text.

    Args:
        failed: cell -> why it could not be run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    results = collect(layout.cells, storage, layout.recorded)
    remarks = describe_left_out(layout.cells, storage)
    return write_report(results, layout.benchmark, folder, left_out=layout.left_out, failed=failed, remarks=remarks)


def write_report(
    results: Results,
    benchmark: Benchmark,
    folder: Path,
    *,
    left_out: Sequence[LeftOut] = (),
    failed: Mapping[str, str] | None = None,
    remarks: Sequence[str] = (),
) -> str:
    """Writes `report.md`, `claims.{md,csv}`, `tables/*.{md,csv,tex}`, the tests of each table as `tables/*.tests.csv`,
    `figures/*.png` and `results.parquet`; returns the text of the report. Statistics that claims need are those of the
    package and, if it is there, of `statistics.yaml` in the folder (`midmask_papers.embedding_map` writes one).

    Args:
        left_out: combinations that were not run, and why.
        failed: cell -> why it could not be run.
        remarks: what is not measured as the collections' files have it.
    """
    tables = [
        *paper_tables(benchmark.name, results, benchmark.notes),
        *tables_of(results, benchmark),
    ]
    for named in tables:
        _write_table(named, folder / "tables")
    results.write(Place(str(folder / "results.parquet")))
    given = read_statistics(folder / STATISTICS) if (folder / STATISTICS).is_file() else ()
    rulings = verdicts(results, [*read_shipped(), *given])
    (folder / "claims.md").write_text(claims_report(rulings), encoding="utf-8")
    (folder / "claims.csv").write_text(claims_csv(rulings), encoding="utf-8")
    parts = [f"# {benchmark.title}", _conditions(results, benchmark, remarks)]
    parts += [f"## {named.heading}\n\n{named.markdown()}" for named in tables]
    parts += ["## Claims of the papers\n\nEach is checked on these results in [claims.md](claims.md)."]
    if spread := spread_figure(results, folder / "figures" / "spread.png"):
        parts.append(f"## Spread between systems\n\n![spread](figures/spread.png)\n\n{spread}")
    if read := collections_figure(results, folder / "figures" / "collections.png", benchmark.measure):
        parts.append(f"## What the middle training read\n\n![collections](figures/collections.png)\n\n{read}")
    if gained := gains_figure(results, folder / "figures" / "gains.png", benchmark.baseline, benchmark.measure):
        parts.append(f"## What middle training gains\n\n![gains](figures/gains.png)\n\n{gained}")
    parts += [f"## What it cost\n\n{costs_table(results)}"]
    if failed:
        parts.append("## Not measured\n\n" + "\n".join(f"- {cell}: {reason}" for cell, reason in failed.items()))
    if left_out:
        parts.append("## Left out\n\n" + "\n".join(group_by_reason(left_out)))
    text = "\n\n".join(parts) + "\n"
    (folder / "report.md").write_text(text, encoding="utf-8")
    return text


def tables_of(results: Results, benchmark: Benchmark) -> Iterator[NamedTable]:
    """One table per corpus, split, representation and setting: systems × measures, all pairs compared."""
    for corpus, split in dict.fromkeys((result.corpus, result.split) for result in results):
        here = results.where(corpus=corpus, split=split)
        for kind, setting in dict.fromkeys((one.key.representation, one.key.setting) for one in here):
            rows = here.where(representation=kind, setting=setting)
            if kind == BM25:
                continue
            systems = Results([*rows, *here.where(system=BM25)])
            per_query = systems.per_query(corpus, split, by=lambda key: label(key, benchmark))
            measures = [name for name in rows[0].measures if all(name in one.measures for one in systems)]
            name = f"{corpus}.{split}.{kind}.{setting}"
            heading = f"{corpus} {split}, {kind}, {setting}"
            yield NamedTable(name, heading, tabulate(by_measure(per_query, measures)))


def label(key: SystemKey, benchmark: Benchmark) -> str:
    """A row's name: the system, and the collection of its middle training where rows differ in it."""
    several = len(benchmark.collections) > 1 and key.collection != NONE
    return f"{key.system} ({key.collection})" if several else key.system


def costs_table(results: Results) -> str:
    """A row per system, collection, representation and setting: what its evaluation on the first split took, as the
    mean over seeds; of several corpora that systems are fine-tuned on, for each. Steps that systems share count for
    each of them.
    """
    several = any(result.further for result in results)
    headers = ["fine-tuned on"] * several
    headers += ["system", "collection", "representation", "setting", "pre-training tokens", "training s", "CPU h"]
    headers += ["GPU h", "bytes/passage", "search ms/query"]
    rows = []
    for key, corpus in dict.fromkeys((result.key, tuned_on(result, results)) for result in results):
        cell = [result for result in results.where(**vars(key)) if tuned_on(result, results) == corpus]
        measured = [result for result in cell if result.costs is not None]
        first = [
            result.costs
            for result in measured
            if (result.corpus, result.split) == (measured[0].corpus, measured[0].split) and result.costs
        ]
        if first:
            cells = [
                _mean([float(cost.pretrain_tokens) for cost in first], "{:,.0f}"),
                _mean([cost.train_seconds for cost in first], "{:.0f}"),
                _mean([cost.cpu_hours for cost in first], "{:.3f}"),
                _mean([cost.gpu_hours for cost in first], "{:.3f}"),
                _mean([cost.bytes_per_passage for cost in first], "{:.0f}"),
                _mean([cost.search_ms_per_query for cost in first], "{:.2f}"),
            ]
            rows.append([*[corpus] * several, *vars(key).values(), *cells])
    return markdown(headers, rows)


def _conditions(results: Results, benchmark: Benchmark, remarks: Sequence[str]) -> str:
    seeds = ", ".join(map(str, benchmark.seeds))
    corpora = " and, by itself, on ".join(benchmark.corpora)
    lines = [f"Fine-tuned on {corpora}; fine-tuning seeds {seeds}; {len(results)} evaluations."]
    for name, read in benchmark.collections.items():
        lines.append(f"Middle training on {name}: {', '.join(read) or 'the corpus itself'}.")
    return "\n".join(f"- {line}" for line in (*lines, *benchmark.notes, *remarks))


def _write_table(named: NamedTable, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for ending, text in named.files().items():
        (folder / f"{named.name}.{ending}").write_text(text, encoding="utf-8")


def _mean(values: Sequence[float | None], style: str) -> str:
    numbers = [value for value in values if value is not None]
    return style.format(sum(numbers) / len(numbers)) if numbers else MISSING
