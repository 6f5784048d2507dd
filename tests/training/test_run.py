"""Whole training runs: cut in any way, killed anywhere, they are the same run."""

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.training import run as training_run
from midmask.training.run import NonFiniteLoss, local_reader, run_training
from tests.support.training.runs import Stopped, assert_same_run, run_here, run_workers, spec_of, spoil, trace_of
from tests.support.training.worker import setup_of


@pytest.fixture(scope="module")
def whole(tokens: Place, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run."""
    out = tmp_path_factory.mktemp("whole")
    run_here(spec_of(tokens, out))
    return out


def test_training_learns_and_leaves_a_clean_artifact(whole: Path) -> None:
    trace = trace_of(whole)
    assert np.mean([row["loss"] for row in trace[-5:]]) < trace[0]["loss"] - 0.3
    assert sorted(path.name for path in whole.iterdir()) == ["checkpoint", "model", "trace.parquet"]


def test_masks_and_order_differ_between_epochs(whole: Path) -> None:
    trace = trace_of(whole)
    epochs = [[row["rows"] for row in trace if row["epoch"] == epoch] for epoch in (0, 1)]
    assert len(epochs[0]) == 300 // 16 and epochs[0][:5] != epochs[1][:5]


def test_a_killed_job_started_again_is_the_same_run(tokens: Place, whole: Path, tmp_path: Path) -> None:
    spec = spec_of(tokens, tmp_path / "out")
    assert run_workers({**spec, "kill_at": 17}, 1, tmp_path) == [-9]
    run_here(spec)
    trace = trace_of(tmp_path / "out")
    assert_same_run(trace, trace_of(whole), within=1e-5)
    assert [row["step"] for row in trace if row["first_after_start"]] == [0, 14]
    for name in ("model/model.safetensors", "checkpoint/optimiser.safetensors"):
        ours, theirs = (safetensors.torch.load_file(folder / name) for folder in (tmp_path / "out", whole))
        for key, tensor in theirs.items():
            torch.testing.assert_close(ours[key], tensor, rtol=1e-5, atol=1e-6)


def test_a_job_stopped_again_and_again_is_the_same_run(tokens: Place, whole: Path, tmp_path: Path) -> None:
    for stop_at in (5, 7, 15, 16):  # before the first checkpoint, just before it is written, and after two of them
        with pytest.raises(Stopped):
            run_here(spec_of(tokens, tmp_path), stop_at=stop_at)
    run_here(spec_of(tokens, tmp_path))
    assert_same_run(trace_of(tmp_path), trace_of(whole), within=1e-5)


def test_a_finished_run_called_again_gives_the_same_result(tokens: Place, tmp_path: Path) -> None:
    spec = spec_of(tokens, tmp_path, train={"steps": 8})
    assert run_here(spec) == run_here(spec)


def test_prefixes_one_after_the_other_are_the_whole_run(tokens: Place, whole: Path, tmp_path: Path) -> None:
    for number, stop in enumerate([8, 15, None]):
        before = {"resume": str(tmp_path / str(number - 1))} if number else {}
        run_here(spec_of(tokens, tmp_path / str(number), stop_after=stop, **before))
    assert len(trace_of(tmp_path / "1")) == 15
    assert_same_run(trace_of(tmp_path / "2"), trace_of(whole), within=1e-5)


def test_a_half_written_checkpoint_is_not_used(tokens: Place, whole: Path, tmp_path: Path) -> None:
    spec = spec_of(tokens, tmp_path)
    with pytest.raises(Stopped):
        run_here(spec, stop_at=17)
    newest = tmp_path / "checkpoints" / "step-00000014"
    (newest / "position.json").unlink()
    (newest / "objective.safetensors").write_bytes(b"half")
    run_here(spec)
    assert_same_run(trace_of(tmp_path), trace_of(whole), within=1e-5)


def test_only_the_newest_checkpoints_are_kept(tokens: Place, tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        run_here(spec_of(tokens, tmp_path), stop_at=29)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["step-00000021", "step-00000028"]
    position = json.loads((tmp_path / "checkpoints" / names[-1] / "position.json").read_text())
    assert position["step"] == 28 and position["threads"] == 1 and position["epoch"] == 1


QUIET = {"name": "tiny", "dropout": 0.0}


@pytest.mark.parametrize("objective", ["mlm", "retromae"])
def test_micro_batches_change_nothing(tokens: Place, tmp_path: Path, objective: str) -> None:
    for name, micro_batch in (("whole", None), ("micro", 5)):  # 16 rows: 5 + 5 + 5 + 1
        train = {"steps": 10, "micro_batch": micro_batch}
        run_here(spec_of(tokens, tmp_path / name, objective={"name": objective}, backbone=QUIET, train=train))
    assert_same_run(trace_of(tmp_path / "micro"), trace_of(tmp_path / "whole"), within=1e-4)


def test_cached_gradients_change_nothing(tokens: Place, corpus: Place, tmp_path: Path) -> None:
    """Rows that meet in the loss are cut with the gradient cache."""
    for name, micro_batch in (("whole", None), ("micro", 5)):
        changes = {"kind": "finetune", "objective": {"name": "contrastive"}, "corpus": str(corpus), "per_query": 1}
        # At 1e-3 the loss is at 0.01 after seven steps, and the steps before it enlarge a rounding a hundredfold.
        train = {"steps": 10, "micro_batch": micro_batch, "learning_rate": 3e-4}
        run_here(spec_of(tokens, tmp_path / name, backbone=QUIET, train=train, **changes))
    assert_same_run(trace_of(tmp_path / "micro"), trace_of(tmp_path / "whole"), within=1e-4)


@pytest.mark.parametrize("kind", ["pretrain", "finetune"])
def test_two_workers_are_one_worker(tokens: Place, corpus: Place, tmp_path: Path, kind: str) -> None:
    changes = {"kind": kind, "backbone": QUIET, "train": {"batch_size": 15, "learning_rate": 3e-4}}  # 8 + 7 rows
    if kind == "finetune":
        changes |= {"objective": {"name": "contrastive"}, "corpus": str(corpus), "per_query": 1}
        changes["train"]["steps"] = 10
    else:
        changes |= {"objective": {"name": "retromae"}}
    run_here(spec_of(tokens, tmp_path / "one", **changes))
    assert run_workers(spec_of(tokens, tmp_path / "two", **changes), 2, tmp_path) == [0, 0]
    assert_same_run(trace_of(tmp_path / "two"), trace_of(tmp_path / "one"), within=1e-4)


def test_log_interval_and_checkpoints_change_nothing(tokens: Place, whole: Path, tmp_path: Path) -> None:
    run_here(spec_of(tokens, tmp_path, train={"log_every": 4, "checkpoint_every": 100}))
    assert_same_run(trace_of(tmp_path), trace_of(whole), within=1e-5)


def test_reports_cover_every_step(tokens: Place, whole: Path, tmp_path: Path) -> None:
    reports = []
    setup = setup_of(spec_of(tokens, tmp_path, train={"log_every": 12}))
    run_training(setup, Place(str(tmp_path)), local_reader, lambda done, values: reports.append((done, values)))
    assert [done for done, _ in reports] == [1, 12, 24, 30] and not reports[0][1]
    losses = [row["loss"] for row in trace_of(whole)]
    for (_, values), part in zip(reports[1:], (losses[:12], losses[12:24], losses[24:]), strict=True):
        assert values["train/loss"] == pytest.approx(np.mean(part), rel=1e-4)
        assert values["train/mlm"] == pytest.approx(values["train/loss"])


def test_slow_steps_tell_how_far_they_are_and_change_no_value(
    tokens: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = {0.0: [], 1e9: []}
    for every, told in reports.items():
        monkeypatch.setattr(training_run, "TELLS_EVERY_S", every)
        setup = setup_of(spec_of(tokens, tmp_path / str(every), train={"log_every": 12}))
        out = Place(str(tmp_path / str(every)))
        run_training(setup, out, local_reader, lambda done, values, told=told: told.append((done, values)))
    assert [done for done, _ in reports[0.0]] == list(range(1, 31))
    assert [done for done, _ in reports[1e9]] == [1, 12, 24, 30]
    losses = [[(done, values["train/loss"]) for done, values in told if values] for told in reports.values()]
    assert losses[0] == losses[1]


def test_a_loss_that_is_not_finite_stops_the_run(tokens: Place, tmp_path: Path) -> None:
    run_here(spec_of(tokens, tmp_path / "good", stop_after=10))
    spoil(tmp_path / "good" / "checkpoint")
    spec = spec_of(tokens, tmp_path / "out", resume=str(tmp_path / "good"), train={"log_every": 5})
    with pytest.raises(NonFiniteLoss) as error:
        run_here(spec)
    message = str(error.value)
    assert message.startswith("step 10: loss")
    assert f"last good checkpoint: {tmp_path}/good/checkpoint" in message
    assert message.count(" d") == 16, "every example of the batch is named"
    assert not (tmp_path / "out" / "checkpoints").exists(), "spoiled weights were saved"


def test_a_checkpoint_of_another_run_is_refused(tokens: Place, tmp_path: Path) -> None:
    run_here(spec_of(tokens, tmp_path / "one", stop_after=5))
    with pytest.raises(UserError, match="belongs to another run"):
        run_here(spec_of(tokens, tmp_path / "two", resume=str(tmp_path / "one"), train={"seed": 1}))


def test_another_thread_count_is_warned_of(tokens: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run_here(spec_of(tokens, tmp_path / "one", stop_after=5))
    run_here(spec_of(tokens, tmp_path / "two", resume=str(tmp_path / "one"), stop_after=6, train={"threads": 2}))
    assert "made with 1 threads, this run has 2" in caplog.text
