"""Cluster shapes as people write them."""

import pytest

from midmask.errors import UserError
from midmask.estimate.devices import DEVICES, shape_named, this_machine


@pytest.mark.parametrize(
    ("text", "count", "name"),
    [("4 x a100-40g", 4, "A100-40G"), ("2xcpu", 2, "cpu"), ("L4", 1, "L4"), ("16XV100-32G", 16, "V100-32G")],
)
def test_a_shape_is_read(text, count, name):
    shape = shape_named(text)
    assert (shape.count, shape.device) == (count, DEVICES[name.lower()])
    assert str(shape) == f"{count}x{name}"


def test_memory_of_a_machine_stands_behind_a_colon():
    assert shape_named("8xH100:2048").ram == 2048 * 2**30 and shape_named("2xcpu:24").ram == 24 * 2**30
    assert shape_named("8xH100").ram is None and shape_named("2xcpu").ram == this_machine().ram


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("8xH10", "did you mean 'H100'"),
        ("8xA100", "A100-40G, A100-80G"),
        ("0xH100", "0 devices, but at least 1 is needed"),
        ("-2xcpu", "-2 devices"),
        ("eight H100", "COUNTxDEVICE"),
        ("8x", "COUNTxDEVICE"),
        ("8xH100:2TB", "COUNTxDEVICE:GIB"),
    ],
)
def test_a_mistaken_shape_is_refused(text, told):
    with pytest.raises(UserError, match=told):
        shape_named(text)
