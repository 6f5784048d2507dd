"""Records of a benchmark: it goes on where its store is not; and files of results."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.app.flags import parse
from midmask.app.job import Options, resolve
from midmask.benchmark.design import Benchmark, Setting
from midmask.benchmark.job import Job, best_of, describe, with_records
from midmask.benchmark.layout import Layout, lay_out
from midmask.benchmark.records import RecordWriter, collect, identity_of_cell, read_records
from midmask.benchmark.report import report_of
from midmask.benchmark.results import Result, Results, SystemKey, read_results
from midmask.errors import UserError
from midmask.evaluation.measures import SCHEMA, aggregate
from midmask.experiment.costs import Costs
from midmask.experiment.kinds import LOCAL
from midmask.experiment.run import Runner
from midmask.store.place import Place
from tests.support.benchmark.synthetic import drawn, results
from tests.support.benchmark.tiny import SHORT, write_collection

JOB = Path(__file__).resolve().parents[2] / "jobs" / "benchmark_middle_training.py"
MEASURES = ("RR@10", "R@100")
FIELDS = {
    **{"name": "try", "title": "A try", "systems": ("bm25", "none", "mlm")},
    "settings": {"in_batch": Setting(protocols={"dense": "in_batch"})},
    "changes": {**SHORT, "stages.*.train.steps": 2, "stages.*.train.batch_size": 4},
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("read")
    found = {name: write_collection(folder / name) for name in ("first", "wiki")}
    for file in ("corpus.jsonl", "queries.jsonl"):
        path = folder / "wiki" / file
        path.write_text(path.read_text("utf-8").replace("amber", "violet"), "utf-8")
    return found


def benchmark(places: dict[str, str], **changes: object) -> Benchmark:
    wiki = {"collections": {"corpus": (), "wiki": (places["wiki"],)}, "splits": ("test",), "measures": MEASURES}
    return Benchmark(**{**FIELDS, "corpus": places["first"], **wiki, **changes})


def test_a_record_of_before_is_still_found(places: dict[str, str]) -> None:
    """Where these change, no record in docs/results/records is found any more."""
    known = "8de30183fa2b17fa cf4dbfe3f4550fe4 796c1d6740cd4a3e 13747c5abf6e59a8"
    assert [identity_of_cell(cell) for cell in lay_out(benchmark(places)).cells] == known.split()


def test_a_set_that_is_only_searched_keeps_a_name_of_its_own(places: dict[str, str], tmp_path: Path) -> None:
    """BEIR has a set called nq, which is not NQ by its answers."""
    other = write_collection(tmp_path / "first")
    cells = lay_out(benchmark(places, zero_shot=(other, places["wiki"]))).cells
    assert {frozenset(cell.evaluations) for cell in cells} == {
        frozenset([("first", "test"), ("beir-first", "test"), ("wiki", "test")])
    }


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> str:
    return write_collection(tmp_path_factory.mktemp("records") / "tiny")


def tried(corpus: str, **changes: object) -> Layout:
    return lay_out(Benchmark(**{**FIELDS, "corpus": corpus, "changes": {**FIELDS["changes"], **changes}}))


@pytest.fixture(scope="module")
def recorded(corpus, tmp_path_factory) -> tuple[Layout, Place, Place]:
    """A benchmark that was run in one store: its layout, the store, and the folder of its records."""
    folder = tmp_path_factory.mktemp("recorded")
    whole, store, records = tried(corpus), Place(str(folder / "store")), Place(str(folder / "records"))
    writer = RecordWriter(records, whole.cells, store, lambda cell: f"run of {cell.name}")
    runner = Runner(store, LOCAL, writer)
    for cell in whole.cells:
        assert len(records.names()) == whole.cells.index(cell), "as soon as a cell is measured, and not before"
        for step in cell.targets:
            runner.compute(step)
    return whole, store, records


def job(of: Layout, folder: Path, records: Place) -> Job:
    flags = parse(["--storage", str(folder / "store"), "--tracking-uri", f"sqlite:///{folder}/m.db"], None)
    options: Options = replace(resolve(flags, Path("jobs/benchmark_middle_training.py").absolute()), home=folder)
    return Job(with_records(of, records), options, folder / "report", records)


def test_the_report_from_records_has_the_same_values(recorded, tmp_path):
    whole, store, records = recorded
    there = job(whole, tmp_path, records)
    assert there.left() == [] and describe(there).count("  recorded  ") == len(whole.cells), "nothing is to be done"
    assert {one.measurement.precision for one in read_records(records).values()} == {"", "fp32"}
    here, found = collect(whole.cells, store), collect(whole.cells, there.storage, there.layout.recorded)
    assert list(found) == list(here) and len(here) == 2 * 3
    own = report_of(whole, store, tmp_path / "own", {})
    other = report_of(there.layout, there.storage, tmp_path / "other", {})
    assert [line for line in other.splitlines() if "from records" not in line] == own.splitlines()
    assert "## What the trainings have read" in own, "the test queries of this collection are train queries too"
    assert "Warning: tiny test: fine-tuning on tiny reads 100.0% of 12 queries" in own


def test_without_the_papers_package_the_report_lacks_what_it_adds_and_no_more(recorded, tmp_path, monkeypatch):
    whole, store, _ = recorded
    full = report_of(whole, store, tmp_path / "full", {})
    claims = "\n## Claims of the papers\n\nEach is checked on these results in [claims.md](claims.md).\n"
    monkeypatch.setitem(sys.modules, "midmask_papers", None)
    assert report_of(whole, store, tmp_path / "general", {}) == full.replace(claims, "") != full
    assert not (tmp_path / "general" / "claims.md").exists()


def test_the_best_system_is_named_with_its_seeds(recorded, tmp_path):
    whole, _, _ = recorded
    cells = {cell.key.system: cell for cell in whole.cells}
    corpus, split = cells["none"].main
    truth = {"none": 0.3, "mlm": 0.6}
    made = {cells[name].name: {cells[name].key: mean} for name, mean in truth.items()}
    found = {name: results(drawn(mean, corpus=corpus, split=split)) for name, mean in made.items()}
    sentence, table, model = best_of(replace(whole, recorded=found), Place(str(tmp_path)))
    assert [row.split("|")[1].strip() for row in table.splitlines()[2:]] == [
        "mlm dense in_batch",
        "none dense in_batch",
    ]
    assert "mlm dense in_batch with 0." in sentence and "(3 seeds)" in sentence and model is None


def test_only_cells_without_a_record_are_left(recorded, tmp_path):
    whole, _, records = recorded
    for name in records.names():
        if not name.startswith("mlm"):
            (tmp_path / "some").mkdir(exist_ok=True)
            (tmp_path / "some" / name).write_bytes((records / name).read())
    there = job(whole, tmp_path, Place(str(tmp_path / "some")))
    assert [cell.key.system for cell in there.unrecorded()] == ["mlm"]
    assert sorted(step.name for step in there.left()) == ["evaluate", "evaluate", "overlap", "overlap"]


def test_cells_that_compute_the_same_share_a_record_under_their_own_names(recorded, corpus, tmp_path):
    """A paper's table has one fine-tuning under two names where a single view is trained."""
    _, _, records = recorded
    one = tried(corpus).benchmark
    twice = one.model_copy(update={"settings": {name: one.settings["in_batch"] for name in ("in_batch", "again")}})
    there = job(lay_out(twice), tmp_path, records)
    assert there.left() == []
    found = collect(there.layout.cells, Place(there.options.storage), there.layout.recorded)
    by_setting = [found.where(system="mlm", setting=name) for name in ("in_batch", "again")]
    assert [len(own) for own in by_setting] == [2, 2]
    assert [one.measures for one in by_setting[0]] == [one.measures for one in by_setting[1]]


def test_a_record_of_other_conditions_is_not_taken(recorded, corpus, tmp_path):
    _, _, records = recorded
    longer = job(tried(corpus, **{"pretrain.steps": 4}), tmp_path, records)
    assert [cell.key.system for cell in longer.unrecorded()] == ["mlm"], "the others have no middle training"


def test_a_collection_is_known_by_its_content_wherever_it_lies(recorded, corpus, tmp_path):
    _, _, records = recorded
    copy = shutil.copytree(corpus.removeprefix("beir:"), tmp_path / "copy" / "tiny")
    assert not job(tried(f"beir:{copy}"), tmp_path, records).left()
    queries = (copy / "queries.jsonl").read_text()
    (copy / "queries.jsonl").write_text(queries.replace("amber", "ochre"))
    changed = job(tried(f"beir:{copy}"), tmp_path, records)
    assert changed.unrecorded() == list(changed.layout.cells)


def test_the_precision_of_products_does_not_tell_cells_apart(corpus, recorded):
    """`auto` is bf16 on some processors, and a benchmark may go on on another one."""
    whole, _, _ = recorded
    bf16 = {"pretrain.precision": "bf16", "stages.*.train.precision": "bf16", "evaluation.precision": "bf16"}
    other = tried(corpus, **bf16)
    assert {cell.name: identity_of_cell(cell) for cell in other.cells} == {
        cell.name: identity_of_cell(cell) for cell in whole.cells
    }
    steps = {step.fingerprint for step in other.steps().values() if step.name == "finetune"}
    assert steps and not steps & set(whole.steps())


@pytest.mark.parametrize("content", [b"no parquet", None], ids=["no file of the kind", "results"])
def test_a_file_that_is_no_record_is_refused(content, recorded, tmp_path):
    whole, store, _ = recorded
    if content is None:
        collect(whole.cells, store).write(Place(str(tmp_path / "mlm.parquet")))
    else:
        (tmp_path / "mlm.parquet").write_bytes(content)
    with pytest.raises(UserError, match=r"mlm\.parquet is no record of a cell"):
        job(whole, tmp_path, Place(str(tmp_path)))


COSTS = Costs(12.5, 0.25, 0.0, 3000, 400, 512.0, None)


def result(system: str, seed: int, values: list[float], representation: str = "dense", split: str = "test") -> Result:
    rows = [{"query_id": f"q{number}", "measure": "RR@10", "value": value} for number, value in enumerate(values)]
    per_query = pa.Table.from_pylist(rows, schema=SCHEMA)
    key = SystemKey(system, "corpus", representation, "in_batch")
    return Result(key, seed, "squad", split, aggregate(per_query), per_query, COSTS if seed else None)


def test_two_systems_never_share_a_row():
    own = [result("retromae", seed, values) for seed, values in enumerate(([0.5, 1.0, 0.25], [0.5, 0.5, 0.5]))]
    own += [result("mlm", 0, [1.0, 1.0, 0.1], view) for view in ("dense", "splade")]
    found = Results([*own, result("mlm", 0, [0.3, 0.3, 0.3], split="dev")])
    with pytest.raises(ValueError, match="splade"):
        found.per_query("squad", "test")
    both = found.per_query("squad", "test", by=lambda key: f"{key.system}, {key.representation}")
    assert [len(tables) for tables in both.values()] == [2, 1, 1]


@settings(max_examples=25)
@given(
    values=st.lists(st.floats(0, 1), min_size=1, max_size=5),
    names=st.lists(st.sampled_from(["none", "mlm", "rétro|mae"]), min_size=1, max_size=4, unique=True),
)
def test_a_file_of_results_holds_them_all(values, names, tmp_path_factory):
    place = Place(str(tmp_path_factory.mktemp("results") / "results.parquet"))
    given = Results(result(name, number, values) for number, name in enumerate(names))
    given.write(place, {"names": names})
    found, about = read_results(place)
    assert list(found) == list(given) and about == {"names": names}
    with pytest.raises(ValueError, match="no values"):
        Results([result("mlm", 0, [])]).write(place)
