"""Claims on masks and on embeddings, which no ranked list decides: shares of stop-words among masked tokens, and how
far queries and passages lie apart. They need statistics that are measured elsewhere, each with its run.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np
from pydantic import Field, TypeAdapter

from midmask.benchmark.results import Results, home, order_splits
from midmask.core.config import Config
from midmask.evaluation.statistics.intervals import ALPHA, IntervalEstimate, Variance, interval
from midmask.retrieve.bm25 import BM25
from midmask_papers.published import pick, read_list
from midmask_papers.ruling import ClaimOutcome, Ruling, Weak, below_floor, combine, judge, judge_between


class Statistic(Config):
    """One figure of one system on one corpus."""

    measure: str = Field(description="stop share, KL or JS")
    system: str = Field(description="a recipe's name, or a variant of one")
    corpus: str = Field(description="short name of the corpus")
    values: tuple[float, ...] = Field(min_length=1, description="one per seed or draw")
    count: int = Field(0, ge=0, description="of a share: of how many; 0: it is none")
    source: str = Field(description="the command that gave it")

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def variance(self) -> Variance:
        """Of the mean: of a share the binomial's, else from the draws; infinite for a single one."""
        return Variance.of_share(self.mean, self.count) if self.count else Variance.of_mean(self.values)


def difference(left: Statistic, right: Statistic, alpha: float) -> IntervalEstimate:
    """left less right, measured independently of each other."""
    return interval(left.mean - right.mean, [left.variance, right.variance], alpha)


def read_statistics(file: Path) -> tuple[Statistic, ...]:
    """A YAML list of statistics.

    Raises:
        UserError: for a wrong field, naming it.
    """
    return read_list(TypeAdapter(tuple[Statistic, ...]), file.read_text(encoding="utf-8"), file.name)


SHIPPED = read_statistics(Path(__file__).with_name("statistics.yaml"))
"""Those that come with the package."""


def _of_systems(statistics: Sequence[Statistic], measure: str, *systems: str) -> dict[str, list[Statistic]]:
    """Corpus -> the statistic of each of these systems there; of the corpora that have all."""
    by_corpus: dict[str, dict[str, Statistic]] = {}
    for statistic in statistics:
        if statistic.measure == measure:
            by_corpus.setdefault(statistic.corpus, {})[statistic.system] = statistic
    return {
        corpus: [known[system] for system in systems]
        for corpus, known in by_corpus.items()
        if known.keys() >= set(systems)
    }


STOP_SHARE = "stop share"
COMMAND = "`python -m midmask_papers.stop_word_share --corpus NAME` measures it"

ABOUT = 0.05
""" "About 40%" is 35 to 45%: the paper rounds, and its lists of stop-words and its corpora are not ours."""


def stop_share(results: Results, statistics: Sequence[Statistic]) -> Ruling:
    """~40% of randomly masked tokens are stop-words or punctuation: on every corpus that was measured."""
    printed = pick("rom", "text").value
    if not (shares := _of_systems(statistics, STOP_SHARE, "mlm")):
        return Ruling("not measured", f"the share of stop-words under random masks; {COMMAND}", published=printed)
    low, high, rulings = printed - ABOUT, printed + ABOUT, []
    for (share,) in shares.values():
        estimate = interval(share.mean, [share.variance], ALPHA / len(shares))
        statement = (
            f"{share.mean:.1%} [{estimate.low:.1%}, {estimate.high:.1%}] of {share.count:,} masked tokens of "
            f"{share.corpus}, about {printed:.0%} being {low:.0%} to {high:.0%} ({share.source})"
        )
        rulings.append(Ruling(judge_between(estimate, low, high), statement, estimate, printed))
    return combine(rulings)


def fewer_stops(results: Results, statistics: Sequence[Statistic]) -> Ruling:
    """ROM masks fewer of them than random masks do."""
    if not (shares := _of_systems(statistics, STOP_SHARE, "mlm", "rom")):
        return Ruling("not measured", f"the shares of stop-words under random masks and ROM's; {COMMAND}")
    rulings = []
    for corpus, (uniform, weighted) in shares.items():
        gap = difference(uniform, weighted, ALPHA / len(shares))
        statement = f"{uniform.mean:.1%} under random masks, {weighted.mean:.1%} under ROM's on {corpus}"
        rulings.append(Ruling(judge(gap, None), statement, gap))
    return combine(rulings)


def divergences(results: Results, statistics: Sequence[Statistic]) -> Ruling:
    """CoT-MoTE's Table 1: queries and passages of two encoders lie farther apart, by KL and JS of their densities."""
    near, far = ("cotmae", "cotmae[experts=all]")
    printed = {
        (measure, system): pick("cotmote", "1", system=system, measure=measure).value
        for measure, system in product(("KL", "JS"), (near, far))
    }
    sizes = {measure: printed[measure, far] - printed[measure, near] for measure in ("KL", "JS")}
    return combine(_lie_nearer(results, statistics, near, [far], sizes))


def lowest_divergences(results: Results, statistics: Sequence[Statistic]) -> Ruling:
    """Figure 4: CoT-MoTE's queries and passages lie nearer to each other than those of one encoder and of two; no value
    is printed.
    """
    rivals = ["cotmote_siamese", "cotmote_separate"]
    return combine(_lie_nearer(results, statistics, "cotmote", rivals, {"KL": None, "JS": None}))


def _lie_nearer(
    results: Results,
    statistics: Sequence[Statistic],
    near: str,
    rivals: Sequence[str],
    sizes: Mapping[str, float | None],
) -> list[Ruling]:
    """Whether a system's divergences are lower than each rival's, on every corpus that has both. It is not decided
    where one of the encoders has not learned to search, or where the results do not show whether it has.

    Args:
        sizes: measure -> the published difference.
    """
    rulings = []
    for (measure, size), far in product(sizes.items(), rivals):
        if not (shared := _of_systems(statistics, measure, near, far)):
            absent = f"No {measure} of {near} and {far} in statistics.yaml beside the results"
            weak = _not_learned((near, *rivals), home(results), results) if results else ()
            outcome: ClaimOutcome = "not decidable" if weak else "not measured"
            rulings.append(Ruling(outcome, absent, published=size, representations=("dense",), weak=weak))
        for corpus, (ours, other) in shared.items():
            gap = difference(other, ours, ALPHA / len(sizes) / len(rivals) / len(shared))
            text = f"{measure} {other.mean:.2e} ({far}) against {ours.mean:.2e} ({near}) on {corpus}"
            weak = _not_learned((near, far), corpus, results, is_required=True)
            outcome = "not decidable" if weak else judge(gap, size)
            rulings.append(Ruling(outcome, text, gap, size, representations=("dense",), weak=weak))
    return rulings


def _not_learned(
    systems: Sequence[str], corpus: str, results: Results, *, is_required: bool = False
) -> tuple[Weak, ...]:
    """The dense encoders of these systems that have not learned to search a corpus, under any fine-tuning that was
    measured: an encoder's divergence is its own, so each of them is a condition.

    Args:
        is_required: whether an encoder whose learning the results do not show counts as one that has not.
    """
    weak: list[Weak] = []
    here = results.where(corpus=corpus)
    for system in systems:
        rows = here.where(system=system, representation="dense")
        if is_required and not (rows and here.where(system=BM25)):
            weak.append(Weak(corpus, f"the results do not show whether {system} has learned to search"))
        for key, split in product(dict.fromkeys(row.key for row in rows), order_splits(rows.names("split"))[:1]):
            below = below_floor([key], [(corpus, split)], results, "RR@10")
            weak += (Weak(place, f"{system}: {condition}") for place, condition in below)
    return tuple(weak)
