"""Run files as steps: their measures against another tool's, their identity, and how they are called."""

import gzip
import shutil
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
from scipy import stats

from midmask.artifact import Artifact, Place
from midmask.corpora import CorpusConfig
from midmask.errors import UserError
from midmask.evaluation.measures import by_query
from midmask.evaluation.retriever import EvaluateConfig
from midmask.experiment.plan import plan
from midmask.experiment.report import evaluation_sentence, evaluations_table, per_query
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


def test_the_two_rules_rank_tied_documents_differently(
    collection: CorpusConfig, run: dict[str, dict[str, float]], tmp_path: Path
) -> None:
    file = written(tmp_path / "run.trec", run)
    own, other = (measured(tmp_path, file, collection, ties) for ties in ("midmask", "trec_eval"))
    assert own.result["measures"]["RR"] != other.result["measures"]["RR"]


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


def test_an_evaluations_own_list_gives_its_values_again(collection: CorpusConfig, tmp_path: Path) -> None:
    recipe = override(RECIPES["none"](), {"corpus": collection.model_dump(), "tokens.vocabulary_size": 300})
    config = EvaluateConfig(split="test", measures=tuple(MEASURES))
    searched = Runner(Place(str(tmp_path)), LOCAL, Silent()).run(plan(recipe).bm25_evaluation(config))
    file = tmp_path / "copy.trec.gz"
    shutil.copy((searched.place / "runs" / "tiny.test.trec.gz").local(), file)
    again = measured(tmp_path, file, collection, "midmask")
    assert again.result["measures"] == searched.result["measures"]
    assert per_query(again).equals(per_query(searched))
    runs = [(one.place / "runs" / "tiny.test.trec.gz").read() for one in (again, searched)]
    assert runs[0] == runs[1]


def test_what_a_run_lacks_or_has_too_much_stands_below_the_table(
    collection: CorpusConfig, run: dict[str, dict[str, float]], tmp_path: Path
) -> None:
    odd = {**run, "q1": {"d1": 1.0}, "stranger": {"d1": 1.0, "d900": 0.5}}
    done = measured(tmp_path, written(tmp_path / "run.trec", odd), collection, "trec_eval", depth=5)
    said = evaluations_table("tiny test", {"other": done})
    assert "\nother: a run file of 13 queries and 223 rows; " in said
    assert "ties by document id descending, as trec_eval." in said
    assert "Warning: other, tiny test: the run lacks 1 of the 12 queries; they score 0." in said
    assert "2 queries of the run are not judged there and are left out." in said
    assert "documents of the run that the collection lacks: 1, in 1 rows;" in said
    assert (
        "reach rank 20, and are measured to 5. To measure more: --set evaluation.depth=20 (in Python: depth=20)."
        in said
    )


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


def test_a_system_is_tested_against_bm25_query_by_query(
    collection: CorpusConfig, run: dict[str, dict[str, float]], tmp_path: Path
) -> None:
    own = measured(tmp_path, written(tmp_path / "other.trec", run), collection, "midmask")
    recipe = override(RECIPES["none"](), {"corpus.name": collection.name, "corpus.splits": "official"})
    config = EvaluateConfig(split="test", measures=tuple(MEASURES))
    bm25 = Runner(Place(str(tmp_path)), LOCAL, Silent()).run(plan(recipe).bm25_evaluation(config))
    values = [by_query(per_query(one), "nDCG@10") for one in (own, bm25)]
    queries = sorted(values[0])
    found = stats.ttest_rel(*([one[query] for query in queries] for one in values))
    low, high = found.confidence_interval()
    said = evaluation_sentence("tiny", "other", own, bm25, trained=False)
    assert said.startswith("BM25 is better than other on tiny test: nDCG@10") and found.pvalue < 1e-4
    assert f"interval {-high:+.4f} to {-low:+.4f}, p < 0.0001, {len(queries)} queries" in said
    assert evaluation_sentence("tiny", "other", own, bm25, trained=True) == (
        f"{said} It was trained once: what another seed would change is not known."
    )
