"""MASTER against the slow reference; what each pass and each decoder reads, and what is hidden there."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from midmask.batch import Batch, TokenRows
from midmask.objectives.pretraining.encoder_mask import MaskedRows
from midmask.objectives.pretraining.master import MASTER, halves
from midmask.randomness.masks import row_keys
from tests.support.objectives import checks, two_sided
from tests.support.objectives.reference import Reference, Vectors
from tests.support.objectives.texts import CLS, FIRST, SEP, UNK, random_texts, small_vocabulary, token_rows

BEHIND = {"keyword": "whole", "query": "whole", "second": "first", "dual": "dual"}
"""Decoder -> the pass of the encoder whose vector it reads."""
VARIANTS: dict[str, dict[str, Any]] = {
    "published": {},
    "any words": {"keywords": "word", "decoder_layers": 1, "decoder_weight": 0.7, "encoder_weight": 0.4},
}


def objective(**fields: Any) -> MASTER:
    built = two_sided.build(MASTER.Config(), fields)
    assert isinstance(built, MASTER)
    return built


def weighted(rows: TokenRows) -> TokenRows:
    """Greater ids weigh more."""
    return replace(rows, weights_BL=rows.ids_BL.float() / 60)


def batch(passages: list[list[int]], queries: list[list[int]] | None = None) -> Batch:
    keys = row_keys(7, 0, np.arange(100, 100 + len(passages)))
    asked = token_rows(queries or [text[:4] for text in passages], keys=keys)
    return Batch(0, {"passage": weighted(token_rows(passages)), "context": weighted(asked)})


READ = batch([*random_texts([9, 4, 6]), [UNK, 9, UNK, 12]], random_texts([5, 3, 4, 6], seed=1))


def true_texts(read: Batch, row: int) -> dict[str, list[int]]:
    """What stands under the masks of each pass and each decoder."""
    whole = two_sided.ids(read.texts["passage"], row)
    middle = 1 + (len(whole) - 2) // 2
    first, second = [*whole[:middle], SEP], [CLS, *whole[middle:]]
    asked = two_sided.ids(read.texts["context"], row)
    return {"whole": whole, "first": first, "keyword": whole, "query": asked, "second": second}


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    master = objective(**VARIANTS[variant])
    config, drawn = master.config, master.draw(READ)
    reference = Reference(master, heads=2, layers=2, pad_id=0)
    terms: dict[str, Vectors] = {name: [] for name in master.parts}
    for row in range(4):
        texts = true_texts(READ, row)
        under = {"whole": texts["whole"], "first": texts["first"], "dual": texts["whole"]}
        behind = {name: texts["whole" if name == "dual" else name] for name in BEHIND}
        vectors = {}
        for name, rows in drawn.encoded.items():
            states = reference.encode(two_sided.ids(rows, row))
            vectors[name] = states[0]
            terms[f"encoder_{name}_mlm"] += two_sided.surprises(reference, states, rows, row, under[name])
        for name, rows in drawn.decoded.items():
            read = [vectors[BEHIND[name]], *reference.embed(two_sided.ids(rows, row))[1:]]
            decoded = reference.read_as(f"decoders.{name}.", "decoder.").decoder(read, config.decoder_layers)
            terms[f"decoder_{name}_mlm"] += two_sided.surprises(reference, decoded, rows, row, behind[name])
    weights = [config.encoder_weight] * 3 + [config.decoder_weight] * 4
    expected = {name: (weight, terms[name]) for name, weight in zip(terms, weights, strict=True)}
    two_sided.assert_equal(master, drawn, reference, expected)


def test_halves_are_every_token_once() -> None:
    texts = [[], [7], [7, 8], list(range(10, 19))]
    first, second = halves(token_rows(texts), small_vocabulary())
    pairs = [(two_sided.ids(first, row)[1:-1], two_sided.ids(second, row)[1:-1]) for row in range(4)]
    assert pairs == [([], []), ([], [7]), ([7], [8]), ([10, 11, 12, 13], [14, 15, 16, 17, 18])]


def words_of_one_token(rows: int, length: int) -> Batch:
    return batch([[FIRST + (i * 7 + j) % 30 for j in range(length)] for i in range(rows)])


def hidden(rows: MaskedRows, row: int) -> set[int]:
    return set(two_sided.places(rows, row))


def test_dual_masks_hide_every_word_once_and_no_unknown_one() -> None:
    drawn = objective(dual_mask_ratio=0.4).draw(batch([*random_texts([20, 15]), [UNK, 9, UNK, 12]]))
    for row, places in enumerate(({*range(1, 21)}, {*range(1, 16)}, {2, 4})):
        encoder, decoder = (hidden(side["dual"], row) for side in (drawn.encoded, drawn.decoded))
        assert not encoder & decoder and encoder | decoder == places
    exact = objective(dual_mask_ratio=0.4).draw(words_of_one_token(3, 40))
    assert [len(hidden(exact.encoded["dual"], row)) for row in range(3)] == [16] * 3


def test_keywords_are_the_heaviest_tokens_without_chance_and_any_word_otherwise() -> None:
    read = words_of_one_token(6, 30)
    drawn = objective(mask_temperature=0.0).draw(read)
    for row in range(6):
        text = two_sided.ids(read.texts["passage"], row)
        for name, places in (("keyword", range(1, 31)), ("second", range(16, 31))):
            heaviest = sorted(places, key=lambda place: -text[place])[: round(len(places) / 2)]
            shift = 15 if name == "second" else 0
            found = {place + shift for place in hidden(drawn.decoded[name], row)}
            assert sum(text[place] for place in found) == sum(text[place] for place in heaviest)
    anyhow = objective(keywords="word", mask_temperature=0.0).draw(read)
    assert any(hidden(anyhow.decoded["keyword"], row) != hidden(drawn.decoded["keyword"], row) for row in range(6))


def test_masks_of_the_passes_are_independent() -> None:
    """0.3 of 6,000 words are hidden in the whole passages; of these 0.5 in the dual pass and in the decoder's text, and
    0.3 in the first halves. Where two texts hide a word, both are [MASK], or both as they were, or equal by chance with
    0.8² + 0.1² + about 0.003. False alarms: one in a million seeds."""
    drawn = objective(mask_temperature=1000.0).draw(words_of_one_token(60, 100))
    whole, keyword = drawn.encoded["whole"], drawn.decoded["keyword"]
    first = whole.selected_BL
    for other in (drawn.encoded["dual"].selected_BL, keyword.selected_BL):
        assert checks.z_score(int((first & other).sum()), int(first.sum()), 0.5) < 4.9
    half = first[:, :51]
    assert checks.z_score(int((half & drawn.encoded["first"].selected_BL[:, :51]).sum()), int(half.sum()), 0.3) < 4.9
    equal = (whole.ids_BL == keyword.ids_BL)[first & keyword.selected_BL]
    assert checks.z_score(int(equal.sum()), len(equal), 0.653) < 4.9


def test_term_weights_are_read_only_where_they_count() -> None:
    assert MASTER.Config().reads().rows == "pseudo_queries" and MASTER.Config().reads().term_weights
    assert not MASTER.Config(keywords="word").reads().term_weights
    assert MASTER.Config(keywords="word", encoder_mask="weighted").reads().term_weights


@pytest.mark.parametrize("length", [0, 1, 2])
def test_the_shortest_texts_give_finite_gradients(length: int) -> None:
    two_sided.assert_finite(objective(), batch(random_texts([length, 6])))


def test_health_compares_each_decoder_with_and_without_its_vector() -> None:
    names = {f"{name}_loss": f"decoder_{name}_mlm" for name in BEHIND}
    two_sided.assert_health_compares(objective(), READ, names)
