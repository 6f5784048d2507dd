"""Every qualitative claim of the papers as a named, computed check, and the report of their verdicts."""

from collections.abc import Sequence
from functools import partial

from midmask.benchmark.results import Results
from midmask.evaluation.rendering import MISSING, markdown, plain_csv
from midmask.registry import Registry
from midmask_papers.claims_cotmote import COTMOTE, divergences, lowest_divergences
from midmask_papers.claims_dupmae import CONCLUSIONS
from midmask_papers.claims_masking import fewer_stops, rom_helps, self_contrast, stop_share
from midmask_papers.claims_retromae import RETROMAE
from midmask_papers.claims_sigir23 import SIGIR23
from midmask_papers.claims_sigir23_effects import EFFECTS
from midmask_papers.published import PAPERS, paper
from midmask_papers.statistics import Statistic, read_shipped
from midmask_papers.verdict import Claim, Ruling, points

METHOD = """A difference is a mean over seeds and queries; its 95% interval counts the spread of both (variance of the
paired per-query differences of seed means, plus, per system, the variance between seeds beyond what they do to single
queries; t with Welch's degrees of freedom). A claim **holds** if the interval lies above 0, **does not hold** if it
lies below 0 or reaches 0 but not the published size, and is **not decidable** (cannot be told) if it reaches both, or
if in one of the conditions that it compares (a fine-tuning, a representation, what was read) no system reaches a tenth
of BM25's measure. Of a claim of several parts, which share the 5%, all must hold; the numbers are those of the part
that decides. All numbers are hundredths; positive is the claimed direction."""


ClaimVerdict = tuple[Claim, Ruling]

FIGURES = ("ours", "low", "high", "detectable", "published")
"""Columns for the figures of a ruling."""


def claims(statistics: Sequence[Statistic]) -> Registry[Claim]:
    """All claims, those that need more than ranked lists looking at these statistics."""
    masking = (
        Claim(
            "rom.stop_share",
            "rom",
            "About 40% of randomly masked tokens are stop-words or punctuation.",
            partial(stop_share, statistics),
        ),
        Claim("rom.fewer_stops", "rom", "ROM masks fewer of them.", partial(fewer_stops, statistics)),
        Claim("rom.retrieval", "rom", "ROM is better than MLM with random masks.", rom_helps),
        Claim(
            "self_contrast",
            "retromae",
            "Self-contrastive training (SimCSE, inverse cloze) brings little: less than half of RetroMAE's gain.",
            self_contrast,
        ),
    )
    apart = Claim(
        "cotmote.1_divergences",
        "cotmote",
        "Queries and passages lie farther apart when each has its own encoder (KL and JS of their densities).",
        partial(divergences, statistics),
    )
    lowest = Claim(
        "cotmote.4_lowest",
        "cotmote",
        "With experts, queries and passages lie nearer to each other than with one encoder, and than with two.",
        partial(lowest_divergences, statistics),
    )
    found = (*SIGIR23, *EFFECTS, *CONCLUSIONS, *RETROMAE, *COTMOTE, apart, lowest, *masking)
    return Registry("claim", {claim.name: claim for claim in found})


CLAIMS: Registry[Claim] = claims(read_shipped())


def verdicts(results: Results, statistics: Sequence[Statistic] | None = None) -> list[ClaimVerdict]:
    """Every claim with its verdict, in the papers' order; statistics: those that are shipped, unless given."""
    found = CLAIMS if statistics is None else claims(statistics)
    return [(claim, claim.check(results)) for claim in found.values()]


def claims_report(found: Sequence[ClaimVerdict]) -> str:
    """Markdown: how claims are decided, a table of all, and each paper's claims with their figures."""
    counts = ", ".join(
        f"{sum(verdict.outcome == outcome for _, verdict in found)} {said}"
        for outcome, said in (
            ("holds", "hold"),
            ("does not hold", "do not"),
            ("not decidable", "cannot be decided"),
            ("not measured", "were not measured"),
        )
    )
    rows = [[claim.name, verdict.outcome, *_figures(verdict)] for claim, verdict in found]
    table = markdown(["claim", "verdict", *FIGURES], rows)
    parts = ["# Claims of the papers", METHOD, f"Of {len(found)} claims {counts}.", table]
    for name in PAPERS:
        parts += [f"## {paper(name).citation}", *(_section(*one) for one in found if one[0].paper == name)]
    return "\n\n".join(parts) + "\n"


def claims_csv(found: Sequence[ClaimVerdict]) -> str:
    """A row per claim; its figures are fractions, empty where there is none."""
    rows = ([claim.name, claim.paper, verdict.outcome, *verdict.figures] for claim, verdict in found)
    return plain_csv(["claim", "paper", "verdict", *FIGURES], rows)


def _section(claim: Claim, verdict: Ruling) -> str:
    return f"**{claim.name}** {claim.text}\n*{verdict.outcome.capitalize()}.* {verdict.sentence}"


def _figures(verdict: Ruling) -> list[str]:
    return [MISSING if value is None else points(value) for value in verdict.figures]
