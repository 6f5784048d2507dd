"""The gradient cache, and layers that are computed again: the same gradients, in less memory."""

import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from midmask.batch import Batch, Loss
from midmask.encoders.backbone import BackboneConfig, build_backbone, load_backbone
from midmask.errors import UserError
from midmask.estimate.counting import Row
from midmask.kept import kept_tensors
from midmask.layers import recompute_layers
from midmask.objectives import FINETUNING, PRETRAINING, CoupledObjective, Objective, build_objective
from midmask.objectives.sample import finetuning_batch, pretraining_batch, sample_vocabulary
from midmask.training.loop import accumulate, wrap_distributed
from tests.support.encoders.models import random_model
from tests.support.estimate.counted import counted
from tests.support.objectives.texts import random_texts, token_rows
from tests.support.training.cut import (
    ROWS,
    SETTINGS,
    assert_same_gradients,
    batch,
    config,
    coupled_objective,
    cut,
    gradients,
    trained,
)


def with_all_graphs_kept(
    coupled: CoupledObjective, batches: list[Batch], *, bf16: bool = False
) -> tuple[Tensor, dict[str, Tensor]]:
    """The same micro-batches with the same dropout, one loss over all and one backward pass; no cache. Terms in which
    no rows meet go on with the random numbers behind the vectors; the next micro-batch's vectors begin there too."""
    torch.manual_seed(11)
    drawn = [coupled.draw(each) for each in batches]
    counts = {name: sum(coupled.counts(each)[name] for each in drawn) for name in coupled.parts}
    rows, alone = [], []
    for each in drawn:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            rows.append(coupled.represent(each))
            behind = torch.get_rng_state()
            alone.append(Loss(rows[-1].parts()))
            torch.set_rng_state(behind)
    vectors = tuple(torch.cat(pieces) for pieces in zip(*(row.vectors for row in rows), strict=True))
    facts = tuple(torch.cat(pieces) for pieces in zip(*(row.facts for row in rows), strict=True))
    losses = [Loss(coupled.couple(vectors, facts)), *(loss for loss in alone if loss.parts)]
    total = torch.stack([loss.total(counts) for loss in losses]).sum()
    total.backward()
    return total.detach(), gradients(coupled)


@pytest.mark.parametrize("name", SETTINGS)
def test_gradients_are_exact_with_dropout_on(name):
    """Seven rows in chunks of three: the last is ragged."""
    coupled = coupled_objective(name)
    batches = cut(batch(name), 3)
    sums, found = trained(coupled, batches)
    total, expected = with_all_graphs_kept(coupled, batches)
    torch.testing.assert_close(sums[0], total, rtol=1e-10, atol=1e-10)
    assert_same_gradients(found, expected, 1e-10)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_size_of_chunks_changes_neither_a_loss_nor_a_gradient(name):
    """Dropout off. The published coCondenser lacks this: its MLM terms are means over chunks."""
    coupled = coupled_objective(name).eval()
    sums, expected = trained(coupled, [batch(name)])
    for size in (1, 2, 3, 6):
        other_sums, found = trained(coupled, cut(batch(name), size))
        torch.testing.assert_close(other_sums, sums, rtol=1e-9, atol=1e-9)
        assert_same_gradients(found, expected, 1e-9)


def test_in_bf16_nothing_is_rounded_that_need_not_be():
    """Cached against kept graphs, both with bf16 products: equal but for the order of sums in float32. Against float32:
    within bf16's precision, 2**-8, of the largest gradient."""
    coupled = coupled_objective("cocondenser").float()
    batches = cut(batch("cocondenser"), 3)
    sums, found = trained(coupled, batches, precision="bf16")
    total, expected = with_all_graphs_kept(coupled, batches, bf16=True)
    torch.testing.assert_close(sums[0].float(), total, rtol=1e-6, atol=1e-6)
    assert_same_gradients(found, expected, 2e-6)
    _, exact = trained(coupled, batches)
    for name, gradient in found.items():
        assert (gradient - exact[name]).abs().max() < 5 * 2**-8 * exact[name].abs().max().clamp(min=1e-3), name


def test_a_text_is_read_twice_only_where_a_batch_is_cut():
    """Asked for or not, and in one piece where another worker has more."""
    own, reads, whole = coupled_objective("cocondenser"), [], batch("cocondenser")
    embedding = next(layer for layer in own.modules() if isinstance(layer, torch.nn.Embedding))
    embedding.register_forward_pre_hook(lambda _, inputs: reads.append(len(inputs[0])))
    few = cut(whole, 3)
    for batches, micro_batch, times in (([whole], None, 1), (few, 3, 2), (few, None, 2), ([whole], 4, 2)):
        reads.clear()
        accumulate(wrap_distributed(own), own, config(micro_batch), batches, ())
        assert sum(reads) == times * 2 * ROWS


class Saved:
    """A tensor that a graph keeps for its backward pass."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def most_saved(coupled: CoupledObjective, batches: list[Batch]) -> int:
    """Bytes that graphs keep at the worst moment of a step, parameters apart."""
    own, alive, sizes = {one.data_ptr() for one in coupled.parameters()}, weakref.WeakSet[Saved](), []

    def keep(tensor: Tensor) -> Saved:
        alive.add(saved := Saved(tensor))
        sizes.append(sum(one.tensor.nbytes for one in alive if one.tensor.data_ptr() not in own))
        return saved

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved.tensor):
        trained(coupled, batches)
    return max(sizes)


def test_memory_falls_with_the_chunk():
    """What graphs keep for one row of seven is less than a third of what they keep for all."""
    coupled = coupled_objective("simcse")
    same = Batch(0, {"passage": token_rows(random_texts([12] * ROWS))})
    whole, three, one = (most_saved(coupled, cut(same, size)) for size in (ROWS, 3, 1))
    assert one < whole / 3 and one < three < 0.6 * whole


WORDS = sample_vocabulary(300)
TEXTS, LENGTH = 4, 24


def built(method: str, **encoder: Any) -> tuple[Objective, Any]:
    """An objective on a small encoder with dropout, and a batch for it."""
    config = {**PRETRAINING, **FINETUNING}[method].Config()
    backbone = build_backbone(BackboneConfig(**{"name": "mini", "dropout": 0.1, **encoder}), WORDS, seed=0)
    objective = build_objective(config, backbone, WORDS, seed=0).train()
    if method in FINETUNING:
        return objective, finetuning_batch(WORDS, queries=TEXTS, group=2, query=8, passage=LENGTH)
    return objective, pretraining_batch(config, WORDS, rows=TEXTS, length=LENGTH)


def stepped(objective: Objective, batch: Any) -> tuple[dict[str, torch.Tensor], int]:
    """After one step, and the bytes that the forward pass kept for it."""
    torch.manual_seed(1)
    drawn = objective.draw(batch)
    state = torch.get_rng_state()
    objective(drawn).total(objective.counts(drawn)).backward()
    torch.set_rng_state(state)
    with kept_tensors(objective) as kept:
        objective(drawn).total(objective.counts(drawn))
    return {name: weight.grad for name, weight in objective.named_parameters() if weight.grad is not None}, kept.bytes


def kept_share(make: Callable[[], tuple[Objective, Any]]) -> float:
    """Of the bytes that are kept, those that are where layers are computed again, to the same gradients."""
    (kept_all, much), (again_all, little) = (stepped(*made) for made in (make(), again(*make())))
    assert kept_all.keys() == again_all.keys()
    for key, gradient in kept_all.items():
        assert torch.equal(gradient, again_all[key]), key
    return little / much


def again(objective: Objective, batch: Any) -> tuple[Objective, Any]:
    recompute_layers(objective.backbone)
    return objective, batch


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["retromae", "simcse", "contrastive"])
def test_layers_computed_again_give_the_same_gradients_and_keep_less(name, precision):
    with warnings.catch_warnings(), torch.autocast("cpu", precision, enabled=precision != torch.float32):
        warnings.simplefilter("error")
        assert kept_share(lambda: built(name)) < 0.75


@pytest.mark.parametrize("family", ["distilbert", "modernbert", "deberta", "deberta-v2"])
def test_layers_of_other_families_are_computed_again(family, tmp_path):
    """Their masks are not BERT's, DistilBERT's layers have another name."""
    random_model(family).save_pretrained(tmp_path)
    words, config = sample_vocabulary(40), PRETRAINING["mlm"].Config()

    def make() -> tuple[Objective, Any]:
        objective = build_objective(config, load_backbone(tmp_path, dropout=0.1), words, seed=0).train()
        return objective, pretraining_batch(config, words, rows=TEXTS, length=16)

    assert kept_share(make) < 1


def test_the_layer_that_the_backward_pass_is_in_counts_whole():
    assert 0.5 < kept_share(lambda: built("mlm", name="tiny")) < 1, "of two layers one keeps its inputs alone"


def test_an_estimate_knows_what_is_kept_and_what_is_computed_again():
    config, on = PRETRAINING["mlm"].Config(), BackboneConfig(name="mini", dropout=0.1)
    plain, again = (counted(config, Row(64), on=on, kind="cuda", recompute=recompute) for recompute in (False, True))
    assert again.kept < 0.7 * plain.kept and again.parameters == plain.parameters
    assert 1.1 * plain.row < again.row < 4 / 3 * plain.row, "one layer is kept, the others are done once more"


def test_layers_that_queries_have_for_themselves_are_not_computed_again():
    objective, _ = built("cotmote", experts="ffn")
    with pytest.raises(UserError, match=r"train\.recompute = true: queries have weights of their own"):
        recompute_layers(objective.backbone)
