"""A whole choice with a teacher, and what people's judgements say of a verdict."""

import json

import pytest

import midmask
from midmask import Corpus, UserError
from midmask.artifact import Place
from midmask.choice.contenders import MEASURE, name_of
from midmask.choice.request import Request
from midmask.choice.reveal import reveal
from midmask.choice.run import choose
from midmask.choice.workshop import LocalWorkshop
from midmask.experiment.run import Runner, Silent
from midmask.experiment.steps import LOCAL
from midmask.queries.config import QueriesConfig
from tests.support.choice.documents import SETTINGS, SOURCES, SYSTEMS, ask, documents, judged
from tests.support.encoders.tokenizers import write_classifier


def test_with_a_cross_encoder_its_margins_are_learned(tmp_path):
    write_classifier(tmp_path / "teacher", 1)
    found = ask(tmp_path, systems=("none",), teacher=tmp_path / "teacher")
    assert {("fine-tuned only, GPL", "dense"), ("fine-tuned only, GPL", "dense with BM25")} <= {
        (one.system, one.representation) for one in found.systems
    }
    with pytest.raises(UserError, match=r"teacher .*nowhere: no model can be read there"):
        ask(tmp_path, teacher=tmp_path / "nowhere")


def test_judgements_are_compared_with_the_verdict(tmp_path):
    """The judged value of a system is what `midmask.evaluate` measures of its model on the same queries."""
    titles, texts = documents()
    queries, numbers = judged()
    ids = {"test": [str(n) for n in range(len(queries))]}
    corpus = Corpus.from_texts(texts, titles=titles, queries=queries, relevant=numbers, splits=ids, name="papers")
    store = Place(str(tmp_path / "store"))
    request = Request(
        corpus=corpus.in_store(store),
        budget=1200.0,
        out=tmp_path / "verdict",
        queries=QueriesConfig(sources=SOURCES),
        systems=SYSTEMS,
        representations=("dense",),
        changes=SETTINGS,
    )
    workshop = LocalWorkshop(Runner(store, LOCAL, Silent()))
    choice = choose(request, workshop)
    found = reveal(request, choice, workshop)
    rows = {(one.system, one.representation): value for one, value in zip(found.systems, found.judged, strict=True)}
    for one in choice.verdict.systems:
        if one.representation == "dense":
            scores = midmask.evaluate(one.model, corpus, split="test", storage=tmp_path / "other", progress=False)
            assert rows[one.system, "dense"] == pytest.approx(scores["nDCG@10"], abs=1e-9)
    bm25 = midmask.evaluate("bm25", corpus, split="test", storage=tmp_path / "other", progress=False)
    assert rows["bm25", "bm25"] == pytest.approx(bm25["nDCG@10"], abs=1e-9)
    chosen = rows[choice.verdict.recommendation.system, choice.verdict.recommendation.representation]
    assert found.regret == pytest.approx(max(rows.values()) - chosen)
    assert len(found.records) == len(choice.verdict.systems) - 1
    results = {" · ".join(name_of(one.key)): one.result for one in choice.measured}
    for record in found.records:
        own = results[record.system]
        base = choice.counterparts.of(own.key)[own.split]
        assert record.made == pytest.approx(own.measures[MEASURE] - base.measures[MEASURE], abs=1e-9)
    assert [one.source for one in found.sources] == sorted(SOURCES)
    assert {"system", "representation", "judged"} == json.loads(found.as_json())["systems"][0].keys()
