"""RetroMAE's claims (Xiao et al. 2022): its main table, BEIR and NQ, and Table 6, the factors."""

from dataclasses import replace

from midmask.benchmark.results import Results
from midmask_papers.matching import Term, key_of
from midmask_papers.published import Published
from midmask_papers.verdict import Claim, ClaimPart, Ruling, all_of, pair, pick

PAPER = "retromae"


def _main(label: str) -> Published:
    condition = "DPR-style, general pre-training"
    return pick(PAPER, "main", condition=condition, label=label, measure="RR@10")


def _factors(condition: str, better: str, worse: tuple[str, ...]) -> list[ClaimPart]:
    """That one value of a factor of Table 6 is better than others."""
    number = {label: pick(PAPER, "6", condition=condition, label=label, measure="RR@10") for label in (better, *worse)}
    return [pair(number[better], number[other], what=f"{condition}: {better} against {other}") for other in worse]


def better_than_others(results: Results) -> Ruling:
    """RetroMAE > Condenser, SEED, BERT."""
    rivals = [_main(label) for label in ("BERT", "SEED", "Condenser")]
    return all_of(results, PAPER, [pair(_main("RetroMAE"), rival) for rival in rivals])


def better_after_mining(results: Results) -> Ruling:
    """RetroMAE > Condenser, BERT, fine-tuned as ANCE."""
    ours, *rivals = (_ance("general", label) for label in ("RetroMAE", "BERT", "Condenser"))
    return all_of(results, PAPER, [pair(ours, rival) for rival in rivals])


def better_on_target(results: Results) -> Ruling:
    """RetroMAE > coCondenser, both pre-trained on MS MARCO and fine-tuned as ANCE."""
    return all_of(results, PAPER, [pair(_ance("MS MARCO", "RetroMAE"), _ance("MS MARCO", "coCondenser"))])


def in_domain(results: Results) -> Ruling:
    """RetroMAE pre-trained on MS MARCO > on Wikipedia and BookCorpus, both fine-tuned as ANCE on MS MARCO. That this
    matters on no other collection is said without a value, so it is not checked.
    """
    target, general = _ance("MS MARCO", "RetroMAE"), _ance("general", "RetroMAE")
    return all_of(results, PAPER, [pair(target, general, what="retromae on the corpus against on Wikipedia")])


def distilled(results: Results) -> Ruling:
    """RetroMAE distilled > RetroMAE as ANCE."""
    taught = pick(PAPER, "main", condition="distilled, MS MARCO pre-training", measure="RR@10")
    return all_of(results, PAPER, [pair(taught, _ance("MS MARCO", "RetroMAE"), what="distilled against not")])


def _ance(collection: str, label: str) -> Published:
    return pick(PAPER, "main", condition=f"ANCE-style, {collection} pre-training", label=label, measure="RR@10")


def better_out_of_domain(results: Results) -> Ruling:
    """RetroMAE > Condenser, SEED, BERT on the average of BEIR's sets."""
    ours, *rivals = (pick(PAPER, "BEIR", label=label) for label in ("RetroMAE", "Condenser", "SEED", "BERT"))
    return all_of(results, PAPER, [replace(pair(ours, rival), elsewhere=True) for rival in rivals])


def better_on_nq(results: Results) -> Ruling:
    """RetroMAE > Condenser on NQ, as DPR and as ANCE. Printed are differences to the best baseline alone, which is
    taken to be Condenser; so they stand for RetroMAE's value, and 0 for Condenser's.
    """
    parts = []
    for setting in ("dpr", "ance"):
        gain = pick(PAPER, "text", setting=setting, corpus="nq")
        ours = key_of(gain)
        terms = (Term(1.0, ours, gain.value), Term(-1.0, replace(ours, system="condenser"), 0.0))
        parts.append(
            ClaimPart(f"retromae against condenser, {setting}", terms, gain.measure, (gain.corpus, gain.split))
        )
    return all_of(results, f"{PAPER} --corpus nq:FOLDER", parts)


def enhanced(results: Results) -> Ruling:
    """Enhanced > basic."""
    return all_of(results, PAPER, _factors("decoding", "enhanced", ("basic, 0.5",)))


def one_layer(results: Results) -> Ruling:
    """1 layer >= 2, 3, with basic decoding."""
    return all_of(results, PAPER, _factors("decoder layers (basic)", "1", ("2", "3")))


def decoder_ratio(results: Results) -> Ruling:
    """0.5 with enhanced decoding, 0.7 with basic."""
    parts = _factors("decoder mask, enhanced", "0.5", ("0.15", "0.9"))
    return all_of(results, PAPER, [*parts, *_factors("decoder mask, basic", "0.7", ("0.15", "0.5", "0.9"))])


def encoder_ratio(results: Results) -> Ruling:
    """0.3 > 0.15 >> 0.9."""
    return all_of(
        results,
        PAPER,
        [*_factors("encoder mask", "0.3", ("0.15",)), *_factors("encoder mask", "0.15", ("0.9",))],
    )


RETROMAE = (
    Claim(
        "retromae.main",
        PAPER,
        "Fine-tuned alike, RetroMAE is better than BERT, SEED and Condenser.",
        better_than_others,
    ),
    Claim(
        "retromae.ance", PAPER, "The same with mined negatives: better than BERT and Condenser.", better_after_mining
    ),
    Claim("retromae.target", PAPER, "Pre-trained on MS MARCO, it is better than coCondenser.", better_on_target),
    Claim(
        "retromae.in_domain",
        PAPER,
        "On MS MARCO, pre-training on its own passages is better than on Wikipedia and BookCorpus.",
        in_domain,
    ),
    Claim("retromae.distilled", PAPER, "A teacher makes it better still.", distilled),
    Claim(
        "retromae.beir", PAPER, "On BEIR, zero-shot, it is better than BERT, SEED and Condenser.", better_out_of_domain
    ),
    Claim("retromae.nq", PAPER, "On NQ it is better than the best baseline, as DPR and as ANCE.", better_on_nq),
    Claim("retromae.enhanced", PAPER, "Enhanced decoding is better than basic decoding.", enhanced),
    Claim("retromae.one_layer", PAPER, "A decoder of one layer is at least as good as one of two or three.", one_layer),
    Claim(
        "retromae.decoder_ratio",
        PAPER,
        "The best decoder mask hides 0.5 with enhanced decoding, 0.7 with basic.",
        decoder_ratio,
    ),
    Claim(
        "retromae.encoder_ratio",
        PAPER,
        "An encoder mask of 0.3 is better than 0.15, and 0.9 is far worse.",
        encoder_ratio,
    ),
)
