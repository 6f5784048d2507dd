"""What is judged and listed is measured as it is, by trec_eval -c: missing passages, copies of the query, slices.

The collection has twelve test queries. The even ones are word for word the passage of their id, their copy. Two
judgements name passages that the collection lacks, once the only relevant one of a query.
"""

import gzip
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytrec_eval

from midmask.core.config import override
from midmask.corpora.config import CorpusConfig
from midmask.evaluation.measures import by_query
from midmask.evaluation.statistics.significance import compare
from midmask.evaluation.step import EvaluateConfig
from midmask.experiment.evaluations import run_file_evaluation
from midmask.experiment.kinds import LOCAL
from midmask.experiment.notes import notes
from midmask.experiment.plan import plan
from midmask.experiment.report import per_query
from midmask.experiment.run import Runner
from midmask.experiment.training_steps import Survey
from midmask.recipes import RECIPES
from midmask.retrieve import ranked
from midmask.store.artifact import Artifact
from midmask.store.place import Place

MEASURES = {"nDCG@10": "ndcg_cut_10", "RR": "recip_rank", "R@5": "recall_5", "R@100": "recall_100", "AP": "map"}
QUERIES = [f"q{n}" for n in range(12)]
COPIES = {f"q{n}": f"q{n}" for n in range(0, 12, 2)}
JUDGED: dict[str, dict[str, int]] = {
    **{query: {f"d{n}": 1 + n % 3, f"d{(n + 5) % 12}": 1 + n % 2} for n, query in enumerate(QUERIES)},
    "q10": {"gone": 1},
    "q11": {"lost": 2, "d11": 1},
}
HARD = {"q0": {"d0": 1}, "q10": {"gone": 3, "d3": 1}, "q77": {"d7": 1}}

Run = Mapping[str, Mapping[str, float]]


def write(folder: Path, judged: Mapping[str, Mapping[str, Mapping[str, int]]]) -> CorpusConfig:
    words = [f"amber{n} birch{n} cedar{n} delta{n % 4}" for n in range(12)]
    docs = {f"d{n}": f"{text} and more of it" for n, text in enumerate(words)}
    docs |= {copy: words[int(query[1:])] for query, copy in COPIES.items()} | {"q77": "amber7 birch7"}
    queries = {**dict(zip(QUERIES, words, strict=True)), "q77": "amber7 birch7"}
    (folder / "qrels").mkdir(parents=True)
    for name, texts in (("corpus", docs), ("queries", queries)):
        lines = [json.dumps({"_id": key, "title": "", "text": text}) + "\n" for key, text in texts.items()]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    for split, own in judged.items():
        rows = [f"{query}\t{doc}\t{grade}\n" for query, docs in own.items() for doc, grade in docs.items()]
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    return CorpusConfig(name=f"beir:{folder}", splits="official", bad_rows_threshold=0.0)


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> CorpusConfig:
    return write(tmp_path_factory.mktemp("given") / "few", {"test": JUDGED, "test.hard": HARD})


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(str(tmp_path_factory.mktemp("store")))


@pytest.fixture(scope="module")
def run() -> Run:
    """The copy first, then passages in an order by chance, with ties; one list has a missing passage that is judged;
    one query is lacking.
    """
    draw = np.random.default_rng(3)
    names = [f"d{n}" for n in range(12)]
    lists = {query: {doc: float(draw.integers(4)) for doc in draw.permutation(names)[:8]} for query in QUERIES[1:]}
    for query, copy in COPIES.items():
        if query in lists:
            lists[query][copy] = 9.0
    lists["q11"]["lost"] = 1.0
    return lists


def trec_eval(run: Run, judged: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, float]]:
    """Measure -> query -> value, as `trec_eval -c` has it: 0 for a judged query that the run lacks."""
    given = [{query: dict(own) for query, own in table.items()} for table in (judged, run)]
    values = pytrec_eval.RelevanceEvaluator(given[0], set(MEASURES.values())).evaluate(given[1])
    lacking = dict.fromkeys(MEASURES.values(), 0.0)
    return {name: {query: values.get(query, lacking)[key] for query in judged} for name, key in MEASURES.items()}


def measure_file(storage: Place, corpus: CorpusConfig, file: Path, run: Run, **how: Any) -> Artifact:
    lines = [f"{query} Q0 {doc} 0 {score} other\n" for query, own in run.items() for doc, score in own.items()]
    file.write_text("".join(lines))
    config = EvaluateConfig(split="test", measures=tuple(MEASURES))
    step = run_file_evaluation(file, Survey().collection(corpus), config, **{"ties": "trec_eval", **how})
    return Runner(storage, LOCAL).compute(step)


@pytest.fixture
def measured(collection: CorpusConfig, storage: Place, tmp_path: Path) -> Callable[..., Artifact]:
    """The evaluation of a run: of a file that is written with it."""
    return partial(measure_file, storage, collection, tmp_path / "run.trec")


def searched(storage: Place, corpus: CorpusConfig) -> Artifact:
    """BM25's evaluation, a search of ours."""
    recipe = override(RECIPES["none"](), {"corpus": corpus.model_dump()})
    step = plan(recipe).bm25_evaluation(EvaluateConfig(split="test", measures=tuple(MEASURES)))
    return Runner(storage, LOCAL).compute(step)


def has_values(done: Artifact, wanted: Mapping[str, Mapping[str, float]]) -> None:
    for measure, values in wanted.items():
        assert dict(by_query(per_query(done), measure)) == values, measure
        assert done.result["measures"][measure] == float(np.mean([values[query] for query in sorted(values)]))


def test_a_run_file_has_trec_evals_figures_copies_and_missing_passages_included(measured, run: Run) -> None:
    done = measured(run)
    wanted = trec_eval(run, JUDGED)
    has_values(done, wanted)
    assert wanted["R@100"]["q10"] == 0 < wanted["R@100"]["q11"] and done.result["queries"] == 12
    hard = trec_eval(run, {query: own for query, own in HARD.items() if query in QUERIES})
    for measure, value in done.result["slices"]["test.hard"]["measures"].items():
        assert value == pytest.approx(np.mean(list(hard[measure].values())), abs=1e-12)
    said = notes({"other": done})
    assert "2 judgements name passages that the collection lacks" in said and "unjudged" not in said
    assert "5 rows of the run are the query itself and keep their ranks" in said


def test_ties_are_broken_by_our_rule_where_it_is_asked_for(measured, run: Run) -> None:
    """trec_eval gets ranks without a tie: by score, then by id upwards."""
    orders = {query: sorted(own, key=lambda doc: (-own[doc], doc)) for query, own in run.items()}
    ranks = {query: {doc: -float(rank) for rank, doc in enumerate(docs)} for query, docs in orders.items()}
    done = measured(run, ties="midmask")
    has_values(done, trec_eval(ranks, JUDGED))
    assert trec_eval(ranks, JUDGED)["RR"] != trec_eval(run, JUDGED)["RR"]


def test_content_and_rule_are_the_identity_and_the_place_is_not(collection: CorpusConfig, tmp_path: Path) -> None:
    (file := tmp_path / "run.trec").write_text("q1 Q0 d1 0 1.0 other\n")
    (packed := tmp_path / "elsewhere.gz").write_bytes(gzip.compress(file.read_bytes()))
    corpus, config = Survey().collection(collection), EvaluateConfig(split="test")
    step = run_file_evaluation(file, corpus, config, "midmask")
    assert run_file_evaluation(packed, corpus, config, "midmask").fingerprint == step.fingerprint
    assert run_file_evaluation(file, corpus, config, "trec_eval").fingerprint != step.fingerprint
    searched = override(config, {"index": "HNSW32", "bm25_share": 0.5, "precision": "fp32"})
    assert run_file_evaluation(file, corpus, searched, "midmask").fingerprint == step.fingerprint
    shallow = override(config, {"depth": 5})
    assert run_file_evaluation(file, corpus, shallow, "midmask").fingerprint != step.fingerprint
    recipe = override(RECIPES["none"](), {"corpus": collection.model_dump()})
    assert plan(recipe).corpus.fingerprint == corpus.fingerprint, "it is measured on what others are measured on"


def test_our_search_counts_missing_passages_and_copies_left_out(collection: CorpusConfig, storage: Place) -> None:
    done = searched(storage, collection)
    run: dict[str, dict[str, float]] = {}
    for row in ranked.read_trec(done.place / "runs" / "few.test.trec.gz").to_pylist():
        run.setdefault(row["query_id"], {})[row["doc_id"]] = row["score"]
    assert not any(COPIES.get(query) in own for query, own in run.items())
    has_values(done, trec_eval(run, JUDGED))
    assert done.result["self_matches"] == len(COPIES) and done.result["missing_passages"] == 2
    assert "6 results that are the query itself are left out" in notes({"bm25": done})
    whole = searched(storage, collection.model_copy(update={"self_matches": "none"}))
    assert whole.result["self_matches"] == 0 and "the query itself" not in notes({"bm25": whole})
    tested = compare({"bm25": per_query(done), "whole": per_query(whole)}, baseline="bm25", measure="nDCG@10")
    assert tested[0].queries == 12, "a query that nobody can answer is one of the paired ones"


def test_what_is_judged_but_has_no_text_is_not_blamed_on_the_run(tmp_path: Path, run: Run) -> None:
    """A judged query without a text is left out by our reading; one that nobody judged, by the judgements."""
    corpus = write(tmp_path / "few", {"test": {**JUDGED, "nameless": {"d1": 1}}})
    corpus = corpus.model_copy(update={"bad_rows_threshold": 0.5})
    given = {**run, "nameless": {"d1": 1.0}, "stranger": {"d1": 1.0}, "q77": {"d2": 1.0, "nowhere": 0.5}}
    done = measure_file(Place(str(tmp_path / "store")), corpus, tmp_path / "run.trec", given)
    has_values(done, trec_eval(run, JUDGED))
    said = notes({"other": done})
    assert "3 queries of the run are not judged there, or have no text there" in said
    assert "1 unknown id" in said and "unjudged documents of the run that the collection lacks: 1;" in said


def test_more_than_a_fifth_cut_is_a_warning_that_names_the_flag() -> None:
    read = {"passages": {"length": 48, "cut_share": 0.21, "titles": False}, "queries": {"length": 24, "cut_share": 0.0}}
    result = {"corpus": "few", "split": "test", "queries": 9, "split_made_here": False, "read": read, "slices": {}}
    result |= {"split_rule": "the corpus's own splits", "measures": {"nDCG@10": 0.5}}
    for length, flag in ((None, "--set tokens.max_length=96"), (48, "--set evaluation.passage_length=96")):
        config = {"passage_length": length}
        said = notes({"mine": Artifact(Place("/nowhere"), {"config": config, "result": result})})
        assert "21% of the passages of few are cut at 48 tokens" in said and flag in said
