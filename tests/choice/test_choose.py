"""A whole choice in this process: made queries, rounds, the verdict's folder; and what judgements say of it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

import midmask
from midmask import Corpus, UserError, Verdict
from midmask.artifact import Place
from midmask.choice.contenders import MEASURE, name_of
from midmask.choice.request import Request
from midmask.choice.reveal import reveal
from midmask.choice.run import choose, make
from midmask.choice.workshop import LocalWorkshop
from midmask.experiment.run import Runner, Silent
from midmask.experiment.steps import LOCAL
from midmask.experiment.survey import Survey
from midmask.queries.config import QueriesConfig
from tests.support.choice.documents import COUNT, SETTINGS, documents, judged
from tests.support.encoders.classifiers import write_classifier

SYSTEMS = ("none", "mlm")
SOURCES = {"sentences": 1.0, "titles": 1.0}


def ask(folder: Path, **more: object) -> Verdict:
    titles, texts = documents()
    corpus = Corpus.from_texts(texts, titles=titles, name="papers")
    given = {"systems": SYSTEMS, "representations": ("dense",), "sources": SOURCES, "settings": SETTINGS}
    return midmask.choose(
        corpus, budget="20m", **{**given, **more}, out=folder / "verdict", storage=folder / "store", progress=False
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("choose")


@pytest.fixture(scope="module")
def verdict(home) -> Verdict:
    return ask(home)


def test_the_folder_has_what_others_rely_on(home, verdict):
    """The keys of design.md, section 5."""
    found = json.loads((home / "verdict" / "verdict.json").read_text())
    assert {"corpus", "passages", "queries", "systems", "recommendation", "calibration", "model"} <= found.keys()
    assert found["corpus"] == "papers"
    assert found["passages"] == COUNT
    assert {"source", "made", "kept", "train", "dev", "test"} <= found["queries"].keys()
    assert sum(found["queries"][split] for split in ("train", "dev", "test")) == found["queries"]["kept"]
    wanted = {"system", "representation", "rank", "estimate", "low", "high", "seconds", "bytes_per_passage"}
    assert all(wanted <= one.keys() for one in found["systems"])
    assert {"system", "representation", "distinguishable", "reason"} <= found["recommendation"].keys()
    assert {"collections", "kendall_tau", "coverage"} <= found["calibration"].keys()
    for name in ("verdict.md", "verdict.html", "queries.html"):
        assert (home / "verdict" / name).stat().st_size > 500
    assert type(verdict).from_json((home / "verdict" / "verdict.json").read_text()) == verdict


def test_every_system_has_a_rank_and_the_recommended_one_is_among_them(verdict):
    assert [one.rank for one in verdict.systems] == list(range(1, len(verdict.systems) + 1))
    names = {(one.system, one.representation) for one in verdict.systems}
    assert {("bm25", "bm25"), ("fine-tuned only", "dense"), ("mlm", "dense"), ("mlm", "dense with BM25")} <= names
    assert (verdict.recommendation.system, verdict.recommendation.representation) in names
    for one in verdict.systems:
        assert one.low <= one.estimate <= one.high
        assert one.gain_low <= one.gain <= one.gain_high


def test_the_model_loads_in_sentence_transformers(home, verdict):
    model = SentenceTransformer(str(home / "verdict" / "model"), local_files_only=True, device="cpu")
    assert model.encode(["a query"]).shape[0] == 1
    assert verdict.corpus in (home / "verdict" / "model" / "README.md").read_text()


def test_asked_again_nothing_is_computed(home, verdict):
    before = sorted(path for path in (home / "store").glob("*/*"))
    again = ask(home)
    assert sorted(path for path in (home / "store").glob("*/*")) == before
    assert again.systems == verdict.systems
    assert again.spent_seconds >= verdict.spent_seconds, "what was spent before counts"


def test_test_queries_are_searched_for_finalists_alone(home, verdict):
    """Every evaluation on test in the store is one of a finalist's."""
    records = [json.loads(path.read_text()) for path in (home / "store" / "evaluate").glob("*/record.json")]
    on_test = [record for record in records if record["config"]["split"] == "test"]
    assert len(on_test) == len(verdict.finalists)


def test_systems_say_how_they_were_trained_and_prints_are_the_page(home, verdict):
    trained = {one.name: one.training for one in verdict.systems}
    assert trained["bm25", "bm25"] == "none" and trained["fine-tuned only", "dense"] == "fine-tuning"
    assert trained["mlm", "dense"] == trained["mlm", "dense with BM25"] == "middle training"
    assert str(verdict).split("## Queries")[1] == (home / "verdict" / "verdict.md").read_text().split("## Queries")[1]
    assert not set(verdict.not_tried) & {one.label for one in verdict.systems}
    assert all(bool(one.dropped) != one.finalist for one in verdict.systems)


def test_a_source_without_queries_is_not_said_to_have_trained(tmp_path):
    """Documents without titles, of which titles are asked for."""
    _, texts = documents()
    store = Place(str(tmp_path))
    corpus = Corpus.from_texts(texts, name="untitled").in_store(store)
    queries = QueriesConfig(sources={"titles": 1.0, "keyphrases": 1.0, "sentences": 1.0}, judged_by=("sentences",))
    request = Request(corpus=corpus, budget=60.0, out=tmp_path, queries=queries, changes=SETTINGS)
    made = make(request, LocalWorkshop(Runner(store, LOCAL, Silent())), Survey())
    assert made.artifact.result["train_sources"] == ["titles", "keyphrases"]
    assert (made.train_sources, made.judge_sources) == (("keyphrases",), ("sentences",))


def test_mistakes_are_one_line(home):
    with pytest.raises(UserError, match="30m, 8h"):
        midmask.choose(Corpus.from_texts(["a"]), budget="soon", storage=home / "store", progress=False)
    with pytest.raises(UserError, match="splade"):
        ask(home, representations=("sparse",))
    with pytest.raises(UserError, match="retromae"):
        ask(home, systems=("retromea",))
    with pytest.raises(UserError, match="queries"):
        midmask.choose(Corpus.from_texts(["one text", "another"]), storage=home / "few", out=home / "few-verdict")


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
    assert "too few" not in str(found)
    few = replace(found, judged=found.judged[:3], systems=found.systems[:3])
    assert "over 3 systems, too few" in str(few)
    written = json.loads(found.as_json())
    assert {"system", "representation", "judged"} == written["systems"][0].keys()


def test_a_collection_without_judgements_reveals_nothing(home):
    titles, texts = documents()
    store = Place(str(home / "store"))
    corpus = Corpus.from_texts(texts, titles=titles, name="papers").in_store(store)
    from midmask.choice.reveal import judged_split

    with pytest.raises(UserError, match="no judgements"):
        judged_split(corpus)
