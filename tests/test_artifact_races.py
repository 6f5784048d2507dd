"""Two processes race for one artifact, delayed, paused and killed; the whole is `python -m tests.races`."""

from pathlib import Path

import pytest
from tests.races.races import races


@pytest.mark.parametrize(
    ("count", "kinds"), [(4, ("prepare", "tokenise")), pytest.param(28, (), marks=pytest.mark.slow)]
)
def test_racing_processes_make_one_whole_artifact(count: int, kinds: tuple[str, ...], tmp_path: Path) -> None:
    assert not [line for line, problems in races(tmp_path, count, seed=5, kinds=kinds) if problems]
