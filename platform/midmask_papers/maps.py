"""How dense queries and passages of a benchmark's encoders lie to each other: t-SNE maps, KL and JS of their densities,
as in CoT-MoTE (Ma et al. 2023, Table 1 and appendix A.1). What is measured goes to the claims as statistics.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from midmask.artifact import RECORD, Place
from midmask.benchmark.cells import BenchmarkCell
from midmask.benchmark.layout import Layout
from midmask.errors import UserError
from midmask.evaluation.embeddings import CAVEAT, PERPLEXITY, Map
from midmask.evaluation.rendering import MISSING, markdown
from midmask.leaderboard.embeddings import PAIRS, draw_sample, encodings, map_embeddings
from midmask_papers.figures import BLUE, ORANGE
from midmask_papers.published import published
from midmask_papers.statistics import Statistic

log = logging.getLogger(__name__)

DRAWS = (0, 1, 2, 3, 4)
"""Seeds of t-SNE: what is told of an encoder is the mean over them."""

PAPER, TABLE = "cotmote", "1"

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
    wanted = [cell for cell in layout.cells if cell.key.representation == "dense" and not cell.further]
    first = {cell.key.system: cell.key for cell in reversed(wanted) if cell.key.system in layout.benchmark.maps}
    return [found for cell in wanted if first.get(cell.key.system) == cell.key for found in _map_cell(cell, storage)]


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


def as_statistics(found: Sequence[Mapped]) -> list[Statistic]:
    """KL and JS of each system: a value per fine-tuning seed; of a single one, a value per draw."""
    statistics = []
    for system, corpus in dict.fromkeys((one.system, one.corpus) for one in found):
        own = [one for one in found if (one.system, one.corpus) == (system, corpus)]
        for measure in ("KL", "JS"):
            values = own[0].draws(measure) if len(own) == 1 else tuple(one.mean(measure) for one in own)
            source = f"{PAIRS} pairs at most of the benchmark's own encodings, mapped by t-SNE with seeds {DRAWS}"
            statistics.append(Statistic(measure=measure, system=system, corpus=corpus, values=values, source=source))
    return statistics


def maps_section(found: Sequence[Mapped], path: Path) -> str:
    """Draws the first map of every system and returns Markdown: divergences and cosines, ours and as published; an
    empty text, and no figure, where nothing was mapped.
    """
    if not found:
        return ""
    _draw(found, path)
    printed = {(number.system, number.measure): number.value for number in published(PAPER, TABLE)}
    rows = []
    for one in found:
        theirs = [printed.get((one.system, measure)) for measure in ("KL", "JS")]
        shown = [MISSING if value is None else f"{value:.2e}" for value in theirs]
        cosines = [f"{getattr(one.maps[0].cosines, name):.3f}" for name in ("pairs", "others")]
        rows.append([one.system, str(one.seed), *(f"{one.mean(m):.2e}" for m in ("KL", "JS")), *shown, *cosines])
    headers = ["system", "seed", "KL", "JS", "published KL", "published JS", "cosine, pairs", "cosine, others"]
    return f"![embeddings](figures/{path.name})\n\n{markdown(headers, rows)}\n\n{CAVEAT}"


def _draw(found: Sequence[Mapped], path: Path) -> None:
    """A panel a system: the first fine-tuning seed, the first draw."""
    from matplotlib.figure import Figure

    shown = list({one.system: one for one in reversed(found)}.values())[::-1]
    figure = Figure(figsize=(PANEL_INCHES * len(shown), PANEL_INCHES + 0.3), dpi=200, layout="constrained")
    for number, one in enumerate(shown):
        axes = figure.add_subplot(1, len(shown), number + 1)
        for points_N2, colour, name in (
            (one.maps[0].queries_N2, BLUE, "queries"),
            (one.maps[0].passages_N2, ORANGE, "passages"),
        ):
            axes.scatter(points_N2[:, 0], points_N2[:, 1], s=3, color=colour, label=name, linewidths=0)
        axes.set_title(f"{one.system}, {one.corpus}", fontsize=8, loc="left")
        axes.set_xticks([])
        axes.set_yticks([])
        if number == 0:
            axes.legend(fontsize=6, frameon=False, markerscale=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
