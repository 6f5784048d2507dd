"""ICT, Spider and weak pairs against loops in float64; runs of words, crops, phrases and windows against their laws."""

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from midmask.core.batch import Batch, TokenRows
from midmask.masking import randomness
from midmask.masking.corruption import only, word_runs
from midmask.masking.words import recurring
from midmask.objectives.pretraining.ict import ICT
from midmask.objectives.pretraining.spider import Spider
from midmask.objectives.pretraining.weak_pairs import WeakPairs
from tests.support.objectives.checks import assert_equal, build, ids, in_batch, reference_of, unit, z_score
from tests.support.objectives.reference import Reference, log_sum_exp
from tests.support.objectives.texts import CLS, SEP, UNK, batch, random_texts, small_vocabulary, token_rows

FALSE_ALARM = 1e-6
"""Chance that a statistical test here fails though the sampler is right; the seeds are fixed."""

VARIANTS: dict[str, dict[str, Any]] = {
    "cloze": {},
    "crops, cosine": {"views": "crops", "normalise": True, "temperature": 0.05, "shortest": 0.3, "longest": 0.9},
    "cloze that stays": {"remove": 0.0, "temperature": 9.0},
}


def rows_of(text: TokenRows) -> list[list[int]]:
    return [ids(text, row) for row in range(len(text.lengths_B))]


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    ict = build(ICT, **VARIANTS[variant])
    drawn, reference = ict.draw(batch([*random_texts([14, 9, 11]), [UNK, 7, UNK]])), reference_of(ict)

    sides = [[reference.encode(row)[0] for row in rows_of(text)] for text in (drawn.query, drawn.passage)]
    if ict.config.normalise:
        sides = [[unit(vector) for vector in vectors] for vectors in sides]
    assert_equal(ict, drawn, reference, {"contrastive": in_batch(*sides, ict.config.temperature)})


def words_of(text: list[int]) -> list[list[int]]:
    """The words of a row of the small vocabulary without specials: 40 and above continue."""
    words: list[list[int]] = []
    for token in text:
        if token >= 40 and words:
            words[-1].append(token)
        else:
            words.append([token])
    return words


def flat(words: list[list[int]]) -> list[int]:
    return [token for word in words for token in word]


@pytest.mark.parametrize("remove", [0.0, 1.0])
def test_a_cloze_is_a_run_of_whole_words_and_the_rest(remove: float) -> None:
    texts = random_texts([40, 1, 2, 25, 33] * 20, seed=4)
    drawn = build(ICT, remove=remove).draw(Batch(0, {"passage": token_rows(texts, length=60)}))
    sizes = set()
    for text, query, passage in zip(texts, rows_of(drawn.query), rows_of(drawn.passage), strict=True):
        assert query[0] == passage[0] == CLS and query[-1] == passage[-1] == SEP
        words = words_of(text)
        size = len(words_of(query[1:-1]))
        sizes.add(size)
        assert 1 <= size <= max(1, len(words) // 2)
        begins = [at for at in range(len(words) - size + 1) if flat(words[at : at + size]) == query[1:-1]]
        rests = [flat(words[:at] + words[at + size :]) for at in begins]
        assert rests and (passage[1:-1] == text if remove == 0.0 else passage[1:-1] in rests)
    assert len(sizes) > 5
    assert drawn.query.ids_BL.shape[1] == drawn.query.lengths_B.max()


def test_runs_have_uniform_shares_and_uniform_places() -> None:
    """Chi-squared: 30 words, shares of 0.1 to 0.4, so 3 to 11 words with equal chances each; and of runs of 5 words,
    all 26 places alike."""
    text = token_rows([[7] * 30] * 20000, keys=randomness.row_keys(1, 0, np.arange(20000)))
    runs_BL = word_runs(text, small_vocabulary(), shortest=0.1, longest=0.4)
    sizes_B = runs_BL.sum(1)
    counts = Counter(sizes_B.tolist())
    assert sorted(counts) == list(range(3, 12))
    assert stats.chisquare([counts[size] for size in range(3, 12)]).pvalue > FALSE_ALARM
    begins = Counter(runs_BL[sizes_B == 5].to(torch.uint8).argmax(1).tolist())
    assert sorted(begins) == list(range(1, 27))
    assert stats.chisquare(list(begins.values())).pvalue > FALSE_ALARM


def test_the_run_is_removed_as_often_as_asked() -> None:
    """Two-sided binomial test; and whether it is removed does not depend on the run's length (Mann-Whitney)."""
    text = token_rows([list(range(6, 36))] * 4000, keys=randomness.row_keys(2, 0, np.arange(4000)))
    drawn = build(ICT, remove=0.7).draw(Batch(0, {"passage": text}))
    removed_B = drawn.passage.lengths_B < 32
    assert stats.binomtest(int(removed_B.sum()), 4000, 0.7).pvalue > FALSE_ALARM
    lengths_B = drawn.query.lengths_B
    assert stats.mannwhitneyu(lengths_B[removed_B], lengths_B[~removed_B]).pvalue > FALSE_ALARM


def test_crops_are_independent_and_lose_a_tenth_of_their_tokens() -> None:
    """Correlation of the lengths of both crops of 4,000 rows below its 1e-6 quantile; two-sided binomial test of the
    tokens left out of runs that are the whole text; every crop keeps the order of the text."""
    text = token_rows([list(range(6, 36))] * 4000, keys=randomness.row_keys(3, 0, np.arange(4000)))
    drawn = build(ICT, views="crops").draw(Batch(0, {"passage": text}))
    assert all(row == [CLS, *sorted(row[1:-1]), SEP] for row in rows_of(drawn.query)[:200])
    assert stats.pearsonr(drawn.query.lengths_B, drawn.passage.lengths_B).pvalue > FALSE_ALARM
    whole = build(ICT, views="crops", shortest=1.0, longest=1.0, delete=0.1).draw(Batch(0, {"passage": text}))
    for crop in (whole.query, whole.passage):
        left_out = 4000 * 30 - int((crop.lengths_B - 2).sum())
        assert stats.binomtest(left_out, 4000 * 30, 0.1).pvalue > FALSE_ALARM
    pairs = zip(rows_of(whole.query), rows_of(whole.passage), strict=True)
    both = sum(len(set(one) & set(other)) for one, other in pairs)
    assert stats.binomtest(both - 2 * 4000, 4000 * 30, 0.81).pvalue > FALSE_ALARM


def test_term_weights_go_with_their_tokens() -> None:
    text = token_rows([[6, 7, 8, 9]])
    text = TokenRows(text.ids_BL, text.lengths_B, text.keys_B, text.ids_BL.float())
    kept = torch.tensor([[False, False, True, False, True, False]])
    rest = only(text, kept, small_vocabulary())
    assert rest.ids_BL.tolist() == [[CLS, 7, 9, SEP]] and rest.weights_BL is not None
    assert torch.equal(rest.weights_BL, rest.ids_BL.float())


STOP, OTHER_STOP = 7, 8
PIECE = 45
"""Continues a word in `small_vocabulary`, as 40 and more do."""
SHARED = [20, 21, STOP, 22]
"""Three whole words and a stop-word among them."""


def spans(queries: list[list[int]], passages: list[list[int]]) -> Batch:
    """Both spans of a pair have one key."""
    return Batch(0, {"context": token_rows(queries), "passage": token_rows(passages)})


READ = spans(
    [[30, *SHARED, 31, 32, 33, 34], [23, 24, 25], [35, 36, *SHARED], [26, PIECE, 27, 37]],
    [[38, *SHARED, 39], [16, 17, 18, 19, 28], [20, 21, 29, 21, STOP, 22], [16, 26, PIECE, 27]],
)
"""Four pairs of spans; the second has no phrase."""


def spider_words_of(text: list[int]) -> list[range]:
    """The places of each word of a text."""
    starts = [place for place, token in enumerate(text) if token < 40 or place == 0]
    return [range(start, end) for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]


def phrases_of(text: list[int], least: int, most: int) -> dict[tuple[int, int], tuple[int, ...]]:
    """Places of all phrases of a text -> their tokens."""

    def is_stop(word: range) -> bool:
        return len(word) == 1 and 6 <= text[word[0]] <= 15

    words, found = spider_words_of(text), {}
    for first in range(len(words)):
        for last in range(first + least - 1, min(first + most, len(words))):
            start, end = words[first][0], words[last][-1] + 1
            if not (UNK in text[start:end] or is_stop(words[first]) or is_stop(words[last])):
                found[start, end] = tuple(text[start:end])
    return found


def shared_phrases(text: list[int], other: list[int], least: int = 2, most: int = 10) -> set[tuple[int, int]]:
    """Those that the other text has too and that are in no longer one."""
    known = set(phrases_of(other, least, most).values())
    shared = [places for places, tokens in phrases_of(text, least, most).items() if tokens in known]
    return {(s, e) for s, e in shared if not any(a <= s and e <= b and (a, b) != (s, e) for a, b in shared)}


def windows(text: list[int], start: int, end: int, least: int, most: int) -> set[tuple[int, ...]]:
    """Every run of that many tokens that holds all of text[start:end]; all of it if the text is shorter."""
    found = set()
    for wanted in range(least, most + 1):
        size = min(max(wanted, end - start), len(text))
        places = [at for at in range(len(text) - size + 1) if at <= start and at + size >= end]
        found |= {tuple(text[at : at + size]) for at in places}
    return found


def queries_of(text: list[int], other: list[int], least: int, most: int) -> set[tuple[int, ...]]:
    """Every query that a pair of spans can make."""
    found = set()
    for start, end in shared_phrases(text, other):
        rest = text[:start] + text[end:]
        found |= windows(text, start, end, least, most) | (windows(rest, start, start, least, most) if rest else set())
    return found


def drawn_queries(spider: Spider, text: list[int], other: list[int], times: int) -> list[tuple[int, ...]]:
    drawn = spider.draw(spans([text] * times, [other] * times))
    assert bool(drawn.examples_B.all())
    return [tuple(ids(drawn.query, row)[1:-1]) for row in range(times)]


@pytest.mark.parametrize("temperature", [1.0, 7.0])
def test_spider_loss_and_every_gradient_equal_the_reference(temperature: float) -> None:
    spider = build(Spider, temperature=temperature, shortest_window=2, longest_window=5)
    drawn, reference = spider.draw(READ), reference_of(spider)
    assert drawn.examples_B.tolist() == [True, False, True, True]
    assert all(ids(drawn.passage, row) == ids(READ.texts["passage"], row) for row in range(4))
    passages = [reference.encode(ids(READ.texts["passage"], row))[0] for row in range(4)]
    losses = []
    for row in (0, 2, 3):
        query = reference.encode(ids(drawn.query, row))[0]
        scores = torch.stack([query @ passage / temperature for passage in passages])
        losses.append(log_sum_exp(scores) - scores[row])
    assert_equal(spider, drawn, reference, {"contrastive": losses})


@pytest.mark.parametrize(("least", "most"), [(2, 10), (1, 3), (3, 4)])
def test_shared_phrases_equal_the_reference(least: int, most: int) -> None:
    """400 texts of few words, each with its pieces in another order: words of one token and of several, stop-words and
    [UNK]. A continuation does not come first: there it would begin a word.
    """
    drawn = random.Random(3)
    alphabet = [20, 21, 22, 23, STOP, OTHER_STOP, PIECE, PIECE + 1, UNK]
    texts = [[30, *drawn.choices(alphabet, k=drawn.randint(0, 25))] for _ in range(400)]
    others = []
    for text in texts:
        cuts = sorted({0, *drawn.sample(range(len(text)), min(5, len(text))), len(text)})
        pieces = [text[start:end] for start, end in pairwise(cuts)]
        others.append([31, *(token for piece in drawn.sample(pieces, len(pieces)) for token in piece)])
    ends_BL = recurring(token_rows(texts), token_rows(others), small_vocabulary(), least, most)
    found = [{(at - 1, end - 1) for at, end in enumerate(row) if end} for row in ends_BL.tolist()]
    expected = [shared_phrases(text, other, least, most) for text, other in zip(texts, others, strict=True)]
    assert found == expected
    sizes = Counter(min(len(phrases), 2) for phrases in expected)
    assert all(sizes[number] > 10 for number in range(3)), sizes


PAIRS = [
    ([30, *SHARED, 31, 32, 33], [38, *SHARED]), ([20, 21, 30, 31, 32, 23, 24, 33], [23, 24, 16, 20, 21]),
    ([20, 21, 30], [20, 21]), (SHARED, SHARED),
]  # fmt: skip


@pytest.mark.parametrize(("text", "other"), PAIRS)
def test_queries_are_all_windows_around_a_phrase_and_no_others(text: list[int], other: list[int]) -> None:
    """The rarest of at most 40 queries has a chance above 1/200, so that 6,000 draws miss one of them with a
    probability below 1e-11.
    """
    found = drawn_queries(build(Spider, shortest_window=2, longest_window=4), text, other, 6000)
    assert set(found) == queries_of(text, other, 2, 4)


def test_a_query_lacks_its_phrase_in_half_of_the_cases_and_has_any_length() -> None:
    """False alarms: one in a million seeds."""
    text = [*range(16, 20), 20, 21, *range(22, 40), *range(22, 40)]
    found = drawn_queries(build(Spider), text, [20, 21], 5000)
    kept = [query for query in found if 20 in query or 21 in query]
    assert z_score(len(kept), 5000, 0.5) < 4.9
    assert all(any(query[at : at + 2] == (20, 21) for at in range(len(query))) for query in kept)
    lengths = Counter(map(len, found))
    assert set(lengths) == set(range(5, 31))
    assert all(z_score(number, 5000, 1 / 26) < 5.5 for number in lengths.values())


@pytest.mark.parametrize("remove", [0.0, 1.0])
def test_a_phrase_may_always_stay_or_always_go(remove: float) -> None:
    found = drawn_queries(build(Spider, remove=remove), [30, 31, *SHARED, 32, 33], SHARED, 200)
    assert all((20 in query) == (remove == 0.0) and not set(query) <= {STOP} for query in found)
    assert drawn_queries(build(Spider, remove=remove), SHARED, [16, *SHARED], 3) == [tuple(SHARED)] * 3


def test_every_phrase_is_as_likely() -> None:
    """Three phrases, removed, each alone in reach of a window of two tokens. False alarms: one in a million seeds."""
    text = [20, 21, 30, 31, 32, 33, 22, 23, 34, 35, 36, 37, 24, 25]
    other = [24, 25, 16, 22, 23, 16, 20, 21]
    found = drawn_queries(build(Spider, remove=0.0, shortest_window=2, longest_window=2), text, other, 3000)
    shares = Counter(found)
    assert set(shares) == {(20, 21), (22, 23), (24, 25)}
    assert all(z_score(number, 3000, 1 / 3) < 5 for number in shares.values())


def test_spans_without_a_phrase_make_no_query_but_are_candidates() -> None:
    spider = build(Spider)
    part = spider(spider.draw(spans([[30, 31], [32]], [[33], [34, 35]]))).parts["contrastive"]
    assert part.count == 0 and part.total == 0
    two = spider(spider.draw(spans([SHARED, [32]], [SHARED, [34, 35]]))).parts["contrastive"]
    one = spider(spider.draw(spans([SHARED], [SHARED]))).parts["contrastive"]
    assert two.count == one.count == 1 and two.total > one.total and abs(one.total) < 1e-12


QUERIES, PASSAGES = random_texts([4, 3, 5, 2], seed=1), random_texts([14, 9, 11, 8], seed=2)
SHARED_TITLE = [*QUERIES[:3], QUERIES[0]]
"""Pairs 0 and 3 have one title."""
COPIED = [*PASSAGES[:2], PASSAGES[1], PASSAGES[3]]
"""Pairs 1 and 2 have one passage."""

WEAK_PAIRS_READ = batch(PASSAGES, QUERIES)


def losses(pairs: WeakPairs, reference: Reference, read: Batch, same: set[tuple[int, int]]) -> list[torch.Tensor]:
    """-log of a pair's share among its candidates; `same`: pairs that are no negatives of each other."""

    numbers = range(len(read.texts["passage"].lengths_B))
    q, p = (
        [unit(reference.encode(ids(read.texts[name], row))[0]) for row in numbers] for name in ("context", "passage")
    )
    found = []
    for i in range(len(q)):
        others = [j for j in range(len(q)) if j != i and (i, j) not in same and (j, i) not in same]
        scores = [q[i] @ p[i], *(q[i] @ p[j] for j in others)]
        if pairs.config.candidates == "all":
            scores += [q[i] @ q[j] for j in others] + [p[i] @ q[j] for j in others] + [p[i] @ p[j] for j in others]
        scaled = [score / pairs.config.temperature for score in scores]
        found.append(log_sum_exp(torch.stack(scaled)) - scaled[0])
    return found


@pytest.mark.parametrize("temperature", [0.01, 0.5])
@pytest.mark.parametrize("candidates", ["passages", "all"])
def test_weak_pairs_loss_and_every_gradient_equal_the_reference(candidates: str, temperature: float) -> None:
    pairs = build(WeakPairs, candidates=candidates, temperature=temperature)
    reference = reference_of(pairs)
    terms = {"contrastive": losses(pairs, reference, WEAK_PAIRS_READ, set())}
    assert_equal(pairs, pairs.draw(WEAK_PAIRS_READ), reference, terms, tolerance=1e-5)


@pytest.mark.parametrize("candidates", ["passages", "all"])
def test_a_pair_with_the_same_query_or_passage_is_no_negative(candidates: str) -> None:
    pairs, read = build(WeakPairs, candidates=candidates, temperature=0.5), batch(COPIED, SHARED_TITLE)
    reference = reference_of(pairs)
    expected = sum(losses(pairs, reference, read, {(0, 3), (1, 2)}))
    total = pairs(pairs.draw(read)).parts["contrastive"].total
    torch.testing.assert_close(total, expected, rtol=1e-9, atol=1e-9)
