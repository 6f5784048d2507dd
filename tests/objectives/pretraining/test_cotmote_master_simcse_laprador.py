"""CoT-MoTE, MASTER, SimCSE and LaPraDoR against the slow reference; what each pass reads and hides, turns, caches."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from midmask.core.batch import Batch
from midmask.encoders.representation import Side
from midmask.objectives.pretraining.cotmote import CoTMoTE
from midmask.objectives.pretraining.encoder_mask import MaskedRows
from midmask.objectives.pretraining.laprador import LaPraDoR, TurnRows
from midmask.objectives.pretraining.master import MASTER
from midmask.objectives.pretraining.simcse import SimCSE
from tests.support.objectives.checks import (
    assert_equal,
    build,
    ids,
    in_batch,
    places,
    reference_of,
    surprises,
    unit,
    z_score,
)
from tests.support.objectives.reference import Reference, Vectors, log_sum_exp
from tests.support.objectives.texts import CLS, FIRST, SEP, UNK, batch, random_texts, token_rows

PASSAGES = [*random_texts([8, 4, 6], seed=4), [UNK, 9, UNK, 12]]
QUERIES = random_texts([3, 5, 2, 4], seed=5)

VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ffn experts": ({"experts": "ffn"}, {}),
    "ffn experts with norms, dense": ({"experts": "ffn", "expert_norms": True}, {"views": "dense"}),
    "separate, switched, sparse": ({"experts": "all"}, {"switched": True, "views": "sparse"}),
    "Siamese": ({}, {"encoder_weight": 0.3}),
    "two blocks": ({"experts": "ffn"}, {"decoder_layers": 2, "decoder_weight": 0.7}),
    "logits of the embeddings": ({"experts": "ffn"}, {"logits": "embeddings"}),
}

READ = batch(PASSAGES, QUERIES)


def objective(backbone: dict[str, Any] | None = None, **fields: Any) -> Any:
    """With experts that have already drifted apart."""
    return build(CoTMoTE, backbone=backbone, **{"drift": 0.05, **fields})


class Routed(Reference):
    """A reference whose encoder takes the query's own weights where it has some."""

    def encode_side(self, tokens: list[int], side: Side) -> Vectors:
        kept = dict(self.weights)
        if side == "query":
            for name in kept:
                own = "backbone.experts.weights." + name.removeprefix("backbone.model.bert.").replace(".", "/")
                self.weights[name] = kept.get(own, kept[name])
        states = self.encode(tokens)
        self.weights = kept
        return states


def views_of(config: CoTMoTE.Config, reference: Reference, states: Vectors) -> list[Tensor]:
    """What the decoder reads before the query, each by itself."""
    table = reference.bert("embeddings.word_embeddings.weight")
    logits = [reference.logits(state) if config.logits == "head" else table @ state for state in states]
    weights = torch.log(1 + torch.relu(torch.stack(logits))).max(0).values
    views = {"dense": states[0], "sparse": sum(weights[v] * table[v] for v in range(len(table)))}
    return [view for name, view in views.items() if config.views in (name, "both")]


def reference_terms(cotmote: CoTMoTE, reference: Routed, drawn: Any) -> dict[str, list[Tensor]]:
    config, terms = cotmote.config, {name: [] for name in cotmote.parts}
    texts = {"passage": READ.texts["passage"], "query": READ.texts["context"]}
    for side in ("passage", "query"):
        rows = getattr(drawn, side)
        expert = {"passage": "query", "query": "passage"}[side] if config.switched else side
        for row in range(4):
            states = reference.encode_side(ids(rows, row), expert)
            terms[f"{side}_mlm"] += surprises(reference, states, rows, row, ids(texts[side], row))
            span, layers = ids(texts["query"], row), config.decoder_layers
            passes = [reference.written([view], span, layers, None) for view in views_of(config, reference, states)]
            terms[f"{side}_clm"] += [sum(values) for values in zip(*passes, strict=True)]
    return terms


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    backbone, fields = VARIANTS[variant]
    cotmote = objective(backbone, **fields)
    drawn, config = cotmote.draw(READ), cotmote.config
    reference = Routed(cotmote, heads=2, layers=2, pad_id=0)
    weights = [config.encoder_weight if name.endswith("mlm") else config.decoder_weight for name in cotmote.parts]
    assert_equal(cotmote, drawn, reference, reference_terms(cotmote, reference, drawn), weights)


def test_health_tells_vectors_apart() -> None:
    cotmote = objective({"experts": "ffn"}).eval()
    with torch.no_grad():
        drawn = cotmote.draw(READ)
        health = {name: float(value) for name, value in cotmote.health(drawn).items()}
        parts = cotmote(drawn).parts
    for side in ("passage", "query"):
        views = [health[f"{side}_{view}_decoder_loss"] for view in ("dense", "sparse")]
        part = parts[f"{side}_clm"]
        assert sum(views) == pytest.approx(float(part.total / part.count))
        for view, found in zip(("dense", "sparse"), views, strict=True):
            assert health[f"{side}_{view}_decoder_loss_without_vector"] != pytest.approx(found, rel=1e-6)
    assert 0 <= health["winning_vocabulary"] <= 1


def test_three_tenths_of_either_text_without_its_specials_are_hidden() -> None:
    drawn = objective().draw(batch(random_texts([40, 20]), random_texts([10, 10], seed=1)))
    assert [int(rows.count) for _, rows in drawn.sides] == [12 + 6, 3 + 3]


BEHIND = {"keyword": "whole", "query": "whole", "second": "first", "dual": "dual"}
"""Decoder -> the pass of the encoder whose vector it reads."""
MASTER_VARIANTS: dict[str, dict[str, Any]] = {
    "published": {},
    "one layer": {"decoder_layers": 1, "decoder_weight": 0.7, "encoder_weight": 0.4},
}


def pairs(passages: list[list[int]], queries: list[list[int]] | None = None) -> Batch:
    """Greater ids weigh more."""
    made = batch(passages, queries or [text[:4] for text in passages])
    return Batch(0, {name: replace(text, weights_BL=text.ids_BL / 60) for name, text in made.texts.items()})


MASTER_READ = pairs([*random_texts([9, 4, 6]), [UNK, 9, UNK, 12]], random_texts([5, 3, 4, 6], seed=1))


def true_texts(read: Batch, row: int) -> dict[str, list[int]]:
    """What stands under the masks of each pass and each decoder."""
    whole = ids(read.texts["passage"], row)
    middle = 1 + (len(whole) - 2) // 2
    first, second = [*whole[:middle], SEP], [CLS, *whole[middle:]]
    asked = ids(read.texts["context"], row)
    return {"whole": whole, "first": first, "keyword": whole, "query": asked, "second": second}


@pytest.mark.parametrize("variant", MASTER_VARIANTS)
def test_master_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    master = build(MASTER, **MASTER_VARIANTS[variant])
    config, drawn, reference = master.config, master.draw(MASTER_READ), reference_of(master)
    terms: dict[str, Vectors] = {name: [] for name in master.parts}
    for row in range(4):
        texts = true_texts(MASTER_READ, row)
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


def words_of_one_token(rows: int, length: int) -> Batch:
    return pairs([[FIRST + (i * 7 + j) % 30 for j in range(length)] for i in range(rows)])


def hidden(rows: MaskedRows, row: int) -> set[int]:
    return set(places(rows, row))


def test_dual_masks_hide_every_word_once_and_no_unknown_one() -> None:
    drawn = build(MASTER, dual_mask_ratio=0.4).draw(pairs([*random_texts([20, 15]), [UNK, 9, UNK, 12]]))
    for row, expected in enumerate(({*range(1, 21)}, {*range(1, 16)}, {2, 4})):
        encoder, decoder = (hidden(side["dual"], row) for side in (drawn.encoded, drawn.decoded))
        assert not encoder & decoder and encoder | decoder == expected
    exact = build(MASTER, dual_mask_ratio=0.4).draw(words_of_one_token(3, 40))
    assert [len(hidden(exact.encoded["dual"], row)) for row in range(3)] == [16] * 3


def test_keywords_are_the_heaviest_tokens_without_chance() -> None:
    read = words_of_one_token(6, 30)
    drawn = build(MASTER, mask_temperature=0.0).draw(read)
    for row in range(6):
        text = ids(read.texts["passage"], row)
        for name, inside in (("keyword", range(1, 31)), ("second", range(16, 31))):
            heaviest = sorted(inside, key=lambda place: -text[place])[: round(len(inside) / 2)]
            shift = 15 if name == "second" else 0
            found = {place + shift for place in hidden(drawn.decoded[name], row)}
            assert sum(text[place] for place in found) == sum(text[place] for place in heaviest)


def test_masks_of_the_passes_are_independent() -> None:
    """0.3 of 6,000 words are hidden in the whole passages; of these 0.5 in the dual pass and in the decoder's text, and
    0.3 in the first halves. Where two texts hide a word, both are [MASK], or both as they were, or equal by chance with
    0.8² + 0.1² + about 0.003. False alarms: one in a million seeds."""
    drawn = build(MASTER, mask_temperature=1000.0).draw(words_of_one_token(60, 100))
    whole, keyword = drawn.encoded["whole"], drawn.decoded["keyword"]
    first = whole.selected_BL
    for other in (drawn.encoded["dual"].selected_BL, keyword.selected_BL):
        assert z_score(int((first & other).sum()), int(first.sum()), 0.5) < 4.9
    half = first[:, :51]
    assert z_score(int((half & drawn.encoded["first"].selected_BL[:, :51]).sum()), int(half.sum()), 0.3) < 4.9
    equal = (whole.ids_BL == keyword.ids_BL)[first & keyword.selected_BL]
    assert z_score(int(equal.sum()), len(equal), 0.653) < 4.9


SIMCSE_VARIANTS: dict[str, dict[str, Any]] = {
    "published": {},
    "without projection": {"projection": False, "temperature": 0.5},
    "with MLM": {"mlm_weight": 0.1, "encoder_mask_ratio": 0.4},
}
TEXTS = random_texts([8, 4, 6])
BATCH = batch(TEXTS)


@pytest.mark.parametrize("variant", SIMCSE_VARIANTS)
def test_simcse_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    """With dropout switched off, which the reference lacks, both passes are equal and the loss is not zero: a text is
    told from the others."""
    simcse = build(SimCSE, dropout=0.1, **SIMCSE_VARIANTS[variant]).eval()
    config, drawn, reference = simcse.config, simcse.draw(BATCH), reference_of(simcse)
    vectors = [reference.encode([2, *text, 3])[0] for text in TEXTS]
    if config.projection:
        vectors = [torch.tanh(reference.linear("projection", vector)) for vector in vectors]
    vectors = [unit(vector) for vector in vectors]
    terms = {"contrastive": in_batch(vectors, vectors, config.temperature), "mlm": []}
    for row, text in enumerate(TEXTS if config.mlm_weight else ()):
        states = reference.encode(ids(drawn.masked, row))
        terms["mlm"] += surprises(reference, states, drawn.masked, row, [2, *text, 3])
    assert bool(config.mlm_weight) == (len(terms["mlm"]) > 2)
    assert_equal(simcse, drawn, reference, terms, (1.0, config.mlm_weight))


def test_first_passes_look_for_second_passes() -> None:
    """A softmax over the second passes for each first pass, not the other way round."""
    one, other = torch.randn(2, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    part = build(SimCSE, dropout=0.1).couple((one, other), ())["contrastive"]
    expected = sum(log_sum_exp(other @ row / 0.05) - other[place] @ row / 0.05 for place, row in enumerate(one))
    torch.testing.assert_close(part.total, expected, rtol=1e-9, atol=1e-9)


def test_the_views_differ_by_dropout_alone_of_which_every_text_has_its_own() -> None:
    simcse = build(SimCSE, dropout=0.1)
    same = torch.cat(simcse.represent(simcse.draw(batch([TEXTS[0]] * 4))).vectors)
    assert torch.pdist(same).min() > 1e-3
    drawn = simcse.draw(BATCH)
    one, other = simcse.represent(drawn).vectors
    assert not torch.allclose(one, other) and one.norm(dim=1).sub(1).abs().max() < 1e-9
    simcse.eval()
    one, other = simcse.represent(drawn).vectors
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


SIDES = ("query", "passage")

build_laprador = partial(build, LaPraDoR, dropout=0.1, backbone={"experts": "all"}, turn_steps=3, cache=8)
"""The two encoders differ."""


def turn(step: int) -> Batch:
    return Batch(step, {"passage": token_rows(random_texts([8, 14, 11], seed=step))})


def vectors_of(reference: Reference, drawn: TurnRows) -> dict[str, Vectors]:
    """Queries' and passages' unit vectors, each by its own encoder."""
    encoders = {"query": reference.read_as("backbone.experts.weights.", "backbone.model.bert."), "passage": reference}
    return {side: [unit(encoders[side].encode(ids(drawn.text(side), row))[0]) for row in range(3)] for side in SIDES}


@pytest.mark.parametrize("dropout_weight", [1.0, 0.3])
def test_loss_and_every_gradient_equal_the_reference_in_each_step_of_two_turns(dropout_weight: float) -> None:
    """Three steps for the queries' encoder, then three for the passages'; of the nine vectors of a turn eight fit."""
    laprador = build_laprador(temperature=0.5, dropout_weight=dropout_weight).eval()
    kept: Vectors = []
    for step in range(6):
        laprador.zero_grad()
        drawn, reference = laprador.draw(turn(step)), reference_of(laprador)
        found = vectors_of(reference, drawn)
        trained, still = SIDES if step < 3 else SIDES[::-1]
        others = [vector.detach() for vector in found[still]]
        kept = kept if step % 3 else []
        contrastive = in_batch(found[trained], [*others, *kept[-8:]], 0.5)
        terms = {"contrastive": contrastive, "dropout": in_batch(found[trained], found[trained], 0.5)}
        kept += others
        assert (drawn.trained, drawn.still) == (trained, still)
        assert_equal(laprador, drawn, reference, terms, (1.0, dropout_weight))
        moved = {name for name, p in laprador.named_parameters() if p.grad is not None and bool(p.grad.any())}
        assert all(name.startswith("backbone.experts.") == (trained == "query") for name in moved)


def test_a_cache_smaller_than_a_batch_keeps_its_last_vectors() -> None:
    laprador = build_laprador(cache=2).eval()
    drawn = laprador.draw(turn(0))
    still = laprador.represent(drawn).vectors[2]
    laprador(drawn)
    assert sorted(laprador.cache_KD[:, 0].tolist()) == pytest.approx(sorted(still[1:, 0].tolist()))
    none = build_laprador(cache=0).eval()
    parts = [none(none.draw(turn(step))).parts["contrastive"] for step in (0, 1)]
    assert all(bool(part.total.isfinite()) for part in parts)


def test_a_run_that_goes_on_has_the_cache() -> None:
    whole = build_laprador().eval()
    for step in range(2):
        whole(whole.draw(turn(step)))
    again = build_laprador().eval()
    again.load_state_dict(whole.state_dict())
    assert int(again.cached) == 6 and set(again.heads_state()) == {"cache_KD", "cached"}
    losses = [each(each.draw(turn(2))).parts["contrastive"].total for each in (whole, again)]
    without = build_laprador().eval()
    assert losses[0] == losses[1] > without(without.draw(turn(2))).parts["contrastive"].total
