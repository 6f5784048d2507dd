"""A server that refuses, stalls, lies and dies: nothing that it has answered is lost, and nothing is asked twice."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from midmask.artifact import Place
from midmask.derived.generate import GenerateConfig
from midmask.errors import UserError
from midmask.queries.collection import draw_passages
from midmask.queries.config import QueriesConfig
from midmask.queries.made import MadeQuery, Passage
from midmask.queries.server import ServerQueries, read_queries
from midmask.queries.step import make_queries
from tests.support.queries.articles import articles, corpus_of
from tests.support.queries.chat_server import Fault, Served, serving

PASSAGES = [Passage(f"d{n}", f"Title {n}", f"text of passage {n} {{count}}") for n in range(12)]


def answer_of(message: str) -> str:
    """Two queries about the passage in the message, as models like to write them."""
    passage = message.partition("[")[2].partition("]")[0]
    return f'Here are 2 queries:\n1. "what is {passage}"\n2) where is {passage}'


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(Served(answer=answer_of)) as found:
        yield found


@pytest.fixture(autouse=True)
def _no_key_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MIDMASK_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def config_of(**fields: object) -> QueriesConfig:
    return QueriesConfig(**{"server_prompt": "Write {count} queries for [{passage}]", "server_seconds": 20.0, **fields})


def ask(served: Served, *, cache: Place | None = None, waits: list[float] | None = None, **fields: object) -> list:
    pause = (waits if waits is not None else []).append
    return list(ServerQueries(served.url, config_of(**fields), cache=cache, pause=pause).queries(PASSAGES))


def expected(passages: list[Passage]) -> list[MadeQuery]:
    asked = [(passage, f"{passage.title} {passage.text}") for passage in passages]
    return [MadeQuery(one.doc_id, f"{word} is {text}", "http") for one, text in asked for word in ("what", "where")]


@pytest.mark.parametrize("threads", [1, 5])
def test_queries_come_in_the_order_of_the_passages(served: Served, threads: int) -> None:
    drawn = GenerateConfig(top_p=0.5, max_tokens=20)
    assert ask(served, server_concurrency=threads, generate=drawn) == expected(PASSAGES)
    by_message = {body["messages"][0]["content"]: body for body in served.requests}
    assert len(by_message) == len(served.requests) == 12
    body = by_message["Write 2 queries for [Title 3 text of passage 3 {count}]"]
    sent = {name: value for name, value in body.items() if name not in ("messages", "seed")}
    assert sent == {"model": "tiny", "max_tokens": 40, "temperature": 0.7, "top_p": 0.5}
    assert len({body["seed"] for body in served.requests}) == 12
    assert not any("Authorization" in headers for headers in served.headers)


FAULTS = [
    Fault(429, {"Retry-After": "3"}),
    Fault(500, body=b"<html>sorry</html>"),
    Fault(200, body=b'{"choices": [{"message"'),
    Fault(200, body=b"\xff\xfe"),
    Fault(200, body=b'{"choices": [{"message": {"content": "cut"}}]}', cut=20),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_passing_fault_is_tried_again(served: Served, fault: Fault) -> None:
    waits: list[float] = []
    served.faults += [fault, fault]
    assert ask(served, server_model="tiny", server_concurrency=1, waits=waits) == expected(PASSAGES)
    assert len(waits) == 2 and len(served.requests) == 14
    if fault.status == 429:
        assert waits == [3.0, 3.0], "as the server asks"
    else:
        assert 0.25 <= waits[0] <= 0.5 <= waits[1] <= 1.0, "doubled, with jitter"


@pytest.mark.parametrize("threads", [1, 4])
def test_a_server_that_dies_half_way_loses_nothing(served: Served, tmp_path: Path, threads: int) -> None:
    cache = Place(str(tmp_path / "cache"))
    served.dies_after = 7
    fields = {"server_concurrency": threads, "server_retries": 1, "server_model": "tiny"}
    with pytest.raises(UserError) as error:
        ask(served, cache=cache, **fields)
    line = str(error.value)
    assert "14 queries of 7 of 12 passages were made and are kept" in line and "other 5" in line and "\n" not in line
    served.dies_after, before = None, served.answered
    with serving(served):  # the server is started again, elsewhere
        assert ask(served, cache=cache, **fields) == expected(PASSAGES)
    assert served.answered == before + 5, "only what was lacking is asked"
    served.dies_after = 0
    assert ask(served, cache=cache, **fields) == expected(PASSAGES), "all is there, so no server is needed"


def test_a_budget_of_requests_is_kept_and_the_same_over_restarts(served, tmp_path, caplog) -> None:
    cache = Place(str(tmp_path / "cache"))
    for _ in range(2):
        with caplog.at_level(logging.WARNING, "midmask"):
            assert ask(served, cache=cache, server_max_requests=5) == expected(PASSAGES[:5])
        assert len(served.requests) == 5, "not one more, however many threads there are"
        assert "5 of 12 passages were asked about, 50 tokens" in caplog.text


def test_a_budget_of_tokens_ends_after_the_answer_that_reaches_it(served: Served, tmp_path: Path) -> None:
    cache = Place(str(tmp_path / "cache"))
    for threads in (4, 1):
        made = ask(served, cache=cache, server_max_tokens=35, server_concurrency=threads)
        assert made == expected(PASSAGES[:4])
    served.tokens = 0
    with pytest.raises(UserError, match=r"does not count tokens.*server_max_requests"):
        ask(served, server_max_tokens=35)


def test_a_passage_that_the_server_refuses_is_counted(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    served.refuses = "Title 5"
    with caplog.at_level(logging.WARNING, "midmask"):
        assert ask(served) == expected([passage for passage in PASSAGES if passage.doc_id != "d5"])
    assert "passage d5 gets no query" in caplog.text and "the prompt is too long" in caplog.text
    assert "1 of 12 answers had no query" in caplog.text
    served.refuses = "Title"
    with pytest.raises(UserError, match=r"HTTP 400 \(the prompt is too long\)"):
        ask(served)


def test_the_key_is_sent_and_shown_nowhere(served, tmp_path, monkeypatch, caplog) -> None:
    served.key = "sk-planted-0123456789"
    with pytest.raises(UserError, match=r"HTTP 401.*set MIDMASK_API_KEY or OPENAI_API_KEY .*\(no key is set\)"):
        ask(served)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong-0123456789")
    with pytest.raises(UserError, match="the key in it was refused") as error:
        ask(served)
    assert "sk-wrong-0123456789" not in str(error.value), "though this server repeats it"
    monkeypatch.setenv("MIDMASK_API_KEY", served.key)
    cache = Place(str(tmp_path / "cache"))
    assert ask(served, cache=cache) == expected(PASSAGES)
    kept = b"".join(file.read_bytes() for file in (tmp_path / "cache").iterdir())
    assert kept and served.key.encode() not in kept and served.key not in caplog.text


def test_a_redirect_is_not_followed(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDMASK_API_KEY", "sk-planted-0123456789")
    with serving(Served()) as other:
        for status in (301, 307):
            served.faults.append(Fault(status, {"Location": f"{other.url}/models"}))
            with pytest.raises(UserError, match=rf"redirects to {other.url}/models, which is not followed"):
                ask(served)
        assert not other.headers


REFUSED_URLS = [
    ("http://me:secret@127.0.0.1:1/v1", "would be recorded"),
    ("http://127.0.0.1:1/v1?api_key=abc", "would be recorded"),
    ("file:///etc/passwd", "no server has such a URL"),
    ("http://host:99999/v1", "no server has such a URL"),
]


@pytest.mark.parametrize(("url", "message"), REFUSED_URLS)
def test_urls_that_are_refused(url: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        ServerQueries(url, config_of())
    assert "secret" not in str(error.value) and "abc" not in str(error.value)


ANSWERS = {
    "a\nb\nc": ["a", "b"],
    "1. a\n2. a\n\n3. b": ["a", "b"],
    "- 3.5 mm jack size\n* **bold one**": ["3.5 mm jack size", "bold one"],
    "Sure! Two queries:\n```\nQuery 1: what's x?\nQ2: \u201cy\u201d\n```": ["what's x?", "y"],
    "<think>1. no\n2. no</think>\nyes": ["yes"],
    "<think>never ends\nat all": [],
    '\n ... \n""': [],
    "2001: a space odyssey plot": ["2001: a space odyssey plot"],
}


@pytest.mark.parametrize(("answer", "queries"), ANSWERS.items())
def test_queries_are_read_from_an_answer(answer: str, queries: list[str]) -> None:
    assert read_queries(answer, 2) == queries


def test_another_prompt_model_or_text_is_asked_anew(served: Served, tmp_path: Path) -> None:
    cache = Place(str(tmp_path / "cache"))
    ask(served, cache=cache)
    for fields in ({"server_prompt": "Ask [{passage}]"}, {"server_model": "b"}, {"server_characters": 100}):
        served.requests.clear()
        ask(served, cache=cache, **fields)
        assert len(served.requests) == 12, fields
    served.requests.clear()
    ask(served, cache=cache, server_concurrency=1, server_retries=0)
    assert not served.requests


ARTICLES = articles(8)


def test_a_step_whose_server_died_asks_for_the_rest_alone(tmp_path: Path) -> None:
    """The second attempt finds the files of the first in its folder, as `produce` gives them to it."""
    corpus = corpus_of(tmp_path / "corpus", ARTICLES)
    out = Place(str(tmp_path / "out"))
    with serving(Served(answer=lambda message: " ".join(message.split()[-6:-1]), dies_after=15)) as served:
        fields = {"server_prompt": "Write {count} queries for {passage}", "server_retries": 0, "server_model": "tiny"}
        config = QueriesConfig(sources={served.url: 1.0}, **fields)
        with pytest.raises(UserError, match="are kept"):
            make_queries(config, {"corpus": corpus}, out)
        assert served.answered == 15
        served.dies_after = None
        result = make_queries(config, {"corpus": corpus}, out)
        assert served.answered == len(ARTICLES)
    assert result["kept"] >= 30


def test_passages_are_drawn_by_their_ids_alone() -> None:
    ids = [one.doc_id for one in ARTICLES]
    few = draw_passages(ids, 0, "spans", 10)
    assert len(few) == 10 and few == draw_passages(ids[::-1], 0, "spans", 10)
    more = draw_passages(ids, 0, "spans", 20)
    assert few < more and more != draw_passages(ids, 1, "spans", 20)
    assert draw_passages(ids, 0, "spans", 40) == set(ids)
