"""ICT: its loss against the slow reference; runs of words, crops and clozes against their definitions and laws."""

from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from midmask import masking
from midmask.batch import Batch, TokenRows
from midmask.errors import UserError
from midmask.identity import override
from midmask.objectives.pretraining.ict import ICT
from midmask.randomness import masks
from tests.support.objectives.checks import assert_equal, build, ids, reference_of
from tests.support.objectives.reference import log_sum_exp
from tests.support.objectives.texts import CLS, SEP, UNK, batch, random_texts, small_vocabulary, token_rows

FALSE_ALARM = 1e-6
"""Chance that a statistical test here fails though the sampler is right; the seeds are fixed."""

VARIANTS: dict[str, dict[str, Any]] = {
    "cloze": {},
    "crops, cosine": {"views": "crops", "normalise": True, "temperature": 0.05, "shortest": 0.3, "longest": 0.9},
    "cloze that stays": {"remove": 0.0, "temperature": 9.0},
}

objective = partial(build, ICT)


def rows_of(text: TokenRows) -> list[list[int]]:
    return [ids(text, row) for row in range(len(text.lengths_B))]


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    ict = objective(**VARIANTS[variant])
    drawn, reference = ict.draw(batch([*random_texts([14, 9, 11]), [UNK, 7, UNK]])), reference_of(ict)

    def vector(tokens: list[int]) -> torch.Tensor:
        first = reference.encode(tokens)[0]
        return first / torch.sqrt((first**2).sum()) if ict.config.normalise else first

    queries, passages = ([vector(row) for row in rows_of(text)] for text in (drawn.query, drawn.passage))
    scores = [[query @ passage / ict.config.temperature for passage in passages] for query in queries]
    losses = [log_sum_exp(torch.stack(row)) - row[place] for place, row in enumerate(scores)]
    assert_equal(ict, drawn, reference, {"contrastive": losses})


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
    drawn = objective(remove=remove).draw(Batch(0, {"passage": token_rows(texts, length=60)}))
    sizes = set()
    for text, query, passage in zip(texts, rows_of(drawn.query), rows_of(drawn.passage), strict=True):
        assert query[0] == passage[0] == CLS and query[-1] == passage[-1] == SEP
        words = words_of(text)
        size = len(words_of(query[1:-1]))
        sizes.add(size)
        assert 1 <= size <= max(1, len(words) // 2)
        rests = [
            flat(words[:at] + words[at + size :])
            for at in range(len(words) - size + 1)
            if flat(words[at : at + size]) == query[1:-1]
        ]
        assert rests and (passage[1:-1] == text if remove == 0.0 else passage[1:-1] in rests)
    assert len(sizes) > 5
    assert drawn.query.ids_BL.shape[1] == drawn.query.lengths_B.max()


def test_runs_have_uniform_shares_and_uniform_places() -> None:
    """Chi-squared: 30 words, shares of 0.1 to 0.4, so 3 to 11 words with equal chances each; and of runs of 5 words,
    all 26 places alike."""
    text = token_rows([[7] * 30] * 20000, keys=masks.row_keys(1, 0, np.arange(20000)))
    runs_BL = masking.word_runs(text, small_vocabulary(), shortest=0.1, longest=0.4)
    sizes_B = runs_BL.sum(1)
    counts = Counter(sizes_B.tolist())
    assert sorted(counts) == list(range(3, 12))
    assert stats.chisquare([counts[size] for size in range(3, 12)]).pvalue > FALSE_ALARM
    begins = Counter(runs_BL[sizes_B == 5].to(torch.uint8).argmax(1).tolist())
    assert sorted(begins) == list(range(1, 27))
    assert stats.chisquare(list(begins.values())).pvalue > FALSE_ALARM


def test_the_run_is_removed_as_often_as_asked() -> None:
    """Two-sided binomial test; and whether it is removed does not depend on the run's length (Mann-Whitney)."""
    text = token_rows([list(range(6, 36))] * 4000, keys=masks.row_keys(2, 0, np.arange(4000)))
    drawn = objective(remove=0.7).draw(Batch(0, {"passage": text}))
    removed_B = drawn.passage.lengths_B < 32
    assert stats.binomtest(int(removed_B.sum()), 4000, 0.7).pvalue > FALSE_ALARM
    lengths_B = drawn.query.lengths_B
    assert stats.mannwhitneyu(lengths_B[removed_B], lengths_B[~removed_B]).pvalue > FALSE_ALARM


def test_crops_are_independent_and_lose_a_tenth_of_their_tokens() -> None:
    """Correlation of the lengths of both crops of 4,000 rows below its 1e-6 quantile; two-sided binomial test of the
    tokens left out of runs that are the whole text; every crop keeps the order of the text."""
    text = token_rows([list(range(6, 36))] * 4000, keys=masks.row_keys(3, 0, np.arange(4000)))
    drawn = objective(views="crops").draw(Batch(0, {"passage": text}))
    assert all(row == [CLS, *sorted(row[1:-1]), SEP] for row in rows_of(drawn.query)[:200])
    assert stats.pearsonr(drawn.query.lengths_B, drawn.passage.lengths_B).pvalue > FALSE_ALARM
    whole = objective(views="crops", shortest=1.0, longest=1.0, delete=0.1).draw(Batch(0, {"passage": text}))
    for crop in (whole.query, whole.passage):
        left_out = 4000 * 30 - int((crop.lengths_B - 2).sum())
        assert stats.binomtest(left_out, 4000 * 30, 0.1).pvalue > FALSE_ALARM
    both = sum(
        len(set(one) & set(other)) for one, other in zip(rows_of(whole.query), rows_of(whole.passage), strict=True)
    )
    assert stats.binomtest(both - 2 * 4000, 4000 * 30, 0.81).pvalue > FALSE_ALARM


def test_term_weights_go_with_their_tokens() -> None:
    text = token_rows([[6, 7, 8, 9]])
    text = TokenRows(text.ids_BL, text.lengths_B, text.keys_B, text.ids_BL.float())
    kept = torch.tensor([[False, False, True, False, True, False]])
    only = masking.only(text, kept, small_vocabulary())
    assert only.ids_BL.tolist() == [[CLS, 7, 9, SEP]] and only.weights_BL is not None
    assert torch.equal(only.weights_BL, only.ids_BL.float())


def test_shares_the_wrong_way_round_are_refused() -> None:
    with pytest.raises(UserError, match=r"shortest = 0\.6 is more than longest = 0\.5"):
        override(ICT.Config(), {"shortest": 0.6})
