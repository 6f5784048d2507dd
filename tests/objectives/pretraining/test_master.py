"""MASTER against the slow reference; what each pass and each decoder reads, and what is hidden there."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from midmask.batch import Batch
from midmask.objectives.pretraining.encoder_mask import MaskedRows
from midmask.objectives.pretraining.master import MASTER, halves
from tests.support.objectives.checks import assert_equal, build, ids, places, reference_of, surprises, z_score
from tests.support.objectives.reference import Vectors
from tests.support.objectives.texts import CLS, FIRST, SEP, UNK, batch, random_texts, small_vocabulary, token_rows

BEHIND = {"keyword": "whole", "query": "whole", "second": "first", "dual": "dual"}
"""Decoder -> the pass of the encoder whose vector it reads."""
VARIANTS: dict[str, dict[str, Any]] = {
    "published": {},
    "any words": {"keywords": "word", "decoder_layers": 1, "decoder_weight": 0.7, "encoder_weight": 0.4},
}


objective = partial(build, MASTER)


def pairs(passages: list[list[int]], queries: list[list[int]] | None = None) -> Batch:
    """Greater ids weigh more."""
    made = batch(passages, queries or [text[:4] for text in passages])
    return Batch(0, {name: replace(text, weights_BL=text.ids_BL / 60) for name, text in made.texts.items()})


READ = pairs([*random_texts([9, 4, 6]), [UNK, 9, UNK, 12]], random_texts([5, 3, 4, 6], seed=1))


def true_texts(read: Batch, row: int) -> dict[str, list[int]]:
    """What stands under the masks of each pass and each decoder."""
    whole = ids(read.texts["passage"], row)
    middle = 1 + (len(whole) - 2) // 2
    first, second = [*whole[:middle], SEP], [CLS, *whole[middle:]]
    asked = ids(read.texts["context"], row)
    return {"whole": whole, "first": first, "keyword": whole, "query": asked, "second": second}


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    master = objective(**VARIANTS[variant])
    config, drawn, reference = master.config, master.draw(READ), reference_of(master)
    terms: dict[str, Vectors] = {name: [] for name in master.parts}
    for row in range(4):
        texts = true_texts(READ, row)
        under = {"whole": texts["whole"], "first": texts["first"], "dual": texts["whole"]}
        behind = {name: texts["whole" if name == "dual" else name] for name in BEHIND}
        vectors = {}
        for name, rows in drawn.encoded.items():
            states = reference.encode(ids(rows, row))
            vectors[name] = states[0]
            terms[f"encoder_{name}_mlm"] += surprises(reference, states, rows, row, under[name])
        for name, rows in drawn.decoded.items():
            read = [vectors[BEHIND[name]], *reference.embed(ids(rows, row))[1:]]
            decoded = reference.read_as(f"decoders.{name}.", "decoder.").decoder(read, config.decoder_layers)
            terms[f"decoder_{name}_mlm"] += surprises(reference, decoded, rows, row, behind[name])
    assert_equal(master, drawn, reference, terms, [config.encoder_weight] * 3 + [config.decoder_weight] * 4)


def test_halves_are_every_token_once() -> None:
    texts = [[], [7], [7, 8], list(range(10, 19))]
    first, second = halves(token_rows(texts), small_vocabulary())
    pairs = [(ids(first, row)[1:-1], ids(second, row)[1:-1]) for row in range(4)]
    assert pairs == [([], []), ([], [7]), ([7], [8]), ([10, 11, 12, 13], [14, 15, 16, 17, 18])]


def words_of_one_token(rows: int, length: int) -> Batch:
    return pairs([[FIRST + (i * 7 + j) % 30 for j in range(length)] for i in range(rows)])


def hidden(rows: MaskedRows, row: int) -> set[int]:
    return set(places(rows, row))


def test_dual_masks_hide_every_word_once_and_no_unknown_one() -> None:
    drawn = objective(dual_mask_ratio=0.4).draw(pairs([*random_texts([20, 15]), [UNK, 9, UNK, 12]]))
    for row, expected in enumerate(({*range(1, 21)}, {*range(1, 16)}, {2, 4})):
        encoder, decoder = (hidden(side["dual"], row) for side in (drawn.encoded, drawn.decoded))
        assert not encoder & decoder and encoder | decoder == expected
    exact = objective(dual_mask_ratio=0.4).draw(words_of_one_token(3, 40))
    assert [len(hidden(exact.encoded["dual"], row)) for row in range(3)] == [16] * 3


def test_keywords_are_the_heaviest_tokens_without_chance_and_any_word_otherwise() -> None:
    read = words_of_one_token(6, 30)
    drawn = objective(mask_temperature=0.0).draw(read)
    for row in range(6):
        text = ids(read.texts["passage"], row)
        for name, inside in (("keyword", range(1, 31)), ("second", range(16, 31))):
            heaviest = sorted(inside, key=lambda place: -text[place])[: round(len(inside) / 2)]
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
        assert z_score(int((first & other).sum()), int(first.sum()), 0.5) < 4.9
    half = first[:, :51]
    assert z_score(int((half & drawn.encoded["first"].selected_BL[:, :51]).sum()), int(half.sum()), 0.3) < 4.9
    equal = (whole.ids_BL == keyword.ids_BL)[first & keyword.selected_BL]
    assert z_score(int(equal.sum()), len(equal), 0.653) < 4.9
