"""Run files as steps: their measures against another tool's, their identity, and how they are called."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval

from midmask.artifact import Artifact, Place
from midmask.corpora import CorpusConfig
from midmask.errors import UserError
from midmask.evaluation.measures import by_query
from midmask.evaluation.retriever import EvaluateConfig
from midmask.experiment.plan import plan
from midmask.experiment.report import per_query
from midmask.experiment.run import Runner, Silent
from midmask.experiment.run_files import collection_step, run_file_evaluation, run_names
from midmask.experiment.steps import LOCAL
from midmask.identity import override
from midmask.recipes import RECIPES
from midmask.retrieve.ranked import TieRule
from tests.support.benchmark.tiny import SPLITS, write_collection

MEASURES = {"nDCG@10": "ndcg_cut_10", "RR": "recip_rank", "R@5": "recall_5", "AP": "map"}


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> CorpusConfig:
    return CorpusConfig(name=write_collection(tmp_path_factory.mktemp("run files") / "tiny"), splits="official")


@pytest.fixture(scope="module")
def run() -> dict[str, dict[str, float]]:
    """20 documents for each test query but one; scores have six values, so that most are tied."""
    draw = np.random.default_rng(5)
    lists = {f"q{number}": draw.permutation(48)[:20] for number in list(SPLITS["test"])[1:]}
    return {query: {f"d{doc}": float(draw.integers(6)) / 4 for doc in docs} for query, docs in lists.items()}


def written(path: Path, run: dict[str, dict[str, float]], tag: str = "other") -> Path:
    lines = [f"{query} Q0 {doc} 0 {score} {tag}\n" for query, own in run.items() for doc, score in own.items()]
    path.write_text("".join(lines))
    return path


def measured(storage: Path, file: Path, corpus: CorpusConfig, ties: TieRule, **settings: object) -> Artifact:
    config = override(EvaluateConfig(split="test", measures=tuple(MEASURES)), settings)
    step = run_file_evaluation(file, collection_step(corpus), config, ties)
    return Runner(Place(str(storage)), LOCAL, Silent()).run(step)


@pytest.mark.parametrize("ties", ["midmask", "trec_eval"])
def test_every_measure_of_every_query_is_what_trec_eval_says(
    ties: TieRule, collection: CorpusConfig, run: dict[str, dict[str, float]], tmp_path: Path
) -> None:
    """It gets the scores themselves and breaks their ties as it does; or, for our rule, ranks without a tie."""
    qrels = {f"q{number}": {f"d{number}": 1} for number in SPLITS["test"]}
    given = run
    if ties == "midmask":
        orders = {query: sorted(own, key=lambda doc: (-own[doc], doc)) for query, own in run.items()}
        given = {query: {doc: -float(rank) for rank, doc in enumerate(docs)} for query, docs in orders.items()}
    expected = pytrec_eval.RelevanceEvaluator(qrels, set(MEASURES.values())).evaluate(given)
    done = measured(tmp_path, written(tmp_path / "run.trec", run), collection, ties)
    for measure, name in MEASURES.items():
        values = by_query(per_query(done), measure)
        assert set(values) == set(qrels), "a query that the run lacks counts"
        for query, value in values.items():
            assert value == pytest.approx(expected[query][name] if query in expected else 0.0, abs=1e-9)
        assert done.result["measures"][measure] == pytest.approx(np.mean(list(values.values())))


def test_the_content_and_the_rule_are_the_identity_and_the_place_is_not(
    collection: CorpusConfig, run: dict[str, dict[str, float]], tmp_path: Path
) -> None:
    file = written(tmp_path / "run.trec", run)
    packed = tmp_path / "elsewhere.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    corpus, config = collection_step(collection), EvaluateConfig(split="test")
    step = run_file_evaluation(file, corpus, config, "midmask")
    assert run_file_evaluation(packed, corpus, config, "midmask").fingerprint == step.fingerprint
    assert run_file_evaluation(file, corpus, config, "trec_eval").fingerprint != step.fingerprint
    searched = override(config, {"index": "HNSW32", "bm25_share": 0.5, "precision": "fp32"})
    assert run_file_evaluation(file, corpus, searched, "midmask").fingerprint == step.fingerprint
    shallow = override(config, {"depth": 5})
    assert run_file_evaluation(file, corpus, shallow, "midmask").fingerprint != step.fingerprint
    recipe = override(RECIPES["none"](), {"corpus": collection.model_dump()})
    assert plan(recipe).corpus.fingerprint == corpus.fingerprint, "it is measured on what others are measured on"


def test_names(run: dict[str, dict[str, float]], tmp_path: Path) -> None:
    tagged, ours = written(tmp_path / "a.trec", run, "anserini"), written(tmp_path / "bm25.trec", run, "midmask")
    packed = tmp_path / "best.trec.gz"
    packed.write_bytes(gzip.compress(ours.read_bytes()))
    assert run_names([tagged, ours, packed]) == ["anserini", "bm25", "best"], "our own tag says nothing"
    assert run_names([tagged, ours], ["one", "two"]) == ["one", "two"]
    with pytest.raises(UserError, match="--name: an empty name"):
        run_names([tagged], [" "])
    with pytest.raises(UserError, match=r"--name is given 1 times for 2 files"):
        run_names([tagged, ours], ["one"])
    with pytest.raises(UserError, match=r"a\.trec and .*b\.trec would both be called 'anserini'; .*--name ONE"):
        run_names([tagged, written(tmp_path / "b.trec", run, "anserini")])
