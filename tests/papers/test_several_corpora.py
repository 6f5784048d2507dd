"""MS MARCO, NQ and BEIR in the results of one run: each table and claim reads its own collection."""

from dataclasses import replace

import pytest

from midmask.benchmark.results import Result, Results, SystemKey
from midmask.evaluation.groups import folders
from midmask_papers.claims import CLAIMS
from midmask_papers.matching import key_of
from midmask_papers.paper_tables import paper_tables
from midmask_papers.published import published
from tests.support.benchmark.synthetic import dense, drawn, results
from tests.support.benchmark.worlds import QUIET, on_nq

BEIR = {dense("none", setting="dpr"): 0.37, dense("retromae", collection="wiki", setting="dpr"): 0.45}


def further(found: list[Result]) -> list[Result]:
    return [replace(one, further=True) for one in found]


def nq(values: dict[SystemKey, float], measure: str = "Success@10") -> list[Result]:
    """NQ as a further collection, fine-tuned on."""
    return further(drawn(values, noise=QUIET, queries=25, corpus="nq", split="test", measure=measure))


def searched(values: dict[SystemKey, float], corpus: str) -> list[Result]:
    return drawn(values, noise=QUIET, queries=25, corpus=corpus, split="test", measure="nDCG@10")


@pytest.fixture(scope="module")
def one_run() -> Results:
    """As the papers print them; on NQ, 0.7 and the printed gain."""
    sets = ["beir-nq" if name == "nq" else name for name in folders("beir18")]
    beir = [one for name in sets for one in searched(BEIR, name)]
    main = {key_of(one): one.value for one in published("retromae", "main") if one.measure == "RR@10"}
    return results(drawn(main, noise=QUIET, queries=25), beir, nq(on_nq()))


def test_claims_on_both_collections_are_decided(one_run: Results) -> None:
    found = {name: CLAIMS[name].check(one_run) for name in ("retromae.main", "retromae.in_domain", "retromae.nq")}
    assert {name: ruling.outcome for name, ruling in found.items()} == dict.fromkeys(found, "holds")
    assert "on msmarco dev" in found["retromae.main"].sentence and "on nq test" in found["retromae.nq"].sentence


def test_an_average_over_beir_has_the_set_that_was_only_searched(one_run: Results) -> None:
    """Also where the collection of the same name that is fine-tuned on has the measure."""
    better = nq(dict.fromkeys(BEIR, 0.99), "nDCG@10")
    for found in (one_run, results(list(one_run), better)):
        (beir,) = (table for table in paper_tables("retromae", found) if table.name == "retromae.beir")
        cells = {row: cell.mean for (row, _), cell in beir.table.cells.items()}
        assert cells == pytest.approx({"BERT": 0.37, "RetroMAE": 0.45}, abs=2e-3)


def test_what_is_fine_tuned_on_is_not_out_of_domain() -> None:
    """RetroMAE is better on SciFact, zero-shot, and much worse where all are fine-tuned."""
    keys = {replace(key, system=name): 0.4 for key in BEIR for name in ("seed", "condenser", "retromae")}
    keys = {key: value for key, value in {**keys, **dict.fromkeys(BEIR, 0.4)}.items() if key.collection != "none"}
    values = {dense("none", setting="dpr"): 0.3, **keys, dense("retromae", collection="wiki", setting="dpr"): 0.5}
    turned = {key: 1 - value for key, value in values.items()}
    found = results(drawn(values, noise=QUIET, queries=25), searched(values, "scifact"), nq(turned, "nDCG@10"))
    ruling = CLAIMS["retromae.beir"].check(found)
    assert ruling.outcome == "holds" and "nq" not in ruling.sentence
