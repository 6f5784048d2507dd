"""RetroMAE's claims (Xiao et al. 2022): its main table, and Table 6, the factors."""

from midmask.benchmark.results import Results
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
