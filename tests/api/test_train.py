"""Trained toys in this process: model folders, search against brute force, nothing computed twice; scores."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

import midmask
from midmask import UserError
from tests.support.api import toy


def brute_force(run: midmask.Run, query: str, documents: list[str]) -> np.ndarray:
    """Inner products of sentence-transformers' vectors, in double precision."""
    encoder = run.encoder(device="cpu")
    vectors = encoder.encode([query, *documents], batch_size=16).astype(np.float64)
    return np.asarray(vectors[1:] @ vectors[0])


@pytest.mark.parametrize("kind", ["run", "untuned"])
def test_a_search_is_brute_force_over_the_vectors_of_the_encoder(kind: str, request: pytest.FixtureRequest) -> None:
    run: midmask.Run = request.getfixturevalue(kind)
    query, documents = toy.queries()[7], toy.texts()
    truth = brute_force(run, query, documents)
    hits = run.search(query, k=9)
    np.testing.assert_allclose([hit.score for hit in hits], np.sort(truth)[::-1][:9], rtol=1e-5)
    for hit in hits:
        assert hit.text == documents[int(hit.doc_id)]
        np.testing.assert_allclose(hit.score, truth[int(hit.doc_id)], rtol=1e-5)


def test_a_search_gives_every_document_once_if_asked_for_more(run: midmask.Run) -> None:
    hits = run.search("anything", k=1000)
    assert sorted(int(hit.doc_id) for hit in hits) == list(range(toy.DOCUMENTS))
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_an_encoder_without_fine_tuning_gives_the_vectors_that_were_asked_for(store: Path) -> None:
    """The mean of all tokens, by the folder's own plain transformer, where the default is [CLS]."""
    settings = {**toy.SETTINGS, "representation.dense": "mean"}
    only = midmask.Corpus.from_texts(toy.texts(), name="alone")
    model = midmask.train("retromae", only, settings=settings, storage=store, progress=False).model
    tokens = AutoTokenizer.from_pretrained(model)(toy.texts()[3], return_tensors="pt", truncation=True, max_length=24)
    with torch.inference_mode():
        hidden = AutoModel.from_pretrained(model).eval()(**tokens).last_hidden_state[0]
    found = SentenceTransformer(model, device="cpu", local_files_only=True).encode(toy.texts()[3])
    np.testing.assert_allclose(found, hidden.mean(dim=0).numpy(), rtol=1e-4, atol=1e-5)


def test_an_evaluation_equals_ranks_counted_by_hand(run: midmask.Run) -> None:
    """RR@10 and R@1 of each dev query, from the brute-force scores of all documents."""
    scores = midmask.evaluate(run, split="dev", measures=["RR@10", "R@1"])
    reciprocal, recall = scores.per_query("RR@10"), scores.per_query("R@1")
    assert reciprocal.keys() == recall.keys() and len(reciprocal) > 5
    for query, value in reciprocal.items():
        truth = brute_force(run, toy.queries()[int(query)], toy.texts())
        rank = 1 + int((truth > truth[int(query)]).sum())
        assert value == pytest.approx(1 / rank if rank <= 10 else 0.0), query
        assert recall[query] == float(rank == 1)
    assert scores["RR@10"] == pytest.approx(math.fsum(reciprocal.values()) / len(reciprocal))


def test_a_second_call_computes_nothing(corpus: midmask.Corpus, run: midmask.Run, store: Path, capsys) -> None:
    run.search("anything")
    midmask.evaluate(run)
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}
    capsys.readouterr()
    again = midmask.train("retromae", corpus, seed=5, settings=toy.SETTINGS, storage=store)
    again.search("anything")
    midmask.evaluate(again)
    assert capsys.readouterr().err == ""
    assert again.model == run.model
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()} == before


def test_settings_seed_and_losses(run: midmask.Run, untuned: midmask.Run) -> None:
    assert run.settings["pretrain.steps"] == 6
    assert run.settings["pretrain.seed"] == run.settings["stages.0.train.seed"] == 5
    assert list(run.losses) == ["pretrain", "finetune.0"]
    assert [len(losses) for losses in run.losses.values()] == [6, 6]
    assert list(untuned.losses) == ["pretrain"]
    changed = {path for path, value in midmask.settings("retromae").items() if value != run.settings[path]}
    assert {path for path in changed if not path.endswith("seed") and "corpus." not in path} <= toy.SETTINGS.keys()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"settings": {"pretrain.steps": -3}}, "pretrain.steps = -3"), ({"backbone": "/nowhere"}, "/nowhere"),
     ({"corpus": ["a text"]}, r"corpus: a list; make a corpus of it, with midmask.Corpus.from_texts\(texts\)")],
)  # fmt: skip
def test_mistakes_are_refused_at_once(arguments, message, corpus, tmp_path) -> None:
    with pytest.raises(UserError, match=message):
        midmask.train(**{"recipe": "retromae", "corpus": corpus, "storage": tmp_path, **arguments})
    assert {path.name for path in tmp_path.iterdir()} <= {"collections"}


def test_a_corpus_without_queries_is_not_fine_tuned_nor_evaluated(untuned: midmask.Run, tmp_path: Path) -> None:
    texts = midmask.Corpus.from_texts(toy.texts())
    with pytest.raises(UserError, match="protocol = 'dpr': texts has no queries to fine-tune on"):
        midmask.train("retromae", texts, protocol="dpr", storage=tmp_path)
    with pytest.raises(UserError, match="alone has no judged queries"):
        midmask.evaluate(untuned)


Scores = dict[str, midmask.Scores]


@pytest.fixture(scope="module")
def scores(run: midmask.Run) -> Scores:
    return {"run": midmask.evaluate(run, split="test"), "bm25": midmask.evaluate("bm25", run, split="test")}


def test_bm25_and_a_folder_meet_the_queries_of_the_run(run: midmask.Run, scores: Scores) -> None:
    own = scores["run"].per_query("nDCG@10")
    assert own.keys() == scores["bm25"].per_query("nDCG@10").keys()
    folder = midmask.evaluate(run.model, run, split="test")
    assert folder.system == "model"
    assert folder.per_query("nDCG@10") == own


def test_another_corpus_keeps_the_splits_of_its_files(run: midmask.Run) -> None:
    other = midmask.Corpus.from_texts(toy.texts()[:9], queries=toy.queries()[:9], relevant=range(9), name="other")
    found = midmask.evaluate(run, other)
    assert (found.corpus, found.split, len(found.per_query("RR@10"))) == ("other", "test", 9)
    with pytest.raises(UserError, match=r"unknown split of other 'dev'.*Known: test"):
        midmask.evaluate(run, other, split="dev")


def test_a_run_can_be_joined_with_bm25(run: midmask.Run, scores: Scores) -> None:
    both = midmask.evaluate(run, split="test", settings={"evaluation.bm25_share": 0.5})
    assert both.system == "retromae + bm25"
    assert both.per_query("RR@10").keys() == scores["run"].per_query("RR@10").keys()
    weakest, strongest = sorted(scores[name]["RR@10"] for name in ("run", "bm25"))
    assert weakest < both["RR@10"] != strongest
    with pytest.raises(UserError, match=r"bm25_share = 0\.5: BM25's list is joined with an encoder's"):
        midmask.evaluate("bm25", run, settings={"evaluation.bm25_share": 0.5})


def test_a_comparison_tests_the_same_queries_in_pairs(scores: Scores) -> None:
    table = midmask.compare([scores["run"], scores["bm25"]], measures=["RR@10"])
    (row,) = table.result.comparisons["RR@10"]
    values = [scores[name].per_query("RR@10") for name in ("run", "bm25")]
    paired = [[one[query] for query in sorted(values[0])] for one in values]
    assert row.p == pytest.approx(stats.ttest_rel(paired[0], paired[1]).pvalue)
    assert abs(row.difference) == pytest.approx(abs(np.mean(paired[0]) - np.mean(paired[1])))
    assert "paired t-test" in str(table) and "**1.0000**" in str(table)
    assert table._repr_html_().startswith("<table>") and "\\toprule" in table.latex()
    assert table.csv().splitlines()[0].startswith("system,column,mean")


def test_labels_seeds_and_refusals(scores: Scores, run: midmask.Run) -> None:
    one, bm25 = scores["run"], scores["bm25"]
    table = midmask.compare({"seeds": [one, one], "bm25": bm25}, baseline="bm25")
    assert table.result.cells["seeds", "RR@10"].seeds == 2
    with pytest.raises(UserError, match="two systems are called 'retromae'"):
        midmask.compare([one, one])
    with pytest.raises(UserError, match="of one corpus and split"):
        midmask.compare([one, midmask.evaluate("bm25", run, split="dev")])
    with pytest.raises(UserError, match="share no measure"):
        midmask.compare({"a": one, "b": midmask.evaluate(run, split="test", measures=["P@1"])})
