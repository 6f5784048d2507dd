"""CoT-MoTE's claims (Ma et al. 2023): its Tables 1, 3, 4 and 5, the divergences of Table 1 among them."""

from collections.abc import Sequence

from midmask.benchmark.results import Results
from midmask.evaluation.statistics.intervals import LEVEL
from midmask_papers.published import Published
from midmask_papers.statistics import Statistic, difference, of
from midmask_papers.verdict import Claim, Ruling, all_of, combine, judge, pair, pick

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
    found = []
    for measure in ("KL", "JS"):
        near, far = (pick(PAPER, "1", label=label, measure=measure) for label in ("Siamese", "fully separate"))
        ours, others = (of(statistics, measure, number.system) for number in (near, far))
        shared = [corpus for corpus in ours if corpus in others]
        size = far.value - near.value
        if not shared:
            said = f"No {measure} of {near.system} and {far.system} in statistics.yaml beside the results."
            return Ruling("not measured", said, published=size)
        for corpus in shared:
            one = difference(others[corpus], ours[corpus], LEVEL / 2 / len(shared))
            said = f"{measure} {others[corpus].mean:.2e} against {ours[corpus].mean:.2e} on {corpus}."
            found.append(Ruling(judge(one, size), said, one.value, one.low, one.high, one.detectable, size))
    return combine(found)


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
