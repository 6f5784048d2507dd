"""The graph of what is left: nothing twice, too early or for nothing; how long it will take; and a limit of time."""

import random
import time
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.artifact import Place
from midmask.corpora import CorpusConfig
from midmask.experiment.eta import StepTimes
from midmask.experiment.graph import Graph
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.step import Step
from midmask.experiment.steps import LOCAL, PretrainConfig
from midmask.identity import override
from midmask.recipes import RECIPES
from midmask.training.table import read_table
from tests.support.benchmark.tiny import write_collection

SIZE = 9


@st.composite
def drawn(draw) -> list[Step]:
    """Steps of which each may read any that came before it."""
    steps: list[Step] = []
    for number in range(SIZE):
        sources = draw(st.lists(st.integers(0, number - 1), unique=True, max_size=3)) if number else []
        inputs = {f"input{source}": steps[source] for source in sources}
        steps.append(Step("prepare", CorpusConfig(), inputs, content={"number": number}))
    return steps


def behind(step: Step) -> set[str]:
    return {one.fingerprint for one in step.upstream()}


@settings(max_examples=60)
@given(
    steps=drawn(), finished=st.sets(st.integers(0, SIZE - 1)), side_by_side=st.integers(1, 3), seed=st.integers(0, 99)
)
def test_every_step_that_is_needed_runs_once_and_after_its_inputs(steps, finished, side_by_side, seed):
    """Ended in any order. A finished step's inputs are not needed, as `Runner` has it."""
    done = {steps[number].fingerprint for number in finished}
    targets = steps[-3:]
    needed: set[str] = set()

    def need(step: Step) -> None:
        if step.fingerprint not in done:
            needed.add(step.fingerprint)
            for source in step.inputs.values():
                need(source)

    for target in targets:
        need(target)
    graph = Graph.of(targets, lambda step: step.fingerprint in done, lambda step: 1.0)
    assert set(graph.left) == needed
    order, running, there = random.Random(seed), [], set(done)
    started: list[str] = []
    while graph.left:
        for step in graph.ready()[: side_by_side - len(running)]:
            assert all(source.fingerprint in there for source in step.inputs.values())
            graph.start(step)
            started.append(step.fingerprint)
            running.append(step)
        step = running.pop(order.randrange(len(running)))
        there.add(step.fingerprint)
        graph.end(step)
    assert sorted(started) == sorted(needed)


@settings(max_examples=40)
@given(steps=drawn(), number=st.integers(0, SIZE - 1))
def test_a_failure_takes_along_what_needs_it_and_nothing_else(steps, number):
    graph = Graph.of(steps, lambda step: False, lambda step: 1.0)
    lost = graph.fail(steps[number])
    assert {step.fingerprint for step in lost} == {
        step.fingerprint for step in steps if steps[number].fingerprint in behind(step)
    }
    while ready := graph.ready():
        graph.start(ready[0])
        graph.end(ready[0])
    assert not graph.left


def test_what_most_depends_on_starts_first():
    """Of two steps that can start, the one with the longer chain behind it."""
    cost = {0: 1.0, 1: 1.0, 2: 9.0, 3: 2.0}
    first, other = (Step("prepare", CorpusConfig(), content={"number": number}) for number in (0, 1))
    long = Step("prepare", CorpusConfig(), {"a": first}, content={"number": 2})
    short = Step("prepare", CorpusConfig(), {"a": other}, content={"number": 3})
    for targets in ([long, short], [short, long]):
        graph = Graph.of(targets, lambda step: False, lambda step: cost[step.content["number"]])
        assert graph.ready() == [first, other]
        assert graph.weight[first.fingerprint] == 10.0


def pretraining(objective: str, steps: int) -> Step:
    recipe = RECIPES[objective]()
    train = recipe.pretrain.model_copy(update={"steps": steps})
    return Step("pretrain", PretrainConfig(backbone=recipe.backbone, objective=recipe.objective, train=train))


def test_the_rest_is_told_from_what_was_measured_of_its_kind():
    pace = StepTimes()
    assert pace.of(pretraining("mlm", 100)) is None
    pace.add(pretraining("mlm", 100), 10.0)
    pace.add(pretraining("mlm", 300), 50.0)
    assert pace.of(pretraining("mlm", 200)) == pytest.approx(200 * 60 / 400)
    assert pace.of(pretraining("retromae", 200)) == pytest.approx(30), "the nearest that is known"
    pace.add(pretraining("retromae", 100), 40.0)
    assert pace.of(pretraining("retromae", 200)) == pytest.approx(80)
    assert pace.of(pretraining("mlm", 200)) == pytest.approx(30), "and it is not disturbed by another method"


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
