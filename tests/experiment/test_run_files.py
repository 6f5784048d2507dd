"""Run files as steps: their measures against another tool's and their identity; and the lines below a table."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytrec_eval

from midmask.artifact import Artifact, Place
from midmask.corpora import CorpusConfig
from midmask.evaluation.measures import by_query
from midmask.evaluation.retriever import EvaluateConfig
from midmask.experiment.plan import plan
from midmask.experiment.reading_notes import notes
from midmask.experiment.report import evaluations_table, per_query, results_table, zero_shot_table
from midmask.experiment.run import Runner, Silent
from midmask.experiment.run_files import collection_step, run_file_evaluation
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


def evaluation(cut: float, *, made: bool = False, length: int | None = None, queries: int = 1225) -> Artifact:
    read = {"passages": {"length": 48, "cut_share": cut, "titles": False}, "queries": {"length": 24, "cut_share": 0.0}}
    return done(read, made=made, queries=queries, passage_length=length)


def done(read: dict[str, Any], *, made: bool = False, queries: int = 1225, **config: Any) -> Artifact:
    result = {"corpus": "few", "split": "test", "queries": queries, "split_made_here": made, "read": read}
    result |= {"split_rule": "60/20/20 by a hash" if made else "the corpus's own splits", "measures": {"nDCG@10": 0.5}}
    return Artifact(Place("/nowhere"), {"config": config, "result": {**result, "slices": {}}})


BM25 = done({"passages": {"titles": True}})


def test_more_than_a_fifth_cut_is_a_warning_that_names_the_flag() -> None:
    (warning,) = [line for line in notes({"mine": evaluation(0.21), "bm25": BM25}).splitlines() if "Warning" in line]
    assert (
        "21% of the passages of few are cut at 48 tokens" in warning
        and '--set tokens.max_length=96 (in Python: settings={"tokens.max_length": 96})' in warning
    )
    assert "--set evaluation.passage_length=96" in notes({"mine": evaluation(0.21, length=48)})


def test_every_table_has_the_number_of_queries() -> None:
    evaluations = {"mine": evaluation(0.0), "bm25": BM25}
    for table in (evaluations_table("few", evaluations), results_table(evaluations), zero_shot_table([], evaluations)):
        header, _, *rows = (line.split("|") for line in table.split("\n\n")[0].splitlines())
        column = [cell.strip() for cell in header].index("queries")
        assert [row[column].strip() for row in rows] == ["1225", "1225"]
        assert table.endswith(notes(evaluations))
