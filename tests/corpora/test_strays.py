"""Files that are no data lie in every folder: they are passed over and named in the log, and data never is."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from midmask.corpora import CorpusConfig, corpus_identity, judged_splits
from midmask.errors import UserError
from tests.support.corpora import layouts
from tests.support.corpora.collections import contents, prepared, write, write_beir
from tests.support.corpora.saved import write_saved

STRAYS = {
    "README.txt": b"Judgements of three people, one pass each.\n",
    "LICENSE": b"free\n",
    ".DS_Store": b"\0\0\0\1Bud1",
    "Thumbs.db": b"\xd0\xcf\x11\xe0",
    "desktop.ini": b"[.ShellClassInfo]\r\n",
    "__MACOSX/._x.txt": b"\0\5\26\7",
    "checksums.md5": b"d41d8cd9  x\n",
}
FORMATS: dict[str, tuple[Callable[[Path], Any], dict[str, str]]] = {
    "beir": (write_beir, {"qrels/": "test.tsv"}),
    "texts": (layouts.write_texts, {"": "a.jsonl"}),
    "trec": (layouts.write_trec, {"docs/": "a", "": "topics.txt"}),
    "msmarco": (layouts.write_msmarco, {"": "queries.dev.tsv"}),
    "nq": (layouts.write_nq, {"": "nq-test.csv"}),
    "tripclick": (layouts.write_tripclick, {"benchmark/documents/": "docs_grp_00.txt", "benchmark/qrels/": "q"}),
    "hf": (write_saved, {"corpus/": "state.json", "qrels/": "test"}),
}
"""Format -> what writes a collection, and its folders of data with the name of a file in each."""


@pytest.mark.parametrize("kind", FORMATS)
def test_strays_change_nothing_and_are_named(tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    write_collection, folders = FORMATS[kind]
    write_collection(tmp_path / "clean/set")
    write_collection(tmp_path / "in/set")
    for folder, file in folders.items():
        leftovers = {
            f"._{file}": b"\0\5\26\7\0\2",
            f"{file}~": b"old\n",
            f"{file}.bak": b"old\n",
            f"{file}.md5": b"d4\n",
        }
        for name, data in {**STRAYS, **leftovers}.items():
            write(tmp_path / "in/set" / folder / name, data)
    clean, config = (CorpusConfig(name=f"{kind}:{tmp_path}/{folder}/set") for folder in ("clean", "in"))
    caplog.set_level(logging.INFO)
    assert judged_splits(config) == judged_splits(clean) and corpus_identity(config) == corpus_identity(clean)
    assert prepared(config.name, tmp_path / "out") == prepared(clean.name, tmp_path / "wanted")
    assert contents(tmp_path / "out") == contents(tmp_path / "wanted")
    for folder, file in folders.items():
        named = [
            line for line in caplog.messages if line.startswith(f"{tmp_path}/in/set/{folder}".rstrip("/") + ": not")
        ]
        assert len(named) == 1 and f"._{file}" in named[0], folder


@pytest.mark.parametrize("name", ["test.long.tsv", "readable.tsv", "noticed.tsv.gz"])
def test_a_split_of_other_contents_is_refused_and_not_passed_over(tmp_path: Path, name: str) -> None:
    write_beir(tmp_path / "in")
    write(tmp_path / "in/qrels" / name, b"Judgements of three people, one pass each.\n")
    with pytest.raises(UserError, match=rf"qrels/{name}: its rows have 7 columns"):
        judged_splits(CorpusConfig(name=f"beir:{tmp_path}/in"))
