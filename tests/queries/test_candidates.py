"""Each source on passages whose queries are known, queries of a file, term weights, and impossible settings."""

import gzip
import json
import logging
import math
import random
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from midmask.core.config import override
from midmask.errors import UserError
from midmask.queries import selection, sources
from midmask.queries.collection import (
    BY_DOCUMENT,
    BY_PASSAGE,
    CollectionFacts,
    MadeQuery,
    Passage,
    split_by_document,
    without_hidden,
)
from midmask.queries.config import QueriesConfig
from midmask.queries.selection import draw_shares, drop_unretrieved, normalised
from midmask.queries.source_classes import STOP_WORDS, title_query
from midmask.queries.sources import Candidate, Roles, Source, open_source, queries_content, roles_of
from midmask.queries.step import make_queries
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from tests.support.corpora.collections import rows as rows_of
from tests.support.queries.articles import STOP, articles, corpus_of, opening, stems

PASSAGES = articles(6)

PLAIN = ("titles", "sentences", "keyphrases")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return corpus_of(tmp_path_factory.mktemp("articles") / "corpus", PASSAGES)


def source_of(kind: str, corpus: Artifact | None = None, **fields: Any) -> Source:
    return open_source(kind, opening(QueriesConfig(**fields), corpus))


@pytest.mark.parametrize("name", PLAIN)
def test_the_same_queries_in_whatever_pieces_and_order(name: str, corpus: Artifact) -> None:
    whole = list(source_of(name, corpus).queries(PASSAGES))
    assert len({made.doc_id for made in whole}) == len(PASSAGES), "every passage of this collection gives a query"
    mixed = random.Random(3).sample(PASSAGES, len(PASSAGES))
    pieces = [made for one in mixed for made in source_of(name, corpus).queries([one])]
    assert Counter(pieces) == Counter(whole)
    order = [one.doc_id for one in mixed]
    assert [made.doc_id for made in pieces] == sorted((made.doc_id for made in pieces), key=order.index)


HEADINGS = {
    "Wing flutter": "Wing flutter", "Guide \u203a Install \u203a On  Linux": "On Linux", "Linux": "", " \u203a ": "",
    " ".join(["word"] * 20): " ".join(["word"] * 20), " ".join(["word"] * 21): "",
}  # fmt: skip


@pytest.mark.parametrize(("title", "query"), HEADINGS.items())
def test_a_title_is_its_last_heading(title: str, query: str) -> None:
    assert title_query(title) == query


def test_titles_hide_themselves_and_their_copy_at_the_beginning(tmp_path: Path) -> None:
    passages = [
        Passage("a", "Wing flutter", "Of wings that flutter."),
        Passage("b", "Boundary layers", "BOUNDARY-layers. They are thin."),
        Passage("c", "Guide \u203a Heat transfer", "# Heat transfer\nIt cools."),
        Passage("d", "Heat (transfer)", "Heat transferred by a wall."),
        Passage("e", "Shared name", "One."),
        Passage("f", "Shared name", "Two."),
        Passage("g", "Shared name", "Three."),
        Passage("h", "", "No title at all."),
    ]
    titles = source_of("titles", corpus_of(tmp_path / "corpus", passages), copies=2)
    found = list(titles.queries(passages))
    assert found == [
        MadeQuery("a", "Wing flutter", None, True),
        MadeQuery("b", "Boundary layers", (0, 16), True),
        MadeQuery("c", "Heat transfer", (0, 15), True),
        MadeQuery("d", "Heat (transfer)", None, True),
    ]


def test_sentences_are_whole_of_fitting_length_and_no_more_than_half() -> None:
    short, fitting, long = "Too short for it.", "Six words are enough for\na  query.", " ".join(["long"] * 31) + "."
    text = f"{short} {fitting}  {long}"
    start = text.index("Six")
    wanted = MadeQuery("p", "Six words are enough for a query.", (start, start + len(fitting)))
    assert list(source_of("sentences", per_passage=5).queries([Passage("p", "", text)])) == [wanted]
    more_than_half = Passage("p", "", f"{fitting} {short}")
    assert not list(source_of("sentences", per_passage=5).queries([more_than_half]))
    one = {made.hidden for made in source_of("sentences", per_passage=1).queries(PASSAGES)}
    other = {made.hidden for made in source_of("sentences", seed=1, per_passage=1).queries(PASSAGES)}
    assert one != other, "another seed draws others"


def test_keyphrases_are_phrases_of_words_that_others_have_too(corpus: Artifact) -> None:
    have = Counter(stem for one in PASSAGES for stem in set(stems(f"{one.title} {one.text}")))
    of = {one.doc_id: one for one in PASSAGES}
    used: dict[str, list[str]] = {}
    for made in source_of("keyphrases", corpus, per_passage=2).queries(PASSAGES):
        words = made.text.split()
        assert 2 <= len(words) <= 5 and made.hidden is None and not made.hides_title
        assert not set(words) & (STOP_WORDS | set(STOP)), "no stop words"
        assert all(have[stem] >= 2 for stem in stems(made.text))
        rest = of[made.doc_id].text.lower()
        for one in words:
            assert one in rest, "in the order of the text"
            rest = rest[rest.index(one) + len(one) :]
        used.setdefault(made.doc_id, []).extend(stems(made.text))
    assert all(len(own) == len(set(own)) for own in used.values()), "no stem is asked for twice"


TEXTS = (("Wings", "flutter"), ("", "the wing stalls"), ("", "a flame"), ("Flame", "flames and flames"))


def test_idf(tmp_path: Path) -> None:
    passages = [Passage(f"{number}", *texts) for number, texts in enumerate(TEXTS)]
    known = CollectionFacts(corpus_of(tmp_path, passages).place)
    wing, stall, unknown = known.stems("wing stalling zeppelin")
    assert [known.frequency[stem] for stem in (wing, stall, unknown)] == [2, 1, 0]
    of = {n: math.log(1 + (4 - n + 0.5) / (n + 0.5)) for n in (0, 1, 2)}
    assert known.idf(wing) == pytest.approx(of[2]) and known.idf(unknown) == pytest.approx(of[0])


def test_texts_that_differ_in_case_and_signs_are_one_query() -> None:
    assert normalised(" What's  a (Wing)? ") == normalised("what s a wing") == "what s a wing"


def test_files_and_libraries_are_part_of_the_identity(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("what is a wing\n")
    config = QueriesConfig(sources={f"file:{tmp_path}/q.txt": 1.0, "sentences": 1.0})
    before = queries_content(config)
    assert before["sentences"].keys() == {"sentencex"} and before["libraries"].keys() == {"bm25s", "PyStemmer"}
    (tmp_path / "q.txt").write_text("what is a flame\n")
    assert queries_content(config) != before
    with pytest.raises(UserError, match="there is no such file"):
        queries_content(QueriesConfig(sources={f"file:{tmp_path}/none.txt": 1.0}))
    with pytest.raises(UserError, match=r"no config.json in it; name a model folder"):
        queries_content(QueriesConfig(sources={f"model:{tmp_path}": 1.0}))


IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"sources": {"title": 1.0}}, "'title'; choose titles, sentences, keyphrases, file:PATH"),
    ({"sources": {"titles": 0.0}}, "weights are above 0"),
    ({"sources": {"file:/a": 1.0, "file:/./a": 2.0}}, "is named twice"),
    ({"dev_share": 0.5, "test_share": 0.5}, "nothing is left for train"),
]


@pytest.mark.parametrize(("changes", "message"), IMPOSSIBLE)
def test_impossible_configs_name_the_choices(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        override(QueriesConfig(), changes)
    assert "\n" not in str(error.value)


def test_a_path_has_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = QueriesConfig(sources={"file:q.jsonl": 2.0, "model:m": 1.0})
    assert config.sources == {f"file:{tmp_path}/q.jsonl": 2.0, f"model:{tmp_path}/m": 1.0}


LINES = [
    json.dumps({"doc_id": PASSAGES[0].doc_id, "queries": ["what is a wing", " why "]}),
    f"{PASSAGES[1].doc_id}\twhere does it fly",
    json.dumps({"doc_id": "elsewhere", "query": "lost"}),
    json.dumps({"doc_id": PASSAGES[2].doc_id, "queries": []}),
    "no passage",
]


def test_a_file_gives_passages_their_queries_and_other_lines_are_counted(corpus, tmp_path, caplog) -> None:
    (tmp_path / "q.jsonl.gz").write_bytes(gzip.compress("\n".join(LINES).encode()))
    with caplog.at_level(logging.WARNING, "midmask"):
        found = list(source_of(f"file:{tmp_path}/q.jsonl.gz", corpus).queries(PASSAGES))
    assert [(made.doc_id, made.text) for made in found] == [
        *((PASSAGES[0].doc_id, text) for text in ("what is a wing", "why")),
        (PASSAGES[1].doc_id, "where does it fly"),
    ]
    assert "3 lines have no query of a passage" in caplog.text
    (tmp_path / "none.jsonl").write_text(LINES[2])
    with pytest.raises(UserError, match="it has no query of a passage; wanted are lines"):
        source_of(f"file:{tmp_path}/none.jsonl", corpus)


FEW_ARTICLES = articles(4)
LONG = FEW_ARTICLES[0].text
A, B, C = (one.doc_id for one in FEW_ARTICLES[:3])


def reasons(folder: Path, made: list[MadeQuery], extra: list[Passage] | None = None, **fields: int) -> list[str]:
    """Candidates take their places in the order in which they stand here."""
    passages = [*FEW_ARTICLES, *(extra or [])]
    known = CollectionFacts(corpus_of(folder, passages).place)
    of = {one.doc_id: one for one in passages}
    some = [Candidate(one, of[one.doc_id], "sentences", f"q{n:03d}", "train", float(n)) for n, one in enumerate(made)]
    selection.screen(some, known, QueriesConfig(**fields))
    return [one.reason for one in some]


def asked(doc_id: str, text: str, hidden: tuple[int, int] | None = None, title: bool = False) -> MadeQuery:
    return MadeQuery(doc_id, text, hidden, title)


def test_one_text_of_several_passages_is_no_query(tmp_path: Path) -> None:
    made = [asked(A, "What is it?"), asked(B, "what  IS it"), asked(C, "another one"), asked(C, "Another one!")]
    assert reasons(tmp_path, made) == [selection.AMBIGUOUS, selection.AMBIGUOUS, "", selection.REPEATED]


def test_copies(tmp_path: Path) -> None:
    twin = Passage("twin", "", FEW_ARTICLES[0].text)
    made = [asked(A, "the same"), asked("twin", "The same"), asked(A, "a span", (0, 20))]
    made.append(asked(A, "a title", None, True))
    wanted = ["", selection.REPEATED, selection.COPY_SHOWS_IT, selection.COPY_SHOWS_IT]
    assert reasons(tmp_path / "two", made, [twin], copies=2) == wanted
    assert reasons(tmp_path / "one", made, [twin], copies=1) == [selection.MANY_COPIES] * 4


def test_words_places_and_parts(tmp_path: Path) -> None:
    words = LONG.split()
    early, late = " ".join(words[:6]), " ".join(words[-6:])
    ends = (len(early), len(LONG) - len(late))
    made = [
        asked(A, "? a"), asked(A, early, (0, ends[0])), asked(A, " ".join(words[3:9]), (ends[0] - 3, ends[0] + 20)),
        asked(A, late, (ends[1], len(LONG))), asked(A, "one too many of it"),
    ]  # fmt: skip
    wanted = [selection.NO_WORD, "", selection.OVERLAPS, "", selection.ENOUGH]
    assert reasons(tmp_path, made, per_passage=2) == wanted


@pytest.mark.parametrize(("left", "reason"), [(8, ""), (7, selection.LITTLE_LEFT)])
def test_something_of_a_passage_is_left(tmp_path: Path, left: int, reason: str) -> None:
    kept, hidden = " ".join(f"kept{n}" for n in range(left)), " ".join(f"gone{n}" for n in range(9))
    passage = Passage("small#0", "", f"{hidden} {kept}")
    assert reasons(tmp_path, [asked("small#0", hidden, (0, len(hidden)))], [passage]) == [reason]


def test_what_stands_there_a_second_time_gives_it_away(tmp_path: Path) -> None:
    rest = "and all the other words of the passage that are left of it"
    passages = [
        Passage("twice#0", "", f"wings flutter much. {rest} Wings  flutter, MUCH!"),
        Passage("short#0", "", "wings flutter. Here something else is told, of which wings flutter is a part"),
        Passage("title#0", "Fluttering wings", "fluttering wings"),
    ]
    made = [
        asked("twice#0", "wings flutter much", (0, 19)),
        asked("short#0", "wings flutter", (0, 14)),
        asked("title#0", "Fluttering wings", None, True),
    ]
    assert reasons(tmp_path, made, passages) == [selection.STANDS_THERE, "", selection.STANDS_THERE]


def test_hidden_parts_leave_a_space() -> None:
    passage = Passage("p", "A title", "one two three, four five six.")
    hide = [asked("p", "", (15, 24)), asked("p", "", (4, 7)), asked("p", "", None)]
    assert without_hidden(passage, hide) == Passage("p", "A title", "one three, six.")
    assert without_hidden(passage, [asked("p", "", (0, 3), True)]) == Passage("p", "", "two three, four five six.")
    assert without_hidden(passage, hide[2:]) == passage


def candidate(number: int, source: str = "sentences", rank: int | None = 1, split: str = "train") -> Candidate:
    made, passage = MadeQuery(f"d{number}", f"query {number}"), Passage(f"d{number}", "", "")
    return Candidate(made, passage, source, f"{source}-{number:04d}", split, float(number), rank=rank)


SHARES = [
    ({"a": 3, "b": 1}, {"a": 4, "b": 50}, 20, {"a": 4, "b": 16}),
    ({"a": 1, "b": 1, "c": 2}, {"a": 1, "b": 100, "c": 100}, 31, {"a": 1, "b": 10, "c": 20}),
    ({"a": 1, "b": 1, "c": 1}, {"a": 9, "b": 9, "c": 9}, 10, {"a": 4, "b": 3, "c": 3}),
    ({"a": 1, "b": 1}, {"a": 2, "b": 0}, 10, {"a": 2, "b": 0}),
]


@pytest.mark.parametrize(("weights", "available", "total", "wanted"), SHARES)
def test_shares(weights: dict[str, float], available: dict[str, int], total: int, wanted: dict[str, int]) -> None:
    assert selection.shares(weights, available, total) == wanted


def test_shares_never_exceed_what_is_there_and_use_all_that_is_asked_for() -> None:
    random_ = random.Random(0)
    for _ in range(300):
        weights = {name: random_.choice([0.1, 1, 1, 2.5]) for name in "abcd"}
        available = {name: random_.randint(0, 40) for name in "abcd"}
        total = random_.randint(1, 150)
        found = selection.shares(weights, available, total)
        assert all(0 <= found[name] <= available[name] for name in "abcd")
        assert sum(found.values()) == min(total, sum(available.values()))
        full = [name for name in "abcd" if found[name] < available[name]]
        each = [Fraction(found[name]) / Fraction(weights[name]) for name in full]
        assert not each or max(each) - min(each) <= 20, "sources with room left have their weights' shares"


def test_the_first_by_place_are_kept() -> None:
    some = [candidate(n, "a") for n in range(6)] + [candidate(n, "b") for n in range(6)]
    random.Random(1).shuffle(some)
    judging = [candidate(n, "c", split=("dev", "test")[n % 2]) for n in range(40)]
    config = QueriesConfig(max_queries=30, dev_share=0.4, test_share=0.4)
    draw_shares([*some, *judging], Roles({"a": 2.0, "b": 1.0}, {"c": 1.0}), config)
    assert sorted(one.query_id for one in some if one.is_in) == [*(f"a-000{n}" for n in range(4)), "b-0000", "b-0001"]
    assert [one.is_in for one in judging] == [n < 24 for n in range(40)], "training takes none of their places"


def test_only_what_is_within_the_depth_is_found() -> None:
    some = [candidate(0, rank=20), candidate(1, rank=21), candidate(2, rank=None)]
    assert drop_unretrieved(some, 20) and [one.is_in for one in some] == [True, False, False]
    assert not drop_unretrieved(some[:1], 20)
    by_encoder = candidate(3, rank=None)
    by_encoder.by_encoder = True
    assert not drop_unretrieved([by_encoder], 20) and by_encoder.is_in


def test_no_document_is_in_two_splits_and_shares_are_kept() -> None:
    random_ = random.Random(2)
    documents = {f"q{n}": [f"doc{random_.randint(0, 80)}"] for n in range(400)}
    documents |= {"both": ["doc1", "doc2"], "and": ["doc2", "doc3"]}
    passages = {query: [f"p{query}"] for query in documents}
    splits, rule = split_by_document(documents, passages, QueriesConfig())
    assert rule == BY_DOCUMENT and set(splits) == set(documents)
    of: dict[str, set[str]] = {}
    for query, own in documents.items():
        for name in own:
            of.setdefault(name, set()).add(splits[query])
    assert all(len(found) == 1 for found in of.values()) and of["doc1"] == of["doc2"] == of["doc3"]
    for name, share in (("train", 0.6), ("dev", 0.15), ("test", 0.25)):
        assert abs(sum(split == name for split in splits.values()) / len(splits) - share) < 0.03
    backwards = dict(reversed(documents.items()))
    assert split_by_document(backwards, passages, QueriesConfig())[0] == splits
    assert split_by_document(documents, passages, QueriesConfig(seed=1))[0] != splits


def test_one_large_document_is_divided_by_passage() -> None:
    documents = {f"q{n}": ["the book"] for n in range(100)}
    passages = {f"q{n}": [f"p{n // 2}"] for n in range(100)}
    splits, rule = split_by_document(documents, passages, QueriesConfig())
    assert rule == BY_PASSAGE and set(splits.values()) == {"train", "dev", "test"}
    assert all(splits[f"q{n}"] == splits[f"q{n + 1}"] for n in range(0, 100, 2)), "a passage is in one split"


MANY = articles(120)
WEIGHED = {"titles": 1.0, "sentences": 1.0, "keyphrases": 2.0}


def roles(passages: list[Passage], folder: Path, **fields: object) -> Roles:
    return roles_of(opening(QueriesConfig(**{"sources": WEIGHED, **fields}), corpus_of(folder, passages)))


def test_titles_judge_where_passages_have_their_own_and_else_sentences(tmp_path: Path) -> None:
    titled = roles(MANY, tmp_path / "titled")
    assert titled == Roles({"sentences": 1.0, "keyphrases": 2.0}, {"titles": 1.0})
    assert titled.splits("titles") == ("dev", "test") and titled.splits("keyphrases") == ("train",)
    assert titled.share("keyphrases", "train") == 2 / 3 and titled.share("keyphrases", "dev") == 0
    untitled = [Passage(one.doc_id, "", one.text) for one in MANY]
    assert roles(untitled, tmp_path / "untitled").judge == {"sentences": 1.0}
    shared = [Passage(one.doc_id, one.doc_id.partition("#")[0], one.text) for one in MANY]
    assert roles(shared, tmp_path / "shared").judge == {"sentences": 1.0}, "five passages share each title"


def test_what_is_written_for_passages_judges_before_what_is_cut_out_and_keyphrases_never_do(tmp_path: Path) -> None:
    written = tmp_path / "written.tsv"
    written.write_text("".join(f"{one.doc_id}\twhat is this\n" for one in MANY))
    asked = roles(MANY, tmp_path / "asked", sources={**WEIGHED, f"file:{written}": 1.0})
    assert asked.judge == {f"file:{written}": 1.0}
    alone = roles(MANY, tmp_path / "alone", sources={"keyphrases": 1.0})
    assert alone.train == alone.judge == {"keyphrases": 1.0}


def test_in_a_small_collection_or_with_one_source_every_source_does_both(tmp_path: Path) -> None:
    few = roles(MANY[:200], tmp_path / "few")
    assert few.train == few.judge == WEIGHED
    alone = roles(MANY, tmp_path / "alone", sources={"sentences": 1.0})
    assert alone.train == alone.judge == {"sentences": 1.0}


def test_a_split_has_queries_of_its_sources_alone_and_what_fits_nowhere_is_counted(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sources, "ENOUGH", 50)
    corpus = corpus_of(tmp_path / "corpus", MANY[:300])
    config = QueriesConfig(sources=WEIGHED, max_queries=200)
    result = make_queries(config, {"corpus": corpus}, Place(str(tmp_path / "out")))
    assert (result["train_sources"], result["judge_sources"]) == (["sentences", "keyphrases"], ["titles"])
    assert result["splits"]["train"] == 120 and result["splits"]["dev"] + result["splits"]["test"] <= 80
    rows = rows_of(tmp_path / "out" / "queries.parquet")
    for row in rows:
        if row["kept"]:
            assert (row["source"] == "titles") == (row["split"] != "train")
    other = [row for row in rows if row["reason"] == "its document is for queries of other sources"]
    assert other and {row["source"] for row in other} == {"titles"}, "others read no document that is not for them"
