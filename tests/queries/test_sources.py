"""Each source on passages whose queries are known, queries of a file, term weights, and impossible settings."""

import gzip
import json
import math
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.identity import override
from midmask.queries.config import QueriesConfig
from midmask.queries.files import FileQueries, parse_query_line
from midmask.queries.keyphrases import KeyphraseQueries
from midmask.queries.made import MadeQuery, Passage, Source
from midmask.queries.round_trip import bm25_over
from midmask.queries.sentences import SentenceQueries
from midmask.queries.sources import queries_content
from midmask.queries.spans import SpanQueries
from midmask.queries.step import make_queries
from midmask.queries.titles import TitleQueries, title_query
from midmask.queries.words import STOP_WORDS, TermWeights, normalised
from midmask.retrieve.bm25_search import Bm25Index
from tests.support.corpora.collections import rows as rows_of
from tests.support.queries.articles import STOP, HandBm25, articles, corpus_of, stems

PASSAGES = articles(6)


def weights_of(passages: Sequence[Passage]) -> TermWeights:
    return TermWeights(f"{one.title} {one.text}" for one in passages)


def sources() -> dict[str, Source]:
    shared = Counter(one.title for one in PASSAGES)
    return {
        "titles": TitleQueries(shared, 3),
        "sentences": SentenceQueries(0, 2),
        "spans": SpanQueries(0, 2),
        "keyphrases": KeyphraseQueries(weights_of(PASSAGES), 0, 2),
    }


@pytest.mark.parametrize("name", sources())
def test_the_same_queries_in_whatever_pieces_and_order(name: str) -> None:
    whole = list(sources()[name].queries(PASSAGES))
    assert len({made.doc_id for made in whole}) == len(PASSAGES), "every passage of this collection gives a query"
    assert all(made.source == name for made in whole)
    mixed = random.Random(3).sample(PASSAGES, len(PASSAGES))
    pieces = [made for one in mixed for made in sources()[name].queries([one])]
    assert Counter(pieces) == Counter(whole)
    order = [one.doc_id for one in mixed]
    assert [made.doc_id for made in pieces] == sorted((made.doc_id for made in pieces), key=order.index)


HEADINGS = {
    "Wing flutter": "Wing flutter",
    "Guide \u203a Install \u203a On  Linux": "On Linux",
    "Linux": "",
    " \u203a ": "",
    " ".join(["word"] * 20): " ".join(["word"] * 20),
    " ".join(["word"] * 21): "",
}


@pytest.mark.parametrize(("title", "query"), HEADINGS.items())
def test_a_title_is_its_last_heading(title: str, query: str) -> None:
    assert title_query(title) == query


def test_titles_hide_themselves_and_their_copy_at_the_beginning() -> None:
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
    found = list(TitleQueries(Counter(one.title for one in passages), 2).queries(passages))
    assert found == [
        MadeQuery("a", "Wing flutter", "titles", None, True),
        MadeQuery("b", "Boundary layers", "titles", (0, 16), True),
        MadeQuery("c", "Heat transfer", "titles", (0, 15), True),
        MadeQuery("d", "Heat (transfer)", "titles", None, True),
    ]


def test_sentences_are_whole_of_fitting_length_and_no_more_than_half() -> None:
    short, fitting, long = "Too short for it.", "Six words are enough for\na  query.", " ".join(["long"] * 31) + "."
    text = f"{short} {fitting}  {long}"
    start = text.index("Six")
    wanted = MadeQuery("p", "Six words are enough for a query.", "sentences", (start, start + len(fitting)))
    assert list(SentenceQueries(0, 5).queries([Passage("p", "", text)])) == [wanted]
    assert not list(SentenceQueries(0, 5).queries([Passage("p", "", f"{fitting} {short}")])), "more than half"
    one = {made.hidden for made in SentenceQueries(0, 1).queries(PASSAGES)}
    other = {made.hidden for made in SentenceQueries(1, 1).queries(PASSAGES)}
    assert one != other, "another seed draws others"


def test_spans_are_words_of_the_text_that_do_not_meet() -> None:
    of = {one.doc_id: one for one in PASSAGES}
    lengths = Counter()
    taken: dict[str, list[tuple[int, int]]] = {}
    for made in SpanQueries(0, 4).queries(PASSAGES):
        assert made.hidden is not None
        start, end = made.hidden
        assert made.text == of[made.doc_id].text[start:end] == made.text.strip()
        assert all(end <= first or last <= start for first, last in taken.get(made.doc_id, []))
        taken.setdefault(made.doc_id, []).append(made.hidden)
        lengths[len(made.text.split())] += 1
    assert set(lengths) == set(range(4, 11))
    assert not list(SpanQueries(0, 4).queries([Passage("p", "", "one two three four five six seven eight")]))


def test_keyphrases_are_phrases_of_words_that_others_have_too() -> None:
    weights = weights_of(PASSAGES)
    have = Counter(stem for one in PASSAGES for stem in set(stems(f"{one.title} {one.text}")))
    of = {one.doc_id: one for one in PASSAGES}
    used: dict[str, list[str]] = {}
    for made in KeyphraseQueries(weights, 0, 2).queries(PASSAGES):
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


TEXTS = ("Wings flutter", "the wing stalls", "a flame", "flames and flames")


def test_idf_and_overlap() -> None:
    weights = TermWeights(TEXTS)
    wing, stall, unknown = weights.stems("wing stalling zeppelin")
    assert [weights.frequency(stem) for stem in (wing, stall, unknown)] == [2, 1, 0]
    of = {n: math.log(1 + (4 - n + 0.5) / (n + 0.5)) for n in (0, 1, 2)}
    assert weights.idf(wing) == pytest.approx(of[2]) and weights.idf(unknown) == pytest.approx(of[0])
    whole = of[2] + of[1] + of[0]
    assert weights.overlap("winged? Wing stalls, zeppelin", "two wings") == pytest.approx(of[2] / whole)
    assert weights.overlap("wing stall", "The stalled wings") == 1.0
    assert weights.overlap("? !", "anything") == 0.0


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
    ({"sources": {"title": 1.0}}, "'title'; choose titles, sentences, spans, keyphrases, file:PATH"),
    ({"sources": {"titles": 0.0}}, "weights are above 0"),
    ({"sources": {"http://a/v1": 1.0, "http:http://a/v1": 2.0}}, "is named twice"),
    ({"dev_share": 0.5, "test_share": 0.5}, "nothing is left for train"),
]


@pytest.mark.parametrize(("changes", "message"), IMPOSSIBLE)
def test_impossible_configs_name_the_choices(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        override(QueriesConfig(), changes)
    assert "\n" not in str(error.value)


def test_a_server_and_a_path_have_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = QueriesConfig(sources={"http:https://host:8/v1": 1.0, "file:q.txt": 2.0, "model:m": 1.0})
    assert config.sources == {"https://host:8/v1": 1.0, f"file:{tmp_path}/q.txt": 2.0, f"model:{tmp_path}/m": 1.0}


SEARCHED = articles(12)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Bm25Index:
    folder = tmp_path_factory.mktemp("index")
    return bm25_over(corpus_of(folder / "corpus", SEARCHED).place, {}, Place(str(folder / "index")))


def real_looking() -> list[str]:
    """Parts of passages, some of words that many passages have."""
    return [" ".join(one.text.split()[at : at + 4]) for one in SEARCHED for at in (2, 20)]


LINES = [
    ("what is  a wing", False, "what is a wing"),
    ("17\twhat is a wing", False, "what is a wing"),
    (" ", False, None),
    ('{"text": "a wing"}', True, "a wing"),
    ('{"_id": "1", "query": " a wing "}', True, "a wing"),
    ('{"_id": "1"}', True, None),
    ('["a wing"]', True, None),
    ('{"text": "\\ud800 wing"}', True, None),
    ("a wing", True, None),
]


@pytest.mark.parametrize(("line", "json_lines", "wanted"), LINES)
def test_lines(line: str, json_lines: bool, wanted: str | None) -> None:
    assert parse_query_line(line, json_lines=json_lines) == wanted


@pytest.mark.parametrize("margin", [0.0, 0.1, 0.5])
def test_a_positive_is_the_first_passage_if_it_is_first_by_the_margin(tmp_path, index, margin) -> None:
    texts = real_looking()
    (tmp_path / "q.txt").write_text("\n".join([*texts, texts[0], "", "unheard words"]))
    source = FileQueries(Place(str(tmp_path / "q.txt")), index, margin, 1_000, 0)
    found = {made.text: made.doc_id for made in source.queries(SEARCHED)}
    hand = HandBm25({one.doc_id: f"{one.title} {one.text}" for one in SEARCHED})
    wanted = {}
    for text in set(texts):
        scores = sorted(((score, doc_id) for doc_id, score in hand.scores(text).items()), reverse=True)
        if scores[0][0] >= (1 + margin) * scores[1][0]:
            wanted[text] = scores[0][1]
    assert found == wanted and 0 < len(found) < len(texts) + (margin == 0)
    assert source.facts["lines"] == len(texts) + 2 and source.facts["without_passage"] == 1
    assert source.facts["searched"] == len(found) + source.facts["without_margin"] + 1


def test_only_so_many_are_searched_as_are_wanted(tmp_path: Path, index: Bm25Index) -> None:
    rows = [{"query": text} for text in real_looking()]
    (tmp_path / "q.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    source = FileQueries(Place(str(tmp_path / "q.jsonl.gz")), index, 0.0, 7, 0)
    assert source.facts["searched"] == 7


def test_weak_labels_stay_out_of_the_values_of_bm25(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("\n".join(real_looking()))
    source = f"file:{tmp_path}/q.txt"
    config = QueriesConfig(sources={source: 1.0, "sentences": 1.0}, bm25_target=0.5, copies=1)
    corpus = corpus_of(tmp_path / "corpus", SEARCHED)
    result = make_queries(config, {"corpus": corpus}, Place(str(tmp_path / "out")))
    told = result["sources"][source]
    assert told["weak_labels"] and told["kept"] == result["weak_labels"] > 10 and told["bm25"]["RR@10"] > 0.9
    assert told["read"]["searched"] == told["made"] + told["read"]["without_margin"]
    rows = rows_of(tmp_path / "out" / "queries.parquet")
    others = sum(row["kept"] and row["split"] == "test" and row["source"] == "sentences" for row in rows)
    assert result["bm25"]["test"]["queries"] == others < result["splits"]["test"]
