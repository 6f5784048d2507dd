"""CoT-MoTE's claims (Ma et al. 2023): its Tables 1, 3, 4 and 5, and the divergences of Table 1 and of Figure 4."""

from collections.abc import Mapping, Sequence
from itertools import product

from midmask.benchmark.design import BM25
from midmask.benchmark.results import Results
from midmask.evaluation.statistics.intervals import ALPHA
from midmask_papers.matching import home, order_splits
from midmask_papers.published import Published
from midmask_papers.statistics import Statistic, difference, of
from midmask_papers.verdict import Claim, ClaimOutcome, Ruling, all_of, below_floor, combine, judge, pair, pick

PAPER = "cotmote"
OWN = "CoT-MoTE (mined negatives)"


def _number(label: str, representation: str = "hybrid") -> Published:
    return pick(PAPER, "3-5", label=label, representation=representation, measure="RR@10")


def siamese(results: Results) -> Ruling:
    """Table 1, ranked lists: one encoder > two."""
    rows = [pick(PAPER, "1", label=label, measure="RR@10") for label in ("Siamese", "fully separate")]
    return all_of(results, PAPER, [pair(*rows)])


def divergences(statistics: Sequence[Statistic], results: Results) -> Ruling:
    """Table 1, embeddings: queries and passages of two encoders lie farther apart, by KL and JS of their densities."""
    near, far = ("cotmae", "cotmae[experts=all]")
    sizes = {
        measure: pick(PAPER, "1", system=far, measure=measure).value
        - pick(PAPER, "1", system=near, measure=measure).value
        for measure in ("KL", "JS")
    }
    return combine(_lie_nearer(statistics, results, near, [far], sizes))


def lowest_divergences(statistics: Sequence[Statistic], results: Results) -> Ruling:
    """Figure 4: CoT-MoTE's queries and passages lie nearer to each other than those of one encoder and of two; no value
    is printed.
    """
    rivals = ["cotmote_siamese", "cotmote_separate"]
    return combine(_lie_nearer(statistics, results, "cotmote", rivals, {"KL": None, "JS": None}))


def _lie_nearer(
    statistics: Sequence[Statistic],
    results: Results,
    near: str,
    rivals: Sequence[str],
    sizes: Mapping[str, float | None],
) -> list[Ruling]:
    """Whether a system's divergences are lower than each rival's, on every corpus that has both. It is not decided
    where one of the encoders has not learned to search, or where the results do not show whether it has.

    Args:
        sizes: measure -> the published difference.
    """
    found = []
    for (measure, size), far in product(sizes.items(), rivals):
        ours, others = (of(statistics, measure, system) for system in (near, far))
        shared = [corpus for corpus in ours if corpus in others]
        if not shared:
            absent = f"No {measure} of {near} and {far} in statistics.yaml beside the results"
            short = _not_learned((near, *rivals), home(results), results) if results else ()
            said = "; ".join((absent, *short)) + "."
            outcome: ClaimOutcome = "not decidable" if short else "not measured"
            found.append(Ruling(outcome, said, published=size, representations=("dense",)))
        for corpus in shared:
            one = difference(others[corpus], ours[corpus], ALPHA / len(sizes) / len(rivals) / len(shared))
            told = f"{measure} {others[corpus].mean:.2e} ({far}) against {ours[corpus].mean:.2e} ({near}) on {corpus}"
            short = _not_learned((near, far), corpus, results, is_required=True)
            outcome = "not decidable" if short else judge(one, size)
            said = "; ".join((told, *short)) + "."
            found.append(Ruling(outcome, said, one.value, one.low, one.high, one.detectable, size, ("dense",)))
    return found


def _not_learned(
    systems: Sequence[str], corpus: str, results: Results, *, is_required: bool = False
) -> tuple[str, ...]:
    """The dense encoders of these systems that have not learned to search a corpus, under any fine-tuning that was
    measured: an encoder's divergence is its own, so each of them is a condition.

    Args:
        is_required: whether an encoder whose learning the results do not show counts as one that has not.
    """
    found: list[str] = []
    here = results.where(corpus=corpus)
    for system in systems:
        own = here.where(system=system, representation="dense")
        if is_required and not (own and here.where(system=BM25)):
            found.append(f"the results do not show whether {system} has learned to search {corpus}")
        for key, split in product(dict.fromkeys(one.key for one in own), order_splits(own.names("split"))[:1]):
            found += (f"{system}: {one}" for one in below_floor([key], [(corpus, split)], results, "RR@10"))
    return tuple(found)


def experts(results: Results) -> Ruling:
    """Table 3: experts > one encoder and two, hybrid."""
    return all_of(results, PAPER, [pair(_number(OWN), _number(rival)) for rival in ("Siamese", "Full sep")])


def own_corpora(results: Results) -> Ruling:
    """Table 4: each expert pre-trained on its own side > on the other's."""
    return all_of(results, PAPER, [pair(_number(OWN), _number("CoT-MoTE, experts' corpora switched"))])


def mined(results: Results) -> Ruling:
    """Table 5: mined negatives > BM25's."""
    return all_of(results, PAPER, [pair(_number(OWN), _number("CoT-MoTE, BM25 negatives (stage 1)"))])


def hybrid(results: Results) -> Ruling:
    """Dense and sparse together > either."""
    return all_of(results, PAPER, [pair(_number(OWN), _number(OWN, view)) for view in ("dense", "splade")])


COTMOTE = (
    Claim("cotmote.1_siamese", PAPER, "One encoder for queries and passages is better than two.", siamese),
    Claim("cotmote.3_experts", PAPER, "Experts are better than one encoder, and than two.", experts),
    Claim("cotmote.4_own_corpora", PAPER, "Experts must be pre-trained on their own side's texts.", own_corpora),
    Claim("cotmote.5_mined", PAPER, "Mined negatives are better than BM25's.", mined),
    Claim("cotmote.hybrid", PAPER, "Dense and sparse vectors together are better than either.", hybrid),
)
