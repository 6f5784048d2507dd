"""The report of a benchmark: tables, claims, figures and t-SNE maps, and the results as one Parquet file.

The paper's tables; one table per representation and setting; the claims; the figure of the spread. Maps: how dense
queries and passages of a benchmark's encoders lie to each other, with KL and JS of their densities, as in CoT-MoTE (Ma
et al. 2023, Table 1 and appendix A.1); what is measured goes to the claims as statistics.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from midmask.benchmark.design import BM25, NONE, Benchmark
from midmask.benchmark.layout import BenchmarkCell, Layout, LeftOut, group_by_reason
from midmask.benchmark.records import collect, describe_left_out
from midmask.benchmark.results import Results, SystemKey
from midmask.core.words import MISSING
from midmask.errors import UserError
from midmask.evaluation.embeddings import CAVEAT, PERPLEXITY, Map
from midmask.evaluation.rendering import markdown
from midmask.evaluation.tables import by_measure, tabulate
from midmask.store.digests import RECORD
from midmask.store.place import Place
from midmask_papers.answers import claims_csv, claims_report, verdicts
from midmask_papers.embeddings import PAIRS, draw_sample, encodings, map_embeddings
from midmask_papers.figures import BLUE, ORANGE, collections_figure, spread_figure
from midmask_papers.gains import gains_figure
from midmask_papers.published import published, tuned_on
from midmask_papers.ruling import Statistic, read_shipped, read_statistics
from midmask_papers.tables import NamedTable, paper_tables

log = logging.getLogger(__name__)

DRAWS = (0, 1, 2, 3, 4)
"""Seeds of t-SNE: what is told of an encoder is the mean over them."""

MAPS_PAPER, MAPS_TABLE = "cotmote", "1"

PANEL_INCHES = 3.0


@dataclass(frozen=True)
class Mapped:
    """One encoder's maps, one per draw."""

    system: str
    corpus: str
    seed: int
    maps: tuple[Map, ...]

    def draws(self, measure: str) -> tuple[float, ...]:
        """KL or JS of each draw, in nats."""
        return tuple(getattr(one.divergence, measure.lower()) for one in self.maps)

    def mean(self, measure: str) -> float:
        """KL or JS over the draws, in nats."""
        return float(np.mean(self.draws(measure)))


def embedding_maps(layout: Layout, storage: Place) -> list[Mapped]:
    """Maps of the systems that the benchmark asks for, each under its first condition on the first collection, as far
    as they have been run and their vectors are there; the same 400 pairs of a query and a relevant passage of the first
    split for all of them.
    """
    cells = [cell for cell in layout.cells if cell.key.representation == "dense" and not cell.further]
    first = {cell.key.system: cell.key for cell in reversed(cells) if cell.key.system in layout.benchmark.maps}
    return [mapped for cell in cells if first.get(cell.key.system) == cell.key for mapped in _map_cell(cell, storage)]


def _map_cell(cell: BenchmarkCell, storage: Place) -> Iterator[Mapped]:
    (corpus, _), step = next(iter(cell.evaluations.items()))
    place = step.place(storage)
    if not (place / RECORD).exists():
        return
    try:
        pairs = draw_sample(encodings(place), "dense", count=PAIRS, seed=0)
        maps = tuple(map_embeddings(pairs, perplexity=PERPLEXITY, seed=draw) for draw in DRAWS)
    except UserError as error:
        log.warning("no map of %s: %s", cell.name, error)
        return
    yield Mapped(cell.key.system, corpus, cell.seed, maps)


def as_statistics(mapped: Sequence[Mapped]) -> list[Statistic]:
    """KL and JS of each system: a value per fine-tuning seed; of a single one, a value per draw."""
    statistics = []
    for system, corpus in dict.fromkeys((entry.system, entry.corpus) for entry in mapped):
        entries = [entry for entry in mapped if (entry.system, entry.corpus) == (system, corpus)]
        for measure in ("KL", "JS"):
            values = entries[0].draws(measure) if len(entries) == 1 else tuple(entry.mean(measure) for entry in entries)
            source = f"{PAIRS} pairs at most of the benchmark's own encodings, mapped by t-SNE with seeds {DRAWS}"
            statistics.append(Statistic(measure=measure, system=system, corpus=corpus, values=values, source=source))
    return statistics


def maps_section(mapped: Sequence[Mapped], path: Path) -> str:
    """Draws the first map of every system and returns Markdown: divergences and cosines, ours and as published; an
    empty text, and no figure, where nothing was mapped.
    """
    if not mapped:
        return ""
    _draw_maps(mapped, path)
    printed = {(number.system, number.measure): number.value for number in published(MAPS_PAPER, MAPS_TABLE)}
    rows = []
    for entry in mapped:
        theirs = [printed.get((entry.system, measure)) for measure in ("KL", "JS")]
        shown = [MISSING if value is None else f"{value:.2e}" for value in theirs]
        cosines = [f"{getattr(entry.maps[0].cosines, name):.3f}" for name in ("pairs", "others")]
        rows.append([entry.system, str(entry.seed), *(f"{entry.mean(m):.2e}" for m in ("KL", "JS")), *shown, *cosines])
    headers = ["system", "seed", "KL", "JS", "published KL", "published JS", "cosine, pairs", "cosine, others"]
    return f"![embeddings](figures/{path.name})\n\n{markdown(headers, rows)}\n\n{CAVEAT}"


def _draw_maps(mapped: Sequence[Mapped], path: Path) -> None:
    """A panel a system: the first fine-tuning seed, the first draw."""
    from matplotlib.figure import Figure

    shown = list({entry.system: entry for entry in reversed(mapped)}.values())[::-1]
    figure = Figure(figsize=(PANEL_INCHES * len(shown), PANEL_INCHES + 0.3), dpi=200, layout="constrained")
    for number, entry in enumerate(shown):
        axes = figure.add_subplot(1, len(shown), number + 1)
        for points_N2, colour, name in (
            (entry.maps[0].queries_N2, BLUE, "queries"),
            (entry.maps[0].passages_N2, ORANGE, "passages"),
        ):
            axes.scatter(points_N2[:, 0], points_N2[:, 1], s=3, color=colour, label=name, linewidths=0)
        axes.set_title(f"{entry.system}, {entry.corpus}", fontsize=8, loc="left")
        axes.set_xticks([])
        axes.set_yticks([])
        if number == 0:
            axes.legend(fontsize=6, frameon=False, markerscale=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


STATISTICS = "statistics.yaml"


def report_of(layout: Layout, storage: Place, folder: Path, failed: Mapping[str, str]) -> str:
    """Writes the report of a benchmark's results in the storage to the folder; returns its text.

    Args:
        failed: cell -> why it could not be run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    results, maps = collect(layout.cells, storage, layout.recorded), embedding_maps(layout, storage)
    remarks = describe_left_out(layout.cells, storage)
    return write_report(
        results, layout.benchmark, folder, maps=maps, left_out=layout.left_out, failed=failed, remarks=remarks
    )


def write_report(
    results: Results,
    benchmark: Benchmark,
    folder: Path,
    *,
    maps: Sequence[Mapped] = (),
    left_out: Sequence[LeftOut] = (),
    failed: Mapping[str, str] | None = None,
    remarks: Sequence[str] = (),
) -> str:
    """Writes `report.md`, `claims.{md,csv}`, `tables/*.{md,csv,tex}`, the tests of each table as `tables/*.tests.csv`,
    `figures/*.png` and `results.parquet`; returns the text of the report. Statistics that claims need are those of the
    package, of the maps and, if it is there, of `statistics.yaml` in the folder.

    Args:
        maps: of the encoders whose embeddings are compared.
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
    rulings = verdicts(results, [*read_shipped(), *as_statistics(maps), *given])
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
    if drawn := maps_section(maps, folder / "figures" / "embeddings.png"):
        parts.append(f"## Where queries and passages lie\n\n{drawn}")
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
