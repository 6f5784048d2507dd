"""What lies behind a tracked number: texts, ranks, vectors, steps, the command; on runs made by jobs' own code."""

import gzip
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from midmask.errors import UserError
from midmask.experiment.plan import plan
from midmask.leaderboard.embeddings import draw_sample, encodings, map_embeddings
from midmask.leaderboard.lineage import artifact_place, as_dot, input_of, lineage
from midmask.leaderboard.queries import look_up
from midmask.leaderboard.rows import measured
from midmask.leaderboard.selection import select_systems
from midmask.leaderboard.store_view import look_once
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


def test_a_system_is_found_by_the_folder_of_the_model_that_was_searched_with(runs, uri) -> None:
    links = {link.step: link for link in lineage(place(runs["retromae"]))}
    view = look_once(uri)
    _, found = select_systems(["bm25", f"{links['finetune'].place}/model"], view, None)
    assert [row.run_id for own in found["model"].rows.values() for row in own] == [runs["retromae"].run_id]
    with pytest.raises(UserError, match="no tracked evaluation"):
        select_systems(["bm25", f"{links['pretrain'].place}/model"], view, None)


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
    links = lineage(without(runs["retromae"], "encode", tmp_path / "b"))
    lost = [one for one in links if one.missing]
    assert [one.step for one in lost] == ["encode", "encode"] and all("deleted" in one.missing for one in lost)
    assert {one.step for one in links} == {"prepare", "tokenise", "encode", "search", "evaluate"}
    with pytest.raises(UserError, match="queries"):
        encodings(links[-1].place)
    assert artifact_place(replace(runs["none"], tags={}), "tiny", "dev") is None


def test_the_steps_behind_a_number_are_those_of_its_plan(runs: dict[str, TrackedRow], home: Path) -> None:
    recipe, _ = worked.recipes(f"beir:{home}/tiny")
    planned = [(step.name, step.fingerprint) for step in plan(recipe).evaluation(recipe.evaluation).upstream()]
    links = lineage(place(runs["retromae"]))
    assert sorted((one.step, one.fingerprint) for one in links) == sorted(planned)
    seen: set[str] = set()
    for one in links:
        assert all(source.uri in seen for source in one.inputs.values()), "what a step was made of stands before it"
        seen.add(one.place.uri)
        assert one.seconds == load(one.place).result["seconds"] and one.size == one.place.size() > 0
    assert links[-1].step == "evaluate"
    corpus = input_of(links, "corpus")
    assert corpus is not None and corpus.told["name"] == f"beir:{home}/tiny" and corpus.counts["passages"] == 48
    graph = as_dot(links)
    assert graph.count("->") == sum(len(one.inputs) for one in links)


def test_vectors_are_those_of_the_passages_that_are_named(runs: dict[str, TrackedRow]) -> None:
    source = encodings(place(runs["retromae"]))
    sample = draw_sample(source, "dense", count=8, seed=3)
    assert sample.query_ids == tuple(sorted(sample.query_ids)) and len(set(sample.query_ids)) == 8
    assert [name.replace("q", "d") for name in sample.query_ids] == list(sample.doc_ids), "a query's own passage"
    ids = pq.read_table(f"{source.tokens.place.uri}/passages")["doc_id"].to_pylist()
    order = [line.split()[0] for line in ids]
    vectors = np.load(f"{source.passages.place.uri}/dense/00000.npy")
    for doc_id, vector in zip(sample.doc_ids, sample.passages_ND, strict=True):
        assert np.array_equal(vectors[order.index(doc_id)], vector)
    assert draw_sample(source, "dense", count=8, seed=3).query_ids == sample.query_ids
    assert draw_sample(source, "dense", count=8, seed=4).query_ids != sample.query_ids
    drawn = map_embeddings(draw_sample(source, "dense"), perplexity=5, seed=0)
    assert drawn.queries_N2.shape == drawn.passages_N2.shape == (12, 2), "dev has twelve queries"
    with pytest.raises(UserError, match="lexical"):
        draw_sample(source, "lexical")
    with pytest.raises(UserError, match="no encoder"):
        encodings(place(runs["bm25"]))


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
