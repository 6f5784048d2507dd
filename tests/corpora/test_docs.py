"""Folders of documents as a corpus: each kind of document, what is left out and refused, and how documents are cut."""

import io
import logging
import os
import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pypdf import PdfReader, PdfWriter

from midmask import Corpus
from midmask.core.config import identity_of
from midmask.corpora.assemble import assemble
from midmask.corpora.chunks import read_here
from midmask.corpora.config import CorpusConfig
from midmask.corpora.docs import READER
from midmask.corpora.documents.blocks import TextBlock
from midmask.corpora.documents.markup import markdown_blocks
from midmask.corpora.documents.passages import BETWEEN, WORD, CutPassage, cut_passages, passage_id
from midmask.corpora.reader import corpus_identity, open_corpus
from midmask.errors import UserError
from midmask.store.place import Place
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
        "guide/use.rst#0-56": ("use", "Use\n===\n\nSee :ref:`there <x>`.\n\nMore\n----\n\nAnd ``code``."),
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
    kinds = ".csv .html .jsonl .md .parquet .pdf .rst .tsv .txt".split()
    assert result["documents"] == {"files": dict.fromkeys(kinds, 1), "files_left_out": {".png": 1, ".py": 1}}
    assert result["rows_quarantined"] == {}
    for doc_id, (_, text) in found.items():
        file, _, place = doc_id.partition("#")
        if "-" in place:
            start, end = map(int, place.split("-"))
            assert extracted_text(blocks_of(tmp_path / "in" / file)[0])[start:end] == text


def test_a_uri_and_pieces_that_are_sent_give_the_same_artifact(tmp_path: Path) -> None:
    write_documents(tmp_path / "in")
    write(tmp_path / "in/bad.txt", b"\0\1\2\3")
    prepared(f"docs:{tmp_path}/in", tmp_path / "one")
    prepared(f"docs:file://{tmp_path}/in", tmp_path / "uri")
    assert contents(tmp_path / "uri") == contents(tmp_path / "one")
    config = CorpusConfig(name=f"docs:{tmp_path}/in")
    sent = [pickle.loads(pickle.dumps(piece)) for piece in open_corpus(config).docs]
    assert len(sent) == 10
    assemble(config, Place(str(tmp_path / "many")), lambda own: read_here(sent if own else []))
    assert contents(tmp_path / "many") == contents(tmp_path / "one")


def test_unreadable_documents_are_quarantined_and_stop_nothing(tmp_path, caplog) -> None:
    folder = tmp_path / "in"
    write(folder / "good.txt", b"good text")
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf(["secret"]))))
    writer.encrypt("password", algorithm="RC4-128")
    locked = io.BytesIO()
    writer.write(locked)
    faults = {
        "locked.pdf": (locked.getvalue(), "damaged file"), "scan.pdf": (pdf([""]), "no text in the file"),
        "cut.pdf": (pdf(["text"])[:200], "damaged file"), "empty.md": (b"", "no text in the file"),
        "blank.txt": (b" \n" * 40_000, "no text in the file"), "program.txt": (bytes(range(256)), "damaged file"),
        "zip.html": (b"PK\3\4\0\0\1\2", "damaged file"), "deep.html": (b"<div>" * 5_000 + b"found", ""),
        "numbers.csv": (b"a,b\n1,2\n", "no column of texts"), "open.csv": (b'text\n"never closed\n', ""),
        "cut.parquet": (b"PAR1", "damaged file"),
    }  # fmt: skip
    for name, (data, _) in faults.items():
        write(folder / name, data)
    caplog.set_level(logging.INFO)
    result = prepared(f"docs:{folder}", tmp_path / "out", bad_rows_threshold=0.0)
    wanted = {name: kind for name, (_, kind) in faults.items() if kind}
    assert {row["file"]: row["kind"] for row in quarantine(tmp_path / "out")} == wanted
    assert result["passages"] == 3 and sum(result["rows_quarantined"].values()) == 9
    assert "quarantined {'damaged file': 5" in caplog.text


def test_odd_names_and_links(tmp_path: Path) -> None:
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
        "sub/x.TXT#0-10": "upper case",
    }
    assert result["documents"]["files_left_out"] == {"hidden": 1, "name that is no UTF-8": 1}
    assert result["rows_quarantined"] == {}
    corpus_identity(CorpusConfig(name=f"docs:{folder}"))


def test_the_identity_states_contents_and_cutting_but_not_other_files(tmp_path: Path) -> None:
    write(tmp_path / "in/a.txt", b"text")
    config = CorpusConfig(name=f"docs:{tmp_path}/in")
    first = READER.identity(config)
    write(tmp_path / "in/logo.png", b"x")
    assert READER.identity(config) == first
    for fields in ({"passage_words": 60}, {"text_column": "a"}, {"title_column": "a"}):
        assert READER.identity(config.model_copy(update=fields)) != first
    write(tmp_path / "in/a.txt", b"other")
    assert READER.identity(config) != first
    beir = CorpusConfig(name="beir:/data")
    assert not {"passage_words", "text_column", "title_column"} & identity_of(beir).keys()


def test_folders_of_documents_are_recognised(tmp_path: Path) -> None:
    write(tmp_path / "manuals/a.md", b"# A\n\ntext")
    write(tmp_path / "manuals/docs/b.md", b"text")
    assert repr(Corpus.from_folder(tmp_path / "manuals")) == f"Corpus(docs:{tmp_path}/manuals)"
    write(tmp_path / "texts/part.jsonl", b'{"text": "a"}\n')
    write(tmp_path / "texts/README.md", b"about")
    assert repr(Corpus.from_folder(tmp_path / "texts")) == f"Corpus(texts:{tmp_path}/texts)"
    assert Corpus.from_folder(f"docs:{tmp_path}/texts/part.jsonl").name == "part"


def count_words(text: str) -> int:
    return len(WORD.findall(text))


words = st.text("abcé.?!(", min_size=1, max_size=9)
sentences = st.lists(words, min_size=1, max_size=30).map(lambda own: " ".join(own) + ". ")
paragraphs = st.lists(sentences, min_size=1, max_size=6).map("".join).map(str.strip)
blocks = st.builds(
    TextBlock,
    st.one_of(paragraphs, st.text("图书馆ab 。", min_size=1, max_size=80).filter(str.strip).map(str.strip)),
    st.sampled_from([0, 0, 0, 0, 1, 2, 3]),
    st.sampled_from(["\n\n", "\n", " ", ""]),
)
documents = st.lists(blocks, min_size=1, max_size=12)


@settings(max_examples=60)
@given(documents, st.integers(10, 60))
def test_each_word_below_a_heading_is_in_one_passage(document: list[TextBlock], size: int) -> None:
    passages = list(cut_passages(iter(document), "", size))
    text = extracted_text(document)
    assert all(text[one.start : one.end] == one.text == one.text.strip() for one in passages)
    assert all(before.end <= after.start for before, after in pairwise(passages))
    covered = bytearray(len(text))
    for one in passages:
        covered[one.start : one.end] = b"\1" * (one.end - one.start)
    place = 0
    for number, block in enumerate(document):
        place += len(block.before) if number else 0
        marks = {covered[place + at] for at, character in enumerate(block.text) if not character.isspace()}
        bare = block.level and (number + 1 == len(document) or 0 < document[number + 1].level <= block.level)
        assert marks == ({0} if block.level and not bare else {1})
        place += len(block.text)


@settings(max_examples=60)
@given(documents, st.integers(10, 60))
def test_passages_are_no_longer_than_asked(document: list[TextBlock], size: int) -> None:
    passages = list(cut_passages(iter(document), "", size))
    assert all(
        0 < count_words(one.text) <= size for one in passages if one.text not in {b.text for b in document if b.level}
    )


def test_titles_are_the_path_of_headings() -> None:
    levels = {"intro": 0, "Install": 1, "a": 0, "Linux": 2, "b": 0, "Use": 1, "c": 0}
    document = [TextBlock(text, level) for text, level in levels.items()]
    titles = [one.title.split(BETWEEN) for one in cut_passages(iter(document), "Manual", 50)]
    assert titles == [["Manual"], ["Manual", "Install"], ["Manual", "Install", "Linux"], ["Manual", "Use"]]
    assert [one.title for one in cut_passages(iter(document), "", 50, untitled="file")][:2] == ["file", "Install"]
    assert [one.title for one in cut_passages(iter(document[1:3]), "Install - Site", 50)] == ["Install"]


def test_sentences_stay_whole_and_a_section_does_not_end_in_a_crumb() -> None:
    text = " ".join(f"This is sentence {number} of five." for number in range(21))
    found = [one.text for one in cut_passages(iter([TextBlock(text)]), "", 60)]
    assert [count_words(one) for one in found] == [60, 30, 36]
    assert all(one.startswith("This is") and one.endswith("of five.") for one in found)


def test_a_paragraph_that_does_not_fit_begins_a_passage() -> None:
    first, second = ("Some words of it. " * 9).strip(), ("Other words of that. " * 9).strip()
    found = [one.text for one in cut_passages(iter([TextBlock(first), TextBlock(second)]), "", 50)]
    assert found == [first, second]


def test_ids_are_written_as_documented() -> None:
    span = CutPassage(120, 860, "", "text")
    assert passage_id("guide/my notes#1%.md", span) == "guide/my%20notes%231%25.md#120-860"
    assert passage_id("faq.csv", None, 12) == "faq.csv#12"
    assert passage_id("faq.csv", span, 12) == "faq.csv#12:120-860"


def lines(path: Path, **columns: str) -> list[list[tuple[int, str]]]:
    """(level, text) of each block of each document."""
    return [[(block.level, block.text) for block in document] for document in blocks_of(path, **columns)]


def test_markdown_gives_what_a_reader_sees() -> None:
    text = """# One `x` #

Words *here* and [a link](http://a.b/c_(d "title"), `__init__` and snake_case_name.

Two
---

- first
  goes on
- second

Then.

    # indented code

```sh
# no heading
```

| a | b |
|---|---|
| 1 | **2** |

> quoted &amp; kept

<div>
inside
</div>

[ref]: http://x.y
"""
    found = [(block.level, block.text) for block in markdown_blocks(text)]
    assert found[0] == (1, "One x")
    assert found[1][1].endswith("__init__ and snake_case_name.") and "Words here" in found[1][1]
    assert found[2:5] == [(2, "Two"), (0, "first\ngoes on"), (0, "second")]
    code = ["Then.", "# indented code", "# no heading"]
    assert [text for _, text in found[5:]] == [*code, "a | b", "1 | 2", "quoted & kept", "inside"]


INLINE = {
    "[words](http://a.b) ![image](x.png)": "words image", "[words][n] <http://a.b>\n\n[n]: /x": "words http://a.b",
    "**bold** *it* __b__ _i_ a*b 2 * 3 a_b_c": "bold it b i a*b 2 * 3 a_b_c",
    r"\*kept\* &lt;b&gt; <b>tag</b>": "*kept* <b> tag", "``a ` b`` `<div>` and ` alone": "a ` b <div> and ` alone",
}  # fmt: skip


def test_marks_of_markdown_are_no_words() -> None:
    assert {text: "".join(block.text for block in markdown_blocks(text)) for text in INLINE} == INLINE


def test_html_is_read_without_scripts_and_frame(tmp_path: Path) -> None:
    page = """<!doctype html><html><head><title> The  site </title><script>var x = "<p>no</p>"</script></head><body>
    <nav>menu</nav><div role="navigation">more menu</div><h1>Head <em>line</em></h1>
    <p>A <b>bold</b>ly   spaced<br>text<!-- no --><ul><li>one<li>two</ul><pre>a
  b</pre><table><tr><td>1<td>2</table><style>p {}</style>tail<footer>foot</footer></body></html>"""
    write(tmp_path / "a.html", page.encode())
    found = lines(tmp_path / "a.html")[0]
    assert found[0] == (1, "Head line") and not any(level for level, _ in found[1:])
    assert [text for _, text in found[1:]] == ["A boldly spaced\ntext", "one", "two", "a\n  b", "1 2", "tail"]


TABLE = {"id": ["1", "2"], "title": ["a", "b"], "text": ["long text of a row", "and another"], "n": ["7.5", "8"]}


@pytest.mark.parametrize("end", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_the_columns_of_a_table_are_found_or_named(tmp_path: Path, end: str) -> None:
    file = tmp_path / f"t{end}"
    table = pa.table(TABLE)
    if end == ".parquet":
        pq.write_table(table, file)
    elif end == ".jsonl":
        write(file, "".join(f"{row}\n" for row in table.to_pylist()).replace("'", '"').encode())
    else:
        sign = ";" if end == ".csv" else "\t"
        rows = [TABLE, *zip(*TABLE.values(), strict=True)]
        write(file, "".join(sign.join(row) + "\r\n" for row in rows).encode())
    assert lines(file) == [[(0, text)] for text in TABLE["text"]]
    assert lines(file, text_column="title") == [[(0, "a")], [(0, "b")]]
    with pytest.raises(UserError, match=r"unknown corpus.text_column .*'titel'; did you mean 'title'"):
        lines(file, text_column="titel")


JAPANESE = "日本語の文章です。これはテストです。"
ENCODED = [
    ("Größe".encode(), "Größe"), ("Größe".encode("utf-16"), "Größe"),
    ("Größe und Maß".encode("latin-1"), "Größe und Maß"),
    (JAPANESE.encode("shift-jis"), JAPANESE), ("Größe, Maß ".encode() + b"\xff end", "Größe, Maß \ufffd end"),
    (b"with a nul\0 inside it", "with a nul inside it"), (b"one\r\ntwo\rthree", "one\ntwo\nthree"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "wanted"), ENCODED)
def test_encodings_are_guessed(tmp_path: Path, data: bytes, wanted: str) -> None:
    write(tmp_path / "a.txt", data)
    assert lines(tmp_path / "a.txt") == [[(0, wanted)]]
