"""Every claim of the papers with its ruling, and what held of them in all records of measured cells in a folder:

    python -m midmask_papers.answers docs/results/records

prints Markdown: a row for each claim, with a point for each collection and number of tokens of middle training. The
folder has a folder of records for each run, and `runs.yaml`, which states what each was measured on. What a
benchmark's report has of its own claims, and of its paper's tables, are `additions`.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_uppercase

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, TypeAdapter

from midmask.benchmark.design import VIEW_NAMES, Benchmark
from midmask.benchmark.records import ENDING, recorded_results
from midmask.benchmark.report import NamedTable
from midmask.benchmark.results import Result, Results
from midmask.core.config import Config
from midmask.core.words import MISSING
from midmask.errors import UserError
from midmask.evaluation.rendering import markdown
from midmask.store.place import Place
from midmask_papers.claims import CLAIMS, Claim
from midmask_papers.masks_and_maps import SHIPPED, Statistic, read_statistics
from midmask_papers.published import PAPERS, paper, read_list
from midmask_papers.ruling import ClaimOutcome, Ruling, points
from midmask_papers.tables import paper_tables

METHOD = """A difference is a mean over seeds and queries; its 95% interval counts the spread of both (variance of the
paired per-query differences of seed means, plus, per system, the variance between seeds beyond what they do to single
queries; t with Welch's degrees of freedom). A claim **holds** if the interval lies above 0, **does not hold** if it
lies below 0 or reaches 0 but not the published size, and is **not decidable** (cannot be told) if it reaches both, or
if in one of the conditions that it compares (a fine-tuning, a representation, what was read) no system reaches a tenth
of BM25's measure. Of a claim of several parts, which share the 5%, all must hold; the numbers are those of the part
that decides. All numbers are hundredths; positive is the claimed direction."""

RUNS = "runs.yaml"

LARGEST_SPREAD = 2
"""A middle training that reads pairs reads up to twice the tokens of one that reads as many single texts."""

BEGINNING = """# What held of the papers

No paper was run at its published scale: these are encoders of a few million weights, on two processor cores, and no
GPU took part. Those from random weights have two layers; so a claim that holds here holds for what little such an
encoder learns, and one that does not may hold for BERT. From MiniLM, "none" is a finished retriever, where the papers
start from BERT. Every statement rests on one middle training of each system, and its seeds are those of the
fine-tuning; those from wiki-mini rest on a middle training for each seed.

`python -m midmask_papers.answers docs/results/records` prints this page from all records in the repository, and a test
holds it and every page that quotes a verdict to that. A row is a claim, a column an experiment: a collection, what the
encoders start from, and the tokens of middle training, those of the methods that read single texts; methods that read
pairs read up to twice as many. Records of the same three are decided together. `—`: not measured. The experiments:"""


class RecordedRun(Config):
    """What the records in one folder were measured on."""

    records: str = Field(description="the folder's name")
    collection: str = Field(description="the collection, as it was cut")
    start: str = Field(description="the weights that middle trainings start from")
    source: str = Field(description="the page with the command")


_LIST = TypeAdapter(tuple[RecordedRun, ...])


@dataclass(frozen=True)
class Experiment:
    """Results that may be compared: of one collection, one start and one length of middle training."""

    collection: str
    start: str
    tokens: int
    results: Results

    @property
    def title(self) -> str:
        """The heading of its column."""
        trained = f"from {self.start}, {self.tokens / 1e6:g} M tokens" if self.tokens else self.start
        return f"{self.collection}; {trained}"


TEXTS = Experiment("texts alone", "no training", 0, Results([]))
"""The column of claims on texts and masks, which need no results."""


def read_runs(folder: Path) -> tuple[RecordedRun, ...]:
    """The lines of `runs.yaml`, one for each folder that has records.

    Raises:
        UserError: if the file is missing or malformed, or a folder of records lacks its line, or a line its folder.
    """
    file = folder / RUNS
    if not file.is_file():
        raise UserError(f"{folder}: there is no {RUNS}; give the folder of all records, as docs/results/records")
    runs = read_list(_LIST, file.read_text(encoding="utf-8"), str(file))
    measured = {path.parent.name for path in folder.glob(f"*/*{ENDING}")}
    for name in sorted(measured ^ {run.records for run in runs}):
        lacks = "has records and no line" if name in measured else "has a line and no records"
        raise UserError(f"{file}: {name} {lacks}; add or delete its line")
    return runs


def read_experiments(folder: Path) -> list[Experiment]:
    """All records of a folder, those of the same collection, start and tokens joined.

    Raises:
        UserError: as `read_runs` and `recorded_results`; if a folder holds middle trainings of different lengths, or if
            two folders of an experiment have different values for the same cell.
    """
    joined: dict[tuple[str, str, int], dict[object, Result]] = {}
    for run in read_runs(folder):
        results = recorded_results(Place(str(folder / run.records)))
        cells = joined.setdefault((run.collection, run.start, _tokens(results, run.records)), {})
        for result in results:
            cell = (result.key, result.seed, result.corpus, result.split)
            cells[cell] = _join(cells[cell], result, run.records) if cell in cells else result
    return [Experiment(*about, Results(cells.values())) for about, cells in joined.items()]


def _join(known: Result, again: Result, name: str) -> Result:
    """A result with the measures that another run of the same cell has besides.

    Raises:
        UserError: if a measure that both have differs.
    """
    both = known.measures.keys() & again.measures.keys()
    if any(known.measures[measure] != again.measures[measure] for measure in both):
        raise UserError(f"{name}: other values of {again.key} on {again.corpus} {again.split} than another folder has")
    is_new = pc.invert(pc.is_in(again.per_query["measure"], pa.array(sorted(both), pa.string())))
    values = pa.concat_tables([known.per_query, again.per_query.filter(is_new)])
    return replace(known, measures={**again.measures, **known.measures}, per_query=values)


def _tokens(results: Sequence[Result], name: str) -> int:
    """Tokens of middle training, to two digits; 0 without any.

    Raises:
        UserError: if one read more than twice the tokens of another.
    """
    read = {result.costs.pretrain_tokens for result in results if result.costs is not None} - {0}
    if not read:
        return 0
    if max(read) > LARGEST_SPREAD * min(read):
        raise UserError(
            f"{name}: its middle trainings read {min(read):,} to {max(read):,} tokens; keep the records of each length "
            "in a folder of its own"
        )
    return int(float(f"{min(read):.2g}"))


@dataclass(frozen=True)
class ClaimPoints:
    """A claim's rulings, by the place of their experiment among those that were read; of those that measured it."""

    claim: Claim
    rulings: dict[int, Ruling]
    representations: tuple[str, ...]  # that any experiment has it for


def decide_claims(experiments: Sequence[Experiment], statistics: Sequence[Statistic]) -> list[ClaimPoints]:
    """Every claim at each experiment; one that statistics decide without any result, at `TEXTS` alone."""
    rows = []
    for claim in CLAIMS.values():
        rulings = [claim.decide(experiment.results, statistics) for experiment in experiments]
        is_alone = claim.decide(TEXTS.results, statistics).outcome != "not measured"
        measured = {
            place: ruling
            for place, (experiment, ruling) in enumerate(zip(experiments, rulings, strict=True))
            if ruling.outcome != "not measured" and not (is_alone and experiment.results)
        }
        views = dict.fromkeys(view for ruling in rulings for view in ruling.representations)
        rows.append(ClaimPoints(claim, measured, tuple(views)))
    return rows


def page(
    experiments: Sequence[Experiment], statistics: Sequence[Statistic] = SHIPPED, beginning: str = BEGINNING
) -> str:
    """Markdown: how claims are decided, what held where, and a table for each paper with the sentences behind it.

    Args:
        statistics: as `Claim.decide` takes them. beginning: above all.
    """
    columns = [*experiments, TEXTS]
    rows = decide_claims(columns, statistics)
    titles = "\n".join(f"- {letter}: {column.title}" for letter, column in zip(ascii_uppercase, columns, strict=False))
    parts = [beginning, titles, METHOD, "\n".join(f"- {line}" for line in _summary(rows))]
    for name in PAPERS:
        parts.append(f"## {paper(name).citation}")
        parts += _section([row for row in rows if row.claim.paper == name])
    return "\n\n".join(parts) + "\n"


PLURALS: dict[ClaimOutcome, str] = {
    "holds": "hold wherever they were decided",
    "does not hold": "do not hold wherever they were decided",
    "not decidable": "cannot be told",
    "not measured": "were not measured",
}
"""The first that is the outcome of any experiment."""


def _summary(rows: Sequence[ClaimPoints]) -> Iterator[str]:
    """The claims by what is decided of them at any point."""
    kinds: dict[str, list[str]] = {}
    for row in rows:
        outcomes = {ruling.outcome for ruling in row.rulings.values()} or {"not measured"}
        kind = next(plural for outcome, plural in PLURALS.items() if outcome in outcomes)
        if {"holds", "does not hold"} <= outcomes:
            kind = "hold at one point and not at another"
        kinds.setdefault(kind, []).append(row.claim.name)
    for kind, names in kinds.items():
        yield f"{len(names)} {kind}: {', '.join(names)}"


def _section(rows: Sequence[ClaimPoints]) -> Iterator[str]:
    """A table of claims by experiments, and a line for each verdict."""
    shown = sorted({place for row in rows for place in row.rulings})
    cells = [
        [
            f"{row.claim.text} ({row.claim.name})",
            ", ".join(VIEW_NAMES.get(view, view) for view in row.representations) or MISSING,
            *(_point(row.rulings[place]) if place in row.rulings else MISSING for place in shown),
        ]
        for row in rows
    ]
    yield markdown(["claim", "representation", *(ascii_uppercase[place] for place in shown)], cells)
    yield "\n".join(
        f"- **{row.claim.name}**, {ascii_uppercase[place]}: {ruling.sentence}"
        for row in rows
        for place, ruling in row.rulings.items()
    )


def _point(ruling: Ruling) -> str:
    """The verdict with the estimate, its interval and the published size, in hundredths."""
    cell: str = "cannot be told" if ruling.outcome == "not decidable" else ruling.outcome
    if (estimate := ruling.estimate) is not None:
        cell += f" {points(estimate.value)} [{points(estimate.low)}, {points(estimate.high)}]"
    return cell if ruling.published is None else f"{cell}, published {points(ruling.published)}"


def additions(results: Results, benchmark: Benchmark, folder: Path) -> tuple[list[NamedTable], list[str]]:
    """What a benchmark's report gets: the tables of the paper that it repeats, and a section on the claims, which are
    written to `claims.md` in its folder. They need the package's statistics, and those of `statistics.yaml` there, if
    `midmask_papers.embedding_map` has written it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "statistics.yaml"
    statistics = read_statistics(file) if file.is_file() else ()
    here = Experiment(benchmark.corpus, "measured in this benchmark", 0, results)
    claims = page([here], [*SHIPPED, *statistics], "# Claims of the papers")
    (folder / "claims.md").write_text(claims, encoding="utf-8")
    sections = ["## Claims of the papers\n\nEach is checked on these results in [claims.md](claims.md)."]
    return paper_tables(benchmark.name, results, benchmark.notes), sections


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    try:
        print(page(read_experiments(parser.parse_args().folder)), end="")
    except UserError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
