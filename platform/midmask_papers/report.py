"""What the papers add to a benchmark's report: their tables, and what held of their claims."""

from pathlib import Path

from midmask.benchmark.design import Benchmark
from midmask.benchmark.report import NamedTable
from midmask.benchmark.results import Results
from midmask_papers.answers import Experiment, page
from midmask_papers.masks_and_maps import SHIPPED, read_statistics
from midmask_papers.tables import paper_tables

STATISTICS = "statistics.yaml"
"""Of a report's folder: what the claims of its benchmark need besides ranked lists."""


def additions(results: Results, benchmark: Benchmark, folder: Path) -> tuple[list[NamedTable], list[str]]:
    """The tables of the paper that a benchmark repeats, and all claims; called by `midmask.benchmark.report`. Writes
    `claims.md`. Statistics that claims need are those of the package and, if it is there, of `statistics.yaml` in the
    folder (`midmask_papers.embedding_map` writes one).
    """
    folder.mkdir(parents=True, exist_ok=True)
    statistics = read_statistics(folder / STATISTICS) if (folder / STATISTICS).is_file() else ()
    here = Experiment(benchmark.corpus, "measured in this benchmark", 0, results)
    claims = page([here], [*SHIPPED, *statistics], "# Claims of the papers")
    (folder / "claims.md").write_text(claims, encoding="utf-8")
    sections = ["## Claims of the papers\n\nEach is checked on these results in [claims.md](claims.md)."]
    return paper_tables(benchmark.name, results, benchmark.notes), sections
