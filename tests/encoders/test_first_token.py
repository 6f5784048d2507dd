"""The last layer done for [CLS] alone, against the whole model: vectors, gradients, dropout, mixed precision.

Shapes: B rows, L tokens, D width.
"""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from midmask.encoders.backbone import Backbone
from midmask.encoders.experts import ExpertSplit
from midmask.encoders.families import FAMILIES
from midmask.encoders.first_token import first_token, suits
from midmask.encoders.inputs import padding_mask
from midmask.errors import UserError
from tests.support.encoders.models import VARIANTS, random_model

PLAIN = [name for name in VARIANTS if name.partition(",")[0] in ("bert", "roberta", "distilbert", "electra")]
LENGTHS = torch.tensor([13, 4, 1, 9, 13])


def some_ids() -> Tensor:
    ids_BL = torch.randint(5, 40, (5, 13), generator=torch.Generator().manual_seed(0))
    return ids_BL.masked_fill(torch.arange(13) >= LENGTHS[:, None], 0)


def base_model(variant: str, dropout: float = 0.0) -> Any:
    """The base model in float64, in training mode; every dropout of the same probability."""
    model = random_model(variant).base_model.double().train()
    for module in dropouts(model):
        module.p = dropout
    return model


def dropouts(module: nn.Module) -> list[nn.Dropout]:
    return [part for part in module.modules() if isinstance(part, nn.Dropout)]


def last_layer(model: Any) -> Any:
    return model.get_submodule(FAMILIES[model.config.model_type].layers)[-1]


def both(model: Any, ids_BL: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
    """The first token's vector, alone and out of the whole model's, from the same random state."""
    mask = padding_mask(lengths_B, ids_BL.shape[1])
    torch.manual_seed(3)
    alone_BD = first_token(model, ids_BL, mask)
    torch.manual_seed(3)
    return alone_BD, model(input_ids=ids_BL, attention_mask=mask).last_hidden_state[:, 0]


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_is_for_models_whose_layers_are_berts(variant: str) -> None:
    model = random_model(variant).base_model
    assert suits(model) == (variant in PLAIN)
    model.config._attn_implementation = "eager"  # which takes other masks
    assert not suits(model)


@pytest.mark.parametrize(
    ("variant", "activation", "lengths_B"),
    [*((variant, "gelu", LENGTHS) for variant in PLAIN), ("bert", "relu", torch.full_like(LENGTHS, 13))],
)
def test_vectors_and_all_gradients_are_those_of_the_whole_model(
    variant: str, activation: str, lengths_B: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VARIANTS, variant, {**VARIANTS[variant], "hidden_act": activation, "activation": activation})
    model = base_model(variant)
    names, parameters = zip(*model.named_parameters(), strict=True)
    weights_BD = torch.randn(5, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found, expected = both(model, some_ids(), lengths_B)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    gradients = [
        torch.autograd.grad((vectors_BD * weights_BD).sum(), parameters, allow_unused=True)
        for vectors_BD in (found, expected)
    ]
    unused = [name for name, alone in zip(names, gradients[0], strict=True) if alone is None]
    assert [name for name in unused if "pooler" not in name] == [key_bias(model)]
    for name, alone, whole in zip(names, *gradients, strict=True):
        if whole is not None:
            given = torch.zeros_like(whole) if alone is None else alone
            assert float((given - whole).abs().max()) < 1e-10, name


def key_bias(model: Any) -> str:
    """The name of the last layer's only parameter without effect."""
    family = FAMILIES[model.config.model_type]
    assert family.layer_parts is not None
    return f"{family.layers}.1.{family.layer_parts['key']}.bias"


@pytest.mark.parametrize("variant", ["bert", "distilbert"])
def test_each_dropout_of_the_last_layer_acts_where_it_does_there(variant: str) -> None:
    """One that drops everything shows its place; those of the layers before draw the same numbers in both ways."""
    model = base_model(variant)
    ids_BL = some_ids()
    vectors = [both(model, ids_BL, LENGTHS)[0]]
    for index in range(len(dropouts(last_layer(model)))):
        other = copy.deepcopy(model)
        for module in dropouts(other):
            module.p = 0.3
        for place, module in enumerate(dropouts(last_layer(other))):
            module.p = float(place == index)
        found, expected = both(other, ids_BL, LENGTHS)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        assert all((found - before).abs().max() > 0.01 for before in vectors)
        vectors.append(found)
    assert len(vectors) == 1 + (3 if variant == "bert" else 2)
    model.eval()
    found, expected = both(model, ids_BL, LENGTHS)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("variant", ["bert", "distilbert"])
def test_dropout_of_the_last_layer_has_the_models_probabilities(variant: str) -> None:
    """Mean and spread over 4,000 copies of a row, each probability by itself and all of them together."""
    model = base_model(variant).float()
    ids_BL = some_ids()[:1].expand(4_000, -1)
    lengths_B = torch.full((4_000,), 13)
    own = dropouts(last_layer(model))
    for chosen in [*([module] for module in own), own]:
        for module in own:
            module.p = 0.25 * (module in chosen)
        with torch.no_grad():
            found_BD, expected_BD = both(model, ids_BL, lengths_B)
        deviation_D = expected_BD.std(0)
        assert float(((found_BD.mean(0) - expected_BD.mean(0)).abs() / deviation_D).max()) < 5 * (2 / 4_000) ** 0.5
        torch.testing.assert_close(found_BD.std(0), deviation_D, rtol=0.1, atol=0)


@pytest.mark.parametrize("variant", ["bert", "deberta", "modernbert", "electra, narrow words"])
@pytest.mark.parametrize("split", [None, ExpertSplit("ffn")], ids=["plain", "experts"])
def test_a_backbone_of_any_kind_gives_the_first_of_its_hidden_states(variant: str, split: ExpertSplit | None) -> None:
    backbone = Backbone(random_model(variant), dropout=0.0, split=split).eval()
    names = list(backbone.state_dict())
    if backbone.experts is not None:
        with torch.no_grad():
            for _, weight in backbone.experts.named():
                weight.mul_(1.5)
    for side in ("query", "passage"):
        found_BD = backbone.first(some_ids(), LENGTHS, side)
        torch.testing.assert_close(found_BD, backbone.hidden(some_ids(), LENGTHS, side)[:, 0], rtol=1e-4, atol=1e-5)
    assert list(backbone.state_dict()) == names
    with pytest.raises(UserError, match="at most"):
        backbone.first(torch.ones(1, 200, dtype=torch.long), torch.tensor([200]))
