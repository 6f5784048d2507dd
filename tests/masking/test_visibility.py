"""Which columns a RetroMAE decoder row sees; and the numbers of every scheme of randomness."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from midmask import masking
from midmask.batch import TokenRows
from midmask.randomness import masks
from midmask.randomness.masks import Purpose, draw_seeds, integers, row_keys
from midmask.randomness.streams import named_stream, numpy_stream, python_stream
from midmask.randomness.texts import fixed_sample, hash64, mix, uniform
from midmask.randomness.torch_seeds import dropout_seed, fresh_weights, seed_dropout, torch_stream
from tests.support.objectives.texts import CLS, FIRST, PAD, random_texts, small_vocabulary, token_rows

WORD = FIRST


@pytest.mark.parametrize(("length", "visible", "drawn", "rows"), [(64, 31.5, 0.63, 0.89), (512, 255.5, 0.43, 0.81)])
def test_visibility_has_the_published_numbers(length: int, visible: float, drawn: float, rows: float) -> None:
    """Mean visible columns, distinct pool masks per row and distinct rows, as found in runs of the published code."""
    text = token_rows([[WORD] * (length - 2)] * (40 if length < 100 else 4))
    seen = masking.visibility(text, small_vocabulary(), ratio=0.5, independent=False)
    assert float(seen.sum(-1).double().mean()) == pytest.approx(visible, abs=0.05)
    picks = masks.integers(text.keys_B, Purpose.PICK, length, text.lengths_B.clamp(max=256)[:, None])
    assert np.mean([len(set(row.tolist())) / length for row in picks]) == pytest.approx(drawn, abs=0.015)
    distinct = [len({tuple(row) for row in example.tolist()}) / length for example in seen]
    assert np.mean(distinct) == pytest.approx(rows, abs=0.015)


@pytest.mark.parametrize("independent", [False, True])
def test_visibility_rules_hold_for_every_row(independent: bool) -> None:
    lengths = [1, 3, 20, 38]
    text = token_rows(random_texts(lengths), length=45)
    seen = masking.visibility(text, small_vocabulary(), ratio=0.5, independent=independent)
    for row, length in enumerate(n + 2 for n in lengths):
        own = seen[row, :length]
        assert not bool(own[:, length:].any()), "padding is seen"
        assert not bool(own.diagonal().any()), "a token sees itself"
        assert bool(own[1:, 0].all()) and not bool(own[0, 0]), "column 0 is for all but row 0"
        assert bool(own[: length - 1, length - 1].all()), "[SEP] is seen by all but itself"
        hidden = (~own[:, 1 : length - 1]).sum(1)
        quota = min(length - 2, max(1, round(length * 0.5)))
        assert set(hidden.tolist()) <= {*range(max(0, quota - 5), quota + 2)}
    assert bool(seen.any(-1).all()), "a row that sees nothing makes NaN"


def test_a_row_hides_whole_words_but_for_its_own_token() -> None:
    text = token_rows(random_texts([40, 25]))
    vocabulary = small_vocabulary()
    words = masking.find_words(text, vocabulary)
    seen = masking.visibility(text, vocabulary, ratio=0.5, independent=False)
    for row, length in enumerate(text.lengths_B.tolist()):
        for i in range(length):
            starts = words.start_BL[row, 1 : length - 1].tolist()
            kinds = {(start, bool(seen[row, i, j])) for j, start in enumerate(starts, 1) if j != i}
            assert len(kinds) == len({start for start, _ in kinds}), "one word both seen and hidden"


def test_independent_masks_differ_from_row_to_row() -> None:
    text = token_rows([[WORD] * 298] * 2)
    seen = masking.visibility(text, small_vocabulary(), ratio=0.5, independent=True)
    assert len({tuple(row) for example in seen.tolist() for row in example}) == 600


def test_drawing_leaves_torchs_threads_as_they_were() -> None:
    torch.set_num_threads(3)
    masking.visibility(token_rows(random_texts([9])), small_vocabulary(), ratio=0.5, independent=False)
    assert torch.get_num_threads() == 3


def test_a_row_of_one_token_sees_itself() -> None:
    text = TokenRows(torch.tensor([[CLS, PAD]]), torch.tensor([1]), torch.tensor([5]))
    seen = masking.visibility(text, small_vocabulary(), ratio=0.5, independent=False)
    assert seen.tolist() == [[[True, False], [True, False]]]


def everything_drawn(text: TokenRows, row: int) -> list[Tensor]:
    """All that is random for one row, without its padding."""
    vocabulary, size = small_vocabulary(), int(text.lengths_B[row])
    selected = masking.select_words(text, vocabulary, ratio=0.3, purpose=Purpose.SELECT)
    single = masking.select_tokens(text, vocabulary, ratio=0.3, purpose=Purpose.SELECT)
    corrupted = masking.corrupt(text, selected, vocabulary)
    pooled = masking.visibility(text, vocabulary, ratio=0.5, independent=False)
    fresh = masking.visibility(text, vocabulary, ratio=0.5, independent=True)
    flat = [drawn[row, :size] for drawn in (selected, single, corrupted)]
    return [*flat, pooled[row, :size, :size], fresh[row, :size, :size], masks.fingerprints(text)[row]]


@settings(max_examples=30)
@given(lengths=st.lists(st.integers(1, 40), min_size=2, max_size=6), extra=st.integers(1, 30), seed=st.integers(0, 999))
def test_nothing_drawn_for_a_row_depends_on_its_batch_or_its_padding(lengths: list[int], extra: int, seed: int) -> None:
    texts = random_texts(lengths, seed=seed)
    together = token_rows(texts)
    for row, text in enumerate(texts):
        alone = token_rows([text], length=len(text) + 2 + extra, keys=together.keys_B[row : row + 1])
        found, again = everything_drawn(together, row), everything_drawn(alone, 0)
        assert all(torch.equal(left, right) for left, right in zip(found, again, strict=True))


@pytest.mark.parametrize("cached", [64, 4096])
def test_masks_do_not_depend_on_how_many_keys_are_worked_on_at_a_time(
    cached: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = token_rows(random_texts([30, 7, 18, 25, 2]))
    whole = masking.visibility(text, small_vocabulary(), ratio=0.4, independent=False)
    monkeypatch.setattr(masking.words, "CACHED", cached)
    assert torch.equal(whole, masking.visibility(text, small_vocabulary(), ratio=0.4, independent=False))


ROOT = Path(__file__).resolve().parents[2]
MAKES_ONE = re.compile(
    r"default_rng|RandomState|PCG64|random\.Random\(|manual_seed|torch\.Generator\(|fork_rng|np\.random\.seed"
)


def test_hashes_draws_and_streams_are_what_they_were() -> None:
    """Noted down before the schemes had one home."""
    assert hash64(["a", "b"], "salt").tolist() == [16754777877328628011, 7756043552949299801]
    assert uniform(["a"], "s").tolist() == [0.8942567829300032]
    assert mix(np.uint64(1), np.array([2], np.uint64)).tolist() == [3497101601492490161]
    assert fixed_sample(list("abcdef"), 3) == ["d", "f", "c"]
    keys = row_keys(1, 2, np.arange(2))
    assert keys.tolist() == [-1833405127366507680, 937349279089814987]
    assert draw_seeds(keys[:1], Purpose.CROP, 2).tolist() == [[15781366, -1901027702]]
    assert integers(keys[:1], Purpose.PICK, 3, 100).tolist() == [[62, 27, 66]]
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
