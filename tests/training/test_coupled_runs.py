"""Whole runs of objectives whose rows meet: with the gradient cache or killed they are the same."""

import pytest

from tests.support.training.runs import Stopped, assert_same_run, run_here, spec_of, trace_of

LOUD = {"name": "tiny", "dropout": 0.1}


def test_cached_gradients_change_nothing(tokens, spans, tmp_path):
    traces = []
    for name, micro_batch in (("whole", None), ("micro", 4)):
        train = {"steps": 6, "learning_rate": 3e-4, "micro_batch": micro_batch}
        spec = {"objective": {"name": "cocondenser", "temperature": 20.0}, "spans": str(spans), "train": train}
        run_here(spec_of(tokens, tmp_path / name, backbone={"name": "tiny", "dropout": 0.0}, **spec))
        traces.append(trace_of(tmp_path / name))
    assert_same_run(*traces, within=1e-4)
    for left, right in zip(*traces, strict=True):
        for part in ("part/contrastive", "part/head_mlm", "part/late_mlm"):
            assert left[part] == pytest.approx(right[part], rel=1e-4)


def test_a_killed_run_goes_on_with_the_same_dropout(tokens, tmp_path):
    """SimCSE lives on dropout; its masks are a function of the step, in both passes of the cache."""
    train = {"steps": 8, "checkpoint_every": 3, "micro_batch": 5}
    spec = {"objective": {"name": "simcse"}, "backbone": LOUD, "train": train}
    run_here(spec_of(tokens, tmp_path / "whole", **spec))
    with pytest.raises(Stopped):
        run_here(spec_of(tokens, tmp_path / "killed", **spec), stop_at=5)
    run_here(spec_of(tokens, tmp_path / "killed", **spec))
    assert_same_run(trace_of(tmp_path / "killed"), trace_of(tmp_path / "whole"), within=1e-6)


def test_a_part_without_a_target_is_not_reported(tokens, tmp_path):
    """SimCSE without its MLM term: a loss of 0 would look as if it were solved."""
    spec = spec_of(tokens, tmp_path, objective={"name": "simcse"}, backbone=LOUD, train={"steps": 2})
    assert set(run_here(spec)["parts"]) == {"contrastive"}
    assert [row["part/mlm"] for row in trace_of(tmp_path)] == [None, None]
