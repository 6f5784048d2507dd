"""Lists of hard negatives: written and read back, and what they cannot be."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.exchange.hard_negatives_file import HardNegatives, line_of
from midmask.exchange.negatives_files import read_negatives_file
from midmask.retrieve.lines import write_lines

texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)
ids = st.text("abcäß017-_:", min_size=1, max_size=6)
SETTINGS = settings(max_examples=40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@SETTINGS
@given(st.lists(st.builds(HardNegatives, ids, st.lists(ids), st.dictionaries(texts, st.lists(ids)))), st.booleans())
def test_hard_negatives_come_back(folder: Path, entries: list[HardNegatives], zipped: bool) -> None:
    place = Place(str(folder / f"hard.jsonl{'.gz' if zipped else ''}"))
    with write_lines(place) as stream:
        stream.writelines(line_of(entry) for entry in entries)
    assert list(read_negatives_file(place)) == entries
    if zipped:
        assert place.read()[4:8] == b"\0\0\0\0", "the time of writing makes equal content unequal"


def test_ids_of_the_released_file_are_numbers(tmp_path: Path) -> None:
    line = {"qid": 571, "pos": [17], "neg": {"bm25": [1, 2], "msmarco-distilbert-base-tas-b": ["3"]}}
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress((json.dumps(line) + "\n\n").encode()))
    assert list(read_negatives_file(Place(str(tmp_path / "x.jsonl.gz")))) == [
        ("571", ["17"], {"bm25": ["1", "2"], "msmarco-distilbert-base-tas-b": ["3"]})
    ]


BAD = [
    '{"qid": 1, "pos": "17", "neg": {}}',
    '{"qid": 1, "pos": [1], "neg": [2]}',
    '{"qid": 1, "pos": [true], "neg": {}}',
    '{"qid": null, "pos": [], "neg": {}}',
    "[]",
]


@pytest.mark.parametrize("line", BAD)
def test_a_line_of_another_layout_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "x.jsonl").write_text(f"\n{line}\n")
    with pytest.raises(UserError, match=r"x.jsonl, line 2: .*wanted is"):
        list(read_negatives_file(Place(str(tmp_path / "x.jsonl"))))
