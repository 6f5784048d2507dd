"""The loop in one process, step by step, against the same steps written out; schedule and update by formula."""

import hashlib
import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from midmask.batch import Batch, Loss, Part
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.objectives import PRETRAINING, Objective, build_objective
from midmask.randomness.torch_seeds import dropout_seed
from midmask.training.loop import accumulate, is_cut, run_steps, to_device, values_of, wrap_distributed
from midmask.training.optimiser import TrainConfig, build_optimiser, learning_rate, update
from midmask.training.reader import Read
from tests.support.objectives.texts import random_texts, small_vocabulary, token_rows
from tests.support.training.cut import gradients

CPU = torch.device("cpu")
LENGTHS = [9, 14, 5, 11]
TEXTS = ("passage", "context")


def objective(name: str = "mlm", *, dropout: float = 0.2, **fields: Any) -> Objective:
    vocabulary = small_vocabulary()
    backbone = build_backbone(BackboneConfig(name="tiny", dropout=dropout), vocabulary, seed=3)
    return build_objective(PRETRAINING[name].Config(**fields), backbone, vocabulary, seed=5).double()


def batch(seed: int, lengths: list[int] = LENGTHS) -> Batch:
    return Batch(0, {name: token_rows(random_texts(lengths, seed=seed + at)) for at, name in enumerate(TEXTS)})


def config(**fields: Any) -> TrainConfig:
    return TrainConfig(**{"steps": 8, "batch_size": 8, "learning_rate": 1e-3, "precision": "fp32", **fields})


@pytest.fixture
def two_workers() -> Iterator[None]:
    """This process as worker 0 of two; torch's own stand-in for a backend leaves every tensor as it is."""
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield
    dist.destroy_process_group()


def test_the_seed_of_dropout_differs_for_every_seed_step_and_worker():
    places = list(product(range(4), (0, 1, 2, 11, 111), (0, 1, 2, 11)))
    seeds = {place: dropout_seed(*place) for place in places}
    assert len(set(seeds.values())) == len(places) and all(0 <= seed < 2**63 for seed in seeds.values())
    assert seeds[3, 111, 2] == int(hashlib.sha256(b"dropout/3/111/2").hexdigest()[:16], 16) // 2


def test_steps_are_those_of_the_same_training_written_out():
    """Losses, counts, norms, rates and weights; dropout is on, and is a function of the step."""
    settings, steps = config(seed=9), (3, 4, 6)
    reads = {
        step: Read(step, [batch(10 * step), batch(10 * step + 5, [4, 13])], 50 + step, 60, 7 * step) for step in steps
    }
    own, other = objective(), objective()
    optimiser = build_optimiser(own, settings)
    records = list(run_steps(wrap_distributed(own), own, optimiser, settings, iter(reads.values()), CPU))
    slow = build_optimiser(other, settings)
    for step, record in zip(steps, records, strict=True):
        torch.manual_seed(dropout_seed(9, step, 0))
        drawn = [other.draw(each) for each in reads[step].micro]
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
    drawn = own.draw(batch(1))
    for precision in ("fp32", "bf16"):
        sums, counts = accumulate(wrap_distributed(own), own, config(precision=precision), [batch(1)], ())
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
    settings = config(batch_size=batch_size, micro_batch=micro_batch)
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
    model = wrap_distributed(own)
    assert isinstance(model, DistributedDataParallel)
    model.register_comm_hook(None, averaged_with_nothing)
    exchanged: list[bool] = []
    model.module.register_forward_pre_hook(lambda module, inputs: exchanged.append(model.require_backward_grad_sync))
    batches = [batch(seed) for seed in (1, 2, 3)]
    _, counts = accumulate(model, own, config(), batches, ())
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
    for tensor in (own.ids_BL, own.lengths_B, own.keys_B, own.weights_BL, moved.teacher_QG):
        assert tensor.device == meta
    moved = to_device(Batch(0, {"query": rows}), meta)
    assert moved.teacher_QG is None and moved.texts["query"].weights_BL is None


def test_the_rate_rises_stays_and_falls():
    settings = config(steps=100, learning_rate=0.01, warmup=0.1, decay=0.2)
    rates = [learning_rate(settings, step) / 0.01 for step in range(100)]
    assert rates[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert rates[10:81] == [1.0] * 71
    assert rates[80:] == pytest.approx([(100 - step) / 20 for step in range(80, 100)])


def test_an_update_is_adamw_with_a_clipped_gradient():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2)).double()
    settings = config(steps=100, learning_rate=0.01, warmup=0.0, decay=0.0, weight_decay=0.1, clip_norm=0.5)
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
