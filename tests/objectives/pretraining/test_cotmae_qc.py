"""Query as context against the slow reference; which token predicts which, and what it sees."""

from typing import Any

import numpy as np
import pytest
import torch

from midmask.batch import Batch
from midmask.errors import UserError
from midmask.identity import override
from midmask.objectives.pretraining.cotmae_qc import QueryAsContext
from midmask.randomness.masks import row_keys
from tests.support.objectives import two_sided
from tests.support.objectives.reference import Reference, Vectors
from tests.support.objectives.texts import CLS, SEP, UNK, random_texts, token_rows

VARIANTS: dict[str, dict[str, Any]] = {
    "published": {},
    "two blocks": {"decoder_layers": 2, "decoder_weight": 0.7},
    "no window": {"window": None, "encoder_weight": 0.3},
}


def objective(**fields: Any) -> QueryAsContext:
    built = two_sided.build(QueryAsContext.Config(), fields)
    assert isinstance(built, QueryAsContext)
    return built


def pairs(passages: list[list[int]], queries: list[list[int]]) -> Batch:
    keys = row_keys(7, 0, np.arange(100, 100 + len(queries)))
    return Batch(0, {"passage": token_rows(passages), "context": token_rows(queries, keys=keys)})


def batch(seed: int = 1) -> Batch:
    return pairs([*random_texts([8, 4, 6]), [UNK, 9, UNK, 12]], random_texts([5, 7, 1, 3], seed=seed))


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    method, read = objective(**VARIANTS[variant]), batch()
    config, drawn = method.config, method.draw(batch())
    reference = Reference(method, heads=2, layers=2, pad_id=0)
    encoder: Vectors = []
    decoder: Vectors = []
    for row in range(4):
        passage, query = (two_sided.ids(read.texts[name], row) for name in ("passage", "context"))
        states = reference.encode(two_sided.ids(drawn.encoder, row))
        encoder += two_sided.surprises(reference, states, drawn.encoder, row, passage)
        decoded = reference.causal_decoder(
            "causal_decoder",
            [states[0], *reference.embed(query)[1:]],
            layers=config.decoder_layers,
            window=config.window,
            vectors=1,
        )
        decoder += [reference.surprise(decoded[i], query[i + 1]) for i in range(len(query) - 1)]
    expected = {"encoder_mlm": (config.encoder_weight, encoder), "decoder_clm": (config.decoder_weight, decoder)}
    two_sided.assert_equal(method, drawn, reference, expected)


def test_each_token_predicts_the_next_and_the_query_is_not_masked() -> None:
    drawn = objective().draw(pairs([[7, 8, 9]] * 2, [[21, 22, 23], [24]]))
    assert drawn.decoder.ids_BL.tolist() == [[CLS, 21, 22, 23, SEP], [CLS, 24, SEP, 0, 0]]
    assert drawn.decoder.rows_R.tolist() == [0, 1, 2, 3, 5, 6]
    assert drawn.decoder.labels_R.tolist() == [21, 22, 23, SEP, 24, SEP]


def test_the_encoder_reads_no_query() -> None:
    method = objective()
    one, other = (method(method.draw(batch(seed))) for seed in (1, 2))
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
    drawn = objective().draw(pairs([[9] * 100, [9] * 50, [9] * 5], [[7]] * 3))
    assert drawn.encoder.selected_BL.sum(1).tolist() == [30, 15, 2]  # 31, 16 and 2 with specials


def test_sums_do_not_depend_on_how_a_batch_is_cut() -> None:
    two_sided.assert_sums_survive_cutting(objective(), batch())


@pytest.mark.parametrize("length", [0, 1, 2])
def test_the_shortest_texts_give_finite_gradients(length: int) -> None:
    two_sided.assert_finite(objective(), pairs(random_texts([length, 6]), random_texts([3, length])))


def test_health_compares_with_and_without_the_vector() -> None:
    two_sided.assert_health_compares(objective(), batch(), {"decoder_loss": "decoder_clm"})


def test_it_reads_pseudo_queries_and_refuses_an_empty_window() -> None:
    assert QueryAsContext.Config().reads().rows == "pseudo_queries"
    assert override(QueryAsContext.Config(), {"encoder_mask": "weighted"}).reads().term_weights
    with pytest.raises(UserError, match="window = 0"):
        override(QueryAsContext.Config(), {"window": 0})
