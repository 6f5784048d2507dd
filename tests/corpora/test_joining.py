"""Collections read together: every passage of each, in order, under ids that cannot collide."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from midmask.artifact import Artifact, Place
from midmask.corpora import JoinConfig, join, writer
from midmask.errors import UserError
from tests.support.corpora.collections import contents, json_lines, prepared, rows, write, write_beir

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
