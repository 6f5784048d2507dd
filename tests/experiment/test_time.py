"""A graph with a time limit: what runs stops at its next report, nothing new begins, and started again it goes on."""

import time
from types import SimpleNamespace

import pytest

from midmask.artifact import Place
from midmask.experiment.graph import Graph
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.steps import LOCAL
from midmask.identity import override
from midmask.recipes import RECIPES
from midmask.training.table import read_table
from tests.support.benchmark.tiny import write_collection


@pytest.fixture
def step(tmp_path):
    corpus = write_collection(tmp_path / "tiny")
    small = {"corpus.name": corpus, "tokens.vocabulary_size": 300, "pretrain.steps": 40, "pretrain.batch_size": 4}
    pretrained = plan(override(RECIPES["mlm"](), {**small, "pretrain.checkpoint_every": 1})).pretrained
    assert pretrained is not None
    return pretrained


class Watch(Silent):
    def __init__(self) -> None:
        self.begun: list[str] = []
        self.failed: list[str] = []
        self.at: list[int] = []

    def clock(self) -> float:
        """Seconds: 0 up to the first report of a training, 1 from there."""
        return float(bool(self.at))

    def begin(self, step) -> None:
        self.begun.append(step.name)

    def log(self, step, at, values) -> None:
        self.at.append(at)

    def fail(self, step, error, lost) -> None:
        self.failed.append(str(error))


def test_a_training_stops_when_the_time_is_up_and_goes_on_later(tmp_path, step, monkeypatch):
    store, watch = Place(str(tmp_path / "store")), Watch()
    Runner(store, LOCAL, watch).run(step.inputs["tokens"])
    watch.begun.clear()
    with monkeypatch.context() as patch:
        patch.setattr(
            "midmask.experiment.run.time", SimpleNamespace(monotonic=watch.clock, perf_counter=time.perf_counter)
        )
        Runner(store, LOCAL, watch).run_until(Graph.left_in(store, [step]), until=1.0)
    assert watch.begun == ["pretrain"]
    assert len(watch.failed) == 1 and "the time was up after step" in watch.failed[0]
    assert not step.is_finished(store)
    stopped = max(watch.at)
    assert stopped < 40
    watch.at.clear()
    artifact = Runner(store, LOCAL, watch).run(step)
    assert min(watch.at) > 1, "it did not begin anew"
    assert len(read_table(artifact.place / "trace.parquet")) == 40


def test_nothing_begins_after_the_time(tmp_path, step):
    store, watch = Place(str(tmp_path / "store")), Watch()
    Runner(store, LOCAL, watch).run_until(Graph.left_in(store, [step]), until=time.monotonic() - 1)
    assert watch.begun == []
