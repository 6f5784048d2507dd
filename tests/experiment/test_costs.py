"""What an evaluation cost, against the records that its steps have left, and the labels of representations."""

import json
import shutil
from pathlib import Path

import pytest

from midmask.artifact import Place
from midmask.encoders.representation import Representation
from midmask.experiment.costs import costs_of
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.steps import LOCAL
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from tests.support.benchmark.tiny import short, write_collection


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A recipe of two stages with mined negatives, run from texts to measures; its plan, evaluation and store."""
    folder = tmp_path_factory.mktemp("costs")
    recipe = PROTOCOLS["ance"]().on(RECIPES["retromae"](), "demo")
    recipe = short(recipe, write_collection(folder / "tiny"))
    planned, storage = plan(recipe), Place(str(folder / "store"))
    evaluation = planned.evaluation(recipe.evaluation)
    Runner(storage, LOCAL, Silent()).run(evaluation)
    return planned, evaluation, storage


def records(storage: Place, step: str) -> list[dict]:
    return [json.loads(path.read_text())["result"] for path in sorted(Path(storage.uri, step).glob("*/record.json"))]


def test_costs_are_the_sums_of_what_the_steps_recorded(done):
    _, evaluation, storage = done
    costs = costs_of(evaluation, storage)
    pretrained, stages = records(storage, "pretrain"), records(storage, "finetune")
    assert len(pretrained) == 1 and len(stages) == 2
    assert costs.train_seconds == pytest.approx(sum(one["seconds"] for one in (*pretrained, *stages)))
    assert (costs.pretrain_tokens, costs.finetune_tokens) == (
        pretrained[0]["tokens"],
        sum(one["tokens"] for one in stages),
    )
    everything = [found for name in Path(storage.uri).iterdir() for found in records(storage, name.name)]
    assert all(one["seconds"] >= 0 for one in everything), "every step says how long it took"
    assert costs.cpu_hours == pytest.approx(
        sum(one["seconds"] * one.get("threads", 1) * one.get("workers", 1) for one in everything) / 3600
    )
    assert costs.gpu_hours == 0
    assert "cost/bytes_per_passage" in costs.metrics() and costs.metrics()["cost/cpu_hours"] == costs.cpu_hours


def test_bytes_and_latency_are_those_of_the_evaluated_encoder_alone(done):
    """The store holds two encodings: the first stage's, for mining, and the last one's."""
    planned, evaluation, storage = done
    costs = costs_of(evaluation, storage)
    own = json.loads((Path(evaluation.inputs["ranked"].place(storage).uri) / "record.json").read_text())["result"]
    assert costs.search_ms_per_query == pytest.approx(1000 * own["query_seconds"] / 12)
    vectors = evaluation.inputs["ranked"].inputs["passages"].place(storage) / "dense"
    assert costs.bytes_per_passage == pytest.approx(vectors.size() / 48, abs=0.01)
    bm25 = planned.bm25_evaluation(evaluation.config)
    Runner(storage, LOCAL, Silent()).run(bm25)
    alone = costs_of(bm25, storage)
    assert (alone.train_seconds, alone.pretrain_tokens, alone.bytes_per_passage) == (0, 0, None)
    assert "cost/bytes_per_passage" not in alone.metrics()


@pytest.fixture
def changing(done, tmp_path):
    """The evaluation, and a copy of its store that a test may change."""
    _, evaluation, storage = done
    return evaluation, Place(shutil.copytree(storage.uri, tmp_path / "store").as_posix())


def test_work_on_gpus_is_counted_in_gpus(changing):
    """The records rewritten as two workers on GPUs would have left them."""
    evaluation, storage = changing
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
    [
        (Representation(), "dense"),
        (Representation(dense=None, lexical="splade", passage_terms=256), "splade:256"),
        (Representation(dense=None, lexical="logits", passage_terms=768), "OT:768"),
        (Representation(width=384, lexical="logits", passage_terms=384), "384+384"),
        (Representation(lexical="logits", passage_terms=384), "dense+384"),
    ],
)
def test_labels_are_those_of_the_papers_tables(representation, label):
    assert representation.label == label
