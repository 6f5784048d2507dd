"""`sweep`, `evaluate_run`, `train_generator`: what they print, track and leave, killed and run again."""

import gzip
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from midmask.core.config import override
from midmask.evaluation.step import EvaluateConfig
from midmask.experiment.kinds import LOCAL
from midmask.experiment.plan import plan
from midmask.experiment.report import per_query
from midmask.experiment.run import Runner
from midmask.leaderboard.artifacts import artifact_place, artifacts_behind, command_again
from midmask.leaderboard.entries import entries
from midmask.leaderboard.queries import look_up
from midmask.leaderboard.rows import CollectionSplit, LeaderboardRow, measured, per_query_files, rows
from midmask.queries.collection import Passage
from midmask.queries.config import QueriesConfig
from midmask.queries.query_model import GenerateConfig
from midmask.queries.source_classes import ModelQueries
from midmask.recipes import RECIPES
from midmask.store.place import Place
from midmask.tracking.names import LOG, RECIPE_FILE
from midmask.tracking.reading import artifact_file, read_runs
from tests.support.benchmark.tiny import write_collection
from tests.support.dashboards.browser import ROOT
from tests.support.jobs.processes import finished_points, killed_after_one_trial, start
from tests.support.jobs.running import run_job
from tests.support.queries.articles import opening


def shown(uri: str) -> dict[str, LeaderboardRow]:
    """Name of a system -> its row."""
    return {row.recipe: row for row in rows(read_runs(uri))}


def test_a_run_file_stands_on_the_leaderboard_with_all_that_a_search_has(ray_local: None, tmp_path: Path) -> None:
    """The list of an evaluation of BM25, as a file of another tool."""
    corpus = write_collection(tmp_path / "tiny")
    recipe = override(RECIPES["none"](), {"corpus.name": corpus, "corpus.splits": "official"})
    bm25 = plan(recipe).bm25_evaluation(EvaluateConfig(split="test"))
    searched = Runner(Place(str(tmp_path / "store")), LOCAL).compute(bm25)
    file, uri = tmp_path / "other.trec.gz", f"sqlite:///{tmp_path}/mlflow.db"
    shutil.copy((searched.place / "runs" / "tiny.test.trec.gz").local(), file)

    flags = ["--corpus", corpus, "--split", "test"]
    done = run_job("evaluate_run", str(file), *flags, home=tmp_path)
    assert done.code == 0, done.err
    own = ["--tracking-uri", "sqlite:///bm25.db"]
    by_name = run_job("evaluate_retriever", "--model", "bm25", *flags, *own, home=tmp_path)
    assert by_name.code == 0 and f"{searched.result['measures']['nDCG@10']:.4f}" in by_name.table()["bm25"], by_name.err
    assert f"other: a run file of 12 queries and {len(gzip.open(file).readlines())} rows, ties" in done.out
    (row,) = shown(uri).values()
    assert row.place == CollectionSplit("tiny", "test", bm25.inputs["corpus"].fingerprint, 12), "where BM25 would stand"
    assert (row.recipe, row.tag("representation")) == ("other", "run file")
    assert not [key for key in row.run.metrics if key.startswith("cost/")]
    assert [entry.name for entry in entries([row])] == ["other · run file"], "what is not known is empty"
    assert row.measures == searched.result["measures"], "to the last bit"
    values = per_query_files(uri)(row)
    assert isinstance(values, pa.Table) and values.equals(per_query(searched))
    place = artifact_place(row.run, "tiny", "test")
    assert place is not None
    assert [one.record["step"] for one in artifacts_behind(place)] == ["prepare", "read_run", "evaluate"]
    (query,), missing = look_up(["q40"], {"other": place}, top=3)
    assert not missing and query.text and len(query.retrieved["other"]) == 3

    job = next(run for run in read_runs(uri) if run.parent_id is None)
    assert "every line of this job's log" in Path(job.tags[LOG]).read_text()

    moved = str(shutil.move(file, tmp_path / "moved"))
    again = run_job("evaluate_run", moved, "--name", "other", *flags, home=tmp_path)
    assert again.code == 0 and again.table() == done.table() and list(shown(uri)) == ["other"], "nothing new"
    named = run_job("evaluate_run", moved, "--name", "renamed", *flags, home=tmp_path)
    assert named.code == 0 and set(shown(uri)) == {"other", "renamed"}
    assert len(list((tmp_path / "store" / "read_run").iterdir())) == 1


SHORT = [
    *("--set", "stages.0.train.steps=3", "--set", "stages.0.train.batch_size=8"),
    *("--set", "tokens.vocabulary_size=300", "--set", "stages.0.train.threads=1"),
]


def test_a_generator_is_trained_and_tracked(ray_local: None, tmp_path: Path) -> None:
    collection = write_collection(tmp_path / "tiny")
    planned = run_job("train_generator", "--corpus", collection, *SHORT, "--dry-run", home=tmp_path)
    assert planned.code == 0 and "3 steps x 8 rows = 24 rows" in planned.out, planned.err
    assert "tokens.titles = True" in planned.out
    done = run_job("train_generator", "--corpus", collection, *SHORT, home=tmp_path)
    assert done.code == 0, done.err
    (out,) = set(re.findall(rf"model:({tmp_path}/store/generator/\w+/model)", done.out))
    assert done.table()["steps"] == ["3"]
    config = QueriesConfig(per_passage=1, generate=GenerateConfig(max_tokens=6))
    made = list(ModelQueries(out, opening(config)).queries([Passage("d0", "", "amber birch cedar")]))
    assert len(made) <= 1, "three steps teach it nothing, but it is read and writes"
    (run,) = [run for run in read_runs(f"sqlite:///{tmp_path}/mlflow.db") if run.tags["midmask.step"] == "generator"]
    assert run.status == "finished" and "generator/loss" in run.metrics
    assert run.params["stages.0.train.steps"] == "3"
    again = run_job("train_generator", "--corpus", collection, *SHORT, home=tmp_path)
    assert again.code == 0 and f"model:{tmp_path}/store/generator/" in again.out


SMALL = ["--search", "tpe", "--trials", "4", "--set", "pretrain.steps=16", "--set", "stages.0.train.steps=12"]
SMALL += ["--set", "tokens.vocabulary_size=300", "--set", "stages.0.train.batch_size=16"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_sweep_is_killed_goes_on_and_is_then_cached(tmp_path: Path) -> None:
    job = ["sweep_mask_ratio", "--corpus", write_collection(tmp_path / "words"), *SMALL]
    before = killed_after_one_trial(tmp_path, *job)
    assert 1 <= len(before) < 4

    out, err = start(tmp_path, *job).communicate(timeout=400)
    assert "was measured on too few queries" in out, err[-2000:]
    points = finished_points(tmp_path)
    assert points[: len(before)] == before and len(points) == len(set(map(str, points))) == 4

    runs = read_runs(f"sqlite:///{tmp_path / 'mlflow.db'}")
    parents = [run for run in runs if run.tags["midmask.step"] == "sweep"]
    assert [run.tags["midmask.status"] for run in parents] == ["finished"]
    nested = [run for run in runs if run.parent_id == parents[0].run_id]
    systems = [run for run in nested if run.tags["midmask.step"] == "evaluate" and run.status == "finished"]
    assert sorted({run.tags["midmask.recipe"] for run in systems}) == ["bm25", "mlm", "none", "retromae"]
    assert all("words/test/nDCG_at_10" in run.metrics for run in systems if run.tags["midmask.recipe"] != "bm25")

    again, err = start(tmp_path, *job).communicate(timeout=120)
    assert again and out.endswith(again) and "already computed" in err
    later = read_runs(f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert len(later) == len(runs) + 1
    assert later[0].status == "cached" and later[0].tags["midmask.cached_run"] == parents[0].run_id
    assert rows(later) == rows(runs)


def test_the_command_names_the_same_fingerprint(worked_store: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    home, fingerprints = worked_store
    uri = f"sqlite:///{home}/mlflow.db"
    runs = read_runs(uri)
    (run,) = (one for one in runs if measured(one) and one.tags["midmask.fingerprint"] == fingerprints["retromae"])
    recipe, place = artifact_file(uri, run.run_id, RECIPE_FILE), artifact_place(run, "tiny", "dev")
    assert recipe is not None and place is not None
    arguments = command_again(run, str(recipe), "dev", artifacts_behind(place))
    command = shlex.join([sys.executable, *arguments, "--dry-run", "--tracking-uri", f"sqlite:///{home}/x.db"])
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line.split() for line in done.stdout.splitlines() if " evaluate " in line]
    assert ["cached", "evaluate", run.tags["midmask.fingerprint"]] in lines, done.stdout[-3000:]
