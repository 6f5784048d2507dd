"""What reads or works shard by shard gives on Ray Data what it gives in one process, to the byte, from any step on."""

import gc
import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest
import ray

from midmask.backend import ray_data
from midmask.backend.executor import cluster_makers
from midmask.backend.pool import run_sharded
from midmask.backend.ray_data import ray_reader, read_by_workers
from midmask.core.config import Config, override
from midmask.corpora.assemble import assemble, prepare
from midmask.corpora.config import CorpusConfig
from midmask.errors import UserError
from midmask.experiment.kinds import KINDS, LOCAL
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner
from midmask.queries.document_spans import SPANS, SpansConfig
from midmask.queries.pseudo_queries import PSEUDO_QUERIES, PseudoQueriesConfig
from midmask.recipes import RECIPES
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.sharded import Sharded
from midmask.teacher.score import SCORE, ScoreConfig
from midmask.text import tokens
from midmask.text.tokens import TokensConfig
from midmask.training.examples import Examples, WorkerSteps, local_reader
from midmask.training.pairs import PairExamples
from midmask.training.pretraining_rows import PackedExamples, PassageExamples, SpanExamples
from tests.support.corpora import layouts
from tests.support.corpora.collections import contents, quarantine, write_beir, write_saved
from tests.support.corpora.documents import write_documents
from tests.support.queries.documents import write_inputs
from tests.support.teacher import lists
from tests.support.training.fixtures import write_weights
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("ray_local")
STEPS: dict[str, tuple[Sharded, Config]] = {
    "tokenise": (tokens.tokenise, TokensConfig(vocabulary_size=250, max_length=40)),
    "spans": (SPANS, SpansConfig(span_length=24, short_share=0.5)),
    "sentences": (PSEUDO_QUERIES, PseudoQueriesConfig()),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    return write_inputs(tmp_path_factory.mktemp("derived"))


def here_and_there(step: Sharded, config: Config, sources: dict[str, Artifact], folder: Path) -> Path:
    """Computes the step in both ways; the folder of the distributed one."""
    result = step(config, sources, Place(str(folder / "here")))
    assert run_sharded(step, config, sources, Place(str(folder / "there")), actors=2) == result
    assert contents(folder / "there") == contents(folder / "here")
    return folder / "there"


@pytest.mark.parametrize("name", STEPS)
def test_the_cluster_writes_what_one_process_writes(inputs: dict[str, Artifact], tmp_path: Path, name: str) -> None:
    here_and_there(*STEPS[name], inputs, tmp_path)


def test_a_killed_run_goes_on_with_the_shards_it_has(inputs: dict[str, Artifact], tmp_path: Path) -> None:
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
    assert contents(tmp_path / "killed") == contents(there)


def test_a_failed_step_gives_its_cpus_back(inputs: dict[str, Artifact], tmp_path: Path, request) -> None:
    """While the error is held, and with it all that its traceback refers to."""
    gc.disable()
    request.addfinalizer(gc.enable)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    config = PseudoQueriesConfig(source=f"model:{tmp_path}")
    with pytest.raises(UserError) as error:
        run_sharded(PSEUDO_QUERIES, config, inputs, Place(str(tmp_path / "out")), actors=1)
    wait_until(lambda: ray.available_resources().get("CPU", 0) == ray.cluster_resources()["CPU"])
    assert "\n" not in str(error.value)


def test_actors_score_as_one_process_does_to_the_last_bit(tmp_path: Path) -> None:
    """A teacher's scores: of seven shards, two are there already."""
    inputs = lists.write_inputs(Place(f"file://{tmp_path}/lists"))
    KINDS["teach"].make(
        lists.teaching(dropout=0.0, steps=6), inputs, Place(str(tmp_path / "teacher")), log=lambda done, values: None
    )
    teacher = Artifact(Place(f"file://{tmp_path}/teacher"), {"fingerprint": "teacher"})
    config, sources = ScoreConfig(shard_queries=6), {**inputs, "teacher": teacher}
    result = SCORE(config, sources, Place(str(tmp_path / "here")))
    (there := tmp_path / "there" / "scores").mkdir(parents=True)
    for name in ("00002.parquet", "00005.parquet"):
        shutil.copy(tmp_path / "here" / "scores" / name, there)
    assert run_sharded(SCORE, config, sources, Place(f"file://{tmp_path}/there"), actors=2) == result
    assert contents(tmp_path / "there") == contents(tmp_path / "here")


def test_the_cluster_reads_what_one_process_reads(tmp_path: Path) -> None:
    for name in ("here", "there", "more"):
        write_beir(tmp_path / name, passages=30 if name == "here" else 21)
    names = [f"beir:{tmp_path}/there", f"beir:{tmp_path}/more"]
    changes = {"corpus.name": f"beir:{tmp_path}/here", "tokens.vocabulary_size": 300, "tokens.max_length": 24}
    step = plan(override(RECIPES["mlm"](), {**changes, "pretrain_on": names})).pretraining_tokens
    here = Runner(Place(str(tmp_path / "one")), LOCAL).compute(step)
    there = Runner(Place(str(tmp_path / "many")), cluster_makers(1)).compute(step)
    results = [{**artifact.result, "seconds": None} for artifact in (here, there)]
    assert results[0] == results[1]
    found = [contents(artifact.place.local()) for artifact in (here, there)]
    for written in found:
        written.pop("record.json")  # names the folders of the inputs
    assert found[0] == found[1]
    corpus = step.inputs["corpus"]
    docs_of = [corpus.place(Place(str(tmp_path / store))).local() / "docs" for store in ("one", "many")]
    assert contents(docs_of[0]) == contents(docs_of[1])


def both(config: CorpusConfig, folder: Path) -> Path:
    here, there = folder / "here", folder / "there"
    assert prepare(config, {}, Place(str(here))) == assemble(config, Place(str(there)), read_by_workers)
    assert contents(here) == contents(there)
    return there


def test_answers_and_slices(tmp_path: Path) -> None:
    """What these layouts add to a row travels through the workers, too."""
    layouts.write_nq(tmp_path / "nq")
    layouts.write_dpr_training(tmp_path / "nq")
    layouts.write_tripclick(tmp_path / "tripclick")
    write_saved(tmp_path / "hf")
    for kind in ("nq", "tripclick", "hf"):
        both(CorpusConfig(name=f"{kind}:{tmp_path}/{kind}"), tmp_path / f"{kind}-out")


def test_documents_in_many_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two files a task, read by several workers."""
    write_documents(tmp_path / "in")
    (tmp_path / "in/bad.txt").write_bytes(b"\0\1\2")
    monkeypatch.setattr(ray_data, "TASK_PIECES", 2)
    there = both(CorpusConfig(name=f"docs:{tmp_path}/in", passage_words=10), tmp_path)
    assert [row["kind"] for row in quarantine(there)] == ["damaged file"]


def test_many_blocks_keep_order_and_line_numbers(tmp_path: Path) -> None:
    write_beir(tmp_path / "in", passages=6000)
    corpus = tmp_path / "in/corpus.jsonl"
    lines = corpus.read_bytes().splitlines()
    for line in (0, 777, 1500, 3002):
        lines.insert(line, b"{broken")
    corpus.write_bytes(b"\n".join(lines))
    there = both(CorpusConfig(name=f"beir:{tmp_path}/in"), tmp_path)
    assert [row["line"] for row in quarantine(there)] == [1, 778, 1501, 3003]


def test_a_workers_user_error_arrives_as_one_line(tmp_path: Path) -> None:
    write_beir(tmp_path / "in", packed=True)
    corpus = tmp_path / "in/corpus.jsonl.gz"
    corpus.write_bytes(corpus.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"corpus\.jsonl\.gz: broken gzip") as error:
        assemble(CorpusConfig(name=f"beir:{tmp_path}/in"), Place(str(tmp_path / "out")), read_by_workers)
    assert "\n" not in str(error.value)


def examples_of(kind: str, corpus: Place, tokens: Place, folder: Path) -> Examples:
    """What a run may read, made from the corpus where it has to be."""
    made = Place(f"file://{folder}/made")
    inputs = {"corpus": Artifact(corpus, {}), "tokens": Artifact(tokens, {})}
    if kind == "pairs":
        return PairExamples(tokens, corpus, "train", "f", per_query=2, query_length=8, passage_length=20)
    if kind == "packed, weighted":
        return PackedExamples(tokens, "f", 64, write_weights(tokens, folder))
    SPANS(SpansConfig(span_length=16), inputs, made)
    return SpanExamples(made, "f", "mixed")


@pytest.mark.parametrize("kind", ["pairs", "packed, weighted", "spans"])
def test_the_ray_reader_equals_the_one_process_reader(corpus: Place, tokens: Place, kind: str, tmp_path: Path) -> None:
    examples = examples_of(kind, corpus, tokens, tmp_path)
    mine = WorkerSteps(examples, batch_size=9, seed=3, rank=1, size=2, start=13, stop=80)
    steps = 0
    for (step, texts), (expected_step, expected) in itertools.zip_longest(ray_reader(mine), local_reader(mine)):
        assert step == expected_step and texts.keys() == expected.keys()
        for name, text in texts.items():
            for ours, theirs in zip(text, expected[name], strict=True):
                assert (ours is None) == (theirs is None)
                if ours is None:
                    continue
                assert ours.dtype == theirs.dtype
                np.testing.assert_array_equal(ours, theirs)
        steps += 1
    assert steps == 67


def test_an_error_while_reading_reaches_the_reader(tmp_path: Path) -> None:
    examples = PassageExamples(Place(f"{tmp_path}/nowhere"), "f")
    mine = WorkerSteps(examples, batch_size=9, seed=3, rank=0, size=1, start=0, stop=9)
    with pytest.raises(Exception, match="nowhere"):
        list(ray_reader(mine))
