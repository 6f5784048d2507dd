"""The spread between systems, and maps of embeddings, against the truth."""

import re
from pathlib import Path

import numpy as np
import pytest

from midmask.benchmark.design import Benchmark, Setting
from midmask.benchmark.layout import lay_out
from midmask.benchmark.records import collect
from midmask.benchmark.results import Results, SystemKey
from midmask.evaluation.embeddings import PERPLEXITY, embedding_map
from midmask.store.place import Place
from midmask_papers.answers import verdicts
from midmask_papers.figures import spreads
from midmask_papers.report import DRAWS, additions_of, as_statistics, embedding_maps
from tests.support.benchmark.synthetic import Noise, dense, drawn, results
from tests.support.benchmark.tiny import SHORT, run_here, write_collection

QUIET = Noise().scaled(1e-6)
FINE_TUNINGS = ("sigir23_32neg_distil", "sigir23_1neg", "sigir23_32neg")
MEANS = {"none": (0.50, 0.30, 0.40), "mlm": (0.51, 0.34, 0.43), "retromae": (0.53, 0.40, 0.46)}


def by_setting(split: str = "test") -> Results:
    truth = {
        dense(system, setting=setting): value
        for system, values in MEANS.items()
        for setting, value in zip(FINE_TUNINGS, values, strict=True)
    }
    alone = {dense("lexmae", setting="sigir23_1neg"): 0.9, SystemKey("mlm", "corpus", "splade", "sigir23_1neg"): 0.1}
    return results(
        drawn({**truth, **alone}, noise=QUIET, corpus="squad", split=split),
        drawn({key: 0.9 - value for key, value in truth.items()}, noise=QUIET, corpus="cranfield", split="test"),
    )


def test_numbers_are_of_systems_in_every_setting_weakest_fine_tuning_first():
    rows = spreads(by_setting())
    assert [(one.representation, one.setting) for one in rows] == [
        ("dense", "sigir23_1neg"),
        ("dense", "sigir23_32neg"),
        ("dense", "sigir23_32neg_distil"),
    ]
    assert [one.width for one in rows] == pytest.approx([0.10, 0.06, 0.03], abs=1e-5)
    assert set(rows[0].means) == {"none (none)", "mlm (corpus)", "retromae (corpus)"}
    assert [max(one.printed) - min(one.printed) for one in rows] == pytest.approx([0.040, 0.020, 0.018])


PILOT = ("cotmae", "cotmae[experts=all]")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """CoT-MAE with one encoder and with two, each fine-tuned twice; only they are mapped."""
    folder = tmp_path_factory.mktemp("maps")
    changes = {**SHORT, "spans.span_length": 8, "stages.*.train.steps": 2, "stages.*.train.batch_size": 4}
    tried = {
        "title": "A pilot",
        "systems": ("bm25", "none", *PILOT),
        "splits": ("dev",),
        "seeds": (0, 1),
        "maps": PILOT,
    }
    settings = {"cotmae": Setting(protocols={"dense": "in_batch"})}
    corpus = write_collection(folder / "tiny")
    layout = lay_out(Benchmark(name="pilot", corpus=corpus, settings=settings, changes=changes, **tried))
    storage = Place(str(folder / "store"))
    run_here(layout, storage)
    return layout, storage, embedding_maps(layout, storage)


def test_the_asked_for_encoders_are_mapped_from_what_was_searched_with(run):
    layout, storage, found = run
    assert [(one.system, one.seed) for one in found] == [(name, seed) for name in PILOT for seed in (0, 1)]
    assert {len(one.maps) for one in found} == {len(DRAWS)}
    corpus = layout.cells[0].recipe.corpus.short_name
    assert {one.corpus for one in found} == {corpus}
    steps = [cell.evaluations[corpus, "dev"] for cell in layout.cells if cell.key.system == PILOT[1]]
    ranked = steps[0].inputs["ranked"]
    sides = {}
    for side in ("queries", "passages"):
        (path,) = Path(ranked.inputs[side].place(storage).uri).glob("dense/*.npy")
        sides[side] = np.load(path)
    # Queries 24 to 35 ask for the passages of their numbers, which are stored in order: 12 pairs, all in the sample.
    assert sides["queries"].shape[0] == 12 and sides["passages"].shape[0] == 48
    own = embedding_map(sides["queries"], sides["passages"][24:36], perplexity=PERPLEXITY, seed=0)
    assert found[2].maps[0].cosines.pairs == pytest.approx(own.cosines.pairs, abs=1e-6)
    assert found[2].maps[0].cosines.others == pytest.approx(own.cosines.others, abs=1e-6)


def test_a_value_per_seed_of_the_fine_tuning_and_draws_for_a_single_one(run):
    *_, found = run
    several = {(one.measure, one.system): one.values for one in as_statistics(found)}
    assert several["KL", PILOT[0]] == tuple(np.mean([m.divergence.kl for m in one.maps]) for one in found[:2])
    (kl, js) = as_statistics(found[:1])
    assert kl.values == tuple(one.divergence.kl for one in found[0].maps) and kl.measure == "KL"
    assert all(0 < value < np.log(2) for value in js.values) and js.measure == "JS"


def test_the_report_tells_them_and_the_claim_is_weighed(run, tmp_path):
    layout, storage, found = run
    results = collect(layout.cells, storage)
    text = "\n".join(additions_of(results, layout.benchmark, tmp_path, found).sections)
    (row, _) = re.findall(r"^\| cotmae\[experts=all\] +\| +[01] .*", text, re.M)
    assert "1.42e-04" in row and "3.54e-05" in row, "the published KL and JS"
    assert (tmp_path / "figures" / "embeddings.png").read_bytes().startswith(b"\x89PNG")
    claimed = {claim.name: verdict for claim, verdict in verdicts(results, as_statistics(found))}
    assert claimed["cotmote.1_divergences"].outcome != "not measured"
    assert "| cotmote.1_divergences " in (tmp_path / "claims.md").read_text()
