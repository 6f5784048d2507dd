"""What the papers add to a benchmark's report: their tables, the claims, the spread between systems, t-SNE maps.

Maps: how dense queries and passages of a benchmark's encoders lie to each other, with KL and JS of their densities, as
in CoT-MoTE (Ma et al. 2023, Table 1 and appendix A.1); what is measured goes to the claims as statistics.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from midmask.benchmark.design import Benchmark
from midmask.benchmark.layout import BenchmarkCell, Layout
from midmask.benchmark.report import Additions
from midmask.benchmark.results import Results
from midmask.core.words import MISSING
from midmask.errors import UserError
from midmask.evaluation.embeddings import CAVEAT, PERPLEXITY, Map
from midmask.evaluation.rendering import markdown
from midmask.leaderboard.embeddings import PAIRS, draw_sample, encodings, map_embeddings
from midmask.store.digests import RECORD
from midmask.store.place import Place
from midmask_papers.answers import claims_csv, claims_report, verdicts
from midmask_papers.figures import OURS, THEIRS, spread_figure
from midmask_papers.masks_and_maps import Statistic, read_shipped, read_statistics
from midmask_papers.published import published
from midmask_papers.tables import paper_tables

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
            (entry.maps[0].queries_N2, OURS, "queries"),
            (entry.maps[0].passages_N2, THEIRS, "passages"),
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
"""Of a report's folder: what the claims of its benchmark need besides ranked lists."""


def additions(results: Results, layout: Layout, storage: Place, folder: Path) -> Additions:
    """The tables of the paper that a benchmark repeats, all claims and the spread between systems; called by
    `midmask.benchmark.report`.
    """
    return additions_of(results, layout.benchmark, folder, embedding_maps(layout, storage))


def additions_of(results: Results, benchmark: Benchmark, folder: Path, maps: Sequence[Mapped] = ()) -> Additions:
    """The same of results with the maps of their encoders. Writes `claims.{md,csv}` and `figures/*.png`. Statistics
    that claims need are those of the package, of the maps and, if it is there, of `statistics.yaml` in the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    given = read_statistics(folder / STATISTICS) if (folder / STATISTICS).is_file() else ()
    rulings = verdicts(results, [*read_shipped(), *as_statistics(maps), *given])
    (folder / "claims.md").write_text(claims_report(rulings), encoding="utf-8")
    (folder / "claims.csv").write_text(claims_csv(rulings), encoding="utf-8")
    sections = ["## Claims of the papers\n\nEach is checked on these results in [claims.md](claims.md)."]
    if spread := spread_figure(results, folder / "figures" / "spread.png"):
        sections.append(f"## Spread between systems\n\n![spread](figures/spread.png)\n\n{spread}")
    if drawn := maps_section(maps, folder / "figures" / "embeddings.png"):
        sections.append(f"## Where queries and passages lie\n\n{drawn}")
    return Additions(paper_tables(benchmark.name, results, benchmark.notes), sections)
