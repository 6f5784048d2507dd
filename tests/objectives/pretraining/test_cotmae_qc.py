"""Query as context against the slow reference; which token predicts which, and what it sees."""

from functools import partial
from typing import Any

import pytest
import torch

from midmask.errors import UserError
from midmask.identity import override
from midmask.objectives.pretraining.cotmae_qc import QueryAsContext
from tests.support.objectives.checks import assert_equal, build, ids, reference_of, surprises
from tests.support.objectives.reference import Vectors
from tests.support.objectives.texts import CLS, SEP, TEXTS, batch, random_texts, token_rows

VARIANTS: dict[str, dict[str, Any]] = {
    "published": {},
    "two blocks": {"decoder_layers": 2, "decoder_weight": 0.7},
    "no window": {"window": None, "encoder_weight": 0.3},
}


objective = partial(build, QueryAsContext)
READ = batch(TEXTS, random_texts([5, 7, 1, 3], seed=1))


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    method = objective(**VARIANTS[variant])
    config, drawn, reference = method.config, method.draw(READ), reference_of(method)
    terms: dict[str, Vectors] = {"encoder_mlm": [], "decoder_clm": []}
    for row in range(4):
        passage, query = (ids(READ.texts[name], row) for name in ("passage", "context"))
        states = reference.encode(ids(drawn.encoder, row))
        terms["encoder_mlm"] += surprises(reference, states, drawn.encoder, row, passage)
        terms["decoder_clm"] += reference.written(states[:1], query, config.decoder_layers, config.window)
    assert_equal(method, drawn, reference, terms, (config.encoder_weight, config.decoder_weight))


def test_each_token_predicts_the_next_and_the_query_is_not_masked() -> None:
    drawn = objective().draw(batch([[7, 8, 9]] * 2, [[21, 22, 23], [24]]))
    assert drawn.decoder.ids_BL.tolist() == [[CLS, 21, 22, 23, SEP], [CLS, 24, SEP, 0, 0]]
    assert drawn.decoder.rows_R.tolist() == [0, 1, 2, 3, 5, 6]
    assert drawn.decoder.labels_R.tolist() == [21, 22, 23, SEP, 24, SEP]


def test_the_encoder_reads_no_query() -> None:
    method = objective()
    one, other = (method(method.draw(batch(TEXTS, random_texts([5, 7, 1, 3], seed=seed)))) for seed in (1, 2))
    assert torch.equal(one.parts["encoder_mlm"].total, other.parts["encoder_mlm"].total)
    assert not torch.equal(one.parts["decoder_clm"].total, other.parts["decoder_clm"].total)


def test_with_a_window_of_three_a_token_helps_to_predict_the_three_after_it() -> None:
    method = objective().eval()
    query = random_texts([9], seed=4)[0]
    for place in range(9):
        changed = [*query[:place], 5 + (query[place] - 4) % 50, *query[place + 1 :]]
        states = []
        for text in (query, changed):
            ids_BL = token_rows([text]).ids_BL
            read = torch.cat([torch.ones(1, 1, 128), method.backbone.embed(ids_BL)[:, 1:]], 1)
            states.append(method.causal_decoder(read.double(), torch.tensor([11])))
        moved = (states[0] != states[1]).any(-1)[0].nonzero().flatten().tolist()
        assert moved == [i for i in range(place + 1, place + 4) if i < 11]


def test_the_encoders_quota_leaves_out_specials() -> None:
    drawn = objective().draw(batch([[9] * 100, [9] * 50, [9] * 5], [[7]] * 3))
    assert drawn.encoder.selected_BL.sum(1).tolist() == [30, 15, 2]  # 31, 16 and 2 with specials


def test_it_reads_pseudo_queries_and_refuses_an_empty_window() -> None:
    assert QueryAsContext.Config().reads().rows == "pseudo_queries"
    assert override(QueryAsContext.Config(), {"encoder_mask": "weighted"}).reads().term_weights
    with pytest.raises(UserError, match="window = 0"):
        override(QueryAsContext.Config(), {"window": 0})
