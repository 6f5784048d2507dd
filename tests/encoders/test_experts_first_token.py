"""Experts: who has which weights, where texts go, folders there and back. The last layer done for [CLS] alone against
the whole model: vectors, gradients, dropout, mixed precision.
"""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModel

from midmask.core.config import override
from midmask.encoders.backbone import Backbone, BackboneConfig, build_backbone, load_backbone
from midmask.encoders.experts import FILE, ExpertSplit, QueryExpert
from midmask.encoders.families import FAMILIES, first_token, padding_mask, suits_first_token
from midmask.encoders.folder import save_bi_encoder
from midmask.encoders.representation import Side
from midmask.errors import UserError
from midmask.retrieve.text_encoder import load_base_model
from midmask.text.vocabulary import Vocabulary
from tests.support.encoders.models import VARIANTS, random_model

IDS = torch.tensor([[2, 6, 7, 20, 8, 3, 0, 0], [2, 9, 10, 11, 12, 13, 14, 3]])
LENGTHS = torch.tensor([6, 8])
SPLITS = [ExpertSplit("ffn"), ExpertSplit("ffn", norms=True), ExpertSplit("all")]

SHARED = {"bert": "attention.self.key.weight", "distilbert": "attention.k_lin.weight"}
INSIDE = {"bert": "intermediate.dense.weight", "distilbert": "ffn.lin1.weight"}
NORM = {"bert": "1.output.LayerNorm.weight", "distilbert": "1.output_layer_norm.weight"}


def split_backbone(folder: Path, split: ExpertSplit, *, dropout: float = 0.0) -> Backbone:
    wanted = BackboneConfig(experts=split.kind, expert_norms=split.norms)
    return load_backbone(folder, dropout=dropout, config=wanted).eval()


def hidden(backbone: Backbone, side: Side) -> Tensor:
    with torch.no_grad():
        return backbone.hidden(IDS, LENGTHS, side)


def moved_by(backbone: Backbone, weight: Tensor) -> set[str]:
    """Which sides' hidden states change with a weight."""
    before: dict[Side, Tensor] = {"query": hidden(backbone, "query"), "passage": hidden(backbone, "passage")}
    with torch.no_grad():
        weight += 0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
    after = {side: hidden(backbone, side) for side in before}
    with torch.no_grad():
        return {side for side in before if not torch.allclose(before[side], after[side], atol=1e-4)}


def weight_of(weights: dict[str, Tensor], family: str, part: dict[str, str]) -> Tensor:
    (name, *_) = (name for name in weights if name.endswith(part.get(family, part["bert"])))
    return weights[name]


def drifted(folder: Path, split: ExpertSplit) -> Backbone:
    """Experts that have learnt different things."""
    backbone = split_backbone(folder, split)
    assert backbone.experts is not None
    torch.manual_seed(5)
    with torch.no_grad():
        for weight in backbone.experts.parameters():
            weight += 0.2 * torch.randn_like(weight)
    return backbone


@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_at_the_start_both_sides_are_the_plain_encoder_dropout_included(model_folder: Path, split: ExpertSplit) -> None:
    plain = load_backbone(model_folder, dropout=0.2).train()
    backbone = split_backbone(model_folder, split, dropout=0.2).train()
    found = []
    for model, side in ((plain, "passage"), (backbone, "passage"), (backbone, "query")):
        torch.manual_seed(3)
        found.append(hidden(model, side))
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


APART: list[tuple[ExpertSplit, list[dict[str, str]], list[dict[str, str]]]] = [
    (SPLITS[0], [INSIDE], [SHARED, NORM]),
    (SPLITS[1], [NORM], []),
    (SPLITS[2], [SHARED, NORM, {"bert": "word_embeddings.weight"}], []),
]


def test_a_weight_moves_the_texts_of_the_sides_that_use_it(model_folder: Path, family: str) -> None:
    for split, own, shared in APART:
        backbone = split_backbone(model_folder, split)
        assert backbone.experts is not None
        passages, queries = dict(backbone.encoder.named_parameters()), dict(backbone.experts.named())
        for part in own:
            assert moved_by(backbone, weight_of(queries, family, part)) == {"query"}
            assert moved_by(backbone, weight_of(passages, family, part)) == {"passage"}
        for part in shared:
            assert moved_by(backbone, weight_of(passages, family, part)) == {"query", "passage"}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_family_has_feed_forward_experts(variant: str) -> None:
    backbone = Backbone(random_model(variant), dropout=0.0, split=ExpertSplit("ffn", norms=True)).eval()
    assert backbone.experts is not None
    names = [name for name, _ in backbone.experts.named()]
    weights = ExpertSplit("ffn").names(backbone.encoder, backbone.family)
    linear = sum(weight.ndim == 2 for _, weight in backbone.experts.named())
    assert linear == 2 * backbone.layers and len(weights) == linear * (1 if variant.startswith("modernbert") else 2)
    assert len(names) - len(weights) == (1 if variant == "modernbert, no output bias" else 2) * backbone.layers
    assert not any("attention" in name or "attn" in name for name in names)
    before = hidden(backbone, "passage")
    assert torch.equal(hidden(backbone, "query"), before)
    with torch.no_grad():
        for weight in backbone.experts.parameters():
            weight += 0.1 * torch.randn_like(weight)
    assert torch.equal(hidden(backbone, "passage"), before)
    assert not torch.allclose(hidden(backbone, "query"), before, atol=1e-3)


@pytest.mark.parametrize("side", ["query", "passage"])
def test_gradients_reach_the_expert_in_use_and_what_is_shared(model_folder: Path, side: Side) -> None:
    backbone = split_backbone(model_folder, ExpertSplit("ffn"))
    backbone.hidden(IDS, LENGTHS, side).square().sum().backward()
    assert backbone.experts is not None
    of_queries = {name.replace("/", ".") for name in backbone.experts.weights}
    for name, parameter in backbone.encoder.named_parameters():
        assert (parameter.grad is not None) == (side == "passage" or name not in of_queries), name
    assert all((weight.grad is not None) == (side == "query") for weight in backbone.experts.parameters())


@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_a_saved_folder_gives_both_sides_back(model_folder, tokenizer_folder, tmp_path, split) -> None:
    backbone = drifted(model_folder, split)
    backbone.save(tmp_path / "masked", tokenizer_folder)
    save_bi_encoder(backbone, tmp_path / "pair", tokenizer_folder, max_length=12)
    sides: tuple[Side, Side] = ("query", "passage")
    for name in ("masked", "pair"):
        again = load_backbone(tmp_path / name, dropout=0.0).eval()
        assert again.experts is not None and again.experts.split == split
        for side in sides:
            torch.testing.assert_close(hidden(again, side), hidden(backbone, side))
            found = through_hugging_face(load_base_model(tmp_path / name, side))
            torch.testing.assert_close(found, hidden(backbone, side)[:, 0], rtol=1e-5, atol=1e-5)
        plain = through_hugging_face(AutoModel.from_pretrained(tmp_path / name).eval())
        torch.testing.assert_close(plain, hidden(backbone, "passage")[:, 0], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(hidden(backbone, "query"), hidden(backbone, "passage"), atol=0.01)


@torch.no_grad()
def through_hugging_face(model: nn.Module) -> Tensor:
    seen = torch.arange(IDS.shape[1]) < LENGTHS[:, None]
    states: Tensor = model(input_ids=IDS, attention_mask=seen.long()).last_hidden_state
    return states[:, 0]


def test_a_folder_with_experts_is_not_taken_for_a_plain_one(
    model_folder: Path, tokenizer_folder: Path, tmp_path: Path, vocabulary: Vocabulary
) -> None:
    backbone = drifted(model_folder, ExpertSplit("ffn"))
    backbone.save(tmp_path / "split", tokenizer_folder)
    config = BackboneConfig(name=str(tmp_path / "split"), dropout=0.0)
    for fields in ({}, {"experts": "all"}, {"experts": "ffn", "expert_norms": True}):
        with pytest.raises(UserError, match=r"has experts = ffn, expert_norms = false\. .*experts=drop") as error:
            build_backbone(config.model_copy(update=fields), vocabulary, seed=0)
        assert "\n" not in str(error.value)
    kept = build_backbone(config.model_copy(update={"experts": "ffn"}), vocabulary, seed=0).eval()
    assert torch.equal(hidden(kept, "query"), hidden(backbone, "query"))
    dropped = build_backbone(config.model_copy(update={"experts": "drop"}), vocabulary, seed=0).eval()
    assert dropped.experts is None
    assert torch.equal(hidden(dropped, "query"), hidden(backbone, "passage"))


def test_experts_that_do_not_fit_are_refused(model_folder: Path, tokenizer_folder: Path, tmp_path: Path) -> None:
    drifted(model_folder, ExpertSplit("ffn")).save(tmp_path, tokenizer_folder)
    weights = load_file(tmp_path / FILE)
    name = min(weights)
    about = {"kind": "ffn", "norms": "false"}
    for changed in ({n: t for n, t in weights.items() if n != name}, {**weights, name: weights[name][:-1].clone()}):
        save_file(changed, tmp_path / FILE, about)
        with pytest.raises(UserError, match=rf"{FILE}: {name} does not fit"):
            load_backbone(tmp_path, dropout=0.0)
    for spoil in (lambda: save_file(weights, tmp_path / FILE), lambda: (tmp_path / FILE).write_bytes(b"half")):
        spoil()
        with pytest.raises(UserError, match="no experts can be read there"):
            load_backbone(tmp_path, dropout=0.0)


def test_config_refuses_what_it_cannot_do(model_folder: Path) -> None:
    with pytest.raises(UserError, match="expert_norms = true needs experts = ffn, not all"):
        override(BackboneConfig(), {"experts": "all", "expert_norms": True})
    assert override(BackboneConfig(experts="ffn"), {"experts": "none"}).experts == "none"
    strange = load_backbone(model_folder, dropout=0.0).encoder.embeddings
    with pytest.raises(UserError, match=r"backbone\.experts = ffn: the feed-forward layers of \w+ are not known"):
        QueryExpert(ExpertSplit("ffn"), strange, FAMILIES["bert"])


PLAIN = [name for name in VARIANTS if name.partition(",")[0] in ("bert", "roberta", "distilbert", "electra")]
ROW_LENGTHS = torch.tensor([13, 4, 1, 9, 13])


def some_ids() -> Tensor:
    ids_BL = torch.randint(5, 40, (5, 13), generator=torch.Generator().manual_seed(0))
    return ids_BL.masked_fill(torch.arange(13) >= ROW_LENGTHS[:, None], 0)


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
    assert suits_first_token(model) == (variant in PLAIN)
    model.config._attn_implementation = "eager"  # which takes other masks
    assert not suits_first_token(model)


@pytest.mark.parametrize(
    ("variant", "activation", "lengths_B"),
    [*((variant, "gelu", ROW_LENGTHS) for variant in PLAIN), ("bert", "relu", torch.full_like(ROW_LENGTHS, 13))],
)
def test_vectors_and_all_gradients_are_those_of_the_whole_model(variant, activation, lengths_B, monkeypatch) -> None:
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
    vectors = [both(model, ids_BL, ROW_LENGTHS)[0]]
    for index in range(len(dropouts(last_layer(model)))):
        other = copy.deepcopy(model)
        for module in dropouts(other):
            module.p = 0.3
        for place, module in enumerate(dropouts(last_layer(other))):
            module.p = float(place == index)
        found, expected = both(other, ids_BL, ROW_LENGTHS)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        assert all((found - before).abs().max() > 0.01 for before in vectors)
        vectors.append(found)
    assert len(vectors) == 1 + (3 if variant == "bert" else 2)
    model.eval()
    found, expected = both(model, ids_BL, ROW_LENGTHS)
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
        found_BD = backbone.first(some_ids(), ROW_LENGTHS, side)
        torch.testing.assert_close(found_BD, backbone.hidden(some_ids(), ROW_LENGTHS, side)[:, 0], rtol=1e-4, atol=1e-5)
    assert list(backbone.state_dict()) == names
    with pytest.raises(UserError, match="at most"):
        backbone.first(torch.ones(1, 200, dtype=torch.long), torch.tensor([200]))
