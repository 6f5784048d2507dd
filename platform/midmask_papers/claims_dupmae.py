"""DupMAE's four conclusions (Xiao et al. 2023), each with the corpora it wins on: in domain, out of domain, both
decoding tasks, both kinds of vectors.
"""

from collections.abc import Sequence
from dataclasses import replace

from midmask.benchmark.results import Results
from midmask_papers.matching import MissingResult, match
from midmask_papers.published import Published
from midmask_papers.verdict import Claim, ClaimPart, Ruling, all_of, pair, pick

PAPER = "dupmae"
DUPMAE = "CLS + OT decoding"


def _ablation(label: str) -> Published:
    return pick(PAPER, "3", label=label, measure="RR@10")


def in_domain(results: Results) -> Ruling:
    """DupMAE > RetroMAE, both with mined negatives."""
    part = pair(_ablation(DUPMAE), _ablation("RetroMAE (CLS representation)"))
    return _with_wins(results, [part], "")


def out_of_domain(results: Results) -> Ruling:
    """DupMAE > RetroMAE and BM25 on BEIR."""
    ours, *rivals = (
        pick(PAPER, "2", label=label, corpus="beir18", measure="nDCG@10") for label in ("DupMAE", "RetroMAE", "BM25")
    )
    parts = [replace(pair(ours, rival), elsewhere=True) for rival in rivals]
    printed = (pick(PAPER, "text", against=rival.system).condition for rival in rivals)
    return _with_wins(results, parts, f" (paper: {' and '.join(printed)})")


def both_tasks(results: Results) -> Ruling:
    """Both decoding tasks > either."""
    rivals = [_ablation(label) for label in ("CLS decoding only (hybrid repr.)", "OT decoding only")]
    return _with_wins(results, [pair(_ablation(DUPMAE), rival) for rival in rivals], "")


def both_views(results: Results) -> Ruling:
    """CLS:384, OT:384 > CLS:768 and OT:768; and with 260 words, at CLS:768's storage, still > CLS:768."""
    ours, cls, ot, compact = (
        _ablation(f"repr. {label}") for label in ("CLS:384, OT:384", "CLS:768", "OT:768", "CLS:384, OT:260")
    )
    return _with_wins(results, [pair(ours, cls), pair(ours, ot), pair(compact, cls)], "")


def _with_wins(results: Results, parts: Sequence[ClaimPart], printed: str) -> Ruling:
    """The verdict, with the corpora on which the first system's mean is higher than each of the others'."""
    found = all_of(results, PAPER, parts)
    counted = [text for part in parts if (text := _wins(results, part))]
    wins = f" Higher on {'; '.join(counted)}{printed}." if counted else ""
    return replace(found, sentence=found.sentence + wins)


def _wins(results: Results, part: ClaimPart) -> str:
    """ "2 of 3 corpora than retromae" by nDCG@10, over all corpora on which both were measured; empty if on none."""
    won = total = 0
    for corpus in results.names("corpus"):
        ours = match(part.terms, results.where(corpus=corpus), "nDCG@10", (corpus, "test"))
        if not isinstance(ours, MissingResult):
            total += 1
            won += ours.estimate(results, "nDCG@10").value > 0
    corpora = "corpus" if total == 1 else "corpora"
    return f"{won} of {total} {corpora} than {part.terms[1].key.system} by nDCG@10" if total else ""


CONCLUSIONS = (
    Claim(
        "dupmae.in_domain", PAPER, "On the collection it is fine-tuned on, DupMAE is better than RetroMAE.", in_domain
    ),
    Claim(
        "dupmae.out_of_domain",
        PAPER,
        "On collections it was not fine-tuned on, DupMAE is better than RetroMAE (13 of 18) and BM25 (15 of 18).",
        out_of_domain,
    ),
    Claim(
        "dupmae.both_tasks",
        PAPER,
        "Decoding from [CLS] and from ordinary tokens is better than from either.",
        both_tasks,
    ),
    Claim(
        "dupmae.both_views",
        PAPER,
        "[CLS] and ordinary tokens together represent a text better than either does in as many dimensions.",
        both_views,
    ),
)
