"""Maps of embeddings within a benchmark: of its own encoders, told in the report, and weighed as a claim."""

import re
from pathlib import Path

import numpy as np
import pytest

from midmask.artifact import Place
from midmask.benchmark.collect import collect
from midmask.benchmark.design import Benchmark, Setting
from midmask.benchmark.layout import lay_out
from midmask.evaluation.embeddings import PERPLEXITY, embedding_map
from midmask_papers.claims import verdicts
from midmask_papers.maps import DRAWS, as_statistics, embedding_maps
from midmask_papers.report import write_report
from tests.support.benchmark.tiny import SHORT, run_here, write_collection

PILOT = ("cotmae", "cotmae[experts=all]")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """CoT-MAE with one encoder and with two, each fine-tuned twice; only they are mapped."""
    folder = tmp_path_factory.mktemp("maps")
    layout = lay_out(
        Benchmark(
            name="pilot",
            title="A pilot",
            corpus=write_collection(folder / "tiny"),
            systems=("bm25", "none", *PILOT),
            settings={"cotmae": Setting(protocols={"dense": "in_batch"})},
            splits=("dev",),
            seeds=(0, 1),
            maps=PILOT,
            changes={**SHORT, "spans.span_length": 8, "stages.*.train.steps": 2, "stages.*.train.batch_size": 4},
        )
    )
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
    text = write_report(results, layout.benchmark, tmp_path, maps=found)
    (row, _) = re.findall(r"^\| cotmae\[experts=all\] +\| +[01] .*", text, re.M)
    assert "1.42e-04" in row and "3.54e-05" in row, "the published KL and JS"
    assert (tmp_path / "figures" / "embeddings.png").read_bytes().startswith(b"\x89PNG")
    claimed = {claim.name: verdict for claim, verdict in verdicts(results, as_statistics(found))}
    assert claimed["cotmote.1_divergences"].outcome != "not measured"
    assert "| cotmote.1_divergences " in (tmp_path / "claims.md").read_text()
