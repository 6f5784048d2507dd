"""Whole training runs: cut in any way, killed anywhere, they are the same run; a damaged checkpoint is refused."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from midmask.errors import UserError
from midmask.store.place import Place
from midmask.training import checkpoint
from midmask.training.examples import local_reader
from midmask.training.run import NonFiniteLoss, run_training
from tests.support.training.runs import Stopped, assert_same_run, run_here, setup_of, spec_of, spoil, trace_of


@pytest.fixture(scope="module")
def whole(tokens, tmp_path_factory) -> Path:
    """An uninterrupted run."""
    out = tmp_path_factory.mktemp("whole")
    run_here(spec_of(tokens, out))
    return out


def test_training_learns_and_leaves_a_clean_artifact(whole):
    trace = trace_of(whole)
    assert np.mean([row["loss"] for row in trace[-5:]]) < trace[0]["loss"] - 0.3
    epochs = [[row["rows"] for row in trace if row["epoch"] == epoch] for epoch in (0, 1)]
    assert len(epochs[0]) == 300 // 16 and epochs[0][:5] != epochs[1][:5]
    assert sorted(path.name for path in whole.iterdir()) == ["checkpoint", "model", "trace.parquet"]


def test_a_job_stopped_again_and_again_is_the_same_run(tokens, whole, tmp_path):
    for stop_at in (5, 7, 15, 16):  # before the first checkpoint, just before it is written, and after two of them
        with pytest.raises(Stopped):
            run_here(spec_of(tokens, tmp_path), stop_at=stop_at)
    result = run_here(spec_of(tokens, tmp_path))
    assert_same_run(trace_of(tmp_path), trace_of(whole), within=1e-5)
    assert [row["step"] for row in trace_of(tmp_path) if row["first_after_start"]] == [0, 7, 14]
    for name in ("model/model.safetensors", "checkpoint/optimiser.safetensors"):
        ours, theirs = (safetensors.torch.load_file(folder / name) for folder in (tmp_path, whole))
        for key, tensor in theirs.items():
            assert torch.equal(ours[key], tensor), key
    assert run_here(spec_of(tokens, tmp_path)) == result, "a finished run, called again"


def test_prefixes_one_after_the_other_are_the_whole_run(tokens, whole, tmp_path):
    for number, stop in enumerate([8, None]):
        before = {"resume": str(tmp_path / str(number - 1))} if number else {}
        run_here(spec_of(tokens, tmp_path / str(number), stop_after=stop, **before))
    assert len(trace_of(tmp_path / "0")) == 8
    assert_same_run(trace_of(tmp_path / "1"), trace_of(whole), within=1e-5)


def test_the_newest_checkpoints_are_kept_and_a_half_written_one_is_not_used(tokens, whole, tmp_path):
    spec = spec_of(tokens, tmp_path)
    with pytest.raises(Stopped):
        run_here(spec, stop_at=29)
    kept = sorted((tmp_path / "checkpoints").iterdir())
    assert [path.name for path in kept] == ["step-00000021", "step-00000028"]
    newest = kept[-1]
    position = json.loads((newest / "position.json").read_text())
    assert position["step"] == 28 and position["threads"] == 1 and position["epoch"] == 1
    (newest / "position.json").unlink()
    (newest / "objective.safetensors").write_bytes(b"half")
    run_here(spec)
    assert_same_run(trace_of(tmp_path), trace_of(whole), within=1e-5)


@pytest.mark.parametrize("every", [0.0, 1e9])
def test_reports_cover_every_step_and_change_no_value(tokens, whole, tmp_path, monkeypatch, every):
    """Slow steps tell how far they are; that, the interval and checkpoints change nothing."""
    monkeypatch.setattr("midmask.training.run.TELLS_EVERY_S", every)
    reports = []
    setup = setup_of(spec_of(tokens, tmp_path, train={"log_every": 12, "checkpoint_every": 100}))
    run_training(setup, Place(str(tmp_path)), local_reader, lambda done, values: reports.append((done, values)))
    assert [done for done, _ in reports] == ([1, 12, 24, 30] if every else list(range(1, 31)))
    assert_same_run(trace_of(tmp_path), trace_of(whole), within=0.0)
    losses = [row["loss"] for row in trace_of(whole)]
    told = {done: values for done, values in reports if values}
    assert list(told) == [12, 24, 30]
    for values, part in zip(told.values(), (losses[:12], losses[12:24], losses[24:]), strict=True):
        assert values["train/loss"] == pytest.approx(np.mean(part), rel=1e-4)
        assert values["train/mlm"] == pytest.approx(values["train/loss"])


def test_a_loss_that_is_not_finite_stops_the_run(tokens, tmp_path):
    run_here(spec_of(tokens, tmp_path / "good", stop_after=10))
    spoil(tmp_path / "good" / "checkpoint")
    spec = spec_of(tokens, tmp_path / "out", resume=str(tmp_path / "good"), train={"log_every": 5})
    with pytest.raises(NonFiniteLoss) as error:
        run_here(spec)
    assert str(error.value).startswith("step 10: loss") and f"{tmp_path}/good/checkpoint" in str(error.value)
    assert str(error.value).count(" d") == 16, "every example of the batch is named"
    assert not (tmp_path / "out" / "checkpoints").exists(), "spoiled weights were saved"


def test_a_checkpoint_of_another_run_is_refused_and_of_other_threads_warned_of(tokens, tmp_path, caplog):
    run_here(spec_of(tokens, tmp_path / "one", stop_after=5))
    resume = {"resume": str(tmp_path / "one"), "stop_after": 6}
    with pytest.raises(UserError, match="belongs to another run"):
        run_here(spec_of(tokens, tmp_path / "two", **resume, train={"seed": 1}))
    run_here(spec_of(tokens, tmp_path / "three", **resume, train={"threads": 2}))
    assert "made with 1 threads, this run has 2" in caplog.text


def test_a_killed_run_goes_on_with_the_same_dropout_and_does_not_report_a_part_without_a_target(tokens, tmp_path):
    """SimCSE lives on dropout; its masks are a function of the step, in both passes of the cache. It has no MLM term
    here, and a loss of 0 would look as if it were solved."""
    spec = {"objective": {"name": "simcse"}, "train": {"steps": 8, "checkpoint_every": 3, "micro_batch": 5}}
    result = run_here(spec_of(tokens, tmp_path / "whole", **spec))
    with pytest.raises(Stopped):
        run_here(spec_of(tokens, tmp_path / "killed", **spec), stop_at=5)
    run_here(spec_of(tokens, tmp_path / "killed", **spec))
    assert_same_run(trace_of(tmp_path / "killed"), trace_of(tmp_path / "whole"), within=1e-6)
    assert set(result["parts"]) == {"contrastive"}
    assert {row["part/mlm"] for row in trace_of(tmp_path / "whole")} == {None}


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(bytes(data))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def parts() -> tuple[torch.nn.Linear, torch.optim.AdamW]:
    module = torch.nn.Linear(3, 2)
    return module, torch.optim.AdamW(module.parameters())


@pytest.fixture
def saved(tmp_path) -> Path:
    module, optimiser = parts()
    module(torch.ones(1, 3)).sum().backward()
    optimiser.step()
    for step in (5, 10):
        checkpoint.save(Place(str(tmp_path / checkpoint.step_name(step))), module, optimiser, {"step": step})
    return tmp_path


DAMAGE = [(checkpoint.OBJECTIVE, flip), (checkpoint.OPTIMISER, cut), (checkpoint.OBJECTIVE, os.unlink)]


@pytest.mark.parametrize(("name", "harm"), [*DAMAGE, (checkpoint.POSITION, cut)])
def test_damage_is_one_line(saved, name, harm):
    newest = checkpoint.newest(Place(str(saved)))
    assert checkpoint.load(newest, *parts())["step"] == 10
    harm(Path(newest.uri) / name)
    with pytest.raises(UserError, match=f"{name} is damaged.*Delete {newest} and run the same command again"):
        checkpoint.load(newest, *parts())
    newest.delete()
    assert checkpoint.load(checkpoint.newest(Place(str(saved))), *parts())["step"] == 5
