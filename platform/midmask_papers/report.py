"""What the papers add to a benchmark's report: their tables, the claims, the spread between systems."""

from pathlib import Path

from midmask.benchmark.design import Benchmark
from midmask.benchmark.report import Additions
from midmask.benchmark.results import Results
from midmask_papers.answers import claims_csv, claims_report, verdicts
from midmask_papers.figures import spread_figure
from midmask_papers.masks_and_maps import read_shipped, read_statistics
from midmask_papers.tables import paper_tables

STATISTICS = "statistics.yaml"
"""Of a report's folder: what the claims of its benchmark need besides ranked lists."""


def additions(results: Results, benchmark: Benchmark, folder: Path) -> Additions:
    """The tables of the paper that a benchmark repeats, all claims and the spread between systems; called by
    `midmask.benchmark.report`. Writes `claims.{md,csv}` and `figures/spread.png`. Statistics that claims need are those
    of the package and, if it is there, of `statistics.yaml` in the folder (`midmask_papers.embedding_map` writes one).
    """
    folder.mkdir(parents=True, exist_ok=True)
    given = read_statistics(folder / STATISTICS) if (folder / STATISTICS).is_file() else ()
    rulings = verdicts(results, [*read_shipped(), *given])
    (folder / "claims.md").write_text(claims_report(rulings), encoding="utf-8")
    (folder / "claims.csv").write_text(claims_csv(rulings), encoding="utf-8")
    sections = ["## Claims of the papers\n\nEach is checked on these results in [claims.md](claims.md)."]
    if spread := spread_figure(results, folder / "figures" / "spread.png"):
        sections.append(f"## Spread between systems\n\n![spread](figures/spread.png)\n\n{spread}")
    return Additions(paper_tables(benchmark.name, results, benchmark.notes), sections)
