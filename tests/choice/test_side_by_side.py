"""A verdict's systems, asked by hand, find what an evaluation finds. A person's
judgements: a labelled collection at any time, whoever judges at once and whatever is killed.
"""

import json
import multiprocessing
import os
import shutil
import signal
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import midmask
from midmask.choice.judgements import JudgementStore, query_id
from midmask.choice.report import model_card
from midmask.choice.side_by_side import SearchStore, SideBySide
from midmask.corpora.config import CorpusConfig
from midmask.corpora.opening import text_lines
from midmask.errors import UserError
from midmask.experiment.events import Begun, StepEvent
from midmask.experiment.kinds import LOCAL
from midmask.experiment.run import Runner
from midmask.store.place import Place
from tests.support.choice.searched import DOCUMENTS, QUERIES, rewrite, write_collection, write_verdict
from tests.support.verdicts import verdict

ASKED = {"retromae · dense": "models/dense/model", "splade · lexical": "models/lexical/model"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_verdict(tmp_path_factory.mktemp("verdict"), extra=60)


@pytest.fixture(scope="module")
def site(folder: Path) -> SideBySide:
    return SideBySide(folder)


def evaluated(model: str, folder: Path, storage: Path, settings: dict[str, object]) -> dict[str, list[str]]:
    """Query text -> documents, as `midmask.evaluate` ranks them for the collection's own queries."""
    corpus = midmask.Corpus.from_beir(folder / "collection")
    scores = midmask.evaluate(model, corpus, split="test", settings=settings, storage=storage, progress=False)
    lists: dict[str, list[str]] = {}
    name = f"{corpus.name}.test.trec.gz"
    for _, line in text_lines(scores.artifact.place / "runs" / name):
        query, _, doc_id, *_ = line.split()
        lists.setdefault(QUERIES[query][0], []).append(doc_id)
    return lists


def test_systems_stand_in_the_verdicts_order_and_a_missing_model_is_told(site: SideBySide) -> None:
    assert site.systems[:4] == ("retromae · dense", "splade · lexical", "dupmae · hybrid with BM25", "bm25")
    assert (site.recommended, site.baseline) == ("retromae · dense", "bm25")
    with pytest.raises(UserError, match=r"models/gone"):
        site.search("gone · dense", "port")
    with pytest.raises(UserError, match="unknown system 'retromea"):
        site.search("retromea · dense", "port")


@pytest.mark.parametrize("label", [*ASKED, "dupmae · hybrid with BM25"])
def test_a_typed_query_is_ranked_as_an_evaluation_ranks_it(label, site, folder, tmp_path) -> None:
    share = {"evaluation.bm25_share": 0.5, "evaluation.fusion": "convex"} if "BM25" in label else {}
    model = ASKED.get(label, "models/hybrid/model")
    expected = evaluated(str(folder / model), folder, tmp_path, share)
    for text, _ in QUERIES.values():
        assert [hit.doc_id for hit in site.search(label, text, 100)] == expected[text]
        hits = site.search(label, text, 5)
        assert [hit.doc_id for hit in hits] == expected[text][:5]
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_hits_have_their_texts(site: SideBySide) -> None:
    for hit in site.search("bm25", "server port backup database", 10):
        if hit.doc_id in DOCUMENTS:
            assert (hit.title, hit.text) == DOCUMENTS[hit.doc_id]
    assert site.search("bm25", "zzz", 10) == []
    with pytest.raises(UserError, match="k = 0"):
        site.search("bm25", "port", 0)


def test_vectors_are_kept_beside_the_verdict_and_belong_to_the_models_bytes(folder: Path, tmp_path: Path) -> None:
    """A second opening encodes nothing; a model whose weights have changed is encoded anew."""
    own = tmp_path / "own"
    shutil.copytree(folder, own)
    begun: list[str] = []

    def observe(event: StepEvent) -> None:
        begun.extend([event.step.name] if isinstance(event, Begun) else [])

    SideBySide(own, observe).open("retromae · dense")
    encoded = sorted(path.name for path in (own / "search" / "encode").iterdir())
    assert "encode" in begun
    begun.clear()
    SideBySide(own, observe).open("retromae · dense")
    assert begun == []
    before = SideBySide(own).search("retromae · dense", "port")
    weights = own / "models" / "dense" / "model" / "model.safetensors"
    changed = load_file(weights)
    changed["embeddings.word_embeddings.weight"] = np.roll(changed["embeddings.word_embeddings.weight"], 1, axis=0)
    save_file(changed, weights, metadata={"format": "pt"})
    assert SideBySide(own).search("retromae · dense", "port") != before
    assert len(list((own / "search" / "encode").iterdir())) == len(encoded) + 1


def test_threads_that_open_at_once_encode_once_and_agree(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    shutil.copytree(folder, own, ignore=shutil.ignore_patterns("search"))
    begun: list[str] = []
    site = SideBySide(own, lambda event: begun.extend([event.step.name] if isinstance(event, Begun) else []))
    found = []

    def ask() -> None:
        found.append(tuple(site.search("splade · lexical", "port of the server")))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and len(set(found)) == 1
    assert begun.count("encode") == 1


def test_what_is_no_verdict_is_refused(folder: Path, tmp_path: Path) -> None:
    verdict = (folder / "verdict.json").read_text()
    cases = {"{": "not a verdict", "[1]": "not a verdict", verdict: "its collection .*/collection' is not there"}
    with pytest.raises(UserError, match=r"there is no verdict\.json"):
        SideBySide(tmp_path)
    for text, said in cases.items():
        (tmp_path / "verdict.json").write_text(text)
        with pytest.raises(UserError, match=said):
            SideBySide(tmp_path)
    rewrite(tmp_path, systems=[])
    with pytest.raises(UserError, match="a verdict without systems"):
        SideBySide(tmp_path)


def test_a_joined_list_of_a_query_that_bm25_does_not_find_is_the_encoders(folder: Path, site: SideBySide) -> None:
    """Its scores reach from 0.5, BM25 having the other half, to 0 for the last of 101 or of all passages."""
    corpus = CorpusConfig(name=f"beir:{site.collection}", splits="official")
    store = SearchStore(corpus, Runner(Place(str(folder / "search")), LOCAL))
    alone = store.open_encoder(folder / "models/hybrid/model")("zzz qqq", 101)
    high, low = alone[0].score, alone[-1].score
    joined = site.search("dupmae · hybrid with BM25", "zzz qqq", 30)
    assert [hit.doc_id for hit in joined] == [hit.doc_id for hit in alone[:30]]
    expected = [0.5 * (hit.score - low) / (high - low) for hit in alone[:30]]
    assert [hit.score for hit in joined] == pytest.approx(expected, abs=1e-6)


def test_a_models_card_keeps_what_loads_it_and_has_its_figures_and_no_markup_of_others() -> None:
    card = model_card(verdict(), "---\ntags: [midmask]\n---\n# A bi-encoder\n")
    assert card.startswith("---\ntags: [midmask]\n---\n# A bi-encoder\n")
    assert "| 1    | **retromae** |          dense | +0.065 [+0.036, +0.093] | +0.043 [+0.024, +0.062] |" in card
    assert "| 4    |         none |" in card and "dupmae" not in card, "the model's own line and the baseline's"
    assert "<script" not in card and "&lt;script&gt;" in card
    assert "training on these documents: middle training" in card
    untrained = tuple(replace(each, training="none") for each in verdict().systems)
    assert "It was not trained on these documents" in model_card(replace(verdict(), systems=untrained))


FIRST, SECOND, THIRD = list(DOCUMENTS)[:3]


@pytest.fixture
def store(tmp_path: Path) -> JudgementStore:
    return JudgementStore(tmp_path, write_collection(tmp_path / "collection"))


def qrels(store: JudgementStore) -> list[str]:
    return (store.folder / "qrels" / "test.tsv").read_text().splitlines()[1:]


def test_the_last_judgement_of_a_query_and_passage_counts(store: JudgementStore) -> None:
    for doc_id, grade in [(FIRST, 1), (SECOND, 0), (FIRST, 0), (THIRD, 1), (SECOND, 1), (THIRD, None)]:
        store.judge("start  the\tserver ", doc_id, grade)
    found = store.judge("restore", FIRST, 1)
    name, other = query_id("start the server"), query_id("restore")
    assert found == store.read() and found.counts() == (2, 2, 1)
    assert [found.grade("start the  server", doc_id) for doc_id in (FIRST, SECOND, THIRD)] == [0, 1, None]
    assert qrels(store) == [f"{name}\t{FIRST}\t0", f"{name}\t{SECOND}\t1", f"{other}\t{FIRST}\t1"]
    queries = [json.loads(line) for line in (store.folder / "queries.jsonl").read_text().splitlines()]
    assert queries == [{"_id": name, "text": "start the server"}, {"_id": other, "text": "restore"}]


def test_the_folder_is_a_collection_that_can_be_evaluated(store: JudgementStore, tmp_path: Path) -> None:
    """BM25 puts the one passage with these words first: 1 by hand where it is relevant, 0 where it is not."""
    store.judge("restore a date", "guide/backup.md#141-260", 1)
    store.judge("passwords of users", "notes/empty%20title.md", 0)
    corpus = midmask.Corpus.from_beir(store.folder)
    scores = midmask.evaluate("bm25", corpus, storage=tmp_path / "store", progress=False)
    assert scores.per_query("nDCG@10") == {query_id("restore a date"): 1.0, query_id("passwords of users"): 0.0}
    assert scores.artifact.result["corpus"] == "judgements"


def test_the_passages_are_those_of_the_collection_as_it_is_and_where_it_is(store, tmp_path: Path) -> None:
    store.judge("port", FIRST, 1)
    source = write_collection(tmp_path / "collection", extra=3) / "corpus.jsonl.gz"
    assert (store.folder / "corpus.jsonl.gz").read_bytes() == source.read_bytes()
    for doc_id in (FIRST, SECOND):
        store.judge("port", doc_id, None)
    assert store.read().counts() == (0, 0, 0) and qrels(store) == []
    assert (store.folder / "queries.jsonl").read_text() == "", "a withdrawn query is no query"
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    assert (moved / "judgements" / "corpus.jsonl.gz").read_bytes() == (moved / "collection" / source.name).read_bytes()


def judge_many(folder: Path, writer: int, count: int) -> None:
    store = JudgementStore(folder, folder / "collection")
    for number in range(count):
        store.judge(f"query {number} of {writer}", FIRST, number % 2)


def test_concurrent_writers_lose_nothing(store: JudgementStore) -> None:
    writers, count = 4, 25
    fork = multiprocessing.get_context("fork")
    own = [fork.Process(target=judge_many, args=(store.folder.parent, writer, count)) for writer in range(writers)]
    for one in own:
        one.start()
    for one in own:
        one.join()
    assert all(one.exitcode == 0 for one in own)
    wanted = {f"query {number} of {writer}": number % 2 for writer in range(writers) for number in range(count)}
    found = store.read()
    assert {text: found.grade(text, FIRST) for text in found.queries.values()} == wanted
    assert len(qrels(store)) == writers * count


def test_a_killed_writer_holds_no_lock(store: JudgementStore) -> None:
    """Killed in the midst of its work: what it had kept is there, and the next writer does not wait."""
    store.judge("port", FIRST, 1)
    writer = multiprocessing.get_context("fork").Process(target=judge_many, args=(store.folder.parent, 1, 10_000))
    writer.start()
    while store.read().counts()[0] < 5:
        assert writer.exitcode is None
    os.kill(writer.pid or 0, signal.SIGKILL)
    writer.join()
    before = store.read()
    found = store.judge("after", SECOND, 1)
    assert len(found.grades) == len(before.grades) + 1 == len(qrels(store))
    assert found.grades.items() > before.grades.items()


def test_what_cannot_be_kept_or_read_is_refused(store: JudgementStore, tmp_path: Path) -> None:
    for query, grade in (("  ", 1), ("port", 3)):
        with pytest.raises(UserError, match="a judgement has a query, and a grade of 1, 0 or None"):
            store.judge(query, FIRST, grade)
    assert store.read().counts() == (0, 0, 0)
    (tmp_path / "other").write_text("a file")
    with pytest.raises(UserError, match="the judgement cannot be written"):
        JudgementStore(tmp_path / "other", tmp_path).judge("port", FIRST, 1)
    store.judge("port", FIRST, 1)
    (store.folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\na\tb\n")
    with pytest.raises(UserError, match="the judgements cannot be read"):
        store.read()
