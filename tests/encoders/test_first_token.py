"""The last layer done for [CLS] alone, against the whole model."""

import copy

import pytest
import torch

from midmask.encoders.first_token import FirstToken
from tests.encoders.conftest import VARIANTS, random_model


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_first_token_is_that_of_the_whole_model_where_the_layers_are_berts(variant: str):
    model = random_model(variant).base_model.double()
    suits = variant.partition(",")[0] in ("bert", "roberta", "distilbert", "electra")
    assert FirstToken.suits(model) == suits
    if not suits:
        return
    ids = torch.randint(5, 40, (5, 13), generator=torch.Generator().manual_seed(0))
    seen = torch.arange(13) < torch.tensor([13, 4, 1, 9, 13])[:, None]
    ids[~seen] = 0
    with torch.inference_mode():
        expected = model(input_ids=ids, attention_mask=seen.long()).last_hidden_state[:, 0]
        found = FirstToken(copy.deepcopy(model))(ids, seen)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_another_activation_is_left_to_transformers():
    model = random_model("bert").base_model
    model.config.hidden_act = "relu"
    assert not FirstToken.suits(model)
