"""Queries for people to look at: hidden parts marked, hostile texts harmless."""

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from midmask.artifact import Artifact, Place
from midmask.queries.config import QueriesConfig
from midmask.queries.preview import queries_page
from midmask.queries.step import make_queries
from tests.support.queries.articles import articles, corpus_of, rows_of

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


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("preview")
    passages = [
        replace(one, title=f"{HOSTILE}{one.title}", text=f"{one.text} {HOSTILE}", doc_id=f"<b>{one.doc_id}")
        for one in articles()
    ]
    corpus = corpus_of(folder / "corpus", passages, name="<i>own</i>")
    config = QueriesConfig(sources={"titles": 1.0, "sentences": 1.0, "spans": 1.0})
    result = make_queries(config, {"corpus": corpus}, Place(str(folder / "out")))
    return Artifact(Place(str(folder / "out")), {"result": result})


def test_the_page_shows_hostile_texts_and_has_none_of_their_markup(artifact: Artifact) -> None:
    page = queries_page(artifact, 200)
    reader = Reader()
    reader.feed(page)
    assert {tag.removeprefix("/") for tag in reader.tags} == TAGS
    assert reader.attributes == {"lang", "charset", "name", "content", "class"}, "nothing is fetched"
    assert "script" not in page.replace("&lt;script&gt;", "").replace("&lt;/script&gt;", "")
    assert any("alert(1)" in text for text in reader.text) and "http" not in page
    rows = [row for row in rows_of(Path(str(artifact.place)) / "queries.parquet") if row["kept"]]
    assert reader.tags.count("article") == min(200, len(rows))
    struck = {" ".join(text.split()) for text in reader.struck}
    shown = [row for row in rows if row["hidden_start"] is not None and row["text"] in struck]
    assert len(shown) > 50, "what a query hides is struck out in its passage"
