"""CoT-MoTE against the slow reference, for all kinds of experts, views and targets; and who is routed where."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from midmask.batch import Batch, TokenRows
from midmask.encoders.backbone import BackboneConfig, Side, build_backbone
from midmask.errors import UserError
from midmask.identity import override
from midmask.objectives import build_objective
from midmask.objectives.pretraining.cotmote import CoTMoTE
from midmask.randomness.masks import row_keys
from tests.support.objectives.checks import assert_equals, places
from tests.support.objectives.reference import Reference, Vectors, assert_same_gradients
from tests.support.objectives.texts import UNK, random_texts, small_vocabulary, token_rows

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


def objective(backbone: dict[str, Any] | None = None, *, drift: bool = True, **fields: object) -> CoTMoTE:
    """In float64, with experts that have already drifted apart."""
    vocabulary = small_vocabulary()
    config = BackboneConfig(name="tiny", dropout=0.0, **(backbone or {}))
    made = build_backbone(config, vocabulary, seed=3)
    built = build_objective(override(CoTMoTE.Config(), fields), made, vocabulary, seed=5).double()
    assert isinstance(built, CoTMoTE)
    if made.experts is not None and drift:
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for weight in made.experts.parameters():
                weight += 0.05 * torch.randn(weight.shape, generator=generator)
    return built


def batch(passages: TokenRows | None = None, queries: TokenRows | None = None) -> Batch:
    return Batch(0, {"passage": passages or token_rows(PASSAGES), "context": queries or query_rows(QUERIES)})


def query_rows(texts: list[list[int]]) -> TokenRows:
    return token_rows(texts, keys=row_keys(7, 0, np.arange(100, 100 + len(texts))))


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


def decoded(config: CoTMoTE.Config, reference: Reference, vectors: Vectors, span: list[int]) -> list[Tensor]:
    """The surprise of each token after the first; the last of the vectors foretells the second token."""
    states = reference.causal_decoder(
        "causal_decoder",
        [*vectors, *reference.embed(span)[1:]],
        layers=config.decoder_layers,
        window=config.window,
        vectors=len(vectors),
    )
    return [
        reference.surprise(state, token) for state, token in zip(states[len(vectors) - 1 :], span[1:], strict=False)
    ]


def reference_terms(cotmote: CoTMoTE, reference: Routed, drawn: Any) -> dict[str, list[Tensor]]:
    config, terms = cotmote.config, {name: [] for name in cotmote.parts}
    texts = {"passage": token_rows(PASSAGES), "query": query_rows(QUERIES)}
    spans = {"passage": QUERIES, "query": {"query": QUERIES, "passage": PASSAGES}.get(config.query_decodes)}
    for side in ("passage", "query"):
        text, rows = texts[side], getattr(drawn, side)
        expert = {"passage": "query", "query": "passage"}[side] if config.switched else side
        width = text.ids_BL.shape[1]
        for row, length in enumerate(text.lengths_B.tolist()):
            true = text.ids_BL[row, :length].tolist()
            states = reference.encode_side(rows.encoder.ids_BL[row, :length].tolist(), expert)
            terms[f"{side}_mlm"] += [
                reference.surprise(states[i], true[i]) for i in places(rows.encoder.rows_R, row, width)
            ]
            if spans[side] is not None:
                passes = [
                    decoded(config, reference, vectors, [2, *spans[side][row], 3])
                    for vectors in views_of(config, reference, states, true)
                ]
                terms[f"{side}_clm"] += [sum(values) for values in zip(*passes, strict=True)]
    return terms


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    backbone, fields = VARIANTS[variant]
    cotmote = objective(backbone, **fields)
    drawn = cotmote.draw(batch())
    reference = Routed(cotmote, heads=2, layers=2, pad_id=0)
    assert_equals(cotmote, drawn, reference_terms(cotmote, reference, drawn))
    weights = {"mlm": cotmote.config.encoder_weight, "clm": cotmote.config.decoder_weight}
    assert all(part.weight == weights[name[-3:]] for name, part in cotmote(drawn).parts.items())
    assert_same_gradients(cotmote, reference)


def test_at_the_start_experts_change_nothing() -> None:
    plain, *split = (objective({"experts": kind}, drift=False) for kind in ("none", "ffn", "all"))
    drawn = plain.draw(batch())
    losses = [cotmote(drawn).parts for cotmote in (plain, *split)]
    for name, part in losses[0].items():
        assert all(torch.equal(part.total, other[name].total) for other in losses[1:]), name


@pytest.mark.parametrize(("switched", "side"), [(False, "query"), (True, "passage")])
def test_switching_exchanges_the_experts(switched: bool, side: str) -> None:
    """Only the texts of one side, and what is decoded from them, notice the query expert."""
    cotmote = objective({"experts": "ffn"}, switched=switched)
    drawn = cotmote.draw(batch())
    before = cotmote(drawn).parts
    assert cotmote.backbone.experts is not None
    with torch.no_grad():
        for weight in cotmote.backbone.experts.parameters():
            weight *= 1.1
    changed = {name for name, part in cotmote(drawn).parts.items() if not torch.equal(part.total, before[name].total)}
    assert changed == {f"{side}_mlm", f"{side}_clm"}


@pytest.mark.parametrize("fields", [{}, {"decoding": "together", "query_decodes": "passage"}], ids=str)
def test_sums_do_not_depend_on_how_a_batch_is_cut(fields: dict[str, Any]) -> None:
    cotmote = objective({"experts": "ffn"}, **fields)
    whole = cotmote(cotmote.draw(batch()))
    pieces = []
    for row in range(len(PASSAGES)):
        together = (token_rows(PASSAGES), query_rows(QUERIES))
        alone = (one_row(rows, row, int(rows.lengths_B[row])) for rows in together)
        pieces.append(cotmote(cotmote.draw(batch(*alone))).parts)
    for name, part in whole.parts.items():
        assert sum(piece[name].count for piece in pieces) == part.count
        torch.testing.assert_close(sum(piece[name].total for piece in pieces), part.total, rtol=1e-9, atol=1e-9)


def one_row(rows: TokenRows, row: int, length: int) -> TokenRows:
    part = slice(row, row + 1)
    return TokenRows(rows.ids_BL[part, :length], rows.lengths_B[part], rows.keys_B[part])


@pytest.mark.parametrize("fields", [{}, {"pooling": "text", "projection": "mean", "query_decodes": "passage"}], ids=str)
@pytest.mark.parametrize("length", [0, 1, 2])
def test_the_shortest_texts_give_finite_gradients(length: int, fields: dict[str, Any]) -> None:
    cotmote = objective({"experts": "ffn"}, **fields)
    short = token_rows(random_texts([length, 6]))
    drawn = cotmote.draw(batch(short, short))
    assert all(bool(value.isfinite()) for value in cotmote.health(drawn).values())
    cotmote(drawn).total(cotmote.counts(drawn)).backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in cotmote.parameters())


def test_health_tells_experts_and_vectors_apart() -> None:
    cotmote = objective({"experts": "ffn"}).eval()
    with torch.no_grad():
        drawn = cotmote.draw(batch())
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
        names = set(siamese.health(siamese.draw(batch())))
    assert names == {"passage_dense_decoder_loss", "passage_dense_decoder_loss_without_vector"}


def test_three_tenths_of_either_text_without_its_specials_are_hidden() -> None:
    drawn = objective().draw(batch(token_rows(random_texts([40, 20])), query_rows(random_texts([10, 10], seed=1))))
    assert [int(rows.encoder.count) for _, rows in drawn.sides] == [12 + 6, 3 + 3]


def test_only_the_decoder_is_thrown_away() -> None:
    cotmote = objective({"experts": "ffn"})
    assert set(cotmote.heads_state()) == {f"causal_decoder.{name}" for name in cotmote.causal_decoder.state_dict()}


def test_impossible_values_are_refused_by_name() -> None:
    for field, value in (("views", "neither"), ("query_decodes", "both"), ("decoder_layers", 0), ("window", 0)):
        with pytest.raises(UserError, match=rf"{field} = {value!r}"):
            override(CoTMoTE.Config(), {field: value})
    with pytest.raises(UserError, match="encoder_mask = weighted: pseudo-queries have no term weights"):
        override(CoTMoTE.Config(), {"encoder_mask": "weighted"})
