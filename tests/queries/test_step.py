"""The whole step on a small collection: what is hidden, found, judged and divided, always the same, and shown."""

import gzip
import json
import random
import shutil
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from midmask.artifact import Artifact, Place
from midmask.corpora import CorpusConfig, prepare
from midmask.evaluation import measures
from midmask.experiment.run import Runner, Silent
from midmask.experiment.step import Step
from midmask.experiment.steps import LOCAL
from midmask.queries.config import QueriesConfig
from midmask.queries.made import Passage
from midmask.queries.preview import queries_page
from midmask.queries.sources import queries_content
from midmask.queries.step import make_queries
from midmask.retrieve.bm25 import Bm25Config
from tests.support.corpora.collections import contents, json_lines, write
from tests.support.queries.articles import HandBm25, articles, corpus_of, rows_of, stems
from tests.support.retrieve.bm25 import ranked_by_bm25

ALL = {"titles": 1.0, "sentences": 1.0, "spans": 1.0, "keyphrases": 1.0}
PASSAGES = articles()


def made(passages: list[Passage], folder: Path, *, shard: int = 50, **fields: Any) -> dict[str, Any]:
    corpus = corpus_of(folder / "corpus", passages, shard=shard)
    fields = {"sources": ALL, **fields}
    return make_queries(QueriesConfig(**fields), {"corpus": corpus}, Place(str(folder / "out")))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("done")
    result = made(PASSAGES, folder, per_passage=3)
    return folder / "out", result


@pytest.fixture(scope="module")
def collection(done: tuple[Path, dict[str, Any]]) -> Path:
    return done[0] / "collection" / "articles"


def test_what_a_query_hides_is_gone_and_all_else_is_there(done: tuple[Path, Any], collection: Path) -> None:
    kept = [row for row in rows_of(done[0] / "queries.parquet") if row["kept"]]
    assert {row["source"] for row in kept} == set(ALL)
    searched = {row["_id"]: row for row in lines(collection / "corpus.jsonl.gz")}
    assert list(searched) == [one.doc_id for one in PASSAGES]
    for passage in PASSAGES:
        own = [row for row in kept if row["doc_id"] == passage.doc_id]
        hidden = {
            at for row in own if row["hidden_start"] is not None for at in range(row["hidden_start"], row["hidden_end"])
        }
        left = "".join(" " if at in hidden else letter for at, letter in enumerate(passage.text))
        now = searched[passage.doc_id]
        assert now["text"].split() == left.split()
        assert now["title"] == ("" if any(row["hides_title"] for row in own) else passage.title)
        for row in own:
            if row["source"] != "keyphrases":
                assert f" {row['text']} " not in f" {now['title']} {now['text']} "


def test_every_kept_query_is_found_again_where_it_is_searched(done: tuple[Path, Any], collection: Path) -> None:
    """Against BM25 written out in float64, over the files that were written."""
    hand = HandBm25({row["_id"]: f"{row['title']} {row['text']}" for row in lines(collection / "corpus.jsonl.gz")})
    whole = HandBm25({one.doc_id: f"{one.title} {one.text}" for one in PASSAGES})
    rows = rows_of(done[0] / "queries.parquet")
    assert Counter(row["reason"] for row in rows)["its passage is not found again"] > 5
    for row in rows:
        if not row["kept"]:
            continue
        ranks = hand.ranks(row["text"], [row["doc_id"]])
        assert ranks is not None and ranks[0] <= row["rank"] <= ranks[1] and row["rank"] <= 20
        asked = set(stems(row["text"]))
        there = hand.terms[row["doc_id"]]
        overlap = sum(whole.idf(one) for one in asked if one in there) / sum(whole.idf(one) for one in asked)
        assert row["overlap"] == pytest.approx(overlap)


def test_found_again_means_in_the_collection_that_is_written(tmp_path: Path) -> None:
    """Of the queries found first at first, some are not once the dropped ones hide nothing any more."""
    made(PASSAGES, tmp_path, per_passage=3, round_trip_depth=1)
    searched = lines(tmp_path / "out" / "collection" / "articles" / "corpus.jsonl.gz")
    hand = HandBm25({row["_id"]: f"{row['title']} {row['text']}" for row in searched})
    for row in rows_of(tmp_path / "out" / "queries.parquet"):
        if row["kept"]:
            ranks = hand.ranks(row["text"], [row["doc_id"]])
            assert ranks is not None and ranks[0] == row["rank"] == 1


def test_no_document_is_in_two_splits(done: tuple[Path, dict[str, Any]], collection: Path) -> None:
    of: dict[str, set[str]] = {}
    for split in ("train", "dev", "test"):
        for line in (collection / "qrels" / f"{split}.tsv").read_text().splitlines()[1:]:
            _, doc_id, grade = line.split("\t")
            assert grade == "1"
            of.setdefault(doc_id.partition("#")[0], set()).add(split)
    assert len(of) == 24 and all(len(found) == 1 for found in of.values())
    queries = {row["_id"]: row for row in lines(collection / "queries.jsonl.gz")}
    for row in rows_of(done[0] / "queries.parquet"):
        assert row["kept"] == (row["query_id"] in queries) == (row["reason"] == "") == (row["split"] != "")
        if row["kept"]:
            document = row["doc_id"].partition("#")[0]
            assert queries[row["query_id"]]["metadata"] == {"source": row["source"], "document": document}
            assert of[document] == {row["split"]}


def test_the_numbers_of_the_result(done: tuple[Path, dict[str, Any]], collection: Path, tmp_path: Path) -> None:
    out, result = done
    assert json.loads((out / "statistics.json").read_text()) == result
    rows = rows_of(out / "queries.parquet")
    assert (result["made"], result["kept"]) == (len(rows), sum(row["kept"] for row in rows))
    assert sum(result["splits"].values()) == result["kept"] == result["made"] - sum(result["dropped"].values())
    assert result["split_rule"] == "by document" and result["documents"] == 24
    for source in ALL:
        own = [row for row in rows if row["source"] == source]
        told = result["sources"][source]
        assert told["made"] == len(own) == told["kept"] + sum(told["dropped"].values())
        gains = [1 / row["rank"] if row["rank"] <= 10 else 0 for row in own if row["kept"]]
        assert told["bm25"]["RR@10"] == pytest.approx(sum(gains) / len(gains), abs=1e-4)
    # As anyone would measure it: the collection is read as a corpus, and BM25 ranks the test queries.
    corpus, bm25 = tmp_path / "corpus", tmp_path / "bm25"
    read = prepare(CorpusConfig(name=f"beir:{collection}", splits="official"), {}, Place(str(corpus)))
    assert (read["name"], read["queries"], read["passages"]) == ("articles", result["kept"], len(PASSAGES))
    assert {split: one["queries"] for split, one in read["splits"].items()} == result["splits"]
    config = Bm25Config(splits=("dev", "test"))
    ranked_by_bm25(config, {"corpus": Artifact(Place(str(corpus)), {})}, Place(str(bm25)))
    for split in config.splits:
        lists, judged = pq.read_table(bm25 / "ranked" / f"{split}.parquet"), pq.read_table(corpus / "qrels.parquet")
        table = measures.evaluate(lists, judged, split, ["RR@10", "nDCG@10"])
        told = dict(result["bm25"][split])
        assert told.pop("queries") == result["splits"][split]
        assert told == pytest.approx(measures.aggregate(table), abs=1e-3)


def test_shards_and_order_change_nothing(done: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    mixed = random.Random(4).sample(PASSAGES, len(PASSAGES))
    result = made(mixed, tmp_path, shard=7, per_passage=3)
    assert result == done[1]
    assert rows_of(tmp_path / "out" / "queries.parquet") == rows_of(done[0] / "queries.parquet")
    one, other = contents(tmp_path / "out"), contents(done[0])
    assert set(one) == set(other)
    assert {name for name in one if one[name] != other[name]} <= {"collection/articles/corpus.jsonl.gz"}


def test_copies_answer_alike_and_hide_nothing(tmp_path: Path) -> None:
    copies = [replace(one, doc_id=f"copy-{one.doc_id}") for one in PASSAGES[:30]]
    many = [replace(PASSAGES[40], doc_id=f"page{n}.md#0") for n in range(9)]
    made([*PASSAGES, *copies, *many], tmp_path)
    rows = rows_of(tmp_path / "out" / "queries.parquet")
    twice = {one.doc_id for one in [*PASSAGES[:30], *copies]}
    kept = [row for row in rows if row["kept"]]
    assert {row["source"] for row in kept if row["doc_id"] in twice} == {"keyphrases"}
    often = {PASSAGES[40].doc_id, *(one.doc_id for one in many)}
    assert {row["reason"] for row in rows if row["doc_id"] in often} == {"its passage has too many copies"}
    qrels: dict[str, set[tuple[str, str]]] = {}
    for split in ("train", "dev", "test"):
        text = (tmp_path / "out/collection/articles/qrels" / f"{split}.tsv").read_text()
        for line in text.splitlines()[1:]:
            query_id, doc_id, _ = line.split("\t")
            qrels.setdefault(query_id, set()).add((split, doc_id))
    for row in kept:
        name = row["doc_id"].removeprefix("copy-")
        both = {name, f"copy-{name}"} if row["doc_id"] in twice else {name}
        assert qrels[row["query_id"]] == {(row["split"], doc_id) for doc_id in both}


def test_killed_half_way_it_gives_the_same_bytes(tmp_path: Path) -> None:
    """As a step of a plan: the second run finds what the first has left."""
    docs = [{"_id": one.doc_id, "title": one.title, "text": one.text} for one in PASSAGES]
    write(tmp_path / "given" / "corpus.jsonl", json_lines(docs))
    prepared = Step("prepare", CorpusConfig(name=f"beir:{tmp_path}/given"))
    config = QueriesConfig(sources=ALL)
    step = Step("queries", config, {"corpus": prepared}, content=queries_content(config))
    whole = Runner(Place(str(tmp_path / "store")), LOCAL, Silent()).run(step)
    files = contents(Path(str(whole.place)))
    assert whole.result["name"] == "given" and "queries.html" in files
    out = tmp_path / "again"
    shutil.copytree(Path(str(whole.place)), out)
    (out / "statistics.json").unlink()
    (out / "queries.parquet").write_bytes(b"cut")
    (out / "collection" / "given" / "corpus.jsonl.gz").unlink()
    home = Path(str(prepared.place(Place(str(tmp_path / "store")))))
    corpus = Artifact(Place(str(next(home.glob("**/statistics.json")).parent)), {})
    make_queries(config, {"corpus": corpus}, Place(str(out)))
    del files["record.json"]
    assert {name: data for name, data in contents(out).items() if name in files} == files


def test_caps_and_weights(tmp_path: Path) -> None:
    sources = {"sentences": 3.0, "keyphrases": 1.0}
    result = made(PASSAGES, tmp_path, sources=sources, max_queries=60, per_passage=2)
    kept = [row for row in rows_of(tmp_path / "out" / "queries.parquet") if row["kept"]]
    assert max(Counter(row["doc_id"] for row in kept).values()) == 2
    # A few may be lost to the second search, when the queries that were dropped hide nothing any more.
    assert 12 <= result["sources"]["keyphrases"]["kept"] <= 15 and 40 <= result["sources"]["sentences"]["kept"] <= 45


HOSTILE = "<script>alert(1)</script> <img src=x onerror=alert(2)> & \"quoted' "
TAGS = {"html", "head", "meta", "title", "style", "body", "h1", "p", "del", "article", "h2", "h3"}


class Reader(HTMLParser):
    """Tags with their attributes, and the texts that are struck out."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.text: list[str] = []
        self.struck: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == "del":
            self.struck.append("")

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if self.struck and self.tags[-1] == "del":
            self.struck[-1] += data


def test_the_page_shows_hostile_texts_and_has_none_of_their_markup(tmp_path: Path) -> None:
    passages = [
        replace(one, title=f"{HOSTILE}{one.title}", text=f"{one.text} {HOSTILE}", doc_id=f"<b>{one.doc_id}")
        for one in PASSAGES
    ]
    corpus, out = corpus_of(tmp_path / "corpus", passages, name="<i>own</i>"), Place(str(tmp_path / "out"))
    config = QueriesConfig(sources={"titles": 1.0, "sentences": 1.0, "spans": 1.0})
    page = queries_page(Artifact(out, {"result": make_queries(config, {"corpus": corpus}, out)}), 200)
    reader = Reader()
    reader.feed(page)
    assert {tag.removeprefix("/") for tag in reader.tags} == TAGS
    assert reader.attributes == {"lang", "charset", "name", "content", "class"}, "nothing is fetched"
    assert "script" not in page.replace("&lt;script&gt;", "").replace("&lt;/script&gt;", "")
    assert any("alert(1)" in text for text in reader.text) and "http" not in page
    rows = [row for row in rows_of(tmp_path / "out" / "queries.parquet") if row["kept"]]
    assert reader.tags.count("article") == min(200, len(rows))
    struck = {" ".join(text.split()) for text in reader.struck}
    shown = [row for row in rows if row["hidden_start"] is not None and row["text"] in struck]
    assert len(shown) > 50, "what a query hides is struck out in its passage"
