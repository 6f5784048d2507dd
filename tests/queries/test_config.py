"""Names of sources, impossible values, and what is part of the identity."""

from pathlib import Path
from typing import Any

import pytest

from midmask.errors import UserError
from midmask.identity import override
from midmask.queries.config import QueriesConfig
from midmask.queries.sources import queries_content


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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"sources": {"title": 1.0}},
            "there is no source 'title'; choose titles, sentences, spans, keyphrases, file:PATH",
        ),
        ({"sources": {"titles": 0.0}}, "weights are above 0"),
        ({"sources": {"http://a/v1": 1.0, "http:http://a/v1": 2.0}}, "is named twice"),
        ({"dev_share": 0.5, "test_share": 0.5}, "nothing is left for train"),
    ],
)
def test_impossible_configs_name_the_choices(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        override(QueriesConfig(), changes)
    assert "\n" not in str(error.value)


def test_a_server_and_a_path_have_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = QueriesConfig(sources={"http:https://host:8/v1": 1.0, "file:q.txt": 2.0, "model:m": 1.0})
    assert config.sources == {"https://host:8/v1": 1.0, f"file:{tmp_path}/q.txt": 2.0, f"model:{tmp_path}/m": 1.0}
