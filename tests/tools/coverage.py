"""Which of the papers' printed numbers a command would measure: the lists of numbers crossed with the presets.

`python -m tests.tools.coverage` prints what was run of them (nothing at published scale), the shares, the command
behind each table, and what has no command, with the reason. It ends with code 1 if a number of a system that midmask
implements has none.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from midmask.benchmark.design import Benchmark
from midmask.benchmark.layout import reason_not_run
from midmask.benchmark.presets import PRESETS, Given
from midmask.benchmark.results import SystemKey
from midmask.corpora.config import CorpusConfig
from midmask.evaluation.groups import GROUPS
from midmask.evaluation.measures import expand
from midmask.evaluation.rendering import markdown
from midmask_papers.published import PAPERS, Published, corpus_names, key_of, paper, published

MSMARCO, WIKIPEDIA = "msmarco:/data/msmarco", "texts:/data/wikibook"
TREC_DL = tuple(f"ir_datasets:msmarco-passage/trec-dl-{year}/judged" for year in (2019, 2020))
EMBEDDING_MAP = "`python -m midmask_papers.embedding_map --out FOLDER SYSTEM=EVALUATION …` (docs/reproduce/cotmote.md)"
ELSEWHERE = {
    "KL": EMBEDDING_MAP,
    "JS": EMBEDDING_MAP,
    "stop share": "`python -m midmask_papers.stop_word_share --corpus FORMAT:PLACE` (docs/results/rom_stop_words.md)",
}
"""Measure -> the command that gives it, where no benchmark does."""


NOT_RUN = """Nothing on this page was run: no cell has been measured at published scale, and not one second of a GPU was
spent; what was run is small, on two processor cores: [what held of the papers](papers.md), [all results](index.md).
Below stands which printed numbers a command would measure: every value that the five papers print for a system, crossed
with the presets. A cell may take weeks of GPUs: [estimates](cost.md). `make coverage` prints this text; a test holds it
up to date."""


@dataclass(frozen=True)
class PresetRun:
    """A preset at published scale on the paper's own collections."""

    preset: str
    corpus: str = MSMARCO
    pretrain_on: tuple[str, ...] = (WIKIPEDIA,)
    zero_shot: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        flags = [f"--preset {self.preset} --scale published --corpus {self.corpus}"]
        flags += [f"--pretrain-on {name}" for name in self.pretrain_on]
        flags += [f"--zero-shot {name}" for name in self.zero_shot]
        return " ".join(["python jobs/benchmark_middle_training.py", *flags])

    @cached_property
    def benchmark(self) -> Benchmark:
        return PRESETS[self.preset](Given("published", self.corpus, self.pretrain_on))

    @cached_property
    def keys(self) -> tuple[SystemKey, ...]:
        return tuple(key for key in self.benchmark.keys() if not reason_not_run(self.benchmark, key))

    @cached_property
    def corpora(self) -> frozenset[str]:
        """Names of what is searched, and of BEIR's groups that are complete."""
        labels = {CorpusConfig(name=self.corpus).short_name}
        for name in self.zero_shot:
            group = name.partition(":")[0]
            labels |= {group, *GROUPS[group]} if group in set(GROUPS) else {CorpusConfig(name=name).short_name}
        return frozenset(labels)

    def measures(self, corpus: str) -> set[str]:
        """Measures on a corpus that papers call so; empty if it is not searched."""
        is_searched = not self.corpora.isdisjoint(corpus_names(corpus))
        return {*expand(self.benchmark.measures)} if is_searched else set()

    def covers(self, number: Published) -> bool:
        """Whether a cell of this run is what the paper prints: the same system, and fields that the paper tells."""
        fields = vars(key_of(number))
        told = {name: value for name, value in fields.items() if value}
        systems = [key for key in self.keys if told.items() <= vars(key).items()]
        measures = self.measures(number.corpus)
        compared = bool(number.against and measures)  # differences and shares of wins follow from cells
        return bool(systems) and (compared or number.measure in measures)


RUNS: Mapping[str, tuple[PresetRun, ...]] = {
    "sigir23": (
        PresetRun("sigir23", zero_shot=("beir13:/data/beir", *TREC_DL)),
        PresetRun("sigir23", "tripclick:/data/tripclick", (MSMARCO, WIKIPEDIA)),
    ),
    "dupmae": (PresetRun("dupmae", zero_shot=("beir18:/data/beir", *TREC_DL)),),
    "retromae": (PresetRun("retromae", zero_shot=("beir18:/data/beir",)), PresetRun("retromae", "nq:/data/nq")),
    "cotmote": (PresetRun("cotmote", zero_shot=("beir14:/data/beir", *TREC_DL)),),
    "rom": (PresetRun("rom"),),
}
"""Paper -> the commands that measure what it prints."""


@dataclass(frozen=True)
class Coverage:
    """A printed number, whether midmask has its system, which papers may only cite, and the command that measures the
    number; empty if none does.
    """

    number: Published
    implemented: bool
    command: str


def coverage_of(number: Published, name: str) -> Coverage:
    """Of a number that the paper of this name prints."""
    commands = [run.command for run in RUNS[name] if number.system and run.covers(number)]
    return Coverage(number, bool(number.system), ELSEWHERE.get(number.measure, next(iter(commands), "")))


def report(papers: Mapping[str, list[Coverage]]) -> str:
    """Markdown: what was run; a line for each table; then the commands, systems that are cited only, values that are
    not at hand, and numbers of implemented systems without a command.
    """
    every = [entry for entries in papers.values() for entry in entries if entry.implemented]
    covered = sum(bool(entry.command) for entry in every)
    share = f"{covered} of {len(every)} printed numbers of systems that midmask implements have a command"
    counts = markdown(["paper", "table", "printed", "implemented", "with a command", "cited only"], list(_rows(papers)))
    commands = [f"{run.command}  # {name}" for name in papers for run in RUNS[name]]
    cited = {
        name: dict.fromkeys(entry.number.label for entry in entries if not entry.implemented)
        for name, entries in papers.items()
    }
    missing = [f"{name}: {entry['what']}: {entry['why']}" for name in papers for entry in paper(name).missing]
    share = f"{share}: {covered / len(every):.1%}. None of them was run."
    parts = [NOT_RUN, share, counts, "\n".join(["```sh", *commands, "```"])]
    listed = [f"{name}: {', '.join(entries)}" for name, entries in cited.items() if entries]
    lacking = [entry.number for entry in every if not entry.command]
    named = [f"{one.paper}, table {one.table}: {one.label}, {one.measure} on {one.corpus}" for one in lacking]
    sections = {"Cited by the papers only": listed, "Not in the texts at hand": missing, "Without a command": named}
    for heading, lines in sections.items():
        parts += [f"## {heading}", "\n".join(f"- {line}" for line in lines)] if lines else []
    return "\n\n".join(parts) + "\n"


def _rows(papers: Mapping[str, list[Coverage]]) -> Iterator[list[str]]:
    for name, entries in papers.items():
        for table in dict.fromkeys(entry.number.table for entry in entries):
            here = [entry for entry in entries if entry.number.table == table]
            known, commands = sum(entry.implemented for entry in here), sum(bool(entry.command) for entry in here)
            yield [name, table, *map(str, (len(here), known, commands, len(here) - known))]


def measure_coverage() -> dict[str, list[Coverage]]:
    """Paper -> all its printed numbers, in its order."""
    return {name: [coverage_of(number, name) for number in published(name)] for name in PAPERS}


if __name__ == "__main__":
    everything = measure_coverage()
    print(report(everything), end="")
    sys.exit(any(one.implemented and not one.command for own in everything.values() for one in own))
