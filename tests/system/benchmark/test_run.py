"""A whole benchmark on a real Ray: the same numbers as in one process, tracked, reported, and never computed twice."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from midmask.app.flags import parse
from midmask.app.job import Options, resolve
from midmask.benchmark.design import Benchmark, Setting
from midmask.benchmark.job import Job, describe, with_records
from midmask.benchmark.layout import lay_out
from midmask.benchmark.records import collect
from midmask.benchmark.results import read_results
from midmask.benchmark.run import run_benchmark
from midmask.leaderboard.artifacts import artifact_place
from midmask.leaderboard.rows import rows
from midmask.store.place import Place
from midmask.tracking.reading import read_runs
from tests.support.benchmark.tiny import SHORT, run_here, write_collection
from tests.support.jobs.processes import kill_tree, start
from tests.support.waiting import wait_until

JOB = Path(__file__).resolve().parents[3] / "jobs" / "benchmark_middle_training.py"
STAGES = {"stages.*.train.steps": 2, "stages.*.train.batch_size": 4}


def options(folder: Path, corpus: str) -> Options:
    stores = ["--storage", str(folder / "store"), "--tracking-uri", f"sqlite:///{folder}/m.db"]
    return replace(resolve(parse(["--corpus", corpus, *stores], None), JOB), home=folder)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> str:
    return write_collection(tmp_path_factory.mktemp("benchmark") / "tiny")


@pytest.fixture(scope="module")
def layout(corpus):
    both = Setting(protocols={"dense": "in_batch", "splade": "in_batch_splade"})
    tried = {"systems": ("bm25", "none", "mlm"), "representations": ("dense", "splade"), "settings": {"in_batch": both}}
    return lay_out(Benchmark(name="try", title="A try", corpus=corpus, **tried, changes={**SHORT, **STAGES}))


@pytest.fixture(scope="module")
def run(layout, corpus, tmp_path_factory, ray_local):
    folder = tmp_path_factory.mktemp("run")
    job = Job(layout, options(folder, corpus), folder / "report", Place(str(folder / "records")))
    text, failed = run_benchmark(job)
    return job, text, failed


def test_where_all_cells_have_records_only_a_report_is_made(run, layout, corpus, tmp_path):
    """Other jobs may have left their steps in the store: they belong to no system that is measured here."""
    job, text, _ = run
    again = Job(with_records(layout, job.records), options(tmp_path, corpus), tmp_path / "report", job.records)
    shutil.copytree(str(job.storage), str(again.storage))
    told, failed = run_benchmark(again)
    assert failed == {}
    assert [line for line in told.splitlines() if "from records" not in line] == text.splitlines()
    assert {one.tags["midmask.step"] for one in read_runs(again.options.tracking_uri)} == {"benchmark"}


def test_tasks_measure_what_one_process_measures(run, layout, tmp_path):
    job, _, failed = run
    assert not failed
    alone = Place(str(tmp_path / "alone"))
    run_here(layout, alone)
    here, there = collect(layout.cells, job.storage), collect(layout.cells, alone)
    assert len(here) == len(there) == 2 * 5
    for one, other in zip(here, there, strict=True):
        assert (one.key, one.seed, one.split, one.measures) == (other.key, other.seed, other.split, other.measures)
        assert one.per_query.equals(other.per_query)


def test_every_cell_is_a_run_of_one_experiment(run):
    job, _, _ = run
    tracked = read_runs(job.options.tracking_uri)
    (parent,) = [one for one in tracked if one.tags["midmask.step"] == "benchmark"]
    nested = [one for one in tracked if one.parent_id == parent.run_id]
    assert parent.status == "finished" and all(one.status == "finished" for one in nested)
    cells = {one.name: one for one in nested if one.tags["midmask.step"] == "evaluate"}
    assert set(cells) == {cell.name for cell in job.layout.cells}
    found = {(row.recipe, row.place.split): row.measures for row in rows(tracked) if row.recipe == "bm25"}
    results = collect(job.layout.cells, job.storage)
    assert found == {("bm25", one.split): pytest.approx(one.measures) for one in results.where(system="bm25")}
    for cell in job.layout.cells:
        for (place, split), step in cell.evaluations.items():
            assert artifact_place(cells[cell.name], place, split) == step.place(job.storage), "not of another split"
    mlm = cells["mlm, corpus, splade, in_batch, seed 0"]
    assert mlm.tags["midmask.representation"] == "splade" and mlm.tags["midmask.setting"] == "in_batch"
    assert mlm.metrics["cost/pretrain_tokens"] > 0 and mlm.metrics["cost/bytes_per_passage"] > 0
    assert "cost/bytes_per_passage" not in cells["bm25"].metrics
    trainings = [one for one in nested if one.tags["midmask.step"] in ("pretrain", "finetune")]
    assert len(trainings) == 1 + 4 and all(f"{one.tags['midmask.step']}/loss" in one.metrics for one in trainings)


def test_a_second_run_computes_nothing_and_writes_records_again(run):
    job, text, _ = run
    for ending in ("md", "csv", "tex"):
        assert (job.out / "tables" / f"tiny.dev.splade.in_batch.{ending}").stat().st_size
    found, _ = read_results(Place(str(job.out / "results.parquet")))
    assert list(found) == list(collect(job.layout.cells, job.storage))
    records = {name: (job.records / name).read() for name in job.records.names()}
    assert len(records) == len(job.layout.cells)
    (job.records / min(records)).delete()
    before = {path: path.stat().st_mtime_ns for path in Path(job.options.storage).rglob("record.json")}
    assert "0 to do" in describe(job) and "1 to do" not in describe(job)
    again, failed = run_benchmark(job)
    assert again == text and not failed
    assert {name: (job.records / name).read() for name in job.records.names()} == records
    assert before == {path: path.stat().st_mtime_ns for path in Path(job.options.storage).rglob("record.json")}
    parents = [one for one in read_runs(job.options.tracking_uri) if one.tags["midmask.step"] == "benchmark"]
    assert sorted(one.status for one in parents) == ["cached", "finished"]


def test_what_fails_takes_only_its_own_cells_along(layout, corpus, tmp_path, run):
    """A file lies where the middle training's folder should be."""
    storage = tmp_path / "store"
    (step,) = [step for step in layout.steps().values() if step.name == "pretrain"]
    (storage / "pretrain").mkdir(parents=True)
    (storage / "pretrain" / step.fingerprint).write_text("in the way")
    job = Job(layout, options(tmp_path, corpus), tmp_path / "report")
    text, failed = run_benchmark(job)
    assert set(failed) == {cell.name for cell in layout.cells if cell.key.system == "mlm"}
    there = {one.key.system for one in collect(layout.cells, job.storage)}
    assert "## Not measured" in text and there == {"bm25", "none"}
    tracked = read_runs(job.options.tracking_uri)
    assert [one.tags["midmask.step"] for one in tracked if one.status == "failed"].count("benchmark") == 1
    (storage / "pretrain" / step.fingerprint).unlink()
    text, failed = run_benchmark(job)
    assert not failed and "## Not measured" not in text
    parents = [one for one in read_runs(job.options.tracking_uri) if one.tags["midmask.step"] == "benchmark"]
    assert [one.status for one in parents] == ["finished"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_benchmark_that_is_killed_goes_on(tmp_path, corpus):
    """What was finished is not made again, and every training ends with one finished run."""
    records = tmp_path / "store" / "finetune"
    changes = [f"--set={path}={value}" for path, value in {**SHORT, **STAGES, "pretrain.steps": 40}.items()]
    wanted = ["--corpus", corpus, "--systems", "none,mlm", "--representations", "dense,splade", "--seeds", "0"]
    doomed = start(tmp_path, JOB.stem, *wanted, *changes)
    wait_until(lambda: list(records.glob("*/record.json")), doomed)
    kill_tree(doomed)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("record.json")}
    assert before and len(list(records.glob("*/record.json"))) < 4
    process = start(tmp_path, JOB.stem, *wanted, *changes)
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err[-3000:]
    assert "| mlm splade in_batch" in out
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("record.json")}
    assert before.items() <= after.items()
    tracked = read_runs(f"sqlite:///{tmp_path}/mlflow.db")
    done = [one.tags["midmask.fingerprint"] for one in tracked if one.status == "finished"]
    assert len(done) == len(set(done))
    assert sum(one.tags["midmask.step"] == "evaluate" for one in tracked if one.status == "finished") == 5
