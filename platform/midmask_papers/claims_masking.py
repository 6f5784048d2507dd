"""ROM's claims (Long et al. 2022), and that self-contrast brings little (RetroMAE's paper, of SimCSE and its like)."""

from collections.abc import Sequence

from midmask.benchmark.results import Results, SystemKey
from midmask.evaluation.statistics.intervals import ALPHA, interval
from midmask_papers.matching import NONE, Term
from midmask_papers.statistics import Statistic, difference, of
from midmask_papers.verdict import ClaimPart, Ruling, all_of, combine, judge, pick

MEASURE = "stop share"
COMMAND = "`python -m midmask_papers.stop_word_share --corpus NAME` measures it"

ABOUT = 0.05
""" "About 40%" is 35 to 45%: the paper rounds, and its lists of stop-words and its corpora are not ours."""


def stop_share(statistics: Sequence[Statistic], results: Results) -> Ruling:
    """~40% of randomly masked tokens are stop-words or punctuation: on every corpus that was measured."""
    printed = pick("rom", "text").value
    found = of(statistics, MEASURE, "mlm")
    if not found:
        return Ruling("not measured", f"the share of stop-words under random masks; {COMMAND}.", published=printed)
    return combine([_compare_with_printed(one, printed, ALPHA / len(found)) for one in found.values()])


def _compare_with_printed(one: Statistic, printed: float, level: float) -> Ruling:
    found = interval(one.mean, [one.variance], level)
    inside = printed - ABOUT <= found.low and found.high <= printed + ABOUT
    outside = found.low > printed + ABOUT or found.high < printed - ABOUT
    return Ruling(
        "holds" if inside else "does not hold" if outside else "not decidable",
        f"{one.mean:.1%} [{found.low:.1%}, {found.high:.1%}] of {one.count:,} masked tokens of {one.corpus}, about "
        f"{printed:.0%} being {printed - ABOUT:.0%} to {printed + ABOUT:.0%} ({one.source}).",
        found.value,
        found.low,
        found.high,
        found.detectable,
        printed,
    )


def fewer_stops(statistics: Sequence[Statistic], results: Results) -> Ruling:
    """ROM masks fewer of them than random masks do."""
    uniform, weighted = (of(statistics, MEASURE, system) for system in ("mlm", "rom"))
    shared = [corpus for corpus in uniform if corpus in weighted]
    if not shared:
        return Ruling("not measured", f"the shares of stop-words under random masks and ROM's; {COMMAND}.")
    verdicts = []
    for corpus in shared:
        found = difference(uniform[corpus], weighted[corpus], ALPHA / len(shared))
        said = f"{uniform[corpus].mean:.1%} under random masks, {weighted[corpus].mean:.1%} under ROM's on {corpus}."
        verdicts.append(Ruling(judge(found, None), said, found.value, found.low, found.high, found.detectable))
    return combine(verdicts)


def rom_helps(results: Results) -> Ruling:
    """ROM > MLM; no size survives."""
    return all_of(
        results, "rom", [ClaimPart("rom against mlm", _terms(rom=1.0, mlm=-1.0), "RR@10", ("msmarco", "dev"))]
    )


def self_contrast(results: Results) -> Ruling:
    """Little is less than half of RetroMAE's gain over none: ½ (RetroMAE - none) - (SimCSE - none) > 0."""
    terms = [_terms(**{"retromae": 0.5, "none": 0.5, system: -1.0}) for system in ("simcse", "ict")]
    parts = [
        ClaimPart(f"half of retromae's gain over none less {own[-1].key.system}'s", own, "RR@10", ("msmarco", "dev"))
        for own in terms
    ]
    return all_of(results, "demo --systems all", parts)


def _terms(**weights: float) -> tuple[Term, ...]:
    """Dense systems, pre-trained on the corpus and fine-tuned with in-batch negatives."""
    return tuple(
        Term(weight, SystemKey(system, NONE if system == "none" else "corpus", "dense", "in_batch"))
        for system, weight in weights.items()
    )
