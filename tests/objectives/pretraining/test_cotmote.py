"""CoT-MoTE against the slow reference, for all kinds of experts, views and targets; and who is routed where."""

from typing import Any

import pytest
import torch
from torch import Tensor

from midmask.encoders.backbone import Side
from midmask.objectives.pretraining.cotmote import CoTMoTE
from tests.support.objectives.checks import assert_equal, build, ids, surprises
from tests.support.objectives.reference import Reference, Vectors
from tests.support.objectives.texts import UNK, batch, random_texts

PASSAGES = [*random_texts([8, 4, 6], seed=4), [UNK, 9, UNK, 12]]
QUERIES = random_texts([3, 5, 2, 4], seed=5)

VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ffn experts": ({"experts": "ffn"}, {}),
    "ffn experts with norms, dense": ({"experts": "ffn", "expert_norms": True}, {"views": "dense"}),
    "separate, switched, sparse": ({"experts": "all"}, {"switched": True, "views": "sparse"}),
    "Siamese, together": ({}, {"decoding": "together", "window": 2, "encoder_weight": 0.3}),
    "query decodes passage": ({"experts": "ffn"}, {"query_decodes": "passage", "decoder_weight": 0.7, "window": 3}),
    "query decodes nothing": ({"experts": "ffn"}, {"query_decodes": "nothing", "decoder_layers": 2, "views": "dense"}),
    "logits of the embeddings, text only": ({"experts": "ffn"}, {"logits": "embeddings", "pooling": "text"}),
    "mean projection": ({"experts": "all"}, {"views": "sparse", "projection": "mean", "query_decodes": "passage"}),
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


def views_of(config: CoTMoTE.Config, reference: Reference, states: Vectors, true: list[int]) -> list[Vectors]:
    """What the decoder reads before the span, once for each time it reads."""
    table = reference.bert("embeddings.word_embeddings.weight")
    rows = [i for i, token in enumerate(true) if config.pooling == "all" or token in (UNK, *range(6, 60))]
    logits = [reference.logits(states[i]) if config.logits == "head" else table @ states[i] for i in rows]
    weights = torch.log(1 + torch.relu(torch.stack(logits))).max(0).values
    if config.projection == "mean":
        weights = weights / weights.sum()
    sparse = sum(weights[v] * table[v] for v in range(len(table)))
    dense = states[0]
    if config.views != "both":
        return [[dense] if config.views == "dense" else [sparse]]
    return [[dense, sparse]] if config.decoding == "together" else [[dense], [sparse]]


def reference_terms(cotmote: CoTMoTE, reference: Routed, drawn: Any) -> dict[str, list[Tensor]]:
    config, terms = cotmote.config, {name: [] for name in cotmote.parts}
    texts = {"passage": READ.texts["passage"], "query": READ.texts["context"]}
    spans = {"passage": texts["query"], "query": texts.get(config.query_decodes)}
    for side in ("passage", "query"):
        rows = getattr(drawn, side)
        expert = {"passage": "query", "query": "passage"}[side] if config.switched else side
        for row in range(4):
            true = ids(texts[side], row)
            states = reference.encode_side(ids(rows.encoder, row), expert)
            terms[f"{side}_mlm"] += surprises(reference, states, rows.encoder, row, true)
            if spans[side] is not None:
                span, layers = ids(spans[side], row), config.decoder_layers
                views = views_of(config, reference, states, true)
                passes = [reference.written(vectors, span, layers, config.window) for vectors in views]
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


@pytest.mark.parametrize(("switched", "side"), [(False, "query"), (True, "passage")])
def test_switching_exchanges_the_experts(switched: bool, side: str) -> None:
    """Only the texts of one side, and what is decoded from them, notice the query expert."""
    cotmote = objective({"experts": "ffn"}, switched=switched)
    drawn = cotmote.draw(READ)
    before = cotmote(drawn).parts
    assert cotmote.backbone.experts is not None
    with torch.no_grad():
        for weight in cotmote.backbone.experts.parameters():
            weight *= 1.1
    changed = {name for name, part in cotmote(drawn).parts.items() if not torch.equal(part.total, before[name].total)}
    assert changed == {f"{side}_mlm", f"{side}_clm"}


def test_health_tells_experts_and_vectors_apart() -> None:
    cotmote = objective({"experts": "ffn"}).eval()
    with torch.no_grad():
        drawn = cotmote.draw(READ)
        health = {name: float(value) for name, value in cotmote.health(drawn).items()}
        parts = cotmote(drawn).parts
        assert health["query_expert_share"] == pytest.approx(22 / (22 + 30))
        switched = objective({"experts": "ffn"}, switched=True).eval()
        assert float(switched.health(drawn)["query_expert_share"]) == pytest.approx(30 / (22 + 30))
    for side in ("passage", "query"):
        views = [health[f"{side}_{view}_decoder_loss"] for view in ("dense", "sparse")]
        part = parts[f"{side}_clm"]
        assert sum(views) == pytest.approx(float(part.total / part.count))
        for view, found in zip(("dense", "sparse"), views, strict=True):
            assert health[f"{side}_{view}_decoder_loss_without_vector"] != pytest.approx(found, rel=1e-6)
    assert health["expert_distance"] > 0 and 0 <= health["winning_vocabulary"] <= 1
    siamese = objective(views="dense", query_decodes="nothing").eval()
    with torch.no_grad():
        names = set(siamese.health(siamese.draw(READ)))
    assert names == {"passage_dense_decoder_loss", "passage_dense_decoder_loss_without_vector"}


def test_three_tenths_of_either_text_without_its_specials_are_hidden() -> None:
    drawn = objective().draw(batch(random_texts([40, 20]), random_texts([10, 10], seed=1)))
    assert [int(rows.encoder.count) for _, rows in drawn.sides] == [12 + 6, 3 + 3]
