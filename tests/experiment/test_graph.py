"""A graph of steps: what is left, how long it will take, when its time is up; and what finished steps have cost."""

import json
import random
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.core.config import override
from midmask.corpora.config import CorpusConfig
from midmask.encoders.representation import Representation
from midmask.experiment.costs import costs_of
from midmask.experiment.events import Begun, Failed, Logged, StepEvent
from midmask.experiment.graph import Graph, Step
from midmask.experiment.kinds import LOCAL
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from midmask.store.place import Place
from midmask.store.tables import read_table
from tests.support.benchmark.tiny import short, write_collection

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
    assert set(graph.unfinished) == needed
    order, running, there = random.Random(seed), [], set(done)
    started: list[str] = []
    while graph.unfinished:
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
    depending = {step.fingerprint for step in steps if steps[number].fingerprint in behind(step)}
    assert {step.fingerprint for step in lost} == depending
    while ready := graph.ready():
        graph.start(ready[0])
        graph.end(ready[0])
    assert not graph.unfinished


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


@pytest.fixture
def step(tmp_path):
    corpus = write_collection(tmp_path / "tiny")
    small = {"corpus.name": corpus, "tokens.vocabulary_size": 300, "pretrain.steps": 40, "pretrain.batch_size": 4}
    return plan(override(RECIPES["mlm"](), {**small, "pretrain.checkpoint_every": 1})).pretrained


class Watch:
    def __init__(self) -> None:
        self.begun: list[str] = []
        self.failed: list[str] = []
        self.at: list[int] = []

    def clock(self) -> float:
        """Seconds: 0 up to the first report of a training, 1 from there."""
        return float(bool(self.at))

    def __call__(self, event: StepEvent) -> None:
        match event:
            case Begun(step):
                self.begun.append(step.name)
            case Logged(_, at):
                self.at.append(at)
            case Failed(_, error):
                self.failed.append(str(error))


def test_a_training_stops_when_the_time_is_up_and_goes_on_later(tmp_path, step, monkeypatch):
    store, watch = Place(str(tmp_path / "store")), Watch()
    Runner(store, LOCAL, watch).compute(step.inputs["tokens"])
    watch.begun.clear()
    clock = SimpleNamespace(monotonic=watch.clock, perf_counter=time.perf_counter)
    with monkeypatch.context() as patch:
        patch.setattr("midmask.experiment.run.time", clock)
        patch.setattr("midmask.experiment.events.time", clock)
        Runner(store, LOCAL, watch).compute_until(Graph.left_in(store, [step]), until=1.0)
    assert watch.begun == ["pretrain"]
    Runner(store, LOCAL, watch).compute_until(Graph.left_in(store, [step]), until=time.monotonic() - 1)
    assert watch.begun == ["pretrain"], "nothing begins after the time"
    assert len(watch.failed) == 1 and "the time was up after step" in watch.failed[0]
    assert not step.is_finished(store)
    stopped = max(watch.at)
    assert stopped < 40
    watch.at.clear()
    artifact = Runner(store, LOCAL, watch).compute(step)
    assert min(watch.at) > 1, "it did not begin anew"
    assert len(read_table(artifact.place / "trace.parquet")) == 40


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A recipe of two stages with mined negatives, run from texts to measures; its plan, evaluation and store."""
    folder = tmp_path_factory.mktemp("costs")
    recipe = PROTOCOLS["ance"]().on(RECIPES["retromae"](), "demo")
    recipe = short(recipe, write_collection(folder / "tiny"))
    planned, storage = plan(recipe), Place(str(folder / "store"))
    evaluation = planned.evaluation(recipe.evaluation)
    Runner(storage, LOCAL).compute(evaluation)
    return planned, evaluation, storage


def records(storage: Place, step: str) -> list[dict]:
    return [json.loads(path.read_text())["result"] for path in sorted(Path(storage.uri, step).glob("*/record.json"))]


def copied(storage: Place, folder: Path) -> Place:
    """For a test that adds to the store or rewrites it."""
    return Place(shutil.copytree(storage.uri, folder / "store").as_posix())


def test_costs_are_the_sums_of_what_the_steps_recorded(done):
    _, evaluation, storage = done
    costs = costs_of(evaluation, storage)
    pretrained, stages = records(storage, "pretrain"), records(storage, "finetune")
    assert len(pretrained) == 1 and len(stages) == 2
    assert costs.train_seconds == pytest.approx(sum(one["seconds"] for one in (*pretrained, *stages)))
    tokens = (pretrained[0]["tokens"], sum(one["tokens"] for one in stages))
    assert (costs.pretrain_tokens, costs.finetune_tokens) == tokens
    everything = [found for name in Path(storage.uri).iterdir() for found in records(storage, name.name)]
    assert all(one["seconds"] >= 0 for one in everything), "every step says how long it took"
    spent = sum(one["seconds"] * one.get("threads", 1) * one.get("workers", 1) for one in everything)
    assert costs.cpu_hours == pytest.approx(spent / 3600)
    assert costs.gpu_hours == 0
    assert "cost/bytes_per_passage" in costs.metrics() and costs.metrics()["cost/cpu_hours"] == costs.cpu_hours


def test_bytes_and_latency_are_those_of_the_evaluated_encoder_alone(done, tmp_path):
    """The store holds two encodings: the first stage's, for mining, and the last one's."""
    planned, evaluation, storage = done
    costs = costs_of(evaluation, storage)
    own = json.loads((Path(evaluation.inputs["ranked"].place(storage).uri) / "record.json").read_text())["result"]
    assert costs.search_ms_per_query == pytest.approx(1000 * own["query_seconds"] / 12)
    vectors = evaluation.inputs["ranked"].inputs["passages"].place(storage) / "dense"
    assert costs.bytes_per_passage == pytest.approx(vectors.size() / 48, abs=0.01)
    bm25, storage = planned.bm25_evaluation(evaluation.config), copied(storage, tmp_path)
    Runner(storage, LOCAL).compute(bm25)
    alone = costs_of(bm25, storage)
    assert (alone.train_seconds, alone.pretrain_tokens, alone.bytes_per_passage) == (0, 0, None)
    assert "cost/bytes_per_passage" not in alone.metrics()


def test_work_on_gpus_is_counted_in_gpus(done, tmp_path):
    """The records of a copy rewritten as two workers on GPUs would have left them."""
    _, evaluation, storage = done
    storage = copied(storage, tmp_path)
    for name in ("pretrain", "finetune"):
        for path in Path(storage.uri, name).glob("*/record.json"):
            record = json.loads(path.read_text())
            record["result"] |= {"device": "cuda", "workers": 2, "threads": 8, "seconds": 1800.0}
            path.write_text(json.dumps(record))
    costs = costs_of(evaluation, storage)
    assert costs.gpu_hours == pytest.approx(3 * 2 * 0.5, abs=0.01), "two GPUs for three half hours, and some encoding"
    assert costs.train_seconds == 3 * 1800 and costs.cpu_hours < 0.1


@pytest.mark.parametrize(
    "representation, label",
    [(Representation(), "dense"), (Representation(dense=None, lexical="splade", passage_terms=256), "splade:256"),
     (Representation(dense=None, lexical="logits", passage_terms=768), "OT:768"),
     (Representation(width=384, lexical="logits", passage_terms=384), "384+384"),
     (Representation(lexical="logits", passage_terms=384), "dense+384")],
)  # fmt: skip
def test_labels_are_those_of_the_papers_tables(representation, label):
    assert representation.label == label
