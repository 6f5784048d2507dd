from pathlib import Path

import pytest

from midmask.corpora import CorpusConfig, open_corpus
from midmask.errors import UserError
from tests.support.corpora.collections import prepared, quarantine, rows, write

DOCS = b"""<DOC>
<DOCNO> FT-1 </DOCNO>
<HEADLINE>Wings &amp; tails</HEADLINE>
<TEXT>
<P>A wing in a <B>slipstream</B>.</P>
</TEXT>
</DOC>

<DOC>
<DOCNO>FT-2</DOCNO>
<DATE>1993</DATE>
no text field, but words
</DOC>
<DOC>
<TEXT>nobody's number</TEXT>
</DOC>
<DOC>
<DOCNO>FT-3</DOCNO>
<TEXT>cut off
<DOC>
<DOCNO>FT-4</DOCNO> <TEXT>after the cut</TEXT>
</DOC>
"""
TOPICS = b"""<top>
<num> Number: 401
<title> foreign minorities,
Germany

<desc> Description:
What language
<narr> Narrative: none
</top>
<top>
<num> Number: 402
<title>
<desc> Description: behavioral genetics
</top>
"""


def write_trec(folder: Path) -> None:
    write(folder / "docs/a.gz", DOCS)
    write(folder / "docs/b.tsv", b"T-1\ttab and text\n")
    write(folder / "docs/c.jsonl", b'{"_id": "J-1", "title": "j", "text": "json text"}\n')
    write(folder / "topics.txt", TOPICS)
    write(folder / "topics.more.tsv", b"403\tosteoporosis\n")
    write(folder / "qrels.txt", b"401 0 FT-1 2\n402 0 T-1 1\n403 0 J-1 0\n")


def test_elements_columns_and_json_side_by_side(tmp_path: Path) -> None:
    write_trec(tmp_path / "in")
    result = prepared(f"trec:{tmp_path}/in", tmp_path / "out", bad_rows_threshold=0.5)
    assert rows(tmp_path / "out/docs") == [
        {"doc_id": "FT-1", "title": "Wings & tails", "text": "A wing in a  slipstream ."},
        {"doc_id": "FT-2", "title": "", "text": "1993 \nno text field, but words"},
        {"doc_id": "FT-4", "title": "", "text": "after the cut"},
        {"doc_id": "T-1", "title": "", "text": "tab and text"},
        {"doc_id": "J-1", "title": "j", "text": "json text"},
    ]
    assert rows(tmp_path / "out/queries.parquet") == [
        {"query_id": "403", "text": "osteoporosis"},
        {"query_id": "401", "text": "foreign minorities, Germany"},
        {"query_id": "402", "text": "behavioral genetics"},
    ]
    assert [(row["kind"], row["file"], row["line"]) for row in quarantine(tmp_path / "out")] == [
        ("malformed line", "docs/a.gz", 14),
        ("malformed line", "docs/a.gz", 17),
    ]
    assert result["rows_read"] == 7 + 3 + 3 and result["splits_made_here"]


@pytest.mark.parametrize("pattern", ["docs/*", "topics*", "qrels*"])
def test_what_is_missing_is_named(tmp_path: Path, pattern: str) -> None:
    write_trec(tmp_path)
    for file in tmp_path.glob(pattern):
        file.unlink()
    with pytest.raises(UserError, match=rf"{pattern.rstrip('*')}.*is missing; wanted layout: docs/"):
        open_corpus(CorpusConfig(name=f"trec:{tmp_path}"))
