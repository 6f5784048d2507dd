"""Steps that work shard by shard give the same bytes on Ray Data as in one process, also when they go on."""

import gc
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray

from midmask import tokens
from midmask.artifact import Artifact, Place
from midmask.backend.makers import cluster_makers
from midmask.backend.shards import run_sharded
from midmask.derived.kept_pairs import KEEP_PAIRS, KeepPairsConfig
from midmask.derived.pseudo_queries import PSEUDO_QUERIES, PseudoQueriesConfig
from midmask.derived.span_documents import SpansConfig
from midmask.derived.spans import SPANS
from midmask.errors import UserError
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.steps import LOCAL
from midmask.identity import Config, override
from midmask.recipes import RECIPES
from midmask.sharded import Sharded
from midmask.teacher.score import SCORE, ScoreConfig
from midmask.teacher.teach import teach
from midmask.tokens import TokensConfig
from tests.support.corpora.collections import contents, write_beir
from tests.support.derived.documents import files, write_inputs
from tests.support.derived.judged import texts_of, write_pairs, write_tied_lists
from tests.support.teacher import lists
from tests.support.waiting import wait_until

STEPS: dict[str, tuple[Sharded, Config]] = {
    "tokenise": (tokens.tokenise, TokensConfig(vocabulary_size=250, max_length=40)),
    "spans": (SPANS, SpansConfig(span_length=24, short_share=0.5)),
    "train": (PSEUDO_QUERIES, PseudoQueriesConfig(source="train")),
}


@pytest.fixture
def without_gc() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    return write_inputs(tmp_path_factory.mktemp("derived"))


def here_and_there(step: Sharded, config: Config, sources: dict[str, Artifact], folder: Path, actors: int = 2) -> Path:
    """Computes the step in both ways; the folder of the distributed one."""
    result = step(config, sources, Place(str(folder / "here")))
    assert run_sharded(step, config, sources, Place(str(folder / "there")), actors=actors) == result
    assert files(folder / "there") == files(folder / "here")
    return folder / "there"


@pytest.mark.parametrize("name", STEPS)
def test_the_cluster_writes_what_one_process_writes(
    inputs: dict[str, Artifact], ray_local: None, tmp_path: Path, name: str
) -> None:
    here_and_there(*STEPS[name], inputs, tmp_path)


def test_the_cluster_keeps_the_pairs_that_one_process_keeps(
    inputs: dict[str, Artifact], ray_local: None, tmp_path: Path
) -> None:
    artifact, pairs = write_pairs(inputs, tmp_path)
    ranked, _ = write_tied_lists(pairs, list(texts_of(inputs["corpus"])), Place(str(tmp_path / "lists")))
    here_and_there(KEEP_PAIRS, KeepPairsConfig(rank=2), {"pairs": artifact, "ranked": ranked}, tmp_path)


def test_a_killed_run_goes_on_with_the_shards_it_has(
    inputs: dict[str, Artifact], ray_local: None, tmp_path: Path
) -> None:
    step, config = STEPS["spans"]
    there = here_and_there(step, config, inputs, tmp_path)
    shutil.copytree(there, tmp_path / "killed")
    shards = tmp_path / "killed" / "spans"
    (shards / "00000.parquet").unlink()
    (shards / "00000.parquet.0a1b2c3d.draft").write_bytes(b"half a shard")
    (tmp_path / "killed" / "starts.npy").unlink()
    untouched = (shards / "00001.parquet").stat().st_mtime_ns
    run_sharded(step, config, inputs, Place(str(tmp_path / "killed")), actors=2)
    assert (shards / "00001.parquet").stat().st_mtime_ns == untouched
    assert files(tmp_path / "killed") == files(there)


def test_a_failed_step_gives_its_cpus_back(
    inputs: dict[str, Artifact], ray_local: None, tmp_path: Path, without_gc: None
) -> None:
    """While the error is held, and with it all that its traceback refers to."""
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    config = PseudoQueriesConfig(source=f"model:{tmp_path}")
    with pytest.raises(UserError) as error:
        run_sharded(PSEUDO_QUERIES, config, inputs, Place(str(tmp_path / "out")), actors=1)
    wait_until(lambda: ray.available_resources().get("CPU", 0) == ray.cluster_resources()["CPU"])
    assert "\n" not in str(error.value)


def test_actors_score_as_one_process_does_to_the_last_bit(ray_local: None, tmp_path: Path) -> None:
    """A teacher's scores: of seven shards, two are there already."""
    inputs = lists.write_inputs(Place(f"file://{tmp_path}/lists"))
    teach(lists.teaching(dropout=0.0, steps=6), inputs, Place(str(tmp_path / "teacher")), log=lambda done, values: None)
    teacher = Artifact(Place(f"file://{tmp_path}/teacher"), {"fingerprint": "teacher"})
    config, sources = ScoreConfig(shard_queries=6), {**inputs, "teacher": teacher}
    result = SCORE(config, sources, Place(str(tmp_path / "here")))
    (there := tmp_path / "there" / "scores").mkdir(parents=True)
    for name in ("00002.parquet", "00005.parquet"):
        shutil.copy(tmp_path / "here" / "scores" / name, there)
    assert run_sharded(SCORE, config, sources, Place(f"file://{tmp_path}/there"), actors=2) == result
    assert files(tmp_path / "there") == files(tmp_path / "here")


def test_the_cluster_reads_what_one_process_reads(ray_local: None, tmp_path: Path) -> None:
    for name in ("here", "there", "more"):
        write_beir(tmp_path / name, passages=30 if name == "here" else 21)
    (tmp_path / "given").mkdir()
    pq.write_table(pa.table({"input_ids": [[7, 8], [], [9] * 90]}), tmp_path / "given/x.parquet")
    collections = [f"beir:{tmp_path}/there", f"beir:{tmp_path}/more"]
    changes = {"corpus.name": f"beir:{tmp_path}/here", "tokens.vocabulary_size": 300, "tokens.max_length": 24}
    for names in (collections, [f"tokens:{tmp_path}/given"]):
        step = plan(override(RECIPES["mlm"](), {**changes, "pretrain_on": names})).pretraining_tokens
        here = Runner(Place(str(tmp_path / "one")), LOCAL, Silent()).run(step)
        there = Runner(Place(str(tmp_path / "many")), cluster_makers(1), Silent()).run(step)
        results = [{**artifact.result, "seconds": None} for artifact in (here, there)]
        assert results[0] == results[1]
        found = [contents(artifact.place.local()) for artifact in (here, there)]
        for written in found:
            written.pop("record.json")  # names the folders of the inputs
        assert found[0] == found[1]
        if corpus := step.inputs.get("corpus"):
            joined = [
                contents(corpus.place(Place(str(tmp_path / store))).local() / "docs") for store in ("one", "many")
            ]
            assert joined[0] == joined[1]
