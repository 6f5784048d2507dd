"""The embedded corpus, read from packages that are installed here, and from small ones written for the test."""

import re
import sys
from collections import Counter, defaultdict
from itertools import combinations
from pathlib import Path

import pytest

from tests.support.corpora.collections import prepared, rows

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


def test_texts_are_distinct_and_no_body_repeats_its_summary(networkx: Path) -> None:
    docs, queries = rows(networkx / "docs"), rows(networkx / "queries.parquet")
    assert len({row["text"] for row in docs}) == len({row["doc_id"] for row in docs}) == len(docs)
    assert len({row["text"].lower() for row in queries}) == len(queries)
    body = {row["doc_id"]: row["text"] for row in docs}
    question = {row["query_id"]: row["text"] for row in queries}
    judged = rows(networkx / "qrels.parquet")
    assert all(question[row["query_id"]].lower() not in body[row["doc_id"]].lower() for row in judged)
    assert {row["query_id"] for row in judged} == set(question) and {row["doc_id"] for row in judged} == set(body)
    assert min(len(text.split()) for text in body.values()) >= 8
    assert max(Counter(row["query_id"] for row in judged).values()) <= 10
    assert {row["split"] for row in judged} == {"train", "dev", "test"}


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
    assert rows(tmp_path / "out/aliases.parquet") == [{"doc_id": "toydocs.a.one", "alias": "toydocs.a.same"}]
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
    assert rules["generic summary"] == 11 and rules["test file"] >= 1
