"""Trained toys in this process: the model folder, the search against brute force, and nothing computed twice."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
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
    with pytest.raises(UserError, match="k = 0"):
        run.search("anything", k=0)


def test_an_encoder_without_fine_tuning_gives_the_vectors_that_were_asked_for(store: Path) -> None:
    """The mean of all tokens, by the folder's own plain transformer, where the default is [CLS]."""
    settings = {**toy.SETTINGS, "representation.dense": "mean"}
    only = midmask.Corpus.from_texts(toy.texts(), name="alone")
    model = midmask.train("retromae", only, settings=settings, storage=store, progress=False).model
    tokens = AutoTokenizer.from_pretrained(model)(toy.texts()[3], return_tensors="pt", truncation=True, max_length=24)
    with torch.inference_mode():
        hidden = AutoModel.from_pretrained(model).eval()(**tokens).last_hidden_state[0]
    found = SentenceTransformer(str(model), device="cpu", local_files_only=True).encode(toy.texts()[3])
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


def test_a_second_call_computes_nothing(
    corpus: midmask.Corpus, run: midmask.Run, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    expected = midmask.settings("retromae")
    changed = {path for path in expected if expected[path] != run.settings[path]}
    assert (
        changed - {path for path in changed if path.endswith("seed") or path.startswith("corpus.")}
        <= toy.SETTINGS.keys()
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"recipe": "retromea"}, "unknown recipe 'retromea'; did you mean 'retromae'"),
        ({"settings": {"pretrain.steps": -3}}, "pretrain.steps = -3"),
        ({"backbone": "/nowhere"}, "/nowhere"),
        ({"corpus": ["a text"]}, r"corpus: a list; make a corpus of it, with midmask.Corpus.from_texts\(texts\)"),
    ],
)
def test_mistakes_are_refused_before_anything_is_computed(
    arguments: dict[str, object], message: str, corpus: midmask.Corpus, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        midmask.train(**{"recipe": "retromae", "corpus": corpus, "storage": tmp_path, **arguments})  # type: ignore[arg-type]
    assert {path.name for path in tmp_path.iterdir()} <= {"collections"}


def test_a_corpus_without_queries_is_not_fine_tuned_nor_evaluated(untuned: midmask.Run, tmp_path: Path) -> None:
    texts = midmask.Corpus.from_texts(toy.texts())
    with pytest.raises(UserError, match="recipe 'none' has no middle training"):
        midmask.train("none", texts, storage=tmp_path)
    with pytest.raises(UserError, match="protocol = 'dpr': texts has no queries to fine-tune on"):
        midmask.train("retromae", texts, protocol="dpr", storage=tmp_path)
    with pytest.raises(UserError, match="alone has no judged queries"):
        midmask.evaluate(untuned)
