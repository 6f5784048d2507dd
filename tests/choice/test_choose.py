"""A whole choice in this process: made queries, rounds, the verdict's folder; and what judgements say of it."""

import json
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

import midmask
from midmask import Corpus, UserError, Verdict
from midmask.artifact import Place
from midmask.choice.reveal import judged_split
from tests.support.choice.documents import COUNT, ask, documents


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("choose")


@pytest.fixture(scope="module")
def verdict(home) -> Verdict:
    return ask(home)


def test_the_folder_has_what_others_rely_on(home, verdict):
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
    records = [json.loads(path.read_text()) for path in (home / "store" / "evaluate").glob("*/record.json")]
    on_test = [record for record in records if record["config"]["split"] == "test"]
    assert len(on_test) == len(verdict.finalists), "test queries are searched for finalists alone"


def test_systems_say_how_they_were_trained_and_prints_are_the_page(home, verdict):
    trained = {one.name: one.training for one in verdict.systems}
    assert trained["bm25", "bm25"] == "none" and trained["fine-tuned only", "dense"] == "fine-tuning"
    assert trained["mlm", "dense"] == trained["mlm", "dense with BM25"] == "middle training"
    assert not set(verdict.not_tried) & {one.label for one in verdict.systems}
    assert all(bool(one.dropped) != one.finalist for one in verdict.systems)


def test_mistakes_are_refused(home):
    with pytest.raises(UserError, match="30m, 8h"):
        midmask.choose(Corpus.from_texts(["a"]), budget="soon", storage=home / "store", progress=False)
    with pytest.raises(UserError, match="splade"):
        ask(home, representations=("sparse",))
    with pytest.raises(UserError, match="retromae"):
        ask(home, systems=("retromea",))
    with pytest.raises(UserError, match="queries"):
        midmask.choose(Corpus.from_texts(["one text", "another"]), storage=home / "few", out=home / "few-verdict")
    with pytest.raises(UserError, match="no judgements"):
        judged_split(Corpus.from_texts(documents()[1], name="papers").in_store(Place(str(home / "store"))))
