"""How many files a new part touches, tests aside: toys are added to a copy of the project, and used there."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.mutations.runner import copy_of_project

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

PAGE = '''"""Counts runs: a toy."""

import streamlit as st

from context import PageContext


def show(context: PageContext) -> None:
    st.markdown(f"There are {len(context.runs)} runs.")
'''

LOOK = """
from streamlit.testing.v1 import AppTest
from tests.support.dashboards.page import page
import re, pathlib
assert [one.value for one in page("counted", []).markdown] == ["There are 0 runs."]
assert re.search(r'"Counted": counted,', pathlib.Path("dashboards/leaderboard.py").read_text())
"""

SEARCH = """
import numpy as np
from midmask.retrieve.index import IndexConfig, IndexFields, build_faiss_index
from midmask.retrieve.index_training import VectorBlocks
IndexFields(index="IVF4,SQ8", nprobe=2).check_index("evaluation", 16)
vectors = np.random.default_rng(0).standard_normal((400, 16), dtype=np.float32)
assert build_faiss_index(VectorBlocks.of(vectors), IndexConfig(index="IVF4,SQ8")).ntotal == 400
"""


@dataclass(frozen=True)
class Toy:
    """files: new ones. lines: file -> text in it -> the text in its place. used: a script that uses the toy."""

    most: int
    used: str
    files: dict[str, str] = field(default_factory=dict)
    lines: dict[str, dict[str, str]] = field(default_factory=dict)


DISTILLATION = "from midmask.objectives.finetuning.distillation import Distillation\n"

TOYS = {
    "a corpus format": Toy(
        3,
        READ,
        {"platform/midmask/corpora/lines.py": FORMAT},
        {
            "platform/midmask/corpora/formats.py": {
                '"texts": Format("texts")': '"lines": Format("lines"), "texts": Format("texts")'
            }
        },
    ),
    "a fine-tuning loss": Toy(
        3,
        TUNE,
        {"platform/midmask/objectives/finetuning/double.py": LOSS},
        {
            "platform/midmask/objectives/__init__.py": {
                DISTILLATION: f"{DISTILLATION}from midmask.objectives.finetuning.double import Double\n",
                '"distillation": Distillation,': '"distillation": Distillation, "double": Double,',
            }
        },
    ),
    "a page": Toy(
        2,
        LOOK,
        {"dashboards/views/counted.py": PAGE},
        {"dashboards/leaderboard.py": {'"Lineage": lineage,': '"Lineage": lineage,\n    "Counted": counted,'}},
    ),
    "an index type": Toy(2, SEARCH),
}


@pytest.mark.parametrize("name", TOYS)
def test_a_part_is_added_in_few_files(name: str, tmp_path: Path) -> None:
    toy = TOYS[name]
    assert len(toy.files) + len(toy.lines) <= toy.most
    root = copy_of_project(tmp_path)
    for file, text in toy.files.items():
        (root / file).write_text(text, "utf-8")
    for file, changes in toy.lines.items():
        for old, new in changes.items():
            before = (root / file).read_text("utf-8")
            assert before.count(old) == 1, f"{file}: {old}"
            (root / file).write_text(before.replace(old, new), "utf-8")
    environment = {**os.environ, "PYTHONPATH": f"{root / 'platform'}:{root}"}
    done = subprocess.run([sys.executable, "-c", toy.used], cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
