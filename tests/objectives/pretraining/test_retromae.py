"""RetroMAE against the slow reference, for both decodings and both query streams; and the rules of its decoder."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from midmask.batch import Batch, TokenRows
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.errors import UserError
from midmask.identity import override
from midmask.objectives import build_objective
from midmask.objectives.pretraining.retromae import RetroMAE
from tests.support.objectives.checks import assert_cutting_changes_nothing
from tests.support.objectives.enhanced import decode
from tests.support.objectives.reference import Reference, assert_same_gradients
from tests.support.objectives.texts import CLS, MASK, SEP, UNK, random_texts, small_vocabulary, token_rows

VARIANTS: dict[str, dict[str, Any]] = {
    "enhanced, P + h": {},
    "enhanced, embedding module": {"query_stream": "embedding"},
    "enhanced, independent masks": {"decoder_masks": "independent", "decoder_weight": 0.7},
    "basic, one layer": {"decoding": "basic"},
    "basic, three layers": {"decoding": "basic", "decoder_layers": 3, "encoder_weight": 0.3},
    "tokens": {"encoder_mask": "token"},
    "mean of the tokens": {"sentence_vector": "mean"},
}


def objective(sentence_vector: Any = "cls", **fields: object) -> RetroMAE:
    vocabulary = small_vocabulary()
    config = BackboneConfig(name="tiny", dropout=0.0, sentence_vector=sentence_vector)
    backbone = build_backbone(config, vocabulary, seed=3)
    built = build_objective(override(RetroMAE.Config(), fields), backbone, vocabulary, seed=5).double()
    assert isinstance(built, RetroMAE)
    return built


def texts() -> TokenRows:
    return token_rows([*random_texts([8, 4, 6]), [UNK, 9, UNK, 12]])


def places(rows_R: torch.Tensor, row: int, width: int) -> list[int]:
    return [place - row * width for place in rows_R.tolist() if row * width <= place < (row + 1) * width]


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    retromae = objective(**VARIANTS[variant])
    text = texts()
    drawn = retromae.draw(Batch(0, {"passage": text}))
    loss = retromae(drawn)
    total = loss.total({name: part.count for name, part in loss.parts.items()})
    total.backward()

    reference = Reference(retromae, heads=2, layers=2, pad_id=0)
    width = text.ids_BL.shape[1]
    sides: dict[str, list[torch.Tensor]] = {"encoder_mlm": [], "decoder_mlm": []}
    for row, length in enumerate(text.lengths_B.tolist()):
        states = reference.encode(drawn.encoder.ids_BL[row, :length].tolist())
        vector = states[0] if retromae.backbone.sentence == "cls" else sum(states) / length
        decoded = decode(retromae.config, reference, vector, drawn, row)
        true = text.ids_BL[row].tolist()
        sides["encoder_mlm"] += [
            reference.surprise(states[j], true[j]) for j in places(drawn.encoder.rows_R, row, width)
        ]
        sides["decoder_mlm"] += [
            reference.surprise(decoded[j], true[j]) for j in places(drawn.decoder.rows_R, row, width)
        ]
    weights = {"encoder_mlm": retromae.config.encoder_weight, "decoder_mlm": retromae.config.decoder_weight}
    expected = sum(weights[name] * sum(values) / len(values) for name, values in sides.items())
    expected.backward()
    for name, values in sides.items():
        assert retromae.counts(drawn)[name] == loss.parts[name].count == len(values) > 3
    torch.testing.assert_close(total, expected, rtol=1e-6, atol=1e-6)
    assert_same_gradients(retromae, reference)


def test_enhanced_targets_are_all_tokens_but_the_ends_and_nothing_is_masked() -> None:
    text = texts()
    drawn = objective().draw(Batch(0, {"passage": text})).decoder
    assert torch.equal(drawn.ids_BL, text.ids_BL)
    expected = [
        j + row * text.ids_BL.shape[1] for row, n in enumerate(text.lengths_B.tolist()) for j in range(1, n - 1)
    ]
    assert drawn.rows_R.tolist() == expected
    assert drawn.labels_R.tolist() == [
        token for row in text.ids_BL.tolist() for token in row if token not in (CLS, SEP, 0)
    ]


def test_basic_targets_are_masked_whole_words_apart_from_the_encoders() -> None:
    text = token_rows(random_texts([120, 60]))
    drawn = objective(decoding="basic").draw(Batch(0, {"passage": text}))
    hidden = torch.zeros_like(text.ids_BL, dtype=torch.bool).flatten()
    hidden[drawn.decoder.rows_R] = True
    hidden = hidden.view_as(text.ids_BL)
    assert torch.equal(drawn.decoder.ids_BL, torch.where(hidden, MASK, text.ids_BL))
    assert hidden.sum(1).tolist() == [61, 31]
    shared = set(drawn.encoder.rows_R.tolist()) & set(drawn.decoder.rows_R.tolist())
    assert 0 < len(shared) < 0.8 * len(drawn.encoder.rows_R)


def test_a_target_reaches_its_row_only_through_the_sentence_vector() -> None:
    """With the sentence vector held fixed, a decoded row does not change when its own token does, and others do."""
    retromae = objective().eval()
    text = token_rows(random_texts([10]))
    drawn = retromae.draw(Batch(0, {"passage": text}))
    vector = torch.randn(1, 1, 128, dtype=torch.float64)
    before = retromae.decode(vector, text.ids_BL, drawn.visible_BXL)
    seen = 0
    for row in range(1, 11):
        ids = text.ids_BL.clone()
        ids[0, row] = 5 + (ids[0, row] - 4) % 50
        changed = (retromae.decode(vector, ids, drawn.visible_BXL) != before).any(-1)[0]
        assert changed.tolist() == drawn.visible_BXL[0, :, row].tolist()
        assert not changed[row]
        seen += int(changed.sum())
    assert seen > 20


@pytest.mark.parametrize("decoding", ["enhanced", "basic"])
def test_sums_do_not_depend_on_how_a_batch_is_cut(decoding: str) -> None:
    assert_cutting_changes_nothing(objective(decoding=decoding))


def test_dropout_acts_in_the_decoder_and_only_while_training() -> None:
    vocabulary = small_vocabulary()
    backbone = build_backbone(BackboneConfig(name="tiny", dropout=0.3), vocabulary, seed=3)
    retromae = build_objective(RetroMAE.Config(), backbone, vocabulary)
    assert isinstance(retromae, RetroMAE)
    text = texts()
    drawn = retromae.draw(Batch(0, {"passage": text}))
    queries = torch.randn(4, text.ids_BL.shape[1], 128)

    def twice() -> bool:
        return torch.equal(*(retromae.decoder[0](queries, queries, drawn.visible_BXL) for _ in range(2)))

    assert not twice()
    retromae.eval()
    assert twice()


@pytest.mark.parametrize("length", [0, 1, 2])
def test_the_shortest_texts_give_finite_gradients(length: int) -> None:
    retromae = objective()
    loss = retromae(retromae.draw(Batch(0, {"passage": token_rows(random_texts([length, 6]))})))
    loss.total({name: part.count for name, part in loss.parts.items()}).backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in retromae.parameters())


def test_more_than_one_enhanced_layer_is_refused() -> None:
    with pytest.raises(UserError, match="needs decoding = basic"):
        override(RetroMAE.Config(), {"decoder_layers": 2})
    assert override(RetroMAE.Config(), {"decoder_layers": 2, "decoding": "basic"}).decoder_layers == 2


@pytest.mark.parametrize("field", ["encoder_mask_ratio", "decoder_mask_ratio"])
def test_an_impossible_ratio_is_refused_by_name(field: str) -> None:
    with pytest.raises(UserError, match=rf"{field} = 1\.7: input should be less than 1"):
        override(RetroMAE.Config(), {field: 1.7})
    with pytest.raises(ValidationError):
        RetroMAE.Config(**{field: 0.0})


def test_health_tells_what_the_decoder_does_without_the_text_s_vector() -> None:
    retromae = objective().eval()
    drawn = retromae.draw(Batch(0, {"passage": texts()}))
    part = retromae(drawn).parts["decoder_mlm"]
    found = retromae.health(drawn)
    torch.testing.assert_close(found["decoder_loss"], part.total / part.count)
    hidden = retromae.backbone.hidden(drawn.encoder.ids_BL, drawn.encoder.lengths_B)
    same = sum(hidden[row, 0] for row in range(4)) / 4
    decoded = retromae.decode(torch.stack([same] * 4)[:, None], drawn.decoder.ids_BL, drawn.visible_BXL)
    logits = retromae.backbone.transform(decoded) @ retromae.backbone.output_weight_VD.t()
    logits = (logits + retromae.backbone.output_bias_V).flatten(0, 1)[drawn.decoder.rows_R]
    expected = torch.nn.functional.cross_entropy(logits, drawn.decoder.labels_R)
    torch.testing.assert_close(found["decoder_loss_without_vector"], expected)


def test_heads_go_and_come_back() -> None:
    first, second = objective(), objective()
    with torch.no_grad():
        for parameter in second.decoder.parameters():
            parameter.add_(1.0)
    state = first.heads_state()
    assert set(state) == {f"decoder.{name}" for name in first.decoder.state_dict()}
    assert second.take_over(state) == list(state)
    drawn = first.draw(Batch(0, {"passage": texts()}))
    assert torch.equal(first(drawn).parts["decoder_mlm"].total, second(drawn).parts["decoder_mlm"].total)
    wider = {"decoder.0.query.bias": torch.zeros(7), "head.weight": torch.zeros(2)}
    assert first.take_over({**state, **wider}) == [name for name in state if name != "decoder.0.query.bias"]
