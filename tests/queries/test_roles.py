"""Which sources train and which judge: by the collection, or as asked; and that the step keeps to it."""

from pathlib import Path

import pytest

from midmask.artifact import Place
from midmask.queries import roles as roles_module
from midmask.queries.collection import CollectionFacts
from midmask.queries.config import QueriesConfig
from midmask.queries.made import Passage
from midmask.queries.roles import Roles, roles_of
from midmask.queries.step import make_queries
from tests.support.queries.articles import articles, corpus_of, rows_of

PASSAGES = articles(120)
UNTITLED = [Passage(one.doc_id, "", one.text) for one in PASSAGES]
PLAIN = {"titles": 1.0, "sentences": 1.0, "keyphrases": 2.0}


def roles(passages: list[Passage], folder: Path, **fields: object) -> Roles:
    corpus = corpus_of(folder, passages).place
    return roles_of(QueriesConfig(**{"sources": PLAIN, **fields}), corpus, CollectionFacts(corpus))


def test_titles_judge_where_passages_have_their_own_and_else_sentences(tmp_path: Path) -> None:
    titled = roles(PASSAGES, tmp_path / "titled")
    assert titled == Roles({"sentences": 1.0, "keyphrases": 2.0}, {"titles": 1.0})
    assert titled.splits("titles") == ("dev", "test") and titled.splits("keyphrases") == ("train",)
    assert titled.share("keyphrases", "train") == 2 / 3 and titled.share("keyphrases", "dev") == 0
    assert roles(UNTITLED, tmp_path / "untitled").judge == {"sentences": 1.0}
    shared = [Passage(one.doc_id, one.doc_id.partition("#")[0], one.text) for one in PASSAGES]
    assert roles(shared, tmp_path / "shared").judge == {"sentences": 1.0}, "five passages share each title"


def test_what_writes_questions_judges_before_what_is_cut_out_and_weak_labels_never_do(tmp_path: Path) -> None:
    server = "http://127.0.0.1:9/v1"
    assert roles(PASSAGES, tmp_path / "asked", sources={**PLAIN, server: 1.0}).judge == {server: 1.0}
    questions = tmp_path / "questions.txt"
    questions.write_text("what is this\n")
    weak = roles(PASSAGES, tmp_path / "weak", sources={f"file:{questions}": 1.0, "keyphrases": 1.0})
    assert weak.train == weak.judge, "neither may judge, so both do both"


def test_in_a_small_collection_or_with_one_source_every_source_does_both(tmp_path: Path) -> None:
    few = roles(PASSAGES[:200], tmp_path / "few")
    assert few.train == few.judge == PLAIN
    alone = roles(PASSAGES, tmp_path / "alone", sources={"sentences": 1.0})
    assert alone.train == alone.judge == {"sentences": 1.0}


def test_a_split_has_queries_of_its_sources_alone_and_what_fits_nowhere_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roles_module, "ENOUGH", 50)
    corpus = corpus_of(tmp_path / "corpus", PASSAGES[:300])
    config = QueriesConfig(sources=PLAIN, max_queries=200)
    result = make_queries(config, {"corpus": corpus}, Place(str(tmp_path / "out")))
    assert (result["train_sources"], result["judge_sources"]) == (["sentences", "keyphrases"], ["titles"])
    assert result["splits"]["train"] == 120 and result["splits"]["dev"] + result["splits"]["test"] <= 80
    rows = rows_of(tmp_path / "out" / "queries.parquet")
    for row in rows:
        if row["kept"]:
            assert (row["source"] == "titles") == (row["split"] != "train")
    other = [row for row in rows if row["reason"] == "its document is for queries of other sources"]
    assert other and {row["source"] for row in other} == {"titles"}, "others read no document that is not for them"
