"""Indexes of one encoding beside each other: what is computed once, what the table says, and what is refused."""

from pathlib import Path

import pytest

from midmask.artifact import Artifact, Place, load
from midmask.errors import UserError
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.steps import LOCAL
from midmask.identity import override
from midmask.recipes import RECIPES
from midmask.sweep.index_space import load_index_space
from midmask.sweep.index_sweep import TIMES, IndexSweep, index_table, plan_index_sweep
from tests.support.benchmark.tiny import short, write_collection
from tests.support.jobs.running import JOBS

POINTS = """
depth: 20
points:
  - {index: Flat}
  - {index: "IVF4,Flat", nprobe: 1}
  - {index: "IVF4,Flat", nprobe: 4}
  - {index: SQ8, rescore: 0}
  - {index: "IVF4,PQ8x4", nprobe: 2, rescore: 4}
"""
LABELS = ["Flat", "IVF4,Flat nprobe 1", "IVF4,Flat nprobe 4", "SQ8 rescore 0", "IVF4,PQ8x4 nprobe 2 rescore 4"]


def planned(folder: Path, text: str = POINTS) -> IndexSweep:
    (folder / "points.yaml").write_text(text)
    recipe = short(RECIPES["none"](), f"beir:{folder}/tiny")
    return plan_index_sweep(load_index_space(folder / "points.yaml"), recipe, plan(recipe), "dev", None)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[IndexSweep, dict[str, Artifact], Place]:
    folder = tmp_path_factory.mktemp("indexes")
    write_collection(folder / "tiny")
    sweep, storage = planned(folder), Place(str(folder / "store"))
    runner = Runner(storage, LOCAL, Silent())
    return sweep, {name: runner.run(step) for name, step in sweep.targets.items()}, storage


def test_one_encoding_one_exact_sample_and_one_build_of_each_index(done) -> None:
    sweep, _, storage = done
    made = {
        name: len((storage / name).names())
        for name in ("encode", "sample", "index", "search", "search_sample", "time_searches")
    }
    assert made == {"encode": 2, "sample": 1, "index": 3, "search": 5, "search_sample": 1, "time_searches": 1}
    assert not unfinished(storage, sweep)


def unfinished(storage: Place, sweep: IndexSweep) -> list[str]:
    return [
        step.name for target in sweep.targets.values() for step in target.upstream() if not step.is_finished(storage)
    ]


def test_the_table_has_what_the_steps_recorded(done) -> None:
    sweep, artifacts, storage = done
    text = index_table(sweep, artifacts, storage)
    head, _, *lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert [row[0] for row in cells] == LABELS and "nDCG@10" in head
    assert cells[0][2:4] == ["—", "—"] and cells[0][6] == "—", "an exact search is not held against itself"
    for row, label in zip(cells, LABELS, strict=True):
        recall = artifacts[label].result["index_recall"]
        assert row[1] == f"{artifacts[label].result['measures']['nDCG@10']:.4f}"
        assert label == "Flat" or (row[2], row[3]) == (f"{recall['at_10']:.4f}", "—"), "20 passages are no 100"
        assert float(row[4]) == pytest.approx(
            artifacts[TIMES].result["milliseconds"][str(LABELS.index(label))], rel=0.01
        )
    assert float(cells[2][2]) == 1.0 > float(cells[1][2])
    index = load(sweep.evaluations["SQ8 rescore 0"].inputs["ranked"].inputs["index"].place(storage)).result
    assert cells[3][5:7] == [f"{index['bytes_per_passage']:,.0f}", f"{index['seconds']:.1f}"]
    means = [artifacts[label].result["measures"]["nDCG@10"] for label in LABELS]
    times = [artifacts[TIMES].result["milliseconds"][str(number)] for number in range(len(LABELS))]
    searched = [load(sweep.evaluations[label].inputs["ranked"].place(storage)).result for label in LABELS]
    sizes = [result["bytes_per_passage"] for result in searched]
    values = [(-mean, time, size) for mean, time, size in zip(means, times, sizes, strict=True)]
    beaten = [
        any(other != own and all(a <= b for a, b in zip(other, own, strict=True)) for other in values) for own in values
    ]
    assert [row[7] == "yes" for row in cells] == [not one for one in beaten]
    assert "tiny dev: 12 queries" in text


def test_every_search_is_timed_with_its_own_index(done) -> None:
    sweep, artifacts, _ = done
    searches = [step.inputs["ranked"] for step in sweep.evaluations.values()]
    for number, search in enumerate(searches):
        assert sweep.times.inputs.get(f"index{number}") == search.inputs.get("index")
        assert sweep.times.config.searches[number] == search.config.model_copy(update={"threads": 1})
    times = artifacts[TIMES].result["milliseconds"]
    assert artifacts[TIMES].result["queries"] == 12 and len(times) == 5 and all(time > 0 for time in times.values())
    recipes = sweep.recipes  # a system of its own fields each, or the leaderboard would take them for repetitions
    assert [one.evaluation.index for one in recipes.values()] == [label.split()[0] for label in LABELS]
    assert recipes["IVF4,PQ8x4 nprobe 2 rescore 4"].evaluation.rescore == 4


WRONG = {
    "points: [{index: IVF4, nprobe: 1, nprob: 2}]": r"points\.yaml\.points\.0\.nprob: no such field",
    "points: [{index: SQ8}, {index: SQ8}]": "SQ8 is listed twice",
    "measure: nDGC@10\npoints: [{index: Flat}]": "unknown measure 'nDGC'",
    'points: [{index: "PQ48"}]': r"evaluation\.index = 'PQ48': .* for 128 dimensions",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_list_is_one_line(tmp_path: Path, text: str) -> None:
    write_collection(tmp_path / "tiny")
    with pytest.raises(UserError, match=WRONG[text]):
        planned(tmp_path, text)


def test_a_fused_ranking_is_refused_and_the_lists_that_come_along_fit(tmp_path: Path) -> None:
    (tmp_path / "points.yaml").write_text(POINTS)
    recipe = override(short(RECIPES["none"](), write_collection(tmp_path / "tiny")), {"evaluation.bm25_share": 0.5})
    with pytest.raises(UserError, match=r"evaluation\.bm25_share"):
        plan_index_sweep(load_index_space(tmp_path / "points.yaml"), recipe, plan(recipe), "dev", None)
    folder = JOBS.parent / "search_spaces" / "indexes"
    words, space = (load_index_space(folder / f"{name}.yaml") for name in ("words", "default"))
    assert space.points[0].is_exact and not any(point.is_of_words for point in space.points)
    assert all(point.is_of_words or point.is_exact for point in words.points)
    for width in (128, 768):
        for point in space.points:
            point.check_index("evaluation", width)


def test_indexes_of_words_are_compared_likewise(tmp_path: Path) -> None:
    write_collection(tmp_path / "tiny")
    text = "depth: 20\npoints:\n  - {index: Flat}\n  - {index: Seismic, query_cut: 50, heap_factor: 0}\n"
    (tmp_path / "points.yaml").write_text(text)
    words = {"representation.dense": None, "representation.lexical": "splade"}
    recipe = override(short(RECIPES["none"](), f"beir:{tmp_path}/tiny"), words)
    sweep = plan_index_sweep(load_index_space(tmp_path / "points.yaml"), recipe, plan(recipe), "dev", None)
    storage = Place(str(tmp_path / "store"))
    runner = Runner(storage, LOCAL, Silent())
    done = {name: runner.run(step) for name, step in sweep.targets.items()}
    labels = [line.split("|")[1].strip() for line in index_table(sweep, done, storage).splitlines()[2:4]]
    assert labels == ["Flat", "Seismic query_cut 50 heap_factor 0.0"]
    found = load(sweep.evaluations["Seismic query_cut 50 heap_factor 0.0"].inputs["ranked"].place(storage)).result
    assert found["recall"]["at_10"] > 0.9
