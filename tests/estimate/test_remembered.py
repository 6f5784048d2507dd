"""Counts that an earlier process made are taken as they are, and only if nothing has changed that they follow from."""

import json
from pathlib import Path

import pytest

from midmask.estimate.remembered import remembered


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("MIDMASK_CACHE", str(tmp_path))
    return tmp_path / "counts"


def counter(calls: list[tuple[object, ...]]):
    """A function of its own, as another process would have it."""

    @remembered(float)
    def area(side: int, *, scale: float = 1.0) -> float:
        calls.append((side, scale))
        return side * side * scale

    return area


def test_a_count_is_made_once_for_each_argument(cache):
    calls: list[tuple[object, ...]] = []
    assert [counter(calls)(3), counter(calls)(3), counter(calls)(4), counter(calls)(3, scale=2.0)] == [9, 9, 16, 18]
    assert calls == [(3, 1.0), (4, 1.0), (3, 2.0)]
    assert len(list(cache.glob("*.json"))) == 3


@pytest.mark.parametrize("content", ["{", '{"a": 1}'])
def test_a_spoilt_file_is_counted_anew(cache, content):
    calls: list[tuple[object, ...]] = []
    counter(calls)(3)
    (file,) = cache.glob("*.json")
    file.write_text(content)
    assert counter(calls)(3) == 9.0 and len(calls) == 2
    assert json.loads(file.read_text()) == 9.0
