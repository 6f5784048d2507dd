"""DiffCSE against the slow reference; its edits, its two generators, and where its discriminator comes from."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from midmask.encoders.backbone import Backbone, BackboneConfig, build_backbone
from midmask.errors import UserError
from midmask.objectives import build_objective
from midmask.objectives.pretraining.diffcse import DiffCSE
from tests.support.encoders.models import random_model
from tests.support.objectives.checks import assert_equal, build, ids, reference_of, surprises, z_score
from tests.support.objectives.reference import Reference, Vectors, log_sum_exp
from tests.support.objectives.texts import (
    CLS,
    SEP,
    batch,
    random_texts,
    small_vocabulary,
)

VARIANTS: dict[str, dict[str, Any]] = {
    "published": {},
    "weights": {"temperature": 0.5, "replaced_weight": 0.7, "generator_weight": 0.4},
    "code": {"guesses": "likeliest", "encoder_mask": "word", "replaced_weight": 0.3},
}
TEXTS = random_texts([8, 4, 6])
BATCH = batch(TEXTS)
GUESS = 30
"""A token that `certain` generators always guess."""


objective = partial(build, DiffCSE, dropout=0.1)


def certain(**fields: Any) -> DiffCSE:
    """With a generator that guesses one token, so that it shows in which places."""
    diffcse = objective(**fields)
    assert isinstance(diffcse.generator, Backbone)
    with torch.no_grad():
        diffcse.generator.output_bias_V[GUESS] = 1e4
    return diffcse


def normalised(columns: Vectors) -> Vectors:
    """Batch norm of rows, without weights: every column has mean 0 and variance 1 over the rows."""
    mean = sum(columns) / len(columns)
    variance = sum((row - mean) ** 2 for row in columns) / len(columns)
    return [(row - mean) / torch.sqrt(variance + 1e-5) for row in columns]


def projected(reference: Reference, vectors: Vectors) -> Vectors:
    inner = normalised([reference.get("projector.inner.weight") @ vector for vector in vectors])
    scale, shift = reference.get("projector.scale"), reference.get("projector.shift")
    kept = [torch.clamp(row * scale + shift, min=0.0) for row in inner]
    outer = normalised([reference.get("projector.outer.weight") @ row for row in kept])
    return [row / torch.sqrt((row**2).sum()) for row in outer]


def detection(reference: Reference, vector: Tensor, edited: list[int], true: list[int]) -> Vectors:
    """-log p of kept or replaced for each token, by the second encoder with the vector in the place of [CLS]."""
    second = reference.read_as("discriminator.encoder.", "backbone.model.bert.")
    states = second.encode_states([vector, *second.embed(edited)[1:]])
    found = []
    for state, token, was in zip(states, edited, true, strict=True):
        logits = reference.linear("discriminator.head", state)
        found.append(log_sum_exp(logits) - logits[int(token != was)])
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    """With dropout switched off, which the reference lacks, both passes are equal; their edits are not."""
    diffcse = objective(**VARIANTS[variant]).eval()
    config, drawn = diffcse.config, diffcse.draw(BATCH)
    reference = reference_of(diffcse)
    guesser = reference.read_as("generator.", "backbone.")
    rows = [[CLS, *text, SEP] for text in TEXTS] * 2
    vectors = [reference.encode(row)[0] for row in rows]
    z = projected(reference, vectors)
    scores = [torch.stack([one @ other for other in z[3:]]) / config.temperature for one in z[:3]]
    contrastive = [log_sum_exp(row) - row[place] for place, row in enumerate(scores)]
    replaced: Vectors = []
    learnt: Vectors = []
    for number, (row, vector) in enumerate(zip(rows, vectors, strict=True)):
        edited = drawn.edited.ids_BL[number, : len(row)].tolist()
        replaced += detection(reference, vector, edited, row)
        states = guesser.encode(ids(drawn.masked, number))
        learnt += surprises(guesser, states, drawn.masked, number, row)
    terms = {"contrastive": contrastive, "replaced": replaced, "generator_mlm": learnt}
    assert_equal(diffcse, drawn, reference, terms, (1.0, config.replaced_weight, config.generator_weight))


def test_hidden_places_of_each_pass_are_filled_and_no_others() -> None:
    drawn = certain().draw(BATCH)
    rows = BATCH.texts["passage"].ids_BL.repeat(2, 1)
    expected = torch.where(drawn.masked.selected_BL, GUESS, rows)
    assert torch.equal(drawn.edited.ids_BL, expected)
    assert torch.equal(drawn.edited.replaced_BL, expected != rows)
    assert not torch.equal(*drawn.masked.selected_BL.chunk(2))


def test_the_likeliest_guess_stands_everywhere_but_at_the_first_token() -> None:
    drawn = certain(guesses="likeliest").draw(BATCH)
    for row, text in enumerate(TEXTS * 2):
        assert drawn.edited.ids_BL[row, : len(text) + 2].tolist() == [CLS, *[GUESS] * (len(text) + 1)]


def test_hidden_share_and_right_guesses() -> None:
    """0.30 of 6,000 tokens, twice; a guess that is right counts as kept. False alarms: one in a million seeds."""
    read = batch([[GUESS, 20] * 30] * 100)
    drawn = certain().draw(read)
    hidden = int(drawn.masked.selected_BL.sum())
    assert z_score(hidden, 12_000, 0.3) < 4.9
    wrong = drawn.masked.selected_BL & (read.texts["passage"].ids_BL.repeat(2, 1) == 20)
    assert torch.equal(drawn.edited.replaced_BL, wrong)


def test_the_discriminator_begins_as_a_copy_with_weights_of_its_own() -> None:
    backbone = Backbone(random_model("bert"), dropout=0.1)
    diffcse = build_objective(DiffCSE.Config(), backbone, small_vocabulary(40))
    assert isinstance(diffcse, DiffCSE)
    own, copied = backbone.encoder.state_dict(), diffcse.discriminator.encoder.state_dict()
    assert own.keys() == copied.keys() and all(torch.equal(own[name], copied[name]) for name in own)
    parameters = (backbone.parameters(), diffcse.discriminator.parameters())
    assert not set.intersection(*({p.data_ptr() for p in each} for each in parameters))


def test_a_generator_from_a_folder_is_frozen_and_no_part_of_the_state(tmp_path: Path) -> None:
    made = build_backbone(BackboneConfig(name="tiny", dropout=0.1), small_vocabulary(), seed=8)
    made.model.save_pretrained(tmp_path)
    diffcse = objective(generator=str(tmp_path))
    drawn = diffcse.draw(BATCH)
    loss = diffcse(drawn)
    loss.total(diffcse.counts(drawn)).backward()
    assert loss.parts["generator_mlm"].count == diffcse.counts(drawn)["generator_mlm"] == 0
    assert not any(name.startswith("generator") for name in diffcse.state_dict())
    assert any(name.startswith("generator.") for name in objective().heads_state())


def test_health_tells_the_share_that_is_replaced() -> None:
    diffcse = certain().eval()
    drawn = diffcse.draw(BATCH)
    with torch.no_grad():
        health = diffcse.health(drawn)
    assert float(health["replaced"]) == pytest.approx(float(drawn.edited.replaced_BL.sum()) / 48)


def test_what_cannot_be_done_is_said_beforehand() -> None:
    with pytest.raises(UserError, match=r"diffcse: backbone\.dropout = 0, .* set backbone\.dropout=0\.1"):
        objective(dropout=0.0)
    with pytest.raises(UserError, match="layers of modernbert are not BERT's"):
        DiffCSE.Config().check(Backbone(random_model("modernbert"), dropout=0.1).shape)
