"""Cluster shapes as people write them."""

import pytest

from midmask.errors import UserError
from midmask.estimate.devices import DEVICES, shape_named, this_machine


@pytest.mark.parametrize(
    ("text", "count", "name"),
    [
        ("8xH100", 8, "H100"),
        ("4 x a100-40g", 4, "A100-40G"),
        ("2xcpu", 2, "cpu"),
        ("L4", 1, "L4"),
        ("16XV100-32G", 16, "V100-32G"),
    ],
)
def test_a_shape_is_read(text: str, count: int, name: str) -> None:
    shape = shape_named(text)
    assert (shape.count, shape.device) == (count, DEVICES[name.lower()])
    assert str(shape) == f"{count}x{name}"


def test_memory_of_a_machine_stands_behind_a_colon() -> None:
    assert shape_named("8xH100:2048").ram == 2048 * 2**30 and shape_named("2xcpu:24").ram == 24 * 2**30
    assert shape_named("8xH100").ram is None and shape_named("2xcpu").ram == this_machine().ram


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("8xH10", ["'H10'", "did you mean 'H100'"]),
        ("8xA100", ["A100-40G, A100-80G"]),
        ("0xH100", ["0 devices, but at least 1 is needed", "8xH100"]),
        ("-2xcpu", ["-2 devices"]),
        ("eight H100", ["'eight H100'", "COUNTxDEVICE"]),
        ("8x", ["COUNTxDEVICE", "2xcpu"]),
        ("8xH100:2TB", ["COUNTxDEVICE:GIB", "8xH100:2048"]),
        ("", ["COUNTxDEVICE"]),
    ],
)
def test_a_mistaken_shape_is_told_in_one_line(text: str, told: list[str]) -> None:
    with pytest.raises(UserError) as error:
        shape_named(text)
    assert all(words in str(error.value) for words in told) and "\n" not in str(error.value)


def test_the_table_follows_its_own_rule() -> None:
    """The A100's 16% times bandwidth by peak, at most 30%; bandwidths in TB/s from the makers' data sheets."""
    bandwidths = {
        "V100-16G": 0.900,
        "V100-32G": 0.900,
        "T4": 0.320,
        "L4": 0.300,
        "A10G": 0.600,
        "A100-40G": 1.555,
        "A100-80G": 2.039,
        "H100": 3.35,
        "H200": 4.8,
    }
    gpus = {device.name: device for device in DEVICES.values() if device.kind == "cuda"}
    assert set(bandwidths) == set(gpus)
    for name, bandwidth in bandwidths.items():
        rule = min(0.30, 0.16 * (bandwidth * 1e12 / gpus[name].peak) / (1.555 / 312))
        assert gpus[name].utilisation == pytest.approx(rule, abs=0.006), name


def test_this_machine_has_what_the_process_may_use() -> None:
    shape = this_machine()
    assert shape.count >= 1 and shape.cores >= 1 and shape.rate > 0 and "this machine" in str(shape)
