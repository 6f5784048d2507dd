"""New parts are added to a copy of the project as its pages say, and used there: docs/adding_an_objective.md word for
word, and a corpus format and a source of queries (CONTRIBUTING.md).

The fuzzer, short; and the fuzzer itself: what it is meant to see, it sees.
"""

import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest

from midmask.errors import UserError
from tests.fuzz.running import Outcome, Result, run
from tests.support.project import ROOT, copy_of_project, passes, run_in

OBJECTIVE = "platform/midmask/objectives/pretraining/one_word.py"
OBJECTIVES = "platform/midmask/objectives/__init__.py"
TEST = "tests/objectives/pretraining/test_one_word.py"
FORMAT = '''"""Lines of text: a toy."""

from midmask.store.place import Place
from midmask.corpora.corpus import CorpusPieces, text_pieces
from midmask.corpora.reader import folder_reader


def parse_line(line: str) -> tuple[str, str, str]:
    """(doc_id, title, text): the first word is the id."""
    doc_id, _, text = line.partition(" ")
    return doc_id, "", text


def open_lines(folder: Place) -> CorpusPieces:
    return CorpusPieces(text_pieces("docs", folder, ["lines.txt"], parse_line))


READER = folder_reader("lines.txt: an id, a blank, a text", open_lines)
'''
READ = """
from pathlib import Path
import pyarrow.parquet as pq
from midmask.store.place import Place
from midmask.corpora.assemble import prepare
from midmask.corpora.config import CorpusConfig
folder = Path("collection"); folder.mkdir(); (folder / "lines.txt").write_text("a red apples\\nb blue skies\\n")
prepare(CorpusConfig(name=f"lines:{folder.absolute()}"), {}, Place(str(Path("out").absolute())))
rows = [row for path in Path("out").rglob("*.parquet") for row in pq.read_table(path).to_pylist()]
texts = {row["text"] for row in rows if "text" in row}
assert texts == {"red apples", "blue skies"}, texts
assert "lines" in CorpusConfig.model_fields["name"].description
"""
SOURCE = '''"""The first words of passages: a toy."""

from collections.abc import Iterator

from midmask.queries.collection import MadeQuery, Passage
from midmask.queries.sources import Source


class FirstWords(Source):
    """The passage's first five words."""

    def queries_of(self, passage: Passage) -> Iterator[MadeQuery]:
        yield MadeQuery(passage.doc_id, " ".join(passage.text.split()[:5]))
'''
ASK = """
from midmask.queries.collection import Passage
from midmask.queries.config import QueriesConfig
from midmask.queries.sources import Opening, open_source
source = open_source("first_words", Opening(QueriesConfig(sources={"first_words": 1.0}), None))
assert [made.text for made in source.queries([Passage("p", "", "a b c d e f g")])] == ["a b c d e"]
assert "first_words" in QueriesConfig.model_fields["sources"].description
"""


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert text.count(old) == 1, f"{path}: {old}"
    path.write_text(text.replace(old, new), "utf-8")


PARTS = {
    "corpora": ("lines", FORMAT, '"texts": "FOLDER"', '"lines": "FOLDER"', READ),
    "queries": (
        *("first_words", SOURCE, '"keyphrases": ("source_classes", "KeyphraseQueries")'),
        *('"first_words": ("first_words", "FirstWords")', ASK),
    ),
}
"""Package -> the new file, its text, the line of the table beside which its own stands, and a program that uses it."""


@pytest.mark.parametrize("package", PARTS)
def test_a_corpus_format_and_a_source_of_queries_are_a_file_and_a_line_of_the_table(package, tmp_path) -> None:
    name, text, beside, line, program = PARTS[package]
    folder = copy_of_project(tmp_path) / "platform" / "midmask" / package
    (folder / f"{name}.py").write_text(text, "utf-8")
    change(folder / "config.py", beside, f"{line}, {beside}")
    done = run_in(tmp_path, "-c", program)
    assert done.returncode == 0, done.stderr[-3000:]


def blocks() -> dict[str, str]:
    """The page's blocks of Python, by the last path that is named before each."""
    text, found = (ROOT / "docs" / "adding_an_objective.md").read_text("utf-8"), {}
    for match in re.finditer(r"```python\n(.*?)```", text, re.DOTALL):
        (*_, path) = re.findall(r"`((?:platform|tests)/[\w/.]+)`", text[: match.start()])
        found[path] = match.group(1)
    return found


def test_a_reader_adds_an_objective_and_its_test_can_fail(tmp_path: Path) -> None:
    code, root = blocks(), copy_of_project(tmp_path)
    for path in (OBJECTIVE, TEST):
        (root / path).write_text(code.pop(path), "utf-8")
    imported, entry = code.pop(OBJECTIVES).splitlines()
    assert not code
    last = "from midmask.objectives.objective import"
    change(root / OBJECTIVES, last, f"{imported}\n{last}")
    change(root / OBJECTIVES, '        "mlm": ', f'{entry}\n        "mlm": ')
    assert passes(root, [TEST])
    page = (ROOT / "docs" / "adding_an_objective.md").read_text("utf-8")
    ((new, old),) = re.findall(r"`(place_B1 = .*?)` in place of\s+`(place_B1 = .*?)`", page)
    change(root / OBJECTIVE, old, new)
    assert not passes(root, [TEST])


CASES, SEED = 300, 9


def test_bad_inputs_are_read_quarantined_or_refused() -> None:
    """In a process of its own, which forks: pytest has threads."""
    command = [sys.executable, "-m", "tests.fuzz", "--cases", str(CASES), "--seed", str(SEED)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr[-5000:]}\n{done.stdout}"
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines()[2:]]
    counts = {name: [int(cell.replace(",", "")) for cell in cells] for name, *cells in lines}
    number, *outcomes, _ = counts.pop("all")
    assert number == CASES and min(outcomes) > CASES / 10 and len(counts) == 20
    assert all(any(own[1:4]) and not own[4] for own in counts.values()), counts


def _ends(how: str, rng: random.Random, folder: Path) -> Outcome:
    if how == "refuse":
        raise UserError("no")
    if how == "fail":
        raise KeyError("x")
    if how == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "fill":
        return "succeeded" if bytearray(b"x") * (600 << 20) else "refused"
    while how == "hang":
        pass
    return "succeeded"


def _run_all(names: Sequence[str]) -> list[Result]:
    targets = {name: partial(_ends, name) for name in names}
    return list(run(targets, [(name, 0) for name in names], seed=1, ended_after=0.5))


def test_the_fuzzer_sees_faults_deaths_memory_and_what_has_no_end() -> None:
    names = ("good", "refuse", "fail", "die", "fill", "hang", "last")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:  # it forks, and pytest has threads
        found = {result.target: result for result in alone.submit(_run_all, names).result()}
    assert list(found) == list(names)
    assert [found[name].outcome for name in ("good", "refuse", "last")] == ["succeeded", "refused", "succeeded"]
    assert not any(found[name].fault for name in ("good", "refuse", "last"))
    told = {"fail": "KeyError", "die": "SIGSEGV", "fill": "MemoryError", "hang": "SIGPROF"}
    assert all(word in found[name].fault for name, word in told.items())
