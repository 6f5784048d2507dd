"""New parts are added to a copy of the project as its pages say, and used there: docs/adding_an_objective.md word for
word, a corpus format (CONTRIBUTING.md), a fine-tuning loss.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.project import ROOT, copy_of_project, passes, run_in

OBJECTIVE = "platform/midmask/objectives/pretraining/one_word.py"
OBJECTIVES = "platform/midmask/objectives/__init__.py"
TEST = "tests/objectives/pretraining/test_one_word.py"

FORMAT = '''"""Lines of text: a toy."""

from midmask.artifact import Place
from midmask.corpora.corpus import CorpusPieces, text_pieces
from midmask.corpora.reader import FolderReader


def parse_line(line: str) -> tuple[str, str, str]:
    """(doc_id, title, text): the first word is the id."""
    doc_id, _, text = line.partition(" ")
    return doc_id, "", text


def open_lines(folder: Place, name: str, max_characters: int) -> CorpusPieces:
    pieces = text_pieces("docs", folder, ["lines.txt"], parse_line, {"max_characters": max_characters})
    return CorpusPieces(name, pieces, (), ())


READER = FolderReader("lines.txt: an id, a blank, a text", open_lines)
'''

READ = """
from pathlib import Path
import pyarrow.parquet as pq
from midmask.artifact import Place
from midmask.corpora import CorpusConfig, prepare
folder = Path("collection"); folder.mkdir(); (folder / "lines.txt").write_text("a red apples\\nb blue skies\\n")
prepare(CorpusConfig(name=f"lines:{folder.absolute()}"), {}, Place(str(Path("out").absolute())))
rows = [row for path in Path("out").rglob("*.parquet") for row in pq.read_table(path).to_pylist()]
texts = {row["text"] for row in rows if "text" in row}
assert texts == {"red apples", "blue skies"}, texts
assert "lines" in CorpusConfig.model_fields["name"].description
"""

LOSS = '''"""Contrastive fine-tuning that counts double: a toy."""

from typing import ClassVar, Literal

from pydantic import Field

from midmask.batch import Part
from midmask.objectives.finetuning.contrastive import contrastive_part
from midmask.objectives.finetuning.ranking import RankedRows, Ranking, RankingConfig
from midmask.objectives.finetuning.regularisers import PARTS


class Double(Ranking):
    class Config(RankingConfig):
        """Twice the contrastive loss."""

        name: Literal["double"] = Field("double", description="the objective")

        @property
        def weights(self) -> dict[str, float]:
            return {"double": 2.0}

    parts: ClassVar[tuple[str, ...]] = ("double", *PARTS)

    def ranking_parts(self, rows: RankedRows) -> dict[str, Part]:
        return {"double": contrastive_part(rows, self.config, 2.0)}
'''

TUNE = """
import pytest
from pathlib import Path
from midmask.artifact import Place
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.steps import LOCAL
from midmask.identity import override
from midmask.recipes import RECIPES
from tests.support.benchmark.tiny import write_collection
stage = {f"stages.0.train.{name}": value for name, value in {"steps": 1, "batch_size": 4, "threads": 1}.items()}
sizes = {"tokens.vocabulary_size": 300, **stage}
recipe = override(RECIPES["none"](), {**sizes, "corpus.name": write_collection(Path("tiny").absolute())})
losses = {}
for name in ("contrastive", "double"):
    own = override(recipe, {"stages.0.loss": {"name": name}})
    found = Runner(Place(str(Path("store").absolute())), LOCAL, Silent()).run(plan(own).stages[0])
    losses[name] = found.result["loss"]
assert losses["double"] == pytest.approx(2 * losses["contrastive"], rel=1e-4), losses
"""


@dataclass(frozen=True)
class Toy:
    """file, text: a new file. changes: file, text that stands in it once, the text in its place. used: a script."""

    file: str
    text: str
    changes: tuple[tuple[str, str, str], ...]
    used: str


FORMATS = "platform/midmask/corpora/formats.py"
DISTILLATION = "from midmask.objectives.finetuning.distillation import Distillation\n"
TOYS = {
    "a corpus format": Toy(
        "platform/midmask/corpora/lines.py",
        FORMAT,
        ((FORMATS, '"texts": Format("texts")', '"lines": Format("lines"), "texts": Format("texts")'),),
        READ,
    ),
    "a fine-tuning loss": Toy(
        "platform/midmask/objectives/finetuning/double.py",
        LOSS,
        (
            (OBJECTIVES, DISTILLATION, f"{DISTILLATION}from midmask.objectives.finetuning.double import Double\n"),
            (OBJECTIVES, '"distillation": Distillation,', '"distillation": Distillation, "double": Double,'),
        ),
        TUNE,
    ),
}


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert text.count(old) == 1, f"{path}: {old}"
    path.write_text(text.replace(old, new), "utf-8")


@pytest.mark.parametrize("name", TOYS)
def test_a_part_is_added_with_a_file_and_a_line_of_a_table(name: str, tmp_path: Path) -> None:
    toy, root = TOYS[name], copy_of_project(tmp_path)
    (root / toy.file).write_text(toy.text, "utf-8")
    for file, old, new in toy.changes:
        change(root / file, old, new)
    done = run_in(root, "-c", toy.used)
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
