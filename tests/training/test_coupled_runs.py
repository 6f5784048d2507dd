"""Whole runs of objectives whose rows meet: with the gradient cache, killed, or on two workers they are the same."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from midmask.artifact import Artifact, Place
from midmask.derived.span_documents import SpansConfig
from midmask.derived.spans import SPANS
from tests.support.training.runs import Stopped, assert_same_run, run_here, run_workers, spec_of, trace_of

QUIET = {"name": "tiny", "dropout": 0.0}
LOUD = {"name": "tiny", "dropout": 0.1}


@pytest.fixture(scope="module")
def spans(corpus: Place, tokens: Place, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Documents of the small corpus, cut into spans of at most 16 tokens."""
    place = Place(str(tmp_path_factory.mktemp("spans")))
    inputs = {"corpus": Artifact(corpus, {"fingerprint": "c"}), "tokens": Artifact(tokens, {"fingerprint": "t"})}
    SPANS(SpansConfig(span_length=16, short_share=0.0), inputs, place)
    return place


def cocondenser(tokens: Place, spans: Place, out: Path, **changes: Any) -> dict[str, Any]:
    train = {"steps": 6, "checkpoint_every": 3, "batch_size": 15, "learning_rate": 3e-4, **changes.pop("train", {})}
    objective = {"name": "cocondenser", "temperature": 20.0}
    return spec_of(tokens, out, objective=objective, backbone=QUIET, spans=str(spans), train=train, **changes)


@pytest.fixture(scope="module")
def whole(tokens: Place, spans: Place, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    run_here(cocondenser(tokens, spans, folder))
    return folder


def test_cached_gradients_change_nothing(tokens: Place, spans: Place, whole: Path, tmp_path: Path) -> None:
    run_here(cocondenser(tokens, spans, tmp_path, train={"micro_batch": 4}))
    one, other = trace_of(tmp_path), trace_of(whole)
    assert_same_run(one, other, within=1e-4)
    for left, right in zip(one, other, strict=True):
        for part in ("part/contrastive", "part/head_mlm", "part/late_mlm"):
            assert left[part] == pytest.approx(right[part], rel=1e-4)


def test_two_workers_with_one_and_two_micro_batches_are_one_worker(
    tokens: Place, spans: Place, whole: Path, tmp_path: Path
) -> None:
    """15 rows are 8 and 7: with micro-batches of 7, worker 0 has two and worker 1 has one."""
    spec = cocondenser(tokens, spans, tmp_path / "two", train={"micro_batch": 7})
    assert run_workers(spec, 2, tmp_path) == [0, 0]
    assert_same_run(trace_of(tmp_path / "two"), trace_of(whole), within=1e-4)


def test_a_killed_run_goes_on_with_the_same_dropout(tokens: Place, tmp_path: Path) -> None:
    """SimCSE lives on dropout; its masks are a function of the step, in both passes of the cache."""
    train = {"steps": 8, "checkpoint_every": 3, "micro_batch": 5}
    spec = {"objective": {"name": "simcse"}, "backbone": LOUD, "train": train}
    run_here(spec_of(tokens, tmp_path / "whole", **spec))
    with pytest.raises(Stopped):
        run_here(spec_of(tokens, tmp_path / "killed", **spec), stop_at=5)
    run_here(spec_of(tokens, tmp_path / "killed", **spec))
    assert_same_run(trace_of(tmp_path / "killed"), trace_of(tmp_path / "whole"), within=1e-6)


@pytest.mark.parametrize(
    ("objective", "parts"),
    [
        ({"name": "condenser"}, ["head_mlm", "late_mlm"]),
        ({"name": "cocondenser", "temperature": 20.0}, ["head_mlm", "late_mlm"]),
        ({"name": "simcse"}, ["contrastive"]),
        ({"name": "ict", "remove": 0.0}, ["contrastive"]),
    ],
    ids=lambda value: value["name"] if isinstance(value, dict) else "",
)
def test_every_part_of_the_loss_falls(
    tokens: Place, spans: Place, tmp_path: Path, objective: dict[str, Any], parts: list[str]
) -> None:
    """Means of the first and the last five of 30 steps, in two micro-batches each, with dropout as in the recipes.

    Words of this corpus stand where chance put them: nothing tells that two spans belong to one document, so that part
    cannot fall, and ICT's runs stay in their passages.
    """
    backbone = LOUD if objective["name"] == "simcse" else QUIET
    train = {"steps": 30, "micro_batch": 8, "checkpoint_every": 100, "learning_rate": 1e-3}
    run_here(spec_of(tokens, tmp_path, objective=objective, backbone=backbone, spans=str(spans), train=train))
    trace = trace_of(tmp_path)
    for part in parts:
        values = [row[f"part/{part}"] for row in trace]
        assert np.mean(values[-5:]) < np.mean(values[:5]) - 0.02, (part, values)


def test_a_part_without_a_target_is_not_reported(tokens: Place, tmp_path: Path) -> None:
    """SimCSE without its MLM term: a loss of 0 would look as if it were solved."""
    spec = spec_of(tokens, tmp_path, objective={"name": "simcse"}, backbone=LOUD, train={"steps": 2})
    assert set(run_here(spec)["parts"]) == {"contrastive"}
    assert [row["part/mlm"] for row in trace_of(tmp_path)] == [None, None]
