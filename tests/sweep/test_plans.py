"""Sweeps before they run, and indexes of one encoding beside each other."""

from dataclasses import replace
from pathlib import Path

import pytest

from midmask.app.flags import add_sweep_flags, parse
from midmask.app.job import Options, resolve
from midmask.core.config import override
from midmask.errors import UserError
from midmask.experiment.kinds import LOCAL
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner
from midmask.recipes import RECIPES
from midmask.store.artifact import Artifact, load
from midmask.store.place import Place
from midmask.sweep.index_sweep import TIMES, IndexSweep, index_table, load_index_space, plan_index_sweep
from midmask.sweep.job import sweep
from midmask.sweep.plan import sweep_for
from midmask.sweep.space import Space
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
    runner = Runner(storage, LOCAL)
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


RATIO = {"objective.decoder_mask_ratio": {"values": [0.5, 0.7]}}


@pytest.fixture
def options(tmp_path: Path) -> Options:
    given = ["--corpus", write_collection(tmp_path / "words"), "--storage", str(tmp_path / "store")]
    return resolve(parse([*given, "--tracking-uri", f"sqlite:///{tmp_path}/mlflow.db"], None))


def space(**fields) -> Space:
    return Space.model_validate({"name": "s", "recipe": "retromae", "parameters": RATIO, **fields})


def test_settings_and_flags_reach_the_baselines_but_for_the_methods_own(options):
    settings = {"objective.encoder_mask_ratio": 0.2, "pretrain.steps": 7}
    asked = replace(options, changes={"objective.decoding": "basic", "backbone.dropout": "0.1"}, seed=5)
    one = sweep_for(asked, space(settings=settings, baselines=["none", "mlm"]))
    none, mlm = one.baselines
    assert (one.recipe.objective.encoder_mask_ratio, one.recipe.objective.decoding) == (0.2, "basic")
    assert none.objective is None and mlm.objective == RECIPES["mlm"]().objective
    for recipe in (one.recipe, none, mlm):
        assert (recipe.pretrain.steps, recipe.backbone.dropout, recipe.stages[0].train.seed) == (7, 0.1, 5)
        assert recipe.corpus.name == options.corpus


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"measure": "NDCG@10"}, ["'NDCG@10'", "nDCG@10", "bytes_per_passage", "evaluation.measures"]),
        ({"settings": {"evaluation.measures": ["RR@10"]}}, ["'nDCG@10'", "(RR@10)"]),
        ({"protocol": "in_bath"}, ["'in_bath'", "did you mean 'in_batch'"]),
        ({"baselines": ["mlmm"]}, ["'mlmm'", "did you mean 'mlm'"]),
        ({"parameters": {"objective.layers": {"values": [1]}}}, ["objective.layers"]),
    ],
)
def test_what_would_fail_later_is_refused_before_anything_starts(options, fields, words):
    with pytest.raises(UserError) as caught:
        sweep_for(options, space(**fields))
    for word in words:
        assert word in str(caught.value)
    assert not Path(options.storage).exists()


def test_the_corpus_of_a_space_is_read_unless_the_command_line_names_one(options, tmp_path, capsys):
    own = write_collection(tmp_path / "others")
    file = tmp_path / "mine.yaml"
    file.write_text(f"name: mine\nrecipe: retromae\ncorpus: {own}\nparameters:\n  pretrain.steps: {{values: [1]}}\n")
    for arguments, read in ((["--dry-run"], own), (["--dry-run", "--corpus", options.corpus], options.corpus)):
        flags = parse(
            ["--storage", options.storage, "--tracking-uri", options.tracking_uri, *arguments], None, add_sweep_flags
        )
        sweep(resolve(flags), flags, file)
        assert f"corpus.name = {read}\n" in capsys.readouterr().out
