"""Damaged checkpoints are refused in one line that says what to delete, and the run goes on from the one before."""

import os
from pathlib import Path

import pytest
import torch

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.training import checkpoint


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(bytes(data))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def parts() -> tuple[torch.nn.Linear, torch.optim.AdamW]:
    module = torch.nn.Linear(3, 2)
    return module, torch.optim.AdamW(module.parameters())


@pytest.fixture
def saved(tmp_path) -> Path:
    module, optimiser = parts()
    module(torch.ones(1, 3)).sum().backward()
    optimiser.step()
    for step in (5, 10):
        checkpoint.save(Place(str(tmp_path / checkpoint.step_name(step))), module, optimiser, {"step": step})
    return tmp_path


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        (checkpoint.OBJECTIVE, flip),
        (checkpoint.OPTIMISER, cut),
        (checkpoint.OBJECTIVE, os.unlink),
        (checkpoint.POSITION, cut),
    ],
)
def test_damage_is_one_line(saved, name, harm):
    newest = checkpoint.newest(Place(str(saved)))
    assert checkpoint.load(newest, *parts())["step"] == 10
    harm(Path(newest.uri) / name)
    with pytest.raises(UserError, match=f"{name} is damaged.*Delete {newest} and run the same command again"):
        checkpoint.load(newest, *parts())
    newest.delete()
    before = checkpoint.newest(Place(str(saved)))
    assert checkpoint.load(before, *parts())["step"] == 5


def test_those_who_trust_the_disk_read_it_as_it_is(saved, monkeypatch):
    newest = saved / checkpoint.step_name(10)
    flip(newest / checkpoint.OBJECTIVE)
    monkeypatch.setenv("MIDMASK_NO_VERIFY", "1")
    assert checkpoint.load(Place(str(newest)), *parts())["step"] == 10
    cut(newest / checkpoint.OBJECTIVE)
    with pytest.raises(UserError, match="is damaged"):
        checkpoint.load(Place(str(newest)), *parts())
