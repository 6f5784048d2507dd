"""What a method cannot do on a backbone is said before anything runs, from the config of the backbone alone."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoConfig

from midmask.encoders.experts import FILE
from midmask.errors import UserError
from midmask.experiment.plan import plan
from midmask.experiment.schema import Recipe
from midmask.identity import override
from midmask.recipes import RECIPES


def on(folder: Path, family: str, **fields: object) -> Recipe:
    """RetroMAE on a folder with a config and no weights at all."""
    AutoConfig.for_model(family, **fields).save_pretrained(folder)
    return override(RECIPES["retromae"](), {"backbone.name": str(folder)})


@pytest.mark.parametrize(
    ("family", "fields", "lack"),
    [
        ("modernbert", {}, "no table of positions"),
        ("deberta-v2", {"position_biased_input": False}, "no table of positions"),
        ("electra", {"embedding_size": 16, "hidden_size": 32}, "embeddings 16 wide"),
    ],
)
def test_a_stream_that_the_backbone_cannot_embed_is_refused(
    family: str, fields: dict[str, object], lack: str, tmp_path: Path
) -> None:
    recipe = on(tmp_path, family, **fields)
    recipe.check()
    asked = override(recipe, {"objective.query_stream": "embedding"})
    with pytest.raises(UserError, match=rf"objective.query_stream = embedding: a {family} backbone has {lack}.*=paper"):
        asked.check()


def test_rows_beyond_the_backbones_positions_are_refused(tmp_path: Path) -> None:
    recipe = on(tmp_path, "roberta", max_position_embeddings=50, pad_token_id=1)
    override(recipe, {"tokens.max_length": 48}).check()
    with pytest.raises(UserError, match=r"tokens.max_length = 49: the backbone takes at most 48 tokens"):
        override(recipe, {"tokens.max_length": 49}).check()


def test_a_query_expert_that_would_stay_behind_is_refused(tmp_path: Path) -> None:
    AutoConfig.for_model("bert").save_pretrained(tmp_path)
    save_file({"a.weight": torch.zeros(1)}, tmp_path / FILE, {"kind": "ffn", "norms": "false"})
    wanted = {"backbone.name": str(tmp_path), "backbone.experts": "ffn"}
    with pytest.raises(UserError, match=r"backbone\.experts = ffn: mlm sees no queries, .*experts=drop"):
        override(RECIPES["mlm"](), wanted).check()
    for recipe in ("cotmote", "none"):
        override(RECIPES[recipe](), wanted).check()


@pytest.mark.parametrize("experts", ["ffn", "all"])
def test_a_method_without_queries_trains_one_encoder_that_fine_tuning_splits(experts: str) -> None:
    divided = plan(override(RECIPES["cotmae"](), {"backbone.experts": experts}))
    whole = plan(RECIPES["cotmae"]())
    assert divided.pretrained is not None and whole.pretrained is not None
    assert divided.pretrained.fingerprint == whole.pretrained.fingerprint, "the middle training is shared"
    assert divided.stages[0].config.backbone.experts == experts
    own = plan(override(RECIPES["cotmote"](), {"backbone.experts": experts})).pretrained
    assert own is not None and own.config.backbone.experts == experts
