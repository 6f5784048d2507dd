"""Which passages a source reads, and that what a server wrote is asked for once."""

from pathlib import Path

import pytest

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.queries.collection import draw_passages
from midmask.queries.config import QueriesConfig
from midmask.queries.step import make_queries
from tests.support.queries.articles import articles, corpus_of
from tests.support.queries.chat_server import Served, serving

PASSAGES = articles(8)


def test_a_step_whose_server_died_asks_for_the_rest_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second attempt finds the files of the first in its folder, as `produce` gives them to it."""
    for name in ("MIDMASK_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    corpus = corpus_of(tmp_path / "corpus", PASSAGES)
    out = Place(str(tmp_path / "out"))
    with serving(Served(answer=lambda message: " ".join(message.split()[-6:-1]), dies_after=15)) as served:
        fields = {"server_prompt": "Write {count} queries for {passage}", "server_retries": 0, "server_model": "tiny"}
        config = QueriesConfig(sources={served.url: 1.0}, **fields)
        with pytest.raises(UserError, match="are kept"):
            make_queries(config, {"corpus": corpus}, out)
        assert served.answered == 15
        served.dies_after = None
        result = make_queries(config, {"corpus": corpus}, out)
        assert served.answered == len(PASSAGES)
    assert result["kept"] >= 30


def test_passages_are_drawn_by_their_ids_alone() -> None:
    ids = [one.doc_id for one in PASSAGES]
    few = draw_passages(ids, 0, "spans", 10)
    assert len(few) == 10 and few == draw_passages(ids[::-1], 0, "spans", 10)
    more = draw_passages(ids, 0, "spans", 20)
    assert few < more and more != draw_passages(ids, 1, "spans", 20)
    assert draw_passages(ids, 0, "spans", 40) == set(ids)
