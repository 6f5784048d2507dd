"""The table of formats, and that they are known wherever formats are."""

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

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("numpy", "pyarrow", "pydantic", "torch", "ray")


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
