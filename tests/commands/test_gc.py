"""`midmask gc` on a store that a real run has filled: what goes, stays and is refused."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from mlflow import MlflowClient

from midmask.app.flags import Parser
from midmask.commands.gc import DAY, gc
from midmask.errors import UserError
from midmask.experiment.graph import Graph, Step
from midmask.experiment.kinds import LOCAL
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner
from midmask.experiment.schema import Recipe
from midmask.store.artifact import RECORD, attempt
from midmask.store.leases import Timing
from midmask.store.place import Place
from midmask.tracking.reading import read_runs
from midmask.tracking.runs import Tracker
from tests.support.dashboards import worked
from tests.support.dashboards.tracked import QUICK

ALL = ("--older-than", "0d")


@dataclass
class Job:
    """The runs of `worked` in a folder of their own, and an artifact chain of the same recipe that no run names."""

    home: Path
    recipe: Recipe

    def __post_init__(self) -> None:
        self.storage, self.uri = Place(str(self.home / "store")), f"sqlite:///{self.home}/mlflow.db"
        self.steps = plan(self.recipe)
        self.target = self.steps.evaluation(self.recipe.evaluation)
        self.untracked = plan(self.recipe.seeded(99)).stages[-1]
        """The fine-tuning with another seed."""

    def run(self, step: Step) -> None:
        Runner(self.storage, LOCAL).compute(step)

    def left(self, step: Step) -> set[str]:
        """Names of the steps that a job would compute."""
        return {one.name for one in Graph.left_in(self.storage, [step]).unfinished.values()}

    def gc(self, *flags: str) -> None:
        run_gc("--storage", self.storage.uri, "--tracking-uri", self.uri, *flags)

    def names(self) -> set[str]:
        """Addresses of all finished artifacts."""
        folder = Path(self.storage.uri)
        return {str(path.parent.relative_to(folder)) for path in folder.rglob(RECORD)}


def run_gc(*flags: str) -> None:
    """`midmask gc FLAGS`, in this process."""
    parser = Parser(prog="midmask gc")
    gc.add_flags(parser)
    gc.work(parser.parse_args(flags))


@pytest.fixture(scope="module")
def full_job(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Job:
    home = tmp_path_factory.mktemp("gc")
    shutil.copy(empty_store, home / "mlflow.db")
    worked.everything(f"sqlite:///{home}/mlflow.db", home)
    job = Job(home, worked.recipes(f"beir:{home / 'tiny'}")[1])
    job.run(job.untracked)
    return job


@pytest.fixture
def job(full_job: Job, tmp_path: Path) -> Iterator[Job]:
    """The store as it was full_job; it is put back afterwards, since runs name the place where it lies."""
    folder, kept = Path(full_job.storage.uri), tmp_path / "kept"
    shutil.copytree(folder, kept, copy_function=shutil.copy2)
    yield full_job
    shutil.rmtree(folder)
    shutil.copytree(kept, folder, copy_function=shutil.copy2)


def address(step: Step) -> str:
    return f"{step.name}/{step.fingerprint}"


def test_without_delete_everything_stays(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    before = job.storage.sizes()
    job.gc(*ALL, "--intermediates")
    assert job.storage.sizes() == before
    printed = capsys.readouterr().out
    assert "nothing was deleted." in printed
    line = next(line for line in printed.splitlines() if line.startswith("finetune "))
    assert line.split()[1:] == ["2", "·", *line.split()[3:5], "1", "·", *line.split()[7:9]]


def test_what_a_rerun_needs_is_kept_and_what_no_run_names_is_deleted(job: Job, capsys) -> None:
    before = job.names()
    job.gc(*ALL, "--delete")
    assert before - job.names() == {address(job.untracked)}
    assert not (Path(job.storage.uri) / f"{address(job.untracked)}.attempts").exists()
    assert not job.left(job.target) and "Deleted: 1 · " in capsys.readouterr().out
    assert job.left(job.untracked) == {"finetune"}
    job.run(job.untracked)
    assert job.names() == before


def test_the_young_are_kept(job: Job) -> None:
    before = job.names()
    job.gc("--older-than", "1d", "--delete")
    assert job.names() == before
    record = Path((job.untracked.place(job.storage) / RECORD).uri)
    os.utime(record, (record.stat().st_mtime - 2 * DAY,) * 2)
    job.gc("--older-than", "1d", "--delete")
    assert before - job.names() == {address(job.untracked)}


def test_intermediates_go_when_asked_and_the_same_job_computes_nothing(job: Job) -> None:
    before = job.names()
    job.gc(*ALL, "--delete", "--intermediates")
    gone = before - job.names()
    assert {name.split("/")[0] for name in gone} == {"encode", "bm25_words", "bm25_index", "finetune"}
    assert not job.left(job.target)
    tested = job.steps.evaluation(job.recipe.evaluation.model_copy(update={"split": "test"}))
    assert "encode" in job.left(tested) and "finetune" not in job.left(tested)
    job.run(tested)


def test_deleted_runs_need_nothing_but_registered_models_do(job: Job) -> None:
    client = MlflowClient(job.uri)
    own = [run.run_id for run in read_runs(job.uri) if run.tags.get("midmask.recipe") == job.recipe.name]
    model = address(job.steps.stages[-1])
    for run_id in own:
        client.delete_run(run_id)
    try:
        client.create_registered_model("kept")
        fingerprint = {"midmask.fingerprint": job.steps.stages[-1].fingerprint}
        client.create_model_version("kept", "file:///nowhere", tags=fingerprint)
        job.gc(*ALL, "--delete")
        assert model in job.names() and address(job.target) not in job.names()
        client.delete_registered_model("kept")
        job.gc(*ALL, "--delete")
        assert model not in job.names() and address(job.steps.corpus) in job.names()
    finally:
        for run_id in own:
            client.restore_run(run_id)


def test_a_living_attempt_stays_and_artifacts_wait_for_it(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    before = job.names()
    with attempt(job.storage / "pretrain" / "0123456789abcdef", Timing()) as own:
        (own.out / "weights").write(b"half")
        job.gc(*ALL, "--delete")
        assert (own.out / "weights").read() == b"half" and job.names() == before
        assert "A job runs: artifacts are not deleted until it has ended." in capsys.readouterr().out
    job.gc("--delete")
    assert (own.out / "weights").exists(), "it is young, and a job may go on from it"
    job.gc(*ALL, "--delete")
    assert not own.out.exists() and before - job.names() == {address(job.untracked)}


def test_artifacts_wait_for_a_run_that_is_written(job: Job) -> None:
    before = job.names()
    with Tracker(job.uri, job.home, QUICK) as tracker, tracker.run("living", tags={}, params={}) as run:
        assert run.id
        job.gc(*ALL, "--delete")
        assert job.names() == before
    job.gc(*ALL, "--delete")
    assert job.names() != before


def test_what_lies_behind_a_link_is_kept(job: Job, tmp_path: Path) -> None:
    folder = Path(job.untracked.place(job.storage).uri)
    shutil.move(folder, tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    job.gc(*ALL, "--delete")
    assert job.untracked.is_finished(job.storage) and (tmp_path / "elsewhere" / RECORD).exists()
    folder.unlink()
    shutil.move(tmp_path / "elsewhere", folder)
    (tmp_path / "file").write_text("of somebody else")
    (folder / "link").symlink_to(tmp_path)
    job.gc(*ALL, "--delete")
    assert (tmp_path / "file").exists() and job.untracked.is_finished(job.storage)


@pytest.mark.parametrize("kind", ["empty", "damaged"])
def test_a_tracking_store_without_runs_of_this_store_is_refused(job: Job, kind: str, tmp_path, empty_store) -> None:
    path, before = tmp_path / "other.db", job.names()
    if kind == "empty":
        shutil.copy(empty_store, path)
    else:
        path.write_bytes(b"no database " * 1000)
    with pytest.raises(UserError, match=r"does not answer|none of the 0 runs tracked in .* names an artifact of "):
        run_gc("--storage", job.storage.uri, "--tracking-uri", f"sqlite:///{path}", *ALL, "--delete")
    assert job.names() == before


def test_runs_of_another_store_with_the_same_artifacts_are_refused(job: Job, tmp_path: Path) -> None:
    shutil.copytree(job.storage.uri, tmp_path / "copy")
    with pytest.raises(UserError, match=f"these runs name {job.storage.uri}"):
        run_gc("--storage", str(tmp_path / "copy"), "--tracking-uri", job.uri, *ALL, "--delete")
