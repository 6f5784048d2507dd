"""Preparing through Ray Data equals preparing in one process, byte for byte."""

from pathlib import Path

import pytest

from midmask.artifact import Place
from midmask.backend import prepare as cluster
from midmask.corpora import CorpusConfig, docs, prepare
from midmask.corpora import chunks as pieces
from midmask.errors import UserError
from tests.support.corpora import layouts
from tests.support.corpora.collections import contents, quarantine, write_beir
from tests.support.corpora.documents import write_documents
from tests.support.corpora.saved import write_saved


def both(config: CorpusConfig, folder: Path) -> tuple[Path, Path]:
    here, there = folder / "here", folder / "there"
    assert prepare(config, {}, Place(str(here))) == cluster.prepare(config, {}, Place(str(there)))
    assert contents(here) == contents(there)
    return here, there


def test_answers_slices_and_titles_apart(ray_local: None, tmp_path: Path) -> None:
    """What these layouts add to a row, or read beside it, travels through the workers, too."""
    layouts.write_nq(tmp_path / "nq")
    layouts.write_dpr_training(tmp_path / "nq")
    layouts.write_rocketqa(tmp_path / "msmarco")
    layouts.write_tripclick(tmp_path / "tripclick")
    write_saved(tmp_path / "hf")
    for kind in ("nq", "msmarco", "tripclick", "hf"):
        both(CorpusConfig(name=f"{kind}:{tmp_path}/{kind}"), tmp_path / f"{kind}-out")


def test_documents_in_many_pieces(ray_local: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts of files and encodings travel in marker rows."""
    write_documents(tmp_path / "in")
    (tmp_path / "in/bad.txt").write_bytes(b"\0\1\2")
    monkeypatch.setattr(docs, "PIECE_FILES", 2)
    _, there = both(CorpusConfig(name=f"docs:{tmp_path}/in", passage_words=10, passage_overlap=2), tmp_path)
    assert [row["kind"] for row in quarantine(there)] == ["binary file"]


def test_many_byte_ranges_keep_order_and_line_numbers(
    ray_local: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_beir(tmp_path / "in", passages=3000)
    corpus = tmp_path / "in/corpus.jsonl"
    lines = corpus.read_bytes().splitlines()
    for line in (0, 777, 1500, 3002):
        lines.insert(line, b"{broken")
    corpus.write_bytes(b"\n".join(lines))
    monkeypatch.setattr(pieces, "PIECE_BYTES", 20_000)
    _, there = both(CorpusConfig(name=f"beir:{tmp_path}/in"), tmp_path)
    assert [row["line"] for row in quarantine(there)] == [1, 778, 1501, 3003]


def test_a_workers_user_error_arrives_as_one_line(ray_local: None, tmp_path: Path) -> None:
    write_beir(tmp_path / "in", packed=True)
    corpus = tmp_path / "in/corpus.jsonl.gz"
    corpus.write_bytes(corpus.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"corpus\.jsonl\.gz: broken gzip") as error:
        cluster.prepare(CorpusConfig(name=f"beir:{tmp_path}/in"), {}, Place(str(tmp_path / "out")))
    assert "\n" not in str(error.value)
