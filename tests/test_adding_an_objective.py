"""docs/adding_an_objective.md, followed to the letter in a copy of the project."""

import re
from pathlib import Path

from tests.mutations.__main__ import read_table
from tests.mutations.runner import copy_of_project, passes

DOC = Path(__file__).resolve().parents[1] / "docs" / "adding_an_objective.md"
OBJECTIVE = "platform/midmask/objectives/pretraining/one_word.py"
TABLE = "platform/midmask/objectives/__init__.py"
TEST, MUTATIONS = "tests/objectives/pretraining/test_one_word.py", "tests/mutations/one_word.toml"


def blocks() -> dict[str, str]:
    """The page's blocks of code, by the last path that is named before each."""
    found = {}
    text = DOC.read_text("utf-8")
    for match in re.finditer(r"```(?:python|toml)\n(.*?)```", text, re.DOTALL):
        (*_, path) = re.findall(r"`((?:platform|tests)/[\w/.]+)`", text[: match.start()])
        found[path] = match.group(1)
    return found


def test_a_reader_adds_an_objective_in_under_60_lines(tmp_path: Path) -> None:
    code = blocks()
    assert set(code) == {OBJECTIVE, TABLE, TEST, MUTATIONS}
    assert len(code[OBJECTIVE].splitlines()) < 60
    root = copy_of_project(tmp_path)
    for path in (OBJECTIVE, TEST, MUTATIONS):
        (root / path).write_text(code[path], "utf-8")
    imports, entry = code[TABLE].splitlines()
    table = (root / TABLE).read_text("utf-8")
    table = table.replace(
        "from midmask.objectives.objective import", f"{imports}\nfrom midmask.objectives.objective import"
    )
    (root / TABLE).write_text(
        re.sub(r'(\n        "mlm": )', lambda found: f"\n{entry}{found.group(1)}", table), "utf-8"
    )
    assert passes(root, [TEST])
    for mutation in read_table(root / MUTATIONS):
        mutation.apply(root)
        assert not passes(root, mutation.tests)
