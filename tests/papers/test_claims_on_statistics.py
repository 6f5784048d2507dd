"""Claims on measured statistics: shares of stop words, and divergences of embeddings."""

import pytest

from midmask.benchmark.results import Results, SystemKey
from midmask_papers.claims import CLAIMS, claims
from midmask_papers.statistics import Statistic
from tests.support.benchmark.synthetic import dense, drawn, results

BM25 = SystemKey("bm25", "none", "bm25", "none")
ENCODERS = ("cotmae", "cotmae[experts=all]", "cotmote", "cotmote_siamese", "cotmote_separate")


def learned(**levels: float) -> Results:
    """Dense results of the encoders whose embeddings are compared, at half of BM25 unless told otherwise."""
    truth = {dense(name, setting="cotmote"): levels.get(name, 0.3) for name in ENCODERS}
    return results(drawn({**truth, BM25: 0.6}, corpus="squad", split="test", queries=1000))


def share(system: str, value: float, *, count: int = 100_000, corpus: str = "wiki") -> Statistic:
    return Statistic(measure="stop share", system=system, corpus=corpus, values=(value,), count=count, source="a run")


def test_shares_of_stop_words_are_held_against_about_40_percent():
    def outcome(*given: Statistic) -> str:
        return claims(given)["rom.stop_share"].check(Results([])).outcome

    assert outcome(share("mlm", 0.41)) == "holds"
    assert outcome(share("mlm", 0.41), share("mlm", 0.55, corpus="pydocs")) == "does not hold"
    assert outcome(share("mlm", 0.44, count=100)) == "not decidable"
    assert outcome(share("rom", 0.41)) == "not measured"
    fewer = claims([share("mlm", 0.41), share("rom", 0.1)])["rom.fewer_stops"].check(Results([]))
    assert fewer.outcome == "holds" and fewer.estimate == pytest.approx(0.31)


def test_divergences_are_compared_over_draws():
    def outcome(near: tuple[float, ...], far: tuple[float, ...]) -> str:
        given = [
            Statistic(measure=measure, system=system, corpus="squad", values=values, source="a run")
            for measure in ("KL", "JS")
            for system, values in (("cotmae", near), ("cotmae[experts=all]", far))
        ]
        return claims(given)["cotmote.1_divergences"].check(learned()).outcome

    near, far = (7.2e-5, 7.3e-5, 7.1e-5), (1.4e-4, 1.5e-4, 1.6e-4)
    assert (outcome(near, far), outcome(far, near)) == ("holds", "does not hold")
    assert outcome((1e-4, 9e-4, 1e-5), (2e-4, 8e-4, 1e-5)) == outcome((7e-5,), (9e-5,)) == "not decidable"
    assert CLAIMS["cotmote.1_divergences"].check(Results([])).outcome == "not measured"


def test_experts_divergences_are_held_against_both_controls():
    def outcome(*means: float) -> str:
        given = [
            Statistic(
                measure=measure, system=name, corpus="squad", values=(mean, 1.01 * mean, 0.99 * mean), source="a run"
            )
            for measure in ("KL", "JS")
            for name, mean in zip(("cotmote", "cotmote_siamese", "cotmote_separate"), means, strict=False)
        ]
        return claims(given)["cotmote.4_lowest"].check(learned()).outcome

    assert outcome(1e-4, 2e-4, 3e-4) == "holds"
    assert outcome(2e-4, 1e-4, 3e-4) == outcome(2e-4, 3e-4, 1e-4) == "does not hold"
    assert outcome(1e-4, 2e-4) == "not measured"


@pytest.mark.parametrize(("claim", "weak"), [("1_divergences", "cotmae"), ("4_lowest", "cotmote_separate")])
def test_divergences_of_encoders_that_have_not_learned_decide_nothing(claim, weak):
    """Nor are they decided where the results do not show whether they have; without statistics, they cannot be."""
    values = dict(zip(ENCODERS, (1e-4, 3e-4, 1e-4, 2e-4, 3e-4), strict=True))
    given = [
        Statistic(measure=measure, system=name, corpus="squad", values=(value, 1.01 * value), source="a run")
        for measure in ("KL", "JS")
        for name, value in values.items()
    ]
    name = f"cotmote.{claim}"
    check = claims([replace(one, 50) for one in given])[name].check
    assert check(learned()).outcome == "holds"
    poor = check(learned(**{weak: 0.01}))
    assert poor.outcome == "not decidable" and poor.low > 0 and "too little to decide it" in poor.sentence
    lacking = Results([one for one in learned() if one.key.system != weak])
    assert check(lacking).outcome == check(Results([])).outcome == "not decidable"
    assert check(Results([one for one in learned() if one.key != BM25])).outcome == "not decidable"
    assert CLAIMS[name].check(learned()).outcome == "not measured"
    assert CLAIMS[name].check(learned(**{weak: 0.01})).outcome == "not decidable"


def replace(statistic: Statistic, draws: int) -> Statistic:
    """The statistic with as many draws, so that its interval is narrow."""
    return statistic.model_copy(update={"values": statistic.values * draws})
