"""What lies behind a tracked number: texts, ranks, steps; on runs made by jobs' own code."""

import gzip
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from midmask.experiment.plan import plan
from midmask.leaderboard.artifacts import artifact_place, artifacts_behind, inputs_of
from midmask.leaderboard.queries import look_up
from midmask.leaderboard.rows import measured
from midmask.leaderboard.training import curves, parts_of, trainings
from midmask.store.artifact import load
from midmask.store.place import Place
from midmask.tracking.reading import TrackedRow, read_runs
from tests.support.benchmark.tiny import WORDS
from tests.support.dashboards import worked


@pytest.fixture(scope="module")
def home(worked_store: tuple[Path, dict[str, str]]) -> Path:
    return worked_store[0]


@pytest.fixture(scope="module")
def uri(home: Path) -> str:
    return f"sqlite:///{home}/mlflow.db"


@pytest.fixture(scope="module")
def runs(worked_store: tuple[Path, dict[str, str]], uri: str) -> dict[str, TrackedRow]:
    found = {run.tags["midmask.fingerprint"]: run for run in read_runs(uri) if measured(run)}
    return {recipe: found[fingerprint] for recipe, fingerprint in worked_store[1].items()}


def place(run: TrackedRow) -> Place:
    found = artifact_place(run, "", "")
    assert found is not None
    return found


def without(run: TrackedRow, step: str, tmp_path: Path) -> Place:
    """The run's artifact in a copy of its store, in which all of one step was deleted."""
    store = Path(place(run).uri).parents[1]
    copy = Path(shutil.copytree(store, tmp_path / "store"))
    for record in copy.glob("*/*/record.json"):
        record.write_text(record.read_text().replace(str(store), str(copy)))
    shutil.rmtree(copy / step)
    return Place(str(copy / "evaluate" / place(run).uri.rsplit("/", 1)[1]))


def test_queries_with_their_texts_judgements_and_ranks(runs: dict[str, TrackedRow]) -> None:
    own, base = place(runs["retromae"]), place(runs["bm25"])
    found, missing = look_up(["q30", "q24"], {"own": own, "bm25": base}, top=5)
    assert not missing and [query.query_id for query in found] == ["q30", "q24"]
    text = [WORDS[(30 * step + at) % 16] for at, step in enumerate((1, 2, 3, 5, 7, 11, 13, 4))]
    assert found[0].text == " ".join(text[:3])
    (relevant,) = found[0].judged
    assert (relevant.doc_id, relevant.grade, relevant.title, relevant.text) == ("d30", 1, "number 30", " ".join(text))
    for name, where in (("own", own), ("bm25", base)):
        lines = gzip.decompress(next((Path(where.uri) / "runs").iterdir()).read_bytes()).decode().splitlines()
        listed = [line.split()[2] for line in lines if line.startswith("q30 ")]
        assert [passage.doc_id for passage in found[0].retrieved[name]] == listed[:5]
        assert relevant.ranks[name] == (listed.index("d30") + 1 if "d30" in listed else None)


def test_what_was_deleted_is_named_and_the_rest_is_shown(runs: dict[str, TrackedRow], tmp_path: Path) -> None:
    gone = without(runs["retromae"], "prepare", tmp_path / "a")
    (query,), missing = look_up(["q30"], {"own": gone, "untold": None}, top=3)
    assert query.text is None and len(query.retrieved["own"]) == 3 and query.retrieved["own"][0].text is None
    assert missing.keys() == {"own", "untold"}
    behind = artifacts_behind(without(runs["retromae"], "encode", tmp_path / "b"))
    assert {artifact.record["step"] for artifact in behind} == {"prepare", "tokenise", "search", "evaluate"}
    assert artifact_place(replace(runs["none"], tags={}), "tiny", "dev") is None


def test_the_artifacts_behind_a_number_are_those_of_its_plan(runs: dict[str, TrackedRow], home: Path) -> None:
    recipe, _ = worked.recipes(f"beir:{home}/tiny")
    planned = [(step.name, step.fingerprint) for step in plan(recipe).evaluation(recipe.evaluation).upstream()]
    behind = artifacts_behind(place(runs["retromae"]))
    assert sorted((one.record["step"], one.fingerprint) for one in behind) == sorted(planned)
    seen: set[str] = set()
    for one in behind:
        assert all(source.uri in seen for source in inputs_of(one).values()), "what it was made of stands before it"
        seen.add(one.address.uri)
    assert behind[-1].record["step"] == "evaluate"


def test_curves_are_what_the_trainings_wrote_down(runs: dict[str, TrackedRow], uri: str) -> None:
    (run,) = trainings(read_runs(uri), "pretrain")
    assert parts_of([run], "pretrain") == ["decoder_mlm", "encoder_mlm"]
    logged = [f"pretrain/{name}" for name in ("loss", "encoder_mlm", "decoder_mlm", "epoch", "learning_rate")]
    going = replace(run, metrics={name: value for name, value in run.metrics.items() if name in logged})
    assert parts_of([going], "pretrain") == ["decoder_mlm", "encoder_mlm"], "a run that goes on has no record yet"
    told = curves(uri, run, "pretrain", ["loss", "decoder_mlm", "no such"])
    trace = load(place(run)).place
    table = pq.read_table(f"{trace.uri}/trace.parquet")
    assert [point.value for point in told.lines["loss"]] == pytest.approx(table["loss"].to_pylist())
    assert [point.value for point in told.lines["decoder_mlm"]] == pytest.approx(table["part/decoder_mlm"].to_pylist())
    assert told.length == 3 and "no such" not in told.lines
    steps, spent = [1, 2, 3], {name: np.cumsum(table[name].to_numpy()) for name in ("tokens", "seconds")}
    assert told.tokens == pytest.approx(dict(zip(steps, spent["tokens"], strict=True)))
    assert told.hours == pytest.approx(dict(zip(steps, spent["seconds"] / 3600, strict=True)))
