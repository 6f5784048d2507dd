"""The whole step on a small collection: what is hidden, found, judged and divided, always the same, and shown."""

import gzip
import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import lxml.html
import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from midmask.corpora.assemble import prepare
from midmask.corpora.config import CorpusConfig
from midmask.experiment.changes import apply_changes
from midmask.experiment.graph import Step
from midmask.experiment.kinds import LOCAL
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner
from midmask.queries import selection
from midmask.queries.collection import CollectionFacts, Passage, draw_passages, read_as_searched, split_passages
from midmask.queries.config import QueriesConfig
from midmask.queries.selection import hiding_of, screen, search_again
from midmask.queries.sources import Candidate, Roles, collect, queries_content
from midmask.queries.step import make_queries
from midmask.recipes import RECIPES
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from tests.support.corpora.collections import contents, json_lines, write
from tests.support.corpora.collections import rows as rows_of
from tests.support.queries.articles import HandBm25, articles, corpus_of, opening

ALL = {"titles": 1.0, "sentences": 1.0, "keyphrases": 1.0}
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
    rows = rows_of(done[0] / "queries.parquet")
    assert Counter(row["reason"] for row in rows)["its passage is not found again"] > 5
    for row in rows:
        if not row["kept"]:
            continue
        ranks = hand.ranks(row["text"], [row["doc_id"]])
        assert ranks is not None and ranks[0] <= row["rank"] <= ranks[1] and row["rank"] <= 20


def test_found_again_means_in_the_collection_that_is_written(tmp_path: Path) -> None:
    """Of the queries found first at first, some are not once the dropped ones hide nothing any more."""
    made(PASSAGES, tmp_path, per_passage=3, round_trip_depth=1)
    searched = lines(tmp_path / "out" / "collection" / "articles" / "corpus.jsonl.gz")
    hand = HandBm25({row["_id"]: f"{row['title']} {row['text']}" for row in searched})
    for row in rows_of(tmp_path / "out" / "queries.parquet"):
        if row["kept"]:
            ranks = hand.ranks(row["text"], [row["doc_id"]])
            assert ranks is not None and ranks[0] == row["rank"] == 1


def test_the_numbers_of_the_result(done: tuple[Path, dict[str, Any]], collection: Path, tmp_path: Path) -> None:
    out, result = done
    assert json.loads((out / "statistics.json").read_text()) == result
    rows = rows_of(out / "queries.parquet")
    assert (result["made"], result["kept"]) == (len(rows), sum(row["kept"] for row in rows))
    assert sum(result["splits"].values()) == result["kept"] == result["made"] - sum(result["dropped"].values())
    assert result["split_rule"] == "by document" and result["documents"] == 24
    kept = {row["query_id"]: row for row in rows if row["kept"]}
    assert all(row["kept"] == (row["reason"] == "") == (row["split"] != "") for row in rows)
    of = {name: {"source": row["source"], "document": row["doc_id"].partition("#")[0]} for name, row in kept.items()}
    assert {row["_id"]: row["metadata"] for row in lines(collection / "queries.jsonl.gz")} == of
    assert len({(of[name]["document"], row["split"]) for name, row in kept.items()}) == 24, "none is in two splits"
    for source in ALL:
        own = [row for row in rows if row["source"] == source]
        told = result["sources"][source]
        assert told["made"] == len(own) == told["kept"] + sum(told["dropped"].values())
    read = prepare(CorpusConfig(name=f"beir:{collection}", splits="official"), {}, Place(str(tmp_path)))
    assert (read["name"], read["queries"], read["passages"]) == ("articles", result["kept"], len(PASSAGES))
    assert {split: one["queries"] for split, one in read["splits"].items()} == result["splits"]


def test_shards_and_order_change_nothing(done: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    mixed = random.Random(4).sample(PASSAGES, len(PASSAGES))
    result = made(mixed, tmp_path, shard=7, per_passage=3)
    assert result == done[1]
    assert rows_of(tmp_path / "out" / "queries.parquet") == rows_of(done[0] / "queries.parquet")
    one, other = contents(tmp_path / "out"), contents(done[0])
    assert set(one) == set(other)
    assert {name for name in one if one[name] != other[name]} <= {"collection/articles/corpus.jsonl.gz"}


def test_copies_answer_alike_and_hide_nothing(tmp_path: Path) -> None:
    copies = [one._replace(doc_id=f"copy-{one.doc_id}") for one in PASSAGES[:30]]
    many = [PASSAGES[40]._replace(doc_id=f"page{n}.md#0") for n in range(9)]
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
    whole = Runner(Place(str(tmp_path / "store")), LOCAL).compute(step)
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


HOSTILE = "<script>alert(1)</script> <img src=x onerror=alert(2)> & \"quoted' "
TAGS = {"html", "head", "meta", "title", "style", "body", "h1", "p", "del", "article", "h2", "h3"}


def test_the_page_shows_hostile_texts_and_has_none_of_their_markup(tmp_path: Path) -> None:
    passages = [Passage(f"<b>{name}", f"{HOSTILE}{title}", f"{text} {HOSTILE}") for name, title, text in PASSAGES]
    corpus, out = corpus_of(tmp_path / "corpus", passages, name="<i>own</i>"), Place(str(tmp_path / "out"))
    config = QueriesConfig(sources={"titles": 1.0, "sentences": 1.0})
    make_queries(config, {"corpus": corpus}, out)
    page = (out / "queries.html").read().decode()
    elements = list(lxml.html.document_fromstring(page).iter())
    assert {one.tag for one in elements} == TAGS
    harmless = {"lang", "charset", "name", "content", "class"}
    assert {name for one in elements for name in one.attrib} == harmless, "nothing is fetched"
    assert "script" not in page.replace("&lt;script&gt;", "").replace("&lt;/script&gt;", "")
    assert "alert(1)" in page and "http" not in page
    rows = [row for row in rows_of(tmp_path / "out" / "queries.parquet") if row["kept"]]
    assert [one.tag for one in elements].count("article") == 50 < len(rows)
    struck = {" ".join(one.text_content().split()) for one in elements if one.tag == "del"}
    shown = [row for row in rows if row["hidden_start"] is not None and row["text"] in struck]
    assert len(shown) > 20, "what a query hides is struck out in its passage"


ARTICLES = articles(60)
CONFIG = QueriesConfig(sources={"sentences": 1.0, "keyphrases": 1.0}, round_trip_depth=2, per_passage=1)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """The articles, and an encoder of random weights that reads them."""
    home = tmp_path_factory.mktemp("trip")
    rows = [{"_id": one.doc_id, "title": one.title, "text": one.text} for one in ARTICLES]
    write(home / "articles" / "corpus.jsonl", json_lines(rows))
    changes = {"tokens.titles": True, "tokens.max_length": 64, "tokens.query_length": 64, "backbone.name": "tiny"}
    changes |= {"corpus.name": f"beir:{home / 'articles'}", "representation.dense": "mean"}
    planned = plan(apply_changes(RECIPES["none"](), changes))
    steps = {"corpus": planned.corpus, "encoder": planned.untuned, "tokens": planned.tokens}
    runner = Runner(Place(str(home / "store")), LOCAL)
    return {name: runner.compute(step) for name, step in steps.items()}


def searched_candidates(encoder: dict[str, Artifact], known: CollectionFacts, out: Path) -> list[Candidate]:
    """All that pass the screening, with BM25's ranks."""
    both = Roles(CONFIG.sources, CONFIG.sources)
    found = collect(opening(CONFIG, encoder["corpus"]), both, split_passages(known, CONFIG)[0], Place(str(out)))
    screen(found, known, CONFIG)
    left = [one for one in found if one.is_in]
    search_again(left, known, CONFIG.round_trip_depth)
    return left


@pytest.mark.parametrize("others", [len(ARTICLES), 30])
def test_the_encoder_finds_what_its_vectors_rank_within_the_depth(others, encoder, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(selection, "OTHERS", others)
    known = CollectionFacts(encoder["corpus"].place)
    candidates = searched_candidates(encoder, known, tmp_path)
    for one in candidates[::2]:
        one.rank = None  # as if BM25 had not found it
    selection.find_by_encoder(candidates, encoder, known, CONFIG.round_trip_depth, "fp32")

    lost = [one for one in candidates if one.rank is None]
    pool = {one.made.doc_id for one in lost} | draw_passages(known.doc_ids, 0, "round trip", others)
    texts = {
        one.doc_id: f"{one.title} {one.text}".strip()
        for one in read_as_searched(encoder["corpus"].place, hiding_of(candidates))
        if one.doc_id in pool
    }
    model = SentenceTransformer(str(encoder["encoder"].place.local() / "model"), local_files_only=True, device="cpu")
    passages_PD = model.encode(list(texts.values())).astype(np.float64)
    ids, allowed = list(texts), CONFIG.round_trip_depth * len(texts) // len(ARTICLES)
    found = []
    for one, query_D in zip(lost, model.encode([one.made.text for one in lost]).astype(np.float64), strict=True):
        scores_P = passages_PD @ query_D
        ahead_P = scores_P - scores_P[ids.index(one.made.doc_id)]
        if int((ahead_P > 1e-4).sum()) < allowed <= int((ahead_P > -1e-4).sum()) - 1:
            continue  # whether it is found depends on the last digits
        assert one.by_encoder == (int((ahead_P > 1e-4).sum()) < allowed)
        found.append(one.by_encoder)
    assert len(found) > 20 and any(found) and not all(found)
    assert not any(one.by_encoder for one in candidates if one not in lost), "it is asked for what BM25 does not find"


def test_a_query_that_either_finds_is_kept(encoder: dict[str, Artifact], tmp_path: Path) -> None:
    result = make_queries(CONFIG, encoder, Place(str(tmp_path / "either")))
    rows = rows_of(tmp_path / "either" / "queries.parquet")
    kept = [row for row in rows if row["kept"]]
    assert any((row["rank"] or 99) > CONFIG.round_trip_depth for row in kept)
    assert all(row["by_encoder"] or row["rank"] <= CONFIG.round_trip_depth for row in kept)
    alone = CONFIG.model_copy(update={"round_trip": "bm25"})
    assert make_queries(alone, encoder, Place(str(tmp_path / "bm25")))["kept"] < result["kept"]
    assert not any(row["by_encoder"] for row in rows_of(tmp_path / "bm25" / "queries.parquet"))
