"""Masks by words, by tokens and by term weight (ROM: the highest temperature * uniform + weight), against the
published samplers written out literally and the numbers that follow from them; which columns a RetroMAE decoder row
sees; and the numbers of every scheme of randomness. Statistical tests run on fixed seeds; the false-alarm rate stated
for each is what a fresh seed would have.
"""

import math
import re
from collections import Counter
from dataclasses import replace
from itertools import combinations, permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from midmask.core.batch import TokenRows
from midmask.core.randomness import fixed_sample, hash64, mix, named_stream, numpy_stream, python_stream, uniform
from midmask.core.torch_randomness import dropout_seed, fresh_weights, seed_dropout, torch_stream
from midmask.masking import randomness, words
from midmask.masking.corruption import corrupt, select_highest, select_tokens, select_words, visibility
from midmask.masking.randomness import Purpose, draw_seeds, integers, row_keys
from midmask.masking.words import find_words, whole_word_masks
from tests.support.objectives.texts import CLS, FIRST, MASK, PAD, SEP, UNK, random_texts, small_vocabulary, token_rows


def position_hash(key: int, purpose: int, draw: int, position: int) -> int:
    """32 bits, in Python's own integers: SplitMix64's finaliser on the key, MurmurHash3's on the position."""
    x = (key + ((purpose << 32) + draw) * 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    h = ((x >> 32) + position * 0x9E3779B9) % 2**32
    h = (h ^ (h >> 16)) * 0x85EBCA6B % 2**32
    h = (h ^ (h >> 13)) * 0xC2B2AE35 % 2**32
    return h ^ (h >> 16)


WORD, PIECE = FIRST, 50
"""A token that begins a word and one that continues it, in the small vocabulary."""

FALSE_ALARM = 1e-6


def greedy_walk(words: list[list[int]], length: int, ratio: float) -> frozenset[int]:
    """The published sampler after its shuffle: take words in order while the quota allows all of the word."""
    quota = min(512, max(1, round(length * ratio)))
    taken: set[int] = set()
    for word in words:
        if len(taken) == quota:
            break
        if len(taken) + len(word) <= quota:
            taken |= set(word)
    return frozenset(taken)


def words_of(sizes: list[int]) -> list[list[int]]:
    """Positions of words of these sizes, after [CLS]."""
    ends = np.cumsum([1, *sizes])
    return [list(range(start, start + size)) for start, size in zip(ends, sizes, strict=False)]


def text_of(sizes: list[int]) -> list[int]:
    return [token for size in sizes for token in [WORD] + [PIECE] * (size - 1)]


def splitmix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


def test_row_keys_are_splitmix_of_seed_epoch_and_row() -> None:
    keys = randomness.row_keys(3, 2, np.array([0, 5, 2**40])).tolist()
    stream = splitmix((splitmix(3) + 2) % 2**64)
    assert [key % 2**64 for key in keys] == [splitmix((stream + row) % 2**64) for row in (0, 5, 2**40)]


def test_hashes_equal_their_definition_in_exact_integers() -> None:
    keys = randomness.row_keys(0, 0, np.arange(3))
    found = randomness.hashes(randomness.draw_seeds(keys, Purpose.DECODER, 4)[..., None], torch.arange(6))
    for row, key in enumerate(keys.tolist()):
        for draw in range(4):
            expected = [position_hash(key % 2**64, int(Purpose.DECODER), draw, position) for position in range(6)]
            assert [int(value) % 2**32 for value in found[row, draw]] == expected


def test_every_purpose_has_a_number_of_its_own() -> None:
    """An alias would draw two decisions from the same random numbers, and the masks of one follow the other's."""
    numbers = {name: purpose.value for name, purpose in Purpose.__members__.items()}
    assert len(set(numbers.values())) == len(numbers) >= 12 and {numbers["SELECT"], numbers["GUESS"]} == {1, 12}
    keys = randomness.row_keys(0, 0, np.arange(50))
    drawn = {tuple(randomness.uniform(keys, purpose, 4).flatten().tolist()) for purpose in Purpose.__members__.values()}
    assert len(drawn) == len(numbers)


def test_uniform_numbers_are_uniform_and_uncorrelated_between_rows_positions_and_purposes() -> None:
    keys = randomness.row_keys(1, 0, np.arange(4000))
    numbers = randomness.uniform(keys, Purpose.SELECT, 64).double()
    other = randomness.uniform(keys, Purpose.CORRUPT, 64).double()
    counts = torch.histc(numbers, bins=256, min=0, max=1)
    assert stats.chisquare(counts.numpy()).pvalue > FALSE_ALARM
    bound = stats.norm.isf(FALSE_ALARM / 6) / math.sqrt(numbers.numel() - 64 * 4)
    for left, right in ((numbers[1:], numbers[:-1]), (numbers[:, 1:], numbers[:, :-1]), (numbers, other)):
        pair = torch.stack([left.flatten(), right.flatten()])
        assert abs(float(torch.corrcoef(pair)[0, 1])) < bound


@pytest.mark.parametrize("below", [1, 3, 7, 256, 30522])
def test_integers_stay_below_their_limit_and_are_uniform(below: int) -> None:
    numbers = randomness.integers(randomness.row_keys(2, 0, np.arange(2000)), Purpose.PICK, 100, below)
    assert int(numbers.min()) >= 0 and int(numbers.max()) < below
    bins = min(below, 64)
    counts = torch.bincount((numbers * bins // below).flatten(), minlength=bins).double()
    expected = np.bincount(np.arange(below) * bins // below, minlength=bins) / below * numbers.numel()
    assert bins == 1 or stats.chisquare(counts.numpy(), expected).pvalue > FALSE_ALARM


def test_words_are_tokens_with_their_continuations_and_end_at_specials() -> None:
    text = token_rows([[WORD, PIECE, PIECE, WORD, UNK, PIECE, WORD], [PIECE, PIECE, MASK, PIECE]])
    words = find_words(text, small_vocabulary())
    assert words.start_BL[0, 1:8].tolist() == [1, 1, 1, 4, 5, 5, 7]
    assert words.size_BL[0, 1:8].tolist() == [3, 3, 3, 1, 2, 2, 1]
    assert words.start_BL[1, 1:5].tolist() == [1, 1, 3, 4]
    assert words.candidate_BL.tolist() == [[False, *[True] * 7, False], [False, True, True, False, True, *[False] * 4]]


def test_quota_rounds_half_to_even_and_is_bounded() -> None:
    for length in range(1, 1300):
        for ratio in (0.15, 0.3, 0.45, 0.7):
            expected = min(512, max(1, round(length * ratio)))
            assert int(words.quota(torch.tensor(length), ratio)) == expected


@pytest.mark.parametrize(
    ("sizes", "ratio"), [([1, 2, 3, 1, 2], 0.5), ([3, 3, 2], 0.4), ([1] * 5, 0.5), ([4, 2, 1, 2], 0.3)]
)
def test_masks_follow_the_published_law(sizes: list[int], ratio: float) -> None:
    """Chi-square against the exact law: the greedy walk over every order of the words. False alarm: 1e-6 per case."""
    draws = 24_000
    words = words_of(sizes)
    orders = list(permutations(words))
    law = Counter(greedy_walk(list(order), sum(sizes) + 2, ratio) for order in orders)
    text = token_rows([text_of(sizes)] * 4)
    found_words = find_words(text, small_vocabulary())
    seeds = randomness.draw_seeds(text.keys_B, Purpose.DECODER, draws // 4)
    found_masks = whole_word_masks(found_words, text.lengths_B, seeds, ratio=ratio).flatten(0, 1)
    found = Counter(frozenset(torch.nonzero(row)[:, 0].tolist()) for row in found_masks)
    assert set(found) <= set(law)
    expected = [law[mask] / len(orders) * draws for mask in law]
    assert len(law) > 1 and stats.chisquare([found[mask] for mask in law], expected).pvalue > FALSE_ALARM


@settings(max_examples=80)
@given(
    texts=st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=14), min_size=1, max_size=4),
    ratio=st.floats(0.01, 0.99),
    seed=st.integers(0, 2**31),
    padding=st.integers(0, 9),
    count_specials=st.booleans(),
)
def test_each_mask_is_the_greedy_walk_in_the_order_of_the_keys(texts, ratio, seed, padding, count_specials) -> None:
    keys = randomness.row_keys(seed, 0, np.arange(len(texts)))
    longest = max(sum(sizes) for sizes in texts) + 2
    text = token_rows([text_of(sizes) for sizes in texts], length=longest + padding, keys=keys)
    words = find_words(text, small_vocabulary())
    seeds = randomness.draw_seeds(keys, Purpose.DECODER, 5)
    counted = text.lengths_B - 2 * (not count_specials)
    found_masks = whole_word_masks(words, counted, seeds, ratio=ratio)
    for row, sizes in enumerate(texts):
        length = sum(sizes) + 2 * count_specials
        for draw in range(5):
            key_of = randomness.hashes(seeds[row, draw], torch.arange(longest))
            order = sorted(words_of(sizes), key=lambda word: (int(key_of[word[0]]) >> 13, word[0]))
            found = torch.nonzero(found_masks[row, draw])[:, 0].tolist()
            assert frozenset(found) == greedy_walk(order, length, ratio)


def test_unknown_tokens_spend_quota_but_are_not_selected() -> None:
    texts = [[UNK, WORD, WORD, UNK, WORD, WORD]] * 300
    text = token_rows(texts)
    selected = select_words(text, small_vocabulary(), ratio=0.5, purpose=Purpose.SELECT)
    assert not bool((selected & (text.ids_BL == UNK)).any())
    # 4 of 6 candidates are taken; the number of words among them is hypergeometric, 2 to 4, mean 8/3.
    counts = Counter(selected.sum(1).tolist())
    law = [stats.hypergeom(6, 4, 4).pmf(k) * 300 for k in (2, 3, 4)]
    assert stats.chisquare([counts[2], counts[3], counts[4]], law).pvalue > FALSE_ALARM


def test_selection_token_by_token_is_bernoulli_and_spares_specials() -> None:
    """Two-sided binomial tests of the number selected, and of neighbours selected together; false alarm 2e-6."""
    text = token_rows(random_texts([126] * 400))
    selected = select_tokens(text, small_vocabulary(), ratio=0.15, purpose=Purpose.SELECT)
    others = select_words(text, small_vocabulary(), ratio=0.9, purpose=Purpose.SELECT)
    for chosen in (selected, others):
        assert not bool(chosen[torch.isin(text.ids_BL, torch.tensor([CLS, SEP, PAD]))].any())
    assert stats.binomtest(int(selected.sum()), 400 * 126, 0.15).pvalue > FALSE_ALARM
    pairs = selected[:, 1:-1:2] & selected[:, 2:-1:2]
    assert stats.binomtest(int(pairs.sum()), pairs.numel(), 0.15**2).pvalue > FALSE_ALARM


def test_corruption_is_80_10_10_and_draws_from_the_whole_vocabulary() -> None:
    """Chi-square of the three kinds and of the replacements; false alarm 2e-6."""
    vocabulary = small_vocabulary()
    text = token_rows([[WORD] * 200] * 400)
    selected = torch.zeros_like(text.ids_BL, dtype=torch.bool)
    selected[:, 1:-20] = True
    corrupted = corrupt(text, selected, vocabulary)
    assert torch.equal(corrupted[~selected], text.ids_BL[~selected])
    counts = torch.bincount(corrupted[selected], minlength=60).double()
    total = int(selected.sum())
    expected = torch.full((60,), 0.1 * total / 60, dtype=torch.float64)
    expected[MASK] += 0.8 * total
    expected[WORD] += 0.1 * total
    assert stats.chisquare(counts.numpy(), expected.numpy()).pvalue > FALSE_ALARM
    others = counts[[token for token in range(60) if token not in (MASK, WORD)]]
    assert int(counts[PAD]) > 0 and stats.chisquare(others.numpy()).pvalue > FALSE_ALARM


def test_fingerprints_tell_texts_apart() -> None:
    texts = [[WORD, 7, 8], [7, WORD, 8], [WORD, 7], [WORD, 7, 8, 8], [WORD, 7, 8]]
    text = token_rows(texts)
    hashed = randomness.fingerprints(text).tolist()
    assert hashed[0] == hashed[4] and len(set(hashed)) == 4


WEIGHTED_WORD, WEIGHTED_PIECE = FIRST, 50


def weighted(texts: list[list[int]], weights: list[list[float]], **fields: object) -> TokenRows:
    """Rows with these weights at their tokens, and 9 (which no token may win by) at specials and padding."""
    text = token_rows(texts, **fields)  # type: ignore[arg-type]
    weights_BL = torch.full(text.ids_BL.shape, 9.0)
    for row, values in enumerate(weights):
        weights_BL[row, 1 : len(values) + 1] = torch.tensor(values)
    return replace(text, weights_BL=weights_BL)


def select(text: TokenRows, ratio: float, **fields: object) -> Tensor:
    return select_highest(text, small_vocabulary(), ratio=ratio, purpose=Purpose.SELECT, **fields)  # type: ignore[arg-type]


def positions(mask_BL: Tensor) -> list[frozenset[int]]:
    return [frozenset(row.nonzero()[:, 0].tolist()) for row in mask_BL]


def published(key: int, tokens: int, weights: list[float], ratio: float, temperature: float) -> frozenset[int]:
    """The k highest of temperature * p_r + p_w, in NumPy's float64, the random numbers in Python's own integers."""
    bits = [position_hash(key % 2**64, int(Purpose.SELECT), 0, position) for position in range(1, tokens + 1)]
    scores = temperature * np.array([(x >> 8) / 2**24 for x in bits]) + np.array(weights, np.float32).astype(np.float64)
    wanted = max(1, round(ratio * tokens))
    return frozenset(sorted(range(1, tokens + 1), key=lambda position: (-scores[position - 1], position))[:wanted])


rows_of_weights = st.lists(
    st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]), min_size=1, max_size=25), min_size=1, max_size=5
)


@settings(max_examples=80)
@given(
    weights=rows_of_weights,
    ratio=st.floats(0.01, 0.99),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.0, 1000.0]),
    seed=st.integers(0, 2**31),
    padding=st.integers(0, 9),
)
def test_each_mask_is_the_top_share_by_score(weights, ratio, temperature, seed, padding) -> None:
    """Whatever the batch and the padding; specials weigh most here and are never taken."""
    keys = randomness.row_keys(seed, 0, np.arange(len(weights)))
    texts = random_texts([len(row) for row in weights], seed=seed % 997)
    text = weighted(texts, weights, length=max(map(len, weights)) + 2 + padding, keys=keys)
    found = positions(select(text, ratio, temperature=temperature))
    for row, values in enumerate(weights):
        assert found[row] == published(int(keys[row]), len(values), values, ratio, temperature)


def test_the_count_is_exact_and_rounds_half_to_even() -> None:
    lengths = [0, 1, 2, 3, 10, 30, 50, 70, 90, 200]
    text = weighted(random_texts(lengths), [[0.5] * length for length in lengths])
    assert select(text, 0.15).sum(1).tolist() == [0, 1, 1, 1, 2, 4, 8, 10, 14, 30]
    assert select(text, 0.15, round_up=True).sum(1).tolist() == [0, 1, 1, 1, 2, 5, 8, 11, 14, 30]


def test_unknown_tokens_may_be_taken() -> None:
    text = weighted([[UNK, WEIGHTED_WORD, UNK, WEIGHTED_WORD]] * 50, [[1.0, 0.0, 1.0, 0.0]] * 50)
    chosen = select(text, 0.5, temperature=0.5)
    assert set(text.ids_BL[chosen].tolist()) == {UNK}


def test_without_weights_it_is_a_uniform_subset() -> None:
    """Chi-square over all 20 subsets of 3 of 6 tokens. False alarm: 1e-6."""
    draws = 12_000
    keys = randomness.row_keys(11, 0, np.arange(draws))
    text = token_rows([[WEIGHTED_WORD] * 6] * draws, keys=keys)
    found = Counter(positions(select(text, 0.5)))
    subsets = [frozenset(subset) for subset in combinations(range(1, 7), 3)]
    assert set(found) == set(subsets)
    assert stats.chisquare([found[subset] for subset in subsets]).pvalue > FALSE_ALARM


WHOLE_WORD = FIRST


@pytest.mark.parametrize(("length", "visible", "drawn", "rows"), [(64, 31.5, 0.63, 0.89), (512, 255.5, 0.43, 0.81)])
def test_visibility_has_the_published_numbers(length: int, visible: float, drawn: float, rows: float) -> None:
    """Mean visible columns, distinct pool masks per row and distinct rows, as found in runs of the published code."""
    text = token_rows([[WHOLE_WORD] * (length - 2)] * (40 if length < 100 else 4))
    seen = visibility(text, small_vocabulary(), ratio=0.5, independent=False)
    assert float(seen.sum(-1).double().mean()) == pytest.approx(visible, abs=0.05)
    picks = randomness.integers(text.keys_B, Purpose.PICK, length, text.lengths_B.clamp(max=256)[:, None])
    assert np.mean([len(set(row.tolist())) / length for row in picks]) == pytest.approx(drawn, abs=0.015)
    distinct = [len({tuple(row) for row in example.tolist()}) / length for example in seen]
    assert np.mean(distinct) == pytest.approx(rows, abs=0.015)


@pytest.mark.parametrize("independent", [False, True])
def test_visibility_rules_hold_for_every_row(independent: bool) -> None:
    lengths = [1, 3, 20, 38]
    text = token_rows(random_texts(lengths), length=45)
    seen = visibility(text, small_vocabulary(), ratio=0.5, independent=independent)
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
    words = find_words(text, vocabulary)
    seen = visibility(text, vocabulary, ratio=0.5, independent=False)
    for row, length in enumerate(text.lengths_B.tolist()):
        for i in range(length):
            starts = words.start_BL[row, 1 : length - 1].tolist()
            kinds = {(start, bool(seen[row, i, j])) for j, start in enumerate(starts, 1) if j != i}
            assert len(kinds) == len({start for start, _ in kinds}), "one word both seen and hidden"


def test_independent_masks_differ_from_row_to_row() -> None:
    text = token_rows([[WHOLE_WORD] * 298] * 2)
    seen = visibility(text, small_vocabulary(), ratio=0.5, independent=True)
    assert len({tuple(row) for example in seen.tolist() for row in example}) == 600


def test_drawing_leaves_torchs_threads_as_they_were() -> None:
    torch.set_num_threads(3)
    visibility(token_rows(random_texts([9])), small_vocabulary(), ratio=0.5, independent=False)
    assert torch.get_num_threads() == 3


def test_a_row_of_one_token_sees_itself() -> None:
    text = TokenRows(torch.tensor([[CLS, PAD]]), torch.tensor([1]), torch.tensor([5]))
    seen = visibility(text, small_vocabulary(), ratio=0.5, independent=False)
    assert seen.tolist() == [[[True, False], [True, False]]]


def everything_drawn(text: TokenRows, row: int) -> list[Tensor]:
    """All that is random for one row, without its padding."""
    vocabulary, size = small_vocabulary(), int(text.lengths_B[row])
    selected = select_words(text, vocabulary, ratio=0.3, purpose=Purpose.SELECT)
    single = select_tokens(text, vocabulary, ratio=0.3, purpose=Purpose.SELECT)
    corrupted = corrupt(text, selected, vocabulary)
    pooled = visibility(text, vocabulary, ratio=0.5, independent=False)
    fresh = visibility(text, vocabulary, ratio=0.5, independent=True)
    flat = [drawn[row, :size] for drawn in (selected, single, corrupted)]
    return [*flat, pooled[row, :size, :size], fresh[row, :size, :size], randomness.fingerprints(text)[row]]


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
def test_masks_do_not_depend_on_how_many_keys_are_worked_on_at_a_time(cached, monkeypatch) -> None:
    text = token_rows(random_texts([30, 7, 18, 25, 2]))
    whole = visibility(text, small_vocabulary(), ratio=0.4, independent=False)
    monkeypatch.setattr(words, "CACHED", cached)
    assert torch.equal(whole, visibility(text, small_vocabulary(), ratio=0.4, independent=False))


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
    names = ("core/randomness", "core/torch_randomness", "masking/randomness")
    homes = [ROOT / f"platform/midmask/{name}.py" for name in names]
    files = [path for folder in ("platform", "jobs", "dashboards") for path in (ROOT / folder).rglob("*.py")]
    files = [path for path in files if path not in homes]
    assert [str(path) for path in files if MAKES_ONE.search(path.read_text("utf-8"))] == []
