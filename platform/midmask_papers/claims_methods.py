"""The claims of the papers on methods: RetroMAE, DupMAE, CoT-MoTE, ROM and self-contrast, one check each.

RetroMAE (Xiao et al. 2022): its main table, BEIR and NQ, and Table 6, the factors. DupMAE (Xiao et al. 2023): four
conclusions, each with the corpora it wins on. CoT-MoTE (Ma et al. 2023): Tables 1, 3, 4 and 5, and the divergences of
Table 1 and of Figure 4. ROM (Long et al. 2022). That self-contrast brings little: RetroMAE's paper, of SimCSE and its
like.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from midmask.benchmark.design import BM25
from midmask.benchmark.results import Results, SystemKey
from midmask.evaluation.statistics.intervals import ALPHA, interval
from midmask_papers.published import NONE, MissingResult, Published, Term, home, key_of, match, order_splits
from midmask_papers.ruling import (
    Claim,
    ClaimOutcome,
    ClaimPart,
    Ruling,
    Statistic,
    all_of,
    below_floor,
    combine,
    difference,
    judge,
    judge_between,
    pair,
    pick,
    statistics_of,
)

RETROMAE_PAPER = "retromae"


def _main(label: str) -> Published:
    condition = "DPR-style, general pre-training"
    return pick(RETROMAE_PAPER, "main", condition=condition, label=label, measure="RR@10")


def _factors(condition: str, better: str, worse: tuple[str, ...]) -> list[ClaimPart]:
    """That one value of a factor of Table 6 is better than others."""
    number = {
        label: pick(RETROMAE_PAPER, "6", condition=condition, label=label, measure="RR@10")
        for label in (better, *worse)
    }
    return [pair(number[better], number[other], what=f"{condition}: {better} against {other}") for other in worse]


def better_than_others(results: Results) -> Ruling:
    """RetroMAE > Condenser, SEED, BERT."""
    rivals = [_main(label) for label in ("BERT", "SEED", "Condenser")]
    return all_of(results, RETROMAE_PAPER, [pair(_main("RetroMAE"), rival) for rival in rivals])


def better_after_mining(results: Results) -> Ruling:
    """RetroMAE > Condenser, BERT, fine-tuned as ANCE."""
    ours, *rivals = (_ance("general", label) for label in ("RetroMAE", "BERT", "Condenser"))
    return all_of(results, RETROMAE_PAPER, [pair(ours, rival) for rival in rivals])


def better_on_target(results: Results) -> Ruling:
    """RetroMAE > coCondenser, both pre-trained on MS MARCO and fine-tuned as ANCE."""
    return all_of(results, RETROMAE_PAPER, [pair(_ance("MS MARCO", "RetroMAE"), _ance("MS MARCO", "coCondenser"))])


def retromae_in_domain(results: Results) -> Ruling:
    """RetroMAE pre-trained on MS MARCO > on Wikipedia and BookCorpus, both fine-tuned as ANCE on MS MARCO. That this
    matters on no other collection is said without a value, so it is not checked.
    """
    target, general = _ance("MS MARCO", "RetroMAE"), _ance("general", "RetroMAE")
    return all_of(results, RETROMAE_PAPER, [pair(target, general, what="retromae on the corpus against on Wikipedia")])


def distilled(results: Results) -> Ruling:
    """RetroMAE distilled > RetroMAE as ANCE."""
    taught = pick(RETROMAE_PAPER, "main", condition="distilled, MS MARCO pre-training", measure="RR@10")
    return all_of(results, RETROMAE_PAPER, [pair(taught, _ance("MS MARCO", "RetroMAE"), what="distilled against not")])


def _ance(collection: str, label: str) -> Published:
    return pick(
        RETROMAE_PAPER, "main", condition=f"ANCE-style, {collection} pre-training", label=label, measure="RR@10"
    )


def better_out_of_domain(results: Results) -> Ruling:
    """RetroMAE > Condenser, SEED, BERT on the average of BEIR's sets."""
    ours, *rivals = (pick(RETROMAE_PAPER, "BEIR", label=label) for label in ("RetroMAE", "Condenser", "SEED", "BERT"))
    return all_of(results, RETROMAE_PAPER, [replace(pair(ours, rival), elsewhere=True) for rival in rivals])


def better_on_nq(results: Results) -> Ruling:
    """RetroMAE > Condenser on NQ, as DPR and as ANCE. Printed are differences to the best baseline alone, which is
    taken to be Condenser; so they stand for RetroMAE's value, and 0 for Condenser's.
    """
    parts = []
    for setting in ("dpr", "ance"):
        gain = pick(RETROMAE_PAPER, "text", setting=setting, corpus="nq")
        ours = key_of(gain)
        terms = (Term(1.0, ours, gain.value), Term(-1.0, replace(ours, system="condenser"), 0.0))
        parts.append(
            ClaimPart(f"retromae against condenser, {setting}", terms, gain.measure, (gain.corpus, gain.split))
        )
    return all_of(results, f"{RETROMAE_PAPER} --corpus nq:FOLDER", parts)


def enhanced(results: Results) -> Ruling:
    """Enhanced > basic."""
    return all_of(results, RETROMAE_PAPER, _factors("decoding", "enhanced", ("basic, 0.5",)))


def one_layer(results: Results) -> Ruling:
    """1 layer >= 2, 3, with basic decoding."""
    return all_of(results, RETROMAE_PAPER, _factors("decoder layers (basic)", "1", ("2", "3")))


def decoder_ratio(results: Results) -> Ruling:
    """0.5 with enhanced decoding, 0.7 with basic."""
    parts = _factors("decoder mask, enhanced", "0.5", ("0.15", "0.9"))
    return all_of(results, RETROMAE_PAPER, [*parts, *_factors("decoder mask, basic", "0.7", ("0.15", "0.5", "0.9"))])


def encoder_ratio(results: Results) -> Ruling:
    """0.3 > 0.15 >> 0.9."""
    return all_of(
        results,
        RETROMAE_PAPER,
        [*_factors("encoder mask", "0.3", ("0.15",)), *_factors("encoder mask", "0.15", ("0.9",))],
    )


RETROMAE = (
    Claim(
        "retromae.main",
        RETROMAE_PAPER,
        "Fine-tuned alike, RetroMAE is better than BERT, SEED and Condenser.",
        better_than_others,
    ),
    Claim(
        "retromae.ance",
        RETROMAE_PAPER,
        "The same with mined negatives: better than BERT and Condenser.",
        better_after_mining,
    ),
    Claim(
        "retromae.target", RETROMAE_PAPER, "Pre-trained on MS MARCO, it is better than coCondenser.", better_on_target
    ),
    Claim(
        "retromae.in_domain",
        RETROMAE_PAPER,
        "On MS MARCO, pre-training on its own passages is better than on Wikipedia and BookCorpus.",
        retromae_in_domain,
    ),
    Claim("retromae.distilled", RETROMAE_PAPER, "A teacher makes it better still.", distilled),
    Claim(
        "retromae.beir",
        RETROMAE_PAPER,
        "On BEIR, zero-shot, it is better than BERT, SEED and Condenser.",
        better_out_of_domain,
    ),
    Claim(
        "retromae.nq", RETROMAE_PAPER, "On NQ it is better than the best baseline, as DPR and as ANCE.", better_on_nq
    ),
    Claim("retromae.enhanced", RETROMAE_PAPER, "Enhanced decoding is better than basic decoding.", enhanced),
    Claim(
        "retromae.one_layer",
        RETROMAE_PAPER,
        "A decoder of one layer is at least as good as one of two or three.",
        one_layer,
    ),
    Claim(
        "retromae.decoder_ratio",
        RETROMAE_PAPER,
        "The best decoder mask hides 0.5 with enhanced decoding, 0.7 with basic.",
        decoder_ratio,
    ),
    Claim(
        "retromae.encoder_ratio",
        RETROMAE_PAPER,
        "An encoder mask of 0.3 is better than 0.15, and 0.9 is far worse.",
        encoder_ratio,
    ),
)


DUPMAE_PAPER = "dupmae"
DUPMAE = "CLS + OT decoding"


def _ablation(label: str) -> Published:
    return pick(DUPMAE_PAPER, "3", label=label, measure="RR@10")


def dupmae_in_domain(results: Results) -> Ruling:
    """DupMAE > RetroMAE, both with mined negatives."""
    part = pair(_ablation(DUPMAE), _ablation("RetroMAE (CLS representation)"))
    return _with_wins(results, [part], "")


def out_of_domain(results: Results) -> Ruling:
    """DupMAE > RetroMAE and BM25 on BEIR."""
    ours, *rivals = (
        pick(DUPMAE_PAPER, "2", label=label, corpus="beir18", measure="nDCG@10")
        for label in ("DupMAE", "RetroMAE", "BM25")
    )
    parts = [replace(pair(ours, rival), elsewhere=True) for rival in rivals]
    printed = (pick(DUPMAE_PAPER, "text", against=rival.system).condition for rival in rivals)
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
    ruling = all_of(results, DUPMAE_PAPER, parts)
    counted = [text for part in parts if (text := _wins(results, part))]
    wins = f" Higher on {'; '.join(counted)}{printed}." if counted else ""
    return replace(ruling, sentence=ruling.sentence + wins)


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
        "dupmae.in_domain",
        DUPMAE_PAPER,
        "On the collection it is fine-tuned on, DupMAE is better than RetroMAE.",
        dupmae_in_domain,
    ),
    Claim(
        "dupmae.out_of_domain",
        DUPMAE_PAPER,
        "On collections it was not fine-tuned on, DupMAE is better than RetroMAE (13 of 18) and BM25 (15 of 18).",
        out_of_domain,
    ),
    Claim(
        "dupmae.both_tasks",
        DUPMAE_PAPER,
        "Decoding from [CLS] and from ordinary tokens is better than from either.",
        both_tasks,
    ),
    Claim(
        "dupmae.both_views",
        DUPMAE_PAPER,
        "[CLS] and ordinary tokens together represent a text better than either does in as many dimensions.",
        both_views,
    ),
)


COTMOTE_PAPER = "cotmote"
OWN = "CoT-MoTE (mined negatives)"


def _number(label: str, representation: str = "hybrid") -> Published:
    return pick(COTMOTE_PAPER, "3-5", label=label, representation=representation, measure="RR@10")


def siamese(results: Results) -> Ruling:
    """Table 1, ranked lists: one encoder > two."""
    rows = [pick(COTMOTE_PAPER, "1", label=label, measure="RR@10") for label in ("Siamese", "fully separate")]
    return all_of(results, COTMOTE_PAPER, [pair(*rows)])


def divergences(statistics: Sequence[Statistic], results: Results) -> Ruling:
    """Table 1, embeddings: queries and passages of two encoders lie farther apart, by KL and JS of their densities."""
    near, far = ("cotmae", "cotmae[experts=all]")
    sizes = {
        measure: pick(COTMOTE_PAPER, "1", system=far, measure=measure).value
        - pick(COTMOTE_PAPER, "1", system=near, measure=measure).value
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
        ours, others = (statistics_of(statistics, measure, system) for system in (near, far))
        shared = [corpus for corpus in ours if corpus in others]
        if not shared:
            absent = f"No {measure} of {near} and {far} in statistics.yaml beside the results"
            short = _not_learned((near, *rivals), home(results), results) if results else ()
            said = "; ".join((absent, *short)) + "."
            outcome: ClaimOutcome = "not decidable" if short else "not measured"
            found.append(Ruling(outcome, said, published=size, representations=("dense",)))
        for corpus in shared:
            gap = difference(others[corpus], ours[corpus], ALPHA / len(sizes) / len(rivals) / len(shared))
            text = f"{measure} {others[corpus].mean:.2e} ({far}) against {ours[corpus].mean:.2e} ({near}) on {corpus}"
            short = _not_learned((near, far), corpus, results, is_required=True)
            outcome = "not decidable" if short else judge(gap, size)
            said = "; ".join((text, *short)) + "."
            found.append(Ruling(outcome, said, gap.value, gap.low, gap.high, gap.detectable, size, ("dense",)))
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
        rows = here.where(system=system, representation="dense")
        if is_required and not (rows and here.where(system=BM25)):
            found.append(f"the results do not show whether {system} has learned to search {corpus}")
        for key, split in product(
            dict.fromkeys(result.key for result in rows),
            order_splits(rows.names("split"))[:1],
        ):
            found += (f"{system}: {note}" for note in below_floor([key], [(corpus, split)], results, "RR@10"))
    return tuple(found)


def experts(results: Results) -> Ruling:
    """Table 3: experts > one encoder and two, hybrid."""
    return all_of(results, COTMOTE_PAPER, [pair(_number(OWN), _number(rival)) for rival in ("Siamese", "Full sep")])


def own_corpora(results: Results) -> Ruling:
    """Table 4: each expert pre-trained on its own side > on the other's."""
    return all_of(results, COTMOTE_PAPER, [pair(_number(OWN), _number("CoT-MoTE, experts' corpora switched"))])


def mined(results: Results) -> Ruling:
    """Table 5: mined negatives > BM25's."""
    return all_of(results, COTMOTE_PAPER, [pair(_number(OWN), _number("CoT-MoTE, BM25 negatives (stage 1)"))])


def hybrid(results: Results) -> Ruling:
    """Dense and sparse together > either."""
    return all_of(results, COTMOTE_PAPER, [pair(_number(OWN), _number(OWN, view)) for view in ("dense", "splade")])


COTMOTE = (
    Claim("cotmote.1_siamese", COTMOTE_PAPER, "One encoder for queries and passages is better than two.", siamese),
    Claim("cotmote.3_experts", COTMOTE_PAPER, "Experts are better than one encoder, and than two.", experts),
    Claim(
        "cotmote.4_own_corpora", COTMOTE_PAPER, "Experts must be pre-trained on their own side's texts.", own_corpora
    ),
    Claim("cotmote.5_mined", COTMOTE_PAPER, "Mined negatives are better than BM25's.", mined),
    Claim("cotmote.hybrid", COTMOTE_PAPER, "Dense and sparse vectors together are better than either.", hybrid),
)


MEASURE = "stop share"
COMMAND = "`python -m midmask_papers.stop_word_share --corpus NAME` measures it"

ABOUT = 0.05
""" "About 40%" is 35 to 45%: the paper rounds, and its lists of stop-words and its corpora are not ours."""


def stop_share(statistics: Sequence[Statistic], results: Results) -> Ruling:
    """~40% of randomly masked tokens are stop-words or punctuation: on every corpus that was measured."""
    printed = pick("rom", "text").value
    shares = statistics_of(statistics, MEASURE, "mlm")
    if not shares:
        return Ruling("not measured", f"the share of stop-words under random masks; {COMMAND}.", published=printed)
    return combine([_compare_with_printed(share, printed, ALPHA / len(shares)) for share in shares.values()])


def _compare_with_printed(share: Statistic, printed: float, alpha: float) -> Ruling:
    estimate = interval(share.mean, [share.variance], alpha)
    return Ruling(
        judge_between(estimate, printed - ABOUT, printed + ABOUT),
        f"{share.mean:.1%} [{estimate.low:.1%}, {estimate.high:.1%}] of {share.count:,} masked tokens of "
        f"{share.corpus}, about {printed:.0%} being {printed - ABOUT:.0%} to {printed + ABOUT:.0%} ({share.source}).",
        estimate.value,
        estimate.low,
        estimate.high,
        estimate.detectable,
        printed,
    )


def fewer_stops(statistics: Sequence[Statistic], results: Results) -> Ruling:
    """ROM masks fewer of them than random masks do."""
    uniform, weighted = (statistics_of(statistics, MEASURE, system) for system in ("mlm", "rom"))
    shared = [corpus for corpus in uniform if corpus in weighted]
    if not shared:
        return Ruling("not measured", f"the shares of stop-words under random masks and ROM's; {COMMAND}.")
    verdicts = []
    for corpus in shared:
        gap = difference(uniform[corpus], weighted[corpus], ALPHA / len(shared))
        said = f"{uniform[corpus].mean:.1%} under random masks, {weighted[corpus].mean:.1%} under ROM's on {corpus}."
        verdicts.append(Ruling(judge(gap, None), said, gap.value, gap.low, gap.high, gap.detectable))
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
