"""The numbers of every scheme, as artifacts that exist have them, and no generator outside of their home."""

import re
from pathlib import Path

import numpy as np
import torch

from midmask.randomness.masks import Purpose, draw_seeds, integers, row_keys
from midmask.randomness.streams import named_stream, numpy_stream, python_stream
from midmask.randomness.texts import fixed_sample, hash64, mix, uniform
from midmask.randomness.torch_seeds import dropout_seed, fresh_weights, seed_dropout, torch_stream

ROOT = Path(__file__).resolve().parents[2]
MAKES_ONE = re.compile(
    r"default_rng|RandomState|PCG64|random\.Random\(|manual_seed|torch\.Generator\(|fork_rng|np\.random\.seed"
)


def test_hashes_are_what_they_were() -> None:
    """Noted down before the schemes had one home."""
    assert hash64(["a", "b"], "salt").tolist() == [16754777877328628011, 7756043552949299801]
    assert uniform(["a"], "s").tolist() == [0.8942567829300032]
    assert mix(np.uint64(1), np.array([2], np.uint64)).tolist() == [3497101601492490161]
    assert fixed_sample(list("abcdef"), 3) == ["d", "f", "c"]


def test_draws_of_rows_are_what_they_were() -> None:
    keys = row_keys(1, 2, np.arange(2))
    assert keys.tolist() == [-1833405127366507680, 937349279089814987]
    assert draw_seeds(keys[:1], Purpose.CROP, 2).tolist() == [[15781366, -1901027702]]
    assert integers(keys[:1], Purpose.PICK, 3, 100).tolist() == [[62, 27, 66]]


def test_streams_are_what_they_were() -> None:
    assert numpy_stream(0).integers(0, 100, 4).tolist() == [85, 63, 51, 26]
    assert named_stream("x/1/2/-1").permutation(6).tolist() == [0, 5, 4, 2, 1, 3]
    assert python_stream(0).random() == 0.8444218515250481
    assert dropout_seed(1, 2, 3) == 6084512965875425802
    assert torch.randint(1000, (3,), generator=torch_stream(3)).tolist() == [986, 48, 737]


def test_fresh_weights_leave_torchs_generator_where_it_was() -> None:
    seed_dropout(1, 2, 3)
    before = torch.get_rng_state()
    with fresh_weights(3):
        assert torch.randint(1000, (3,)).tolist() == [986, 48, 737]
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.initial_seed() == dropout_seed(1, 2, 3)


def test_no_generator_is_made_elsewhere() -> None:
    home = ROOT / "platform/midmask/randomness"
    files = [path for folder in ("platform", "jobs", "dashboards") for path in (ROOT / folder).rglob("*.py")]
    files = [path for path in files if home not in path.parents]
    assert [str(path) for path in files if MAKES_ONE.search(path.read_text("utf-8"))] == []
