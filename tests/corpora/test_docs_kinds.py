"""Each kind of document: its blocks, what is left out of them, and the columns of tables."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midmask.corpora.documents.markdown import PART, markdown_blocks, plain_inline
from midmask.corpora.documents.rst import rst_blocks
from midmask.corpora.documents.source import Columns
from midmask.errors import UserError
from tests.support.corpora.collections import write
from tests.support.corpora.documents import blocks_of


def lines(path: Path, **columns: str) -> list[list[tuple[int, str]]]:
    """(level, text) of each block of each document."""
    return [[(block.level, block.text) for block in document] for document in blocks_of(path, Columns(**columns))]


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
    found = [(block.level, block.text) for block in markdown_blocks(text.splitlines(keepends=True))]
    assert found[0] == (1, "One x")
    assert found[1][1].endswith("__init__ and snake_case_name.") and "Words here" in found[1][1]
    assert found[2:5] == [(2, "Two"), (0, "first\ngoes on"), (0, "second")]
    code = ["Then.", "# indented code", "# no heading"]
    assert [text for _, text in found[5:]] == [*code, "a | b", "1 | 2", "quoted & kept", "inside"]


INLINE = {
    "[words](http://a.b) ![image](x.png)": "words image",
    "[words][name] <https://a.b/c>": "words https://a.b/c",
    "**bold** *it* __b__ _i_ a*b 2 * 3 a_b_c": "bold it b i a*b 2 * 3 a_b_c",
    r"\*kept\* &lt;b&gt; <b>tag</b>": "*kept* <b> tag",
    "``a ` b`` `<div>` and ` alone": "a ` b <div> and  alone",
}


def test_marks_of_markdown_are_no_words() -> None:
    assert {text: plain_inline(text) for text in INLINE} == INLINE


def test_long_markdown_is_parsed_in_parts_that_do_not_cut_code() -> None:
    part = "".join(f"Paragraph {number} of the text.\n\n" for number in range(PART // 30))
    code = "```\n" + "# code\n\n" * (PART // 8) + "```\n\n"
    text = f"# Head\n\n{part}{code}## Next\n\nend\n"
    found = list(markdown_blocks(text.splitlines(keepends=True)))
    assert [(block.level, block.text) for block in found if block.level] == [(1, "Head"), (2, "Next")]
    assert sum(block.text.count("# code") for block in found) == PART // 8
    assert sum(block.text.startswith("Paragraph") for block in found) == PART // 30


def test_headings_of_restructured_text_go_by_their_underlines() -> None:
    text = """=====
Title
=====

Intro of *the* text with ``code`` and :ref:`words <target>` and `link <http://a.b>`_.

.. _target:

One
---
Text at once::

    literal

.. note::
   :class: wide

   Inside.

Deeper
~~~~~~

.. a comment

Two
---

======  ====
a       b
======  ====
"""
    found = [(block.level, block.text) for block in rst_blocks(text.splitlines(keepends=True))]
    assert [text for level, text in found if level] == ["Title", "One", "Deeper", "Two"]
    assert [level for level, _ in found if level] == [1, 2, 3, 2]
    body = [text for level, text in found if not level]
    assert body[0] == "Intro of the text with code and words and link."
    assert body[1:4] == ["Text at once:", "literal", "Inside."] and "comment" not in " ".join(body)
    assert "a       b" in body[-1]


def test_html_is_read_without_scripts_and_frame(tmp_path: Path) -> None:
    page = """<!doctype html><html><head><title> The  site </title><script>var x = "<p>no</p>"</script></head><body>
    <nav>menu</nav><div role="navigation">more menu</div><h1>Head <em>line</em></h1>
    <p>A <b>bold</b>ly   spaced<br>text<!-- no --><ul><li>one<li>two</ul><pre>a
  b</pre><table><tr><td>1<td>2</table><style>p {}</style>tail<footer>foot</footer></body></html>"""
    write(tmp_path / "a.html", page.encode())
    found = lines(tmp_path / "a.html")[0]
    assert found[0] == (1, "Head line") and not any(level for level, _ in found[1:])
    assert [text for _, text in found[1:]] == ["A boldly spaced\ntext", "one", "two", "a\n  b", "1 2", "tail"]


TABLE = {"id": ["1", "2"], "Title": ["a", "b"], "story": ["long text of a row", "and another"], "n": ["7.5", "8"]}


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
    assert lines(file) == [[(0, text)] for text in TABLE["story"]]
    assert lines(file, text="Title") == [[(0, "a")], [(0, "b")]]
    with pytest.raises(UserError, match=r"unknown corpus.text_column .*'stori'; did you mean 'story'.*Title, id, n"):
        lines(file, text="stori")


JAPANESE = "日本語の文章です。これはテストです。"
ENCODED = [
    ("Größe".encode(), "Größe"),
    ("Größe".encode("utf-16"), "Größe"),
    ("some wide words".encode("utf-16-le"), "some wide words"),
    ("Größe und Maß".encode("latin-1"), "Größe und Maß"),
    (JAPANESE.encode("shift-jis"), JAPANESE),
    ("Größe, Maß ".encode() + b"\xff end", "Größe, Maß \ufffd end"),
    (b"with a nul\0 inside it", "with a nul inside it"),
    (b"one\r\ntwo\rthree", "one\ntwo\nthree"),
]


@pytest.mark.parametrize(("data", "wanted"), ENCODED)
def test_encodings_are_guessed(tmp_path: Path, data: bytes, wanted: str) -> None:
    write(tmp_path / "a.txt", data)
    assert lines(tmp_path / "a.txt") == [[(0, wanted)]]
