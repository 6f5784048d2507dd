"""The table of formats: a new one is one file, one line and one test, and is then known wherever formats are."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from midmask.corpora import CorpusConfig
from midmask.corpora.formats import FORMATS, name_forms
from midmask.corpora.guide import with_formats
from midmask.corpora.reader import open_corpus
from midmask.errors import UserError
from tests.mutations.runner import copy_of_project, passes

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("numpy", "pyarrow", "pydantic", "torch", "ray")

FORMAT = '''"""Lines of text, each a passage that is known by its number."""

from midmask.artifact import Place
from midmask.corpora.corpus import CorpusPieces, find_file, text_pieces
from midmask.corpora.reader import FolderReader

LAYOUT = "passages.txt, lines NUMBER TEXT"


def parse_passage(text: str) -> tuple[str, str, str]:
    """(doc_id, title, text) of one line."""
    number, passage = text.split(" ", 1)
    return number, "", passage


def open_toy(folder: Place, name: str, max_characters: int) -> CorpusPieces:
    file = find_file(folder, ["passages.txt"], LAYOUT)
    docs = text_pieces("docs", folder, [file], parse_passage, {"max_characters": max_characters})
    return CorpusPieces(name, docs, (), ())


READER = FolderReader(LAYOUT, open_toy)
'''

LINE = '        "toy": Format("toy"),  # lines of text\n'

TEST = """import subprocess
import sys
from pathlib import Path

import pytest

from midmask.corpora import CorpusConfig
from midmask.corpora.guide import formats_table
from midmask.errors import UserError
from tests.support.corpora.collections import prepared, quarantine, rows

JOB = Path(__file__).resolve().parents[2] / "jobs" / "prepare_corpus.py"


def test_it_is_named_where_formats_are() -> None:
    shown = subprocess.run([sys.executable, JOB, "--help"], capture_output=True, text=True, check=True).stdout
    assert "beir, toy, msmarco" in " ".join(shown.split())
    with pytest.raises(UserError, match="did you mean 'toy'.* Known: .*toy.*FORMAT beir, toy, msmarco"):
        CorpusConfig(name="toi:/data")
    with pytest.raises(UserError, match="the folder is missing; write toy:FOLDER, for example toy:/data"):
        CorpusConfig(name="toy:")
    assert "toy" in str(CorpusConfig.model_fields["name"].description)
    assert "\\n| `toy` | passages.txt, lines NUMBER TEXT |\\n" in formats_table()


def test_it_is_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="passages.txt is missing; wanted layout: passages.txt, lines NUMBER TEXT"):
        prepared(f"toy:{tmp_path}", tmp_path / "out")
    (tmp_path / "passages.txt").write_text("1 one\\nbroken\\n3 three and more\\n")
    result = prepared(f"toy:{tmp_path}", tmp_path / "out", bad_rows_threshold=0.5)
    assert (result["rows_read"], result["rows_kept"], result["rows_quarantined"]) == (3, 2, {"malformed line": 1})
    read = [(row["doc_id"], row["text"]) for row in rows(tmp_path / "out/docs")]
    assert read == [("1", "one"), ("3", "three and more")]
    assert [row["line"] for row in quarantine(tmp_path / "out")] == [2]
"""


def test_a_format_is_added_with_a_file_a_line_and_a_test(tmp_path: Path) -> None:
    root = copy_of_project(tmp_path)
    (root / "platform/midmask/corpora/toy.py").write_text(FORMAT, "utf-8")
    (root / "tests/corpora/test_toy.py").write_text(TEST, "utf-8")
    assert not passes(root, ["tests/corpora/test_toy.py"]), "known without a line in the table"
    table = root / "platform/midmask/corpora/formats.py"
    text = table.read_text("utf-8")
    table.write_text(re.sub(r'( {8}"beir": .*\n)', lambda line: line[1] + LINE, text), "utf-8")
    assert passes(root, ["tests/corpora/test_toy.py"])


def test_the_guide_and_the_commands_name_all_formats() -> None:
    guide = ROOT / "docs" / "protocols.md"
    text = guide.read_text("utf-8")
    assert with_formats(text) == text, f"type: python -m midmask.corpora.guide {guide}"
    assert all(f"| `{name}` |" in text for name in FORMATS)
    assert all(re.search(rf"\b{name}\b", name_forms()) for name in FORMATS)


def test_formats_are_listed_without_waiting_for_libraries() -> None:
    listing = "import midmask.app.flags, midmask.corpora.formats as f, sys; f.name_forms(); print(*sys.modules)"
    listed = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True, cwd=ROOT)
    assert not {name for name in HEAVY if name in listed.stdout.split()}


@pytest.mark.parametrize("kind", [name for name, one in FORMATS.items() if one.place == "FOLDER" and name != "docs"])
def test_a_file_in_place_of_a_folder_is_told(kind: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("one")
    with pytest.raises(
        UserError, match=rf"notes\.txt is a file; wanted is a folder with .* write docs:{tmp_path}/notes"
    ):
        open_corpus(CorpusConfig(name=f"{kind}:{tmp_path}/notes.txt"))
