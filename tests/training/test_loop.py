"""The loop in one process, step by step, against the same steps written out; schedule and update by formula.

The gradient cache: the same gradients, in less memory.
"""

import math
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from midmask.core.batch import Batch, Loss, Part
from midmask.core.torch_randomness import dropout_seed
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.objectives import PRETRAINING, CoupledObjective, Objective, build_objective
from midmask.training.batches import ReadCounts, StepBatches
from midmask.training.loop import accumulate, is_cut, optimise, prepare_model, to_device, values_of
from midmask.training.optimiser import TrainConfig, build_optimiser, learning_rate, update
from tests.support.objectives.texts import random_texts, small_vocabulary, token_rows
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

CPU = torch.device("cpu")
LENGTHS = [9, 14, 5, 11]
LOOP_TEXTS = ("passage", "context")


def objective(name: str = "mlm", *, dropout: float = 0.2, **fields: Any) -> Objective:
    vocabulary = small_vocabulary()
    backbone = build_backbone(BackboneConfig(name="tiny", dropout=dropout), vocabulary, seed=3)
    return build_objective(PRETRAINING[name].Config(**fields), backbone, vocabulary, seed=5).double()


def masked_batch(seed: int, lengths: list[int] = LENGTHS) -> Batch:
    return Batch(0, {name: token_rows(random_texts(lengths, seed=seed + at)) for at, name in enumerate(LOOP_TEXTS)})


def train_config(**fields: Any) -> TrainConfig:
    return TrainConfig(**{"steps": 8, "batch_size": 8, "learning_rate": 1e-3, "precision": "fp32", **fields})


@pytest.fixture
def two_workers() -> Iterator[None]:
    """This process as worker 0 of two; torch's own stand-in for a backend leaves every tensor as it is."""
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield
    dist.destroy_process_group()


def test_steps_are_those_of_the_same_training_written_out():
    """Losses, counts, norms, rates and weights; dropout is on, and is a function of the step."""
    settings, steps = train_config(seed=9), (3, 4, 6)
    work = {
        step: StepBatches(
            step, [masked_batch(10 * step), masked_batch(10 * step + 5, [4, 13])], ReadCounts(50 + step, 60, 7 * step)
        )
        for step in steps
    }
    own, other = objective(), objective()
    optimiser = build_optimiser(own, settings)
    records = list(optimise(prepare_model(own), own, optimiser, settings, iter(work.values()), CPU))
    slow = build_optimiser(other, settings)
    for step, record in zip(steps, records, strict=True):
        torch.manual_seed(dropout_seed(9, step, 0))
        drawn = [other.draw(each) for each in work[step].micro]
        count = sum(int(other.counts(each)["mlm"]) for each in drawn)
        total = torch.zeros(())
        for each in drawn:
            part = other(each).parts["mlm"].total / count
            part.backward()
            total = total + part.detach()
        norms = update(other, slow, settings, step)
        assert (record.step, record.first) == (step, step == 3)
        assert record.counts.tolist() == [count, 50 + step, 60, 7 * step]
        assert record.sums.tolist() == pytest.approx([float(total), float(total) * count], rel=1e-6)
        assert record.gradient_norms.tolist() == pytest.approx(norms.tolist(), rel=1e-6)
        assert record.learning_rate == learning_rate(settings, step)
    for (name, one), (_, two) in zip(own.named_parameters(), other.named_parameters(), strict=True):
        torch.testing.assert_close(one, two, msg=name)


def test_a_part_that_a_loss_lacks_counts_nothing():
    counts = {"one": torch.tensor(4.0), "two": torch.tensor(2.0)}
    found = values_of(Loss({"two": Part(torch.tensor(6.0, requires_grad=True), counts["two"], 0.5)}), counts)
    assert found.tolist() == [1.5, 0.0, 6.0] and found.dtype == torch.float64 and not found.requires_grad
    assert values_of(Loss({}), counts).tolist() == [0.0, 0.0, 0.0]


def test_losses_are_computed_in_the_wanted_precision():
    """To the last bit what autocast gives; float32 gives something else."""
    own, found = objective(dropout=0.0).float(), {}
    drawn = own.draw(masked_batch(1))
    for precision in ("fp32", "bf16"):
        sums, counts = accumulate(prepare_model(own), own, train_config(precision=precision), [masked_batch(1)], ())
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            expected = own(drawn).total({"mlm": counts[0].float()})
        assert float(sums[0]) == float(expected.detach())
        found[precision] = float(sums[0])
    assert found["fp32"] != found["bf16"]


@pytest.mark.parametrize(
    ("batch_size", "micro_batch", "alone", "of_two"),
    [(8, None, False, False), (8, 8, False, False), (8, 7, True, False), (8, 4, True, False), (9, 4, True, True)],
)
def test_a_step_is_cut_if_the_largest_share_is(batch_size, micro_batch, alone, of_two, request):
    settings = train_config(batch_size=batch_size, micro_batch=micro_batch)
    assert is_cut(settings) == alone
    request.getfixturevalue("two_workers")
    assert is_cut(settings) == of_two


def averaged_with_nothing(state: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """The mean of this worker's gradient and that of another one which has none."""
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer() / 2)
    return done


def test_gradients_are_summed_over_workers_and_exchanged_once_a_step(two_workers):
    """Torch averages them, so each worker's are multiplied before; only the last micro-batch exchanges."""
    own = objective(dropout=0.0)
    model = prepare_model(own)
    assert isinstance(model, DistributedDataParallel)
    model.register_comm_hook(None, averaged_with_nothing)
    exchanged: list[bool] = []
    model.module.register_forward_pre_hook(lambda module, inputs: exchanged.append(model.require_backward_grad_sync))
    batches = [masked_batch(seed) for seed in (1, 2, 3)]
    _, counts = accumulate(model, own, train_config(), batches, ())
    assert exchanged == [False, False, True]
    found = gradients(own)
    torch.stack([own(own.draw(each)).parts["mlm"].total for each in batches]).sum().backward()
    for name, gradient in gradients(own).items():
        torch.testing.assert_close(found[name], gradient / counts[0], msg=name)


def test_all_of_a_batch_is_moved_and_nothing_is_made_up():
    rows = token_rows(random_texts([3, 4]))
    weighted = type(rows)(rows.ids_BL, rows.lengths_B, rows.keys_B, torch.rand(rows.ids_BL.shape))
    meta = torch.device("meta")
    moved = to_device(Batch(4, {"query": rows, "passage": weighted}, 2, 0.5, torch.rand(1, 2)), meta)
    assert (moved.step, moved.group, moved.progress, list(moved.texts)) == (4, 2, 0.5, ["query", "passage"])
    own = moved.texts["passage"]
    for tensor in (own.ids_BL, own.lengths_B, own.keys_B, own.weights_BL, moved.teacher):
        assert tensor.device == meta
    moved = to_device(Batch(0, {"query": rows}), meta)
    assert moved.teacher is None and moved.texts["query"].weights_BL is None


def test_the_rate_rises_stays_and_falls():
    settings = train_config(steps=100, learning_rate=0.01, warmup=0.1, decay=0.2)
    rates = [learning_rate(settings, step) / 0.01 for step in range(100)]
    assert rates[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert rates[10:81] == [1.0] * 71
    assert rates[80:] == pytest.approx([(100 - step) / 20 for step in range(80, 100)])


def test_an_update_is_adamw_with_a_clipped_gradient():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2)).double()
    settings = train_config(steps=100, learning_rate=0.01, warmup=0.0, decay=0.0, weight_decay=0.1, clip_norm=0.5)
    expected = {name: value.detach().clone() for name, value in module.named_parameters()}
    moments = {name: (torch.zeros_like(value), torch.zeros_like(value)) for name, value in expected.items()}
    optimiser = build_optimiser(module, settings)
    for step in range(4):
        module(torch.randn(5, 3, dtype=torch.float64)).pow(3).sum().backward()
        gradients = {name: value.grad.clone() for name, value in module.named_parameters() if value.grad is not None}
        norm = math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients.values()))
        assert float(update(module, optimiser, settings, step)[0]) == pytest.approx(norm)
        for name, gradient in gradients.items():
            clipped = gradient * min(1.0, 0.5 / (norm + 1e-6))
            first, second = moments[name]
            first, second = 0.9 * first + 0.1 * clipped, 0.999 * second + 0.001 * clipped**2
            moments[name] = (first, second)
            decay = 0.1 if expected[name].ndim == 2 else 0.0
            mean, square = first / (1 - 0.9 ** (step + 1)), second / (1 - 0.999 ** (step + 1))
            expected[name] = expected[name] * (1 - 0.01 * decay) - 0.01 * mean / (square.sqrt() + 1e-8)
        for name, value in module.named_parameters():
            torch.testing.assert_close(value.detach(), expected[name], rtol=1e-9, atol=1e-12)
            assert value.grad is None


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


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("name", SETTINGS)
def test_gradients_are_exact_with_dropout_on(name, size):
    """Of seven rows in chunks of three the last is ragged. Published coCondenser's MLM terms are means over chunks."""
    coupled = coupled_objective(name)
    batches = cut(batch(name), size)
    sums, found = trained(coupled, batches)
    total, expected = with_all_graphs_kept(coupled, batches)
    torch.testing.assert_close(sums[0], total, rtol=1e-10, atol=1e-10)
    assert_same_gradients(found, expected, 1e-10)


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
        accumulate(prepare_model(own), own, config(micro_batch), batches, ())
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
