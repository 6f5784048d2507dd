"""The embedded corpus, and what any corpus is put together with: ids, splits, duplicates, self-matches, joins."""

import gzip
import json
import random
import re
import sys
from collections import Counter, defaultdict
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midmask.corpora import writer
from midmask.corpora.assemble import JoinConfig, TextStatistics, join
from midmask.corpora.config import CorpusConfig
from midmask.corpora.duplicates import clusters, signatures, similar_pairs
from midmask.corpora.pydocs import package_folder
from midmask.corpora.reader import corpus_identity
from midmask.corpora.splits import OFFICIAL, Rule, assign_splits
from midmask.errors import UserError
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from tests.support.corpora.collections import contents, json_lines, prepared, quarantine, rows, write, write_beir

BODY = "The first of several words of a body that is long enough to be {}."


@pytest.fixture(scope="module")
def networkx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installed package with many copied docstrings."""
    out = tmp_path_factory.mktemp("pydocs")
    prepared("pydocs", out, packages=("networkx",))
    return out


def package(folder: Path, monkeypatch: pytest.MonkeyPatch, **files: str) -> tuple[str, ...]:
    """An importable package `toydocs` of the given modules; importing any of them would fail."""
    for name, source in {"__init__": "", **files}.items():
        path = folder / "toydocs" / f"{name.replace('__test', '/test')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{source}\nraise SystemExit('imported!')\n")
    monkeypatch.syspath_prepend(str(folder))
    package_folder.cache_clear()
    return ("toydocs",)


def function(name: str, summary: str, body: str) -> str:
    return f'def {name}():\n    """{summary}\n\n    {body}\n    """\n'


def shingles(text: str) -> set[tuple[str, ...]]:
    words = re.sub(r"[^a-z0-9_]+", " ", text.lower()).split()
    return {tuple(words[start : start + 5]) for start in range(max(1, len(words) - 4))}


def near_pairs(texts: dict[str, str], above: float) -> list[tuple[str, str]]:
    """All pairs of a higher Jaccard similarity, by counting shared shingles exactly."""
    sets, holders, shared = {name: shingles(text) for name, text in texts.items()}, defaultdict(list), Counter()
    for name, found in sets.items():
        for shingle in found:
            holders[shingle].append(name)
    for names in holders.values():
        shared.update(combinations(names, 2))
    return [pair for pair, common in shared.items() if common / len(sets[pair[0]] | sets[pair[1]]) > above]


def test_no_near_duplicate_and_no_query_straddles_splits(networkx: Path) -> None:
    judged = rows(networkx / "qrels.parquet")
    split = {row["doc_id"]: row["split"] for row in judged}
    pairs = near_pairs({row["doc_id"]: row["text"] for row in rows(networkx / "docs")}, 0.7)
    assert len(pairs) > 50 and all(split[left] == split[right] for left, right in pairs)
    assert len({(row["query_id"], row["split"]) for row in judged}) == len({row["query_id"] for row in judged})


def test_toy_package_gives_exactly_these_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {
        "a": function("one", "Add two numbers.", BODY.format("one"))
        + function("same", "Sum it all.", BODY.format("one")),
        "b": 'class Thing:\n    """Hold one thing.  It is held here, and nowhere else in the whole world."""\n'
        '    def get(self):\n        """Add two\n        numbers\n\n'
        '        Another body which has more than eight words in it.\n        """\n',
        "c": 'add_docstr(toydocs.fast, r"""\nfast(x, *, y) -> z\n\nRun very fast.\n\nBody of compiled code, '
        'which no definition carries in source.\n""")',
    }
    result = prepared("pydocs", tmp_path / "out", packages=package(tmp_path, monkeypatch, **sources))
    assert [tuple(row.values()) for row in rows(tmp_path / "out/docs")] == [
        ("toydocs.a.one", "toydocs.a", BODY.format("one")),
        ("toydocs.b.Thing", "toydocs.b", "It is held here, and nowhere else in the whole world."),
        ("toydocs.b.Thing.get", "toydocs.b", "Another body which has more than eight words in it."),
        ("toydocs.fast", "toydocs.c", "Body of compiled code, which no definition carries in source."),
    ]
    asked = ["Add two numbers.", "Sum it all.", "Hold one thing.", "Run very fast."]
    assert [row["text"] for row in rows(tmp_path / "out/queries.parquet")] == asked
    judged = {"a.one": ["a.one", "b.Thing.get"], "a.same": ["a.one"], "b.Thing": ["b.Thing"], "fast": ["fast"]}
    wanted = {(f"q:toydocs.{query}", f"toydocs.{doc}") for query, docs in judged.items() for doc in docs}
    found = [(row["query_id"], row["doc_id"]) for row in rows(tmp_path / "out/qrels.parquet")]
    assert set(found) == wanted and len(found) == 5
    assert (result["passages"], result["queries"], result["rows_read"]) == (4, 4, 13)
    assert "toydocs" not in sys.modules


def test_what_is_left_out_is_counted_by_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = BODY.format("kept")
    sources = {
        "good": function("kept", "Keep this one.", body),
        "rules": function("a", "Too short a body.", "only five words are here")
        + 'def b():\n    """No body at all."""\n'
        + function("c", "Say it twice.", f"{body} Say it twice. And go.")
        + function("d", "Args:", body)
        + function("e", "word " * 70, body),
        "generic": "".join(function(f"f{n}", "Do what it does.", f"{body} Number {n}.") for n in range(11)),
        "tests__test_a": function("g", "Test it all.", body),
        "vendored__test": "",
    }
    sources["vendor__test"] = sources["good"]
    result = prepared("pydocs", tmp_path / "out", packages=package(tmp_path, monkeypatch, **sources))
    assert result["passages"] == 1
    rules = result["rules"]
    assert rules["docstrings"] == 1 + 5 + 11
    once = ("short body", "no body", "body repeats its summary", "no summary", "long summary")
    assert [rules[rule] for rule in once] == [1] * 5
    assert rules["generic summary"] == 11


@given(st.lists(st.integers(0, 50), min_size=1), st.integers(1, 7))
def test_streamed_lengths_equal_numpy_on_all_at_once(lengths: list[int], block: int) -> None:
    statistics = TextStatistics()
    for start in range(0, len(lengths), block):
        part = lengths[start : start + block]
        statistics.add(pa.table({"text": ["a word " * (length // 2) + "odd" * (length % 2) for length in part]}))
    summary = statistics.summary()
    array = np.array(lengths, np.float64)
    assert summary["words"]["mean"] == pytest.approx(array.mean())
    assert summary["words"]["median"] == np.percentile(array, 50, method="inverted_cdf")
    assert summary["words"]["p90"] == np.percentile(array, 90, method="inverted_cdf")
    assert summary["words"]["max"] == array.max()


QUERIES = [f"q{n}" for n in range(4000)]


OFFICIALS = [
    *((names, "60/20/20", "dev test train", (0.2, 0.2, 0.6)) for names in ("test", "train", "dev test")),
    ("train test", "tenth of train", "dev train", (0.05, 0.5, 0.45)),
    ("train dev", "half of dev", "dev test", (0.25, 0.25, 0.5)),
]


@pytest.mark.parametrize(("names", "words", "made", "shares"), OFFICIALS)
def test_missing_splits_are_drawn_from_others_and_the_rest_stays(names, words, made, shares) -> None:
    official = names.split() * (4000 // len(names.split()))
    splits, rule = assign_splits(official, QUERIES, set(official), 0)
    assert words in rule.words and rule.made == tuple(made.split())
    assert all(split == own for split, own in zip(splits, official, strict=True) if own not in rule.made)
    assert [splits.count(split) / 4000 for split in ("dev", "test", "train")] == pytest.approx(shares, abs=0.02)


def test_all_judgements_of_a_query_go_to_one_split_whatever_else_there_is() -> None:
    twice = QUERIES + QUERIES[::-1]
    splits, _ = assign_splits(["test"] * 8000, twice, {"test"}, 3)
    assert splits[:4000] == splits[:3999:-1]
    alone, _ = assign_splits(["test"], ["q7"], {"test"}, 3)
    assert alone == [splits[7]]


def test_slices_and_trecs_splits_stay_whatever_is_divided() -> None:
    official = ["test", "test.long", "dl19", "dl20"] * 1000
    splits, rule = assign_splits(official, QUERIES, set(official), 0)
    assert rule.words.startswith("60/20/20") and rule.made == ("dev", "test", "train")
    for split in ("test.long", "dl19", "dl20"):
        assert [found for found, own in zip(splits, official, strict=True) if own == split] == [split] * 1000
    assert {found for found, own in zip(splits, official, strict=True) if own == "test"} == {"train", "dev", "test"}
    for whole in (["dl19", "test.long"] * 2000, ["train", "dev", "test", "extra"] * 1000):
        assert assign_splits(whole, QUERIES, set(whole), 0) == (whole, Rule(OFFICIAL))


WORDS = [f"w{n}" for n in range(500)]


def exact(left: str, right: str) -> float:
    one, other = shingles(left), shingles(right)
    return len(one & other) / len(one | other)


def edited(words: list[str], changes: int, draw: random.Random) -> list[str]:
    copy = list(words)
    for place in draw.sample(range(len(copy)), changes):
        copy[place] = draw.choice(WORDS)
    return copy


def test_estimates_are_close_to_the_exact_similarity_and_pairs_above_are_found() -> None:
    draw = random.Random(1)
    texts = []
    for changes in range(120):
        base = [draw.choice(WORDS) for _ in range(120)]
        texts += [" ".join(base), " ".join(edited(base, changes // 12, draw))]
    minima = signatures(texts)
    agreement = (minima[::2] == minima[1::2]).mean(axis=1)
    similarity = np.array([exact(texts[n], texts[n + 1]) for n in range(0, len(texts), 2)])
    assert np.abs(agreement - similarity).max() < 0.2 and np.abs(agreement - similarity).mean() < 0.05
    found = {tuple(pair) for pair in similar_pairs(minima).tolist()}
    assert {(2 * n, 2 * n + 1) for n in np.flatnonzero(similarity > 0.7)} <= found
    assert all(left + 1 == right and left % 2 == 0 for left, right in found)


def test_clusters_equal_a_slow_closure() -> None:
    draw = np.random.default_rng(0)
    pairs = draw.integers(0, 60, (40, 2))
    reached = np.eye(60, dtype=bool)
    for left, right in pairs:
        reached[left, right] = reached[right, left] = True
    for _ in range(60):
        reached = (reached.astype(int) @ reached.astype(int)) > 0
    assert clusters(60, pairs).tolist() == reached.argmax(axis=1).tolist()


def test_cranfield_has_the_records_of_its_source_and_is_divided_here(cranfield: Path, tmp_path: Path) -> None:
    result = prepared(f"beir:{cranfield}", tmp_path)
    assert (result["name"], result["passages"], result["queries"]) == ("cranfield", 1398, 225)
    assert result["rows_read"] == result["rows_kept"] == 1398 + 225 + 1836
    assert sum(split["judgements"] for split in result["splits"].values()) == 1836
    docs, queries, qrels = (rows(tmp_path / name) for name in ("docs", "queries.parquet", "qrels.parquet"))
    assert [docs[n]["doc_id"] for n in (0, 9, -1)] == ["1", "10", "1400"]
    assert docs[0]["title"].startswith("experimental investigation of the aerodynamics of a wing")
    assert (queries[0]["query_id"], queries[9]["query_id"], queries[-1]["query_id"]) == ("1", "10", "225")
    assert queries[0]["text"].startswith("what similarity laws must be obeyed")
    assert (qrels[0]["query_id"], qrels[0]["doc_id"], qrels[0]["grade"]) == ("1", "184", 3)
    assert result["splits_made_here"] == ["dev", "test", "train"] and "60/20/20" in result["split_rule"]
    other = prepared(f"beir:{cranfield}", tmp_path / "other", split_seed=1)
    assert other["splits"] != result["splits"]


def test_integer_ids_pyserinis_names_and_titles_without_text_are_taken(tmp_path: Path) -> None:
    found = [{"id": 7, "contents": "seven"}, {"_id": 8, "text": "eight"}, {"_id": "a", "title": "only", "text": ""}]
    write(tmp_path / "in/corpus.jsonl", json_lines(found))
    prepared(f"beir:{tmp_path}/in", tmp_path / "out")
    read = [tuple(row.values()) for row in rows(tmp_path / "out/docs")]
    assert read == [("7", "", "seven"), ("8", "", "eight"), ("a", "", "only")]


def test_identity_is_contents_and_short_name_not_the_path(tmp_path: Path) -> None:
    for parent in ("one", "two"):
        write_beir(tmp_path / parent / "set")
    one, two = (corpus_identity(CorpusConfig(name=f"beir:{tmp_path}/{parent}/set")) for parent in ("one", "two"))
    assert one == two
    assert one != corpus_identity(CorpusConfig(name=f"beir:{tmp_path}/one/set", split_seed=1))
    queries = tmp_path / "two/set/queries.jsonl"
    queries.write_bytes(queries.read_bytes().replace(b"passage 3", b"passage 4"))
    assert one != corpus_identity(CorpusConfig(name=f"beir:{tmp_path}/two/set"))


def test_a_sample_keeps_the_queries_that_it_can_answer(tmp_path: Path) -> None:
    write_beir(tmp_path / "in", passages=200, queries=200)
    result = prepared(f"beir:{tmp_path}/in", tmp_path / "out", max_passages=50)
    docs = {row["doc_id"] for row in rows(tmp_path / "out/docs")}
    assert result["passages"] == len(docs) == 50
    assert {row["query_id"] for row in rows(tmp_path / "out/queries.parquet")} == {f"q{doc[1:]}" for doc in docs}
    assert {row["doc_id"] for row in rows(tmp_path / "out/qrels.parquet")} == docs
    assert result["rows_left_out"] == {"max_passages": 450}
    assert result["rows_read"] == 600 == result["rows_kept"] + 450
    assert not quarantine(tmp_path / "out")


def test_preparing_again_after_a_crash_gives_the_same_bytes(tmp_path: Path) -> None:
    write_beir(tmp_path / "in")
    prepared(f"beir:{tmp_path}/in", tmp_path / "out")
    wanted = contents(tmp_path / "out")
    # What a kill leaves behind: a draft, a shard of a longer run, a half-written file.
    (tmp_path / "out/docs/00000.parquet.1234abcd.draft").write_bytes(b"half")
    (tmp_path / "out/docs/00007.parquet").write_bytes(b"stale")
    (tmp_path / "out/qrels.parquet").unlink()
    prepared(f"beir:{tmp_path}/in", tmp_path / "out")
    assert contents(tmp_path / "out") == wanted


def test_texts_of_all_files_are_passages_and_copies_are_counted(tmp_path: Path) -> None:
    texts = [{"text": f"text number {number}"} for number in range(200)]
    write(tmp_path / "in/b.jsonl", json_lines([*texts[:120], {"_id": "own", "title": "t", "text": "with an id"}]))
    (tmp_path / "in/a.jsonl.gz").write_bytes(gzip.compress(json_lines([*texts[120:], texts[0]])))
    write(tmp_path / "in/notes.txt", b"not read")
    result = prepared(f"texts:{tmp_path}/in", tmp_path / "out")
    found = {row["doc_id"]: row["text"] for row in rows(tmp_path / "out/docs")}
    assert result["passages"] == len(found) == 201 and result["rows_read"] == 202
    assert set(found.values()) == {row["text"] for row in texts} | {"with an id"} and found["own"] == "with an id"
    prepared(f"texts:{tmp_path}/in", tmp_path / "again")
    assert rows(tmp_path / "again/docs") == rows(tmp_path / "out/docs")


def write_set(folder: Path, docs: dict[str, str], queries: dict[str, str], qrels: list[tuple[str, str, int]]) -> str:
    for file, texts in (("corpus.jsonl", docs), ("queries.jsonl", queries)):
        write(folder / file, json_lines([{"_id": name, "text": text} for name, text in texts.items()]))
    write(folder / "qrels/test.tsv", "".join(f"{query}\t{doc}\t{grade}\n" for query, doc, grade in qrels).encode())
    return f"beir:{folder}"


def pairs(out: Path) -> set[tuple[str, str]]:
    path = out / "self_matches.parquet"
    return {(row["query_id"], row["doc_id"]) for row in rows(path)} if path.exists() else set()


QUORA = {"1": "how to fly", "2": "how to fly?", "3": "why is it so", "4": "how to fly"}


def test_quoras_queries_are_the_passages_of_their_ids_only(tmp_path: Path) -> None:
    """Passage 4 has the text of query 1, but is another question; it stays, as in BEIR's own evaluation."""
    name = write_set(tmp_path / "in", QUORA, {"1": "how to fly", "3": " why is it so "}, [("1", "2", 1), ("3", "2", 1)])
    facts = prepared(name, tmp_path / "out")["self_matches"]
    assert facts == {"rule": "id", "pairs": 2, "same_id": 2, "same_id_and_text": 2}
    assert pairs(tmp_path / "out") == {("1", "1"), ("3", "3")}


def test_numbers_that_agree_by_chance_are_no_self_matches(tmp_path: Path) -> None:
    """MS MARCO: query 1 is not passage 1. One query in three that is a passage by chance changes nothing."""
    queries = {"1": "what is this", "2": "what is that", "9": "why is it so"}
    name = write_set(tmp_path / "in", QUORA, queries, [("1", "1", 1), ("2", "2", 1), ("9", "4", 1)])
    facts = prepared(name, tmp_path / "out")["self_matches"]
    assert facts == {"rule": "none", "pairs": 0, "same_id": 2, "same_id_and_text": 0}
    assert pairs(tmp_path / "out") == set()


@pytest.mark.parametrize(("rule", "wanted"), [("none", set()), ("id", {("2", "2")})])
def test_the_rule_can_be_given_and_a_relevant_passage_stays(tmp_path: Path, rule: str, wanted: set[Any]) -> None:
    name = write_set(tmp_path / "in", QUORA, {"1": "what is this", "2": "that"}, [("1", "1", 1), ("2", "2", 0)])
    facts = prepared(name, tmp_path / "out", self_matches=rule)["self_matches"]
    assert (facts["rule"], facts["pairs"]) == (rule, len(wanted)) and pairs(tmp_path / "out") == wanted


NAMES = ("one", "two", "plain")


@pytest.fixture
def corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Artifact]:
    """Three prepared collections of 40, 23 and 5 passages; the ids of two are the same; shards hold 24 rows."""
    monkeypatch.setattr(writer, "GROUP_ROWS", 8)
    monkeypatch.setattr(writer, "SHARD_GROUPS", 3)
    write_beir(tmp_path / "in/one", passages=40)
    write_beir(tmp_path / "in/two", passages=23, queries=6, packed=True)
    texts = [{"id": f"t{number}", "text": f"a text é {number}"} for number in range(5)]
    write(tmp_path / "in/plain/a.jsonl", json_lines(texts))
    found = {}
    for number, (kind, name) in enumerate((("beir", "one"), ("beir", "two"), ("texts", "plain"))):
        result = prepared(f"{kind}:{tmp_path}/in/{name}", tmp_path / name)
        found[f"corpus{number}"] = Artifact(Place(str(tmp_path / name)), {"fingerprint": name, "result": result})
    return found


def joined(corpora: dict[str, Artifact], out: Path, names: tuple[str, ...] = NAMES) -> dict[str, Any]:
    return join(JoinConfig(names=names), corpora, Place(str(out)))


def read_apart(folder: Path) -> list[tuple[str, str, str]]:
    """(id, title, text) straight from the sources, with the collection's name before the id."""
    found = []
    for name in NAMES:
        for path in sorted((folder / name).glob("*.jsonl*")):
            if "queries" in path.name:
                continue
            text = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()
            for line in map(json.loads, text.splitlines()):
                found.append((f"{name}/{line.get('_id', line.get('id'))}", line.get("title", ""), line["text"]))
    return found


def test_all_passages_of_each_in_order_and_nothing_else(corpora: dict[str, Artifact], tmp_path: Path) -> None:
    result = joined(corpora, tmp_path / "out")
    found = [(row["doc_id"], row["title"], row["text"]) for row in rows(tmp_path / "out/docs")]
    assert found == read_apart(tmp_path / "in")
    assert len({doc_id for doc_id, _, _ in found}) == 68
    sizes = [pq.read_metadata(path).num_rows for path in sorted((tmp_path / "out/docs").iterdir())]
    assert sizes == [24, 24, 20], "shards do not end where collections do"
    assert rows(tmp_path / "out/queries.parquet") == rows(tmp_path / "out/qrels.parquet") == []
    assert (result["passages"], result["queries"]) == (68, 0)
    assert [tuple(row.values()) for row in result["collections"]] == [("one", 40), ("two", 23), ("plain", 5)]


def test_an_interrupted_call_leaves_no_trace(corpora: dict[str, Artifact], tmp_path: Path) -> None:
    """A shard of the second collection is cut off after some shards were written; the next call finds it whole."""
    joined(corpora, tmp_path / "whole")
    shard = tmp_path / "two/docs/00000.parquet"
    good = shard.read_bytes()
    shard.write_bytes(good[:-200])
    with pytest.raises(Exception, match="Parquet"):
        joined(corpora, tmp_path / "out")
    assert (tmp_path / "out/docs/00000.parquet").exists()
    (tmp_path / "out/docs/00007.parquet.0a1b2c3d.draft").write_bytes(b"half a shard")
    shard.write_bytes(good)
    joined(corpora, tmp_path / "out")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_two_collections_of_one_name_are_refused() -> None:
    with pytest.raises(UserError, match=r"two collections are named 'wiki', .*rename the folder of one"):
        JoinConfig(names=("wiki", "squad", "wiki"))
