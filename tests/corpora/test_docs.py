"""Folders of documents as a corpus: what is read, counted, left out and refused."""

import io
import logging
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from pypdf import PdfReader, PdfWriter

from midmask import Corpus
from midmask.artifact import Place
from midmask.corpora import CorpusConfig, docs, open_corpus
from midmask.corpora.assemble import assemble
from midmask.corpora.docs import READER
from midmask.corpora.provenance import provenance_of
from midmask.corpora.reader import corpus_identity
from midmask.errors import UserError
from midmask.identity import identity_of
from tests.support.corpora.collections import contents, prepared, quarantine, rows, write
from tests.support.corpora.documents import blocks_of, extracted_text, pdf, write_documents


def read(folder: Path, out: Path, **fields: Any) -> tuple[dict[str, Any], dict[str, tuple[str, str]]]:
    """The step's result, and doc_id -> (title, text)."""
    result = prepared(f"docs:{folder}", out, **fields)
    return result, {row["doc_id"]: (row["title"], row["text"]) for row in rows(out / "docs")}


def test_documents_of_all_kinds_become_passages_with_their_places(tmp_path: Path) -> None:
    write_documents(tmp_path / "in")
    result, found = read(tmp_path / "in", tmp_path / "out", bad_rows_threshold=0.0)
    between = " \u203a "
    assert found == {
        "guide/install.md#9-19": ("Install", "Read this."),
        "guide/install.md#28-47": (f"Install{between}Linux", "Type make.\n\none\ntwo"),
        "guide/use.rst#5-15": ("Use", "See there."),
        "guide/use.rst#23-32": (f"Use{between}More", "And code."),
        "notes.txt#0-58": ("notes", "First words of the notes.\n\nSecond paragraph,\nof two lines."),
        "paper.pdf#0-37": ("The Paper", "A page of a paper.\n\nAnd another page."),
        "tables/faq.csv#1": ("Question", "an answer in a row"),
        "tables/faq.csv#2": ("", "another one"),
        "tables/faq.jsonl#1": ("Line", "text of a line"),
        "tables/faq.tsv#1": ("", "text of a tsv"),
        "tables/x.parquet#1": ("", "the first text"),
        "tables/x.parquet#2": ("", "the second"),
        "web/page.html#6-21": (f"Site{between}Page", "Some bold text."),
    }
    told, kinds = result["documents"], ".csv .html .jsonl .md .parquet .pdf .rst .tsv .txt".split()
    assert told["files_left_out"] == {".png": 1, ".py": 1} and told["files"] == dict.fromkeys(kinds, 1)
    assert told["encodings"] == {"utf-8": 7} and result["rows_quarantined"] == {}
    for doc_id, (_, text) in found.items():
        place = provenance_of(doc_id)
        assert place is not None
        document = extracted_text(blocks_of(tmp_path / "in" / place.file)[(place.row or 1) - 1])
        assert document[place.start : place.end] == text


def test_pieces_of_any_size_and_a_uri_give_the_same_artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_documents(tmp_path / "in")
    write(tmp_path / "in/bad.txt", b"\0\1\2\3")
    prepared(f"docs:{tmp_path}/in", tmp_path / "one")
    prepared(f"docs:file://{tmp_path}/in", tmp_path / "uri")
    assert contents(tmp_path / "uri") == contents(tmp_path / "one")
    monkeypatch.setattr(docs, "PIECE_FILES", 1)
    config = CorpusConfig(name=f"docs:{tmp_path}/in")
    pieces = open_corpus(config).docs
    assert [piece.number for piece in pieces] == list(range(10))
    sent = (pickle.loads(pickle.dumps(piece)) for piece in pieces)
    assemble(config, Place(str(tmp_path / "many")), lambda own: (table for piece in own for table in next(sent).read()))
    assert contents(tmp_path / "many") == contents(tmp_path / "one")


def test_unreadable_documents_are_quarantined_and_stop_nothing(tmp_path, caplog) -> None:
    folder = tmp_path / "in"
    write(folder / "good.txt", b"good text")
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf(["secret"]))))
    writer.encrypt("password", algorithm="RC4-128")
    locked = io.BytesIO()
    writer.write(locked)
    faults = {
        "locked.pdf": (locked.getvalue(), "encrypted file"),
        "scan.pdf": (pdf([""]), "no text in the file"),
        "cut.pdf": (pdf(["text"])[:200], "damaged file"),
        "empty.md": (b"", "empty file"),
        "blank.txt": (b" \n" * 40_000, "no text in the file"),
        "program.txt": (bytes(range(256)), "binary file"),
        "zip.html": (b"PK\3\4\0\0\1\2", "binary file"),
        "deep.html": (b"<div>" * 5_000 + b"lost", "damaged file"),
        "numbers.csv": (b"a,b\n1,2\n", "no column of texts"),
        "open.csv": (b'text\n"never closed\n', ""),
        "list.jsonl": (b"[1]\n", "damaged file"),
        "cut.parquet": (b"PAR1", "damaged file"),
    }
    for name, (data, _) in faults.items():
        write(folder / name, data)
    caplog.set_level(logging.INFO)
    result = prepared(f"docs:{folder}", tmp_path / "out", bad_rows_threshold=0.0)
    wanted = {name: kind for name, (_, kind) in faults.items() if kind}
    assert {row["file"]: row["kind"] for row in quarantine(tmp_path / "out")} == wanted
    assert result["passages"] == 2 and sum(result["rows_quarantined"].values()) == 11
    assert "11 quarantined" in caplog.text


def test_odd_names_links_and_closed_folders(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(folder / "a b#c.txt", b"spaces")
    write(folder / "sub/x.TXT", b"upper case")
    write(folder / ".git/config.txt", b"hidden")
    write(folder / ".hidden.md", b"hidden")
    (folder / "sub/loop").symlink_to(folder)
    (folder / "dangling.md").symlink_to(folder / "nowhere.md")
    os.mkfifo(folder / "pipe.txt")
    with open(os.fsencode(folder) + b"/caf\xe9.txt", "wb") as stream:
        stream.write(b"a name in Latin-1")
    result, found = read(folder, tmp_path / "out")
    assert {doc_id: text for doc_id, (_, text) in found.items()} == {
        "a%20b%23c.txt#0-6": "spaces",
        "caf%E9.txt#0-17": "a name in Latin-1",
        "sub/x.TXT#0-10": "upper case",
    }
    assert result["documents"]["files_left_out"] == {"hidden": 2, "no regular file": 1}
    assert [(row["file"], row["kind"]) for row in quarantine(tmp_path / "out")] == [("dangling.md", "unreadable file")]
    corpus_identity(CorpusConfig(name=f"docs:{folder}"))


def test_the_identity_states_contents_and_cutting_but_not_other_files(tmp_path: Path) -> None:
    write(tmp_path / "in/a.txt", b"text")
    config = CorpusConfig(name=f"docs:{tmp_path}/in")
    first = READER.identity(config)
    write(tmp_path / "in/logo.png", b"x")
    assert READER.identity(config) == first
    for fields in ({"passage_words": 60}, {"passage_overlap": 5}, {"text_column": "a"}, {"title_column": "a"}):
        assert READER.identity(config.model_copy(update=fields)) != first
    write(tmp_path / "in/a.txt", b"other")
    assert READER.identity(config) != first
    beir = CorpusConfig(name="beir:/data")
    assert not {"passage_words", "passage_overlap", "text_column", "title_column"} & identity_of(beir).keys()
    with pytest.raises(ValueError, match="passage_overlap = 70 is more than half"):
        CorpusConfig(name="docs:/data", passage_overlap=70)


def test_folders_of_documents_are_recognised(tmp_path: Path) -> None:
    write(tmp_path / "manuals/a.md", b"# A\n\ntext")
    write(tmp_path / "manuals/docs/b.md", b"text")
    assert repr(Corpus.from_folder(tmp_path / "manuals")) == f"Corpus(docs:{tmp_path}/manuals)"
    write(tmp_path / "texts/part.jsonl", b'{"text": "a"}\n')
    write(tmp_path / "texts/README.md", b"about")
    assert repr(Corpus.from_folder(tmp_path / "texts")) == f"Corpus(texts:{tmp_path}/texts)"
    write(tmp_path / "texts/a.md", b"more")
    with pytest.raises(UserError, match=r"2 formats; name one of texts:.*, docs:"):
        Corpus.from_folder(tmp_path / "texts")
    assert Corpus.from_folder(f"docs:{tmp_path}/texts/part.jsonl").name == "part"
