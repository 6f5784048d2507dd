"""Training under Ray Train equals training without it, also when a worker is killed on the way."""

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from midmask.artifact import Artifact, Place
from midmask.backend.worker_group import train_on_ray
from midmask.errors import UserError
from midmask.tokens import TokensConfig, tokenise
from midmask.training.run import NonFiniteLoss
from tests.support.cluster.processes import ray_processes
from tests.support.training.corpus import write_corpus
from tests.support.training.runs import assert_same_run, run_here, run_workers, spec_of, spoil, trace_of
from tests.support.training.worker import setup_of
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("data")
    write_corpus(folder / "corpus")
    tokens = Place(f"file://{folder}/tokens")
    config = TokensConfig(vocabulary_size=500, max_length=48, query_length=8)
    tokenise(config, {"corpus": Artifact(Place(f"{folder}/corpus"), {})}, tokens)
    return tokens


def kill_one(actor: str, after: Path) -> None:
    """SIGKILL to one of this test's own Ray actors of that class, as soon as a file is there."""
    wait_until(after.exists)
    os.kill(next(ray_processes(actor)).pid, signal.SIGKILL)


def test_a_killed_worker_is_replaced_and_the_run_is_the_same(tokens: Place, tmp_path: Path, ray_local: None) -> None:
    """Two workers on two CPUs that Ray Data reads beside, dropout on, storage by URI; the oracle runs without Ray."""
    train = {"steps": 30, "checkpoint_every": 5}
    spec = spec_of(tokens, tmp_path / "alone", train=train)
    assert run_workers(spec, 2, tmp_path) == [0, 0]
    out, reports, helpers = tmp_path / "ray", [], set()
    second = out / "checkpoints" / "step-00000010" / "position.json"
    threading.Thread(target=kill_one, args=["RayTrainWorker", second], daemon=True).start()

    def log(done: int, values: dict[str, float]) -> None:
        reports.append(done)
        helpers.update(process.pid for process in ray_processes("PlacementGroupCleaner"))

    result = train_on_ray(setup_of(spec), Place(f"file://{out}"), workers=2, use_gpu=False, log=log)
    trace = trace_of(out)
    assert_same_run(trace, trace_of(tmp_path / "alone"), within=1e-5)
    starts = [row["step"] for row in trace if row["first_after_start"]]
    assert len(starts) == 2 and starts[1] >= 10 and starts[1] % 5 == 0, "no worker was replaced"
    assert reports == list(range(1, 31)), "every step is reported once"
    assert not helpers, "without a dashboard, Ray Train's helper warns once a second"
    assert result["steps"] == 30 and result["workers"] == 2 and result["threads"] == 1
    assert sorted(path.name for path in out.iterdir()) == ["checkpoint", "model", "trace.parquet"]


@pytest.mark.slow
def test_a_training_whose_controller_is_killed_goes_on(tokens: Place, tmp_path: Path, ray_local: None) -> None:
    spec = spec_of(tokens, tmp_path / "alone", train={"steps": 40, "checkpoint_every": 5})
    assert run_workers(spec, 1, tmp_path) == [0]
    out, reports = tmp_path / "ray", []
    first = out / "checkpoints" / "step-00000005" / "position.json"
    threading.Thread(target=kill_one, args=["TrainController", first], daemon=True).start()
    train_on_ray(
        setup_of(spec), Place(str(out)), workers=1, use_gpu=False, log=lambda done, values: reports.append(done)
    )
    trace = trace_of(out)
    assert_same_run(trace, trace_of(tmp_path / "alone"), within=1e-5)
    assert [row["first_after_start"] for row in trace].count(True) == 2, "the controller was killed too late"
    assert reports == list(range(1, 41)), "every step is reported once"


def test_a_loss_that_is_not_finite_is_not_tried_again(tokens: Place, tmp_path: Path, ray_local: None) -> None:
    run_here(spec_of(tokens, tmp_path / "good", stop_after=3))
    spoil(tmp_path / "good" / "checkpoint")
    setup = replace(setup_of(spec_of(tokens, tmp_path)), resume=Place(str(tmp_path / "good")))
    with pytest.raises(NonFiniteLoss, match=r"^step 3: .* examples of the batch: d\d+"):
        train_on_ray(setup, Place(str(tmp_path / "out")), workers=1, use_gpu=False, log=lambda done, values: None)


def test_gpus_that_are_not_there_are_refused(tokens: Place, tmp_path: Path, ray_local: None) -> None:
    setup = setup_of(spec_of(tokens, tmp_path))
    with pytest.raises(UserError, match=r"--workers 1: one GPU each .* the cluster has 0"):
        train_on_ray(setup, Place(str(tmp_path)), workers=1, use_gpu=True, log=lambda done, values: None)
