"""A chained pipeline through the jobs, for real on one local Ray, on 48 passages; the tests hold in any order.

What they print and register is held against the files that they leave: counts, means, and measures computed again.
"""

import gzip
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from mlflow import MlflowClient
from transformers import AutoModel

from midmask.app.run_contents import MODEL_PARAM
from midmask.leaderboard.rows import rows
from midmask.tracking.reading import read_runs
from tests.support.benchmark.tiny import ONE_STAGE, reciprocal_ranks, relevant, write_collection
from tests.support.jobs.running import Done, run_job

PROTOCOL = ["--recipe", "retromae", "--protocol", "sigir23_1neg_distil"]
TEACHER = {"steps": 2, "batch_size": 4, "threads": 1}
SHORT = {
    **ONE_STAGE,
    "pretrain.steps": 3,
    **{f"stages.0.teacher.train.{name}": value for name, value in TEACHER.items()},
}


class Pipeline:
    """Jobs on one collection and one store."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.corpus = write_collection(home / "tiny")
        self.elsewhere = write_collection(home / "elsewhere")

    def run(self, job: str, *arguments: str, recipe: bool = True) -> Done:
        sets = [word for path, value in SHORT.items() for word in ("--set", f"{path}={value}")]
        asked = [*PROTOCOL, *sets] if recipe else []
        done = run_job(job, "--corpus", self.corpus, *asked, *arguments, home=self.home)
        assert done.code == 0, done.err[-2000:]
        return done

    def records(self, step: str) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted((self.home / "store" / step).glob("*/record.json"))]

    def artifact(self, step: str, found: str) -> Path:
        """The folder of a step's artifact that a job has named in its output."""
        (path,) = set(re.findall(rf"{self.home}/store/{step}/\w+", found))
        return Path(path)


@pytest.fixture(scope="module")
def pipeline(ray_local: None, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    return Pipeline(tmp_path_factory.mktemp("pipeline"))


def result_of(artifact: Path) -> dict[str, Any]:
    return json.loads((artifact / "record.json").read_text())["result"]


def input_of(artifact: Path, name: str) -> Path:
    """The folder of what an artifact was made from."""
    return Path(json.loads((artifact / "record.json").read_text())["inputs"][name])


def test_1_a_prepared_corpus_is_exported_as_it_was_given(pipeline: Pipeline) -> None:
    done = pipeline.run("prepare_corpus", "--export", str(pipeline.home / "out"), recipe=False)
    assert result_of(pipeline.artifact("prepare", done.out))["passages"] == 48
    for name in ("corpus", "queries"):
        texts = [
            {row["_id"]: row["text"] for row in map(json.loads, read_lines(folder / f"{name}.jsonl"))}
            for folder in (pipeline.home / "tiny", pipeline.home / "out")
        ]
        assert texts[0] == texts[1] and len(texts[1]) == 48


def run_of(evaluation: Path) -> Path:
    """The TREC run file of an evaluation."""
    (found,) = (evaluation / "runs").iterdir()
    return found


def read_lines(path: Path) -> list[str]:
    """Of a file, or of the packed one in its place."""
    packed = path.with_name(f"{path.name}.gz")
    return (gzip.decompress(packed.read_bytes()).decode() if packed.exists() else path.read_text()).splitlines()


def test_2_a_middle_training_leaves_a_model_and_says_its_loss(pipeline: Pipeline) -> None:
    done = pipeline.run("pretrain")
    artifact = pipeline.artifact("pretrain", done.out)
    result, trace = result_of(artifact), pq.read_table(artifact / "trace.parquet").to_pylist()
    assert [row["step"] for row in trace] == [0, 1, 2] and result["steps"] == 3
    assert done.table()["loss"] == [f"{result['loss']:.4f}"]
    assert min(row["loss"] for row in trace) <= result["loss"] <= max(row["loss"] for row in trace)
    assert sum(weight.numel() for weight in AutoModel.from_pretrained(artifact / "model").parameters()) > 100_000


def test_3_a_teacher_scores_every_candidate_of_every_train_query(pipeline: Pipeline) -> None:
    done = pipeline.run("train_teacher")
    scored = pipeline.artifact("score", done.out)
    rows = pq.read_table(scored / "scores.parquet").to_pylist()
    scores = {(row["query_id"], row["doc_id"]): row["score"] for row in rows}
    assert len(scores) == len(rows) and np.isfinite(list(scores.values())).all()
    listed = {row["query_id"] for row in rows}
    assert listed == relevant("train").keys() and relevant("train").items() <= scores.keys()
    assert len(rows) == len(listed) + result_of(input_of(scored, "negatives"))["negatives"]


def test_4_a_fine_tuned_model_is_registered_with_its_bytes_and_its_lineage(pipeline: Pipeline) -> None:
    done = pipeline.run("finetune", "--register", "trial", "--keep-stages", str(pipeline.home / "stages"))
    artifact = pipeline.artifact("finetune", done.out)
    client = MlflowClient(f"sqlite:///{pipeline.home}/mlflow.db")
    ((name, number),) = re.findall(r"registered: models:/([\w.-]+)/(\d+)@trial", done.out)
    version = client.get_model_version_by_alias(name, "trial")
    assert str(version.version) == number
    steps = {input_of(artifact, "start").name, input_of(input_of(artifact, "scores"), "teacher").name}
    assert steps <= set(version.tags.values()) | set(map(str, version.params or {}))
    stored = [path for path in pipeline.home.rglob("model.safetensors") if "store" not in path.parts]
    wanted = hashlib.sha256((artifact / "model" / "model.safetensors").read_bytes()).hexdigest()
    assert wanted in {hashlib.sha256(path.read_bytes()).hexdigest() for path in stored}
    kept = {path.parent.name for path in (pipeline.home / "stages").glob("*/heads.safetensors")}
    assert {"pretrain"} <= kept, "the decoder's weights lie beside the middle training's"


def test_5_mined_negatives_are_ranked_passages_that_are_not_relevant(pipeline: Pipeline) -> None:
    done = pipeline.run("mine_negatives")
    folder = pipeline.artifact("mine", done.out)
    rows = pq.read_table(folder / "negatives.parquet").to_pylist()
    assert len(rows) == result_of(folder)["negatives"] == int(done.table()["negatives"][0]) > 24
    assert {row["query_id"] for row in rows} == relevant("train").keys()
    assert not {(row["query_id"], row["doc_id"]) for row in rows} & set(relevant("train").items())
    assert len({(row["query_id"], row["doc_id"]) for row in rows}) == len(rows)
    out = ["--out", str(pipeline.home / "tuples.jsonl"), "--set", "stages.*.mine.per_query=2"]
    done = pipeline.run("mine_negatives", "--model", "bm25", *out, recipe=False)
    lines = [json.loads(line) for line in read_lines(pipeline.home / "tuples.jsonl")]
    assert {tuple(line) for line in lines} == {("anchor", "positive", "negative_1", "negative_2")}
    assert f"training data: {out[1]}, {len(lines)} lines" in done.out


def test_6_a_model_folder_is_evaluated_on_a_split_and_elsewhere(pipeline: Pipeline) -> None:
    model = pipeline.artifact("finetune", pipeline.run("finetune").out) / "model"
    asked = ["--split", "test", "--zero-shot", pipeline.elsewhere]
    done = pipeline.run("evaluate_retriever", "--model", str(model), *asked)
    evaluation = pipeline.artifact("evaluate", done.out)
    assert json.loads((evaluation / "record.json").read_text())["config"]["split"] == "test"
    run = run_of(evaluation)
    table = done.table()
    column = table[next(iter(table))].index("RR@10")
    assert float(table[str(model)][column]) == pytest.approx(np.mean(reciprocal_ranks(run, "test")), abs=5e-5)
    for artifact in (pipeline.home / "store" / "evaluate").iterdir():
        ranks = reciprocal_ranks(run_of(artifact), result_of(artifact)["split"])
        assert len(ranks) == 12
        assert result_of(artifact)["measures"]["RR@10"] == pytest.approx(np.mean(ranks))
    (there,) = [row for name, row in done.table(1).items() if "elsewhere" in name]
    column_there = next(iter(done.table(1).values())).index("RR@10")
    assert there[column_there] == table[str(model)][column], "the same collection under another name"
    tracked = [row for row in rows(read_runs(f"sqlite:///{pipeline.home}/mlflow.db")) if MODEL_PARAM in row.run.params]
    assert {(row.recipe, row.tag("backbone"), row.tag("protocol")) for row in tracked} == {
        (f"{model.parent.name}/model", "", "")
    }
    assert {row.place.corpus for row in tracked} == {"tiny", "elsewhere"}, "no system of the recipe's name"
    assert "BM25" in done.out and "trained once" not in done.out, "a folder's seeds are not known here"


def test_7_a_whole_recipe_computes_nothing_twice_and_prints_both_splits(pipeline: Pipeline) -> None:
    jobs = ("prepare_corpus", "pretrain", "finetune")
    for job in jobs:
        pipeline.run(job)
    before = {step: len(pipeline.records(step)) for step in ("prepare", "tokenise", "pretrain", "teach", "score")}
    done = pipeline.run("run_recipe")
    assert {step: len(pipeline.records(step)) for step in before} == before
    table = done.table()
    column = table[next(iter(table))].index("RR@10")
    measured = {
        round(np.mean(reciprocal_ranks(run_of(path.parent), json.loads(path.read_text())["config"]["split"])), 4)
        for path in (pipeline.home / "store" / "evaluate").glob("*/record.json")
    }
    rows = {name: float(row[column]) for name, row in table.items() if "," in name}
    assert len(rows) == 4 and set(rows.values()) <= measured
    assert "trained once" in done.out
    runs = read_runs(f"sqlite:///{pipeline.home}/mlflow.db")
    assert {run.tags["midmask.job"] for run in runs} >= {*jobs, "run_recipe"}
    assert all(run.ended is not None for run in runs)
    (whole,) = (run for run in runs if (run.tags["midmask.job"], run.tags["midmask.step"]) == ("run_recipe", "job"))
    column = table[next(iter(table))].index("nDCG@10")
    main = {f"tiny/{name.split(', ')[1]}/nDCG_at_10": table[name][column] for name in rows if "bm25" not in name}
    assert {key: f"{value:.4f}" for key, value in whole.metrics.items()} == main


def test_8_what_another_collection_is_read_for_is_made_of_it(pipeline: Pipeline) -> None:
    asked = ["--pretrain-on", pipeline.elsewhere, "--set", "pseudo_queries.source=titles"]
    pipeline.run("pretrain", *asked, "--recipe", "cotmote", "--set", "pretrain.steps=1", recipe=False)
    (record,) = pipeline.records("pseudo_queries")
    source = json.loads((Path(record["inputs"]["corpus"]) / "record.json").read_text())
    assert source["config"]["name"] == pipeline.elsewhere
