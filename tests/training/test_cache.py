"""The gradient cache: exact with dropout on, blind to how a batch is cut, over workers with unequal shares, in less
memory.
"""

import datetime
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

from midmask.batch import Batch, Loss
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.objectives import FINETUNING, PRETRAINING, CoupledObjective, build_objective
from midmask.training.loop import accumulate, wrap_distributed
from tests.support.objectives.texts import random_texts, small_vocabulary, token_rows
from tests.support.training.cut import ROWS, batch, config, cut, gradients, rows_of

SETTINGS: dict[str, dict[str, Any]] = {
    "cocondenser": {"temperature": 20.0},
    "contrastive": {"temperature": 20.0},
    "simcse": {"mlm_weight": 0.1},
    "diffcse": {"replaced_weight": 0.5},
    "ict": {"temperature": 20.0},
    "laprador": {"temperature": 20.0, "cache": 9},
    "spider": {"temperature": 20.0, "shortest_phrase": 1, "longest_window": 9},
}


def objective(name: str) -> CoupledObjective:
    vocabulary = small_vocabulary()
    backbone = build_backbone(BackboneConfig(name="tiny", dropout=0.2), vocabulary, seed=3)
    built = build_objective(
        {**PRETRAINING, **FINETUNING}[name].Config(**SETTINGS[name]), backbone, vocabulary, seed=5
    ).double()
    assert isinstance(built, CoupledObjective)
    return built


def trained(coupled: CoupledObjective, batches: list[Batch], **fields: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """The sums and gradients of a step on these micro-batches."""
    torch.manual_seed(11)
    size = max(len(b.texts["passage"].lengths_B) // b.group for b in batches)
    sums, _ = accumulate(wrap_distributed(coupled), coupled, config(size, **fields), batches, ())
    return sums, gradients(coupled)


def with_all_graphs_kept(
    coupled: CoupledObjective, batches: list[Batch], *, bf16: bool = False
) -> tuple[Tensor, dict[str, Tensor]]:
    """The same micro-batches with the same dropout, one loss over all and one backward pass; no cache.

    The terms of a micro-batch in which no rows meet go on with the random numbers behind its vectors; the next
    micro-batch's vectors begin there too.
    """
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


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor], tolerance: float) -> None:
    assert one.keys() == other.keys() and len(one) > 30
    for name, gradient in one.items():
        torch.testing.assert_close(
            gradient, other[name], rtol=tolerance, atol=tolerance, msg=lambda text, n=name: f"{n}: {text}"
        )


@pytest.mark.parametrize("name", SETTINGS)
def test_gradients_are_exact_with_dropout_on(name: str) -> None:
    """Seven rows in chunks of three: the last is ragged."""
    coupled = objective(name)
    batches = cut(batch(name), 3)
    sums, found = trained(coupled, batches)
    total, expected = with_all_graphs_kept(coupled, batches)
    torch.testing.assert_close(sums[0], total, rtol=1e-10, atol=1e-10)
    assert_same(found, expected, 1e-10)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_size_of_chunks_changes_neither_a_loss_nor_a_gradient(name: str) -> None:
    """Dropout off. The published coCondenser lacks this: its MLM terms are means over chunks."""
    coupled = objective(name).eval()
    sums, expected = trained(coupled, [batch(name)])
    for size in (1, 2, 3, 6):
        other_sums, found = trained(coupled, cut(batch(name), size))
        torch.testing.assert_close(other_sums, sums, rtol=1e-9, atol=1e-9)
        assert_same(found, expected, 1e-9)


def test_in_bf16_nothing_is_rounded_that_need_not_be() -> None:
    """Cached against kept graphs, both with bf16 products: equal but for the order of sums in float32. Against float32:
    within bf16's precision, 2**-8, of the largest gradient."""
    coupled = objective("cocondenser").float()
    batches = cut(batch("cocondenser"), 3)
    sums, found = trained(coupled, batches, precision="bf16")
    total, expected = with_all_graphs_kept(coupled, batches, bf16=True)
    torch.testing.assert_close(sums[0].float(), total, rtol=1e-6, atol=1e-6)
    assert_same(found, expected, 2e-6)
    _, exact = trained(coupled, batches)
    for name, gradient in found.items():
        assert (gradient - exact[name]).abs().max() < 5 * 2**-8 * exact[name].abs().max().clamp(min=1e-3), name


def test_the_first_pass_makes_vectors_only() -> None:
    """Condenser's head runs once a chunk."""
    coupled, calls = objective("cocondenser"), []
    coupled.head.layers.register_forward_hook(lambda *_: calls.append(torch.is_grad_enabled()))
    trained(coupled, cut(batch("cocondenser"), 3))
    assert calls == [True] * 3


class Saved:
    """A tensor that a graph keeps for its backward pass."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def most_saved(coupled: CoupledObjective, batches: list[Batch]) -> int:
    """Bytes that graphs keep at the worst moment of a step, parameters apart."""
    own = {parameter.data_ptr() for parameter in coupled.parameters()}
    now = most = 0

    def release(size: int) -> None:
        nonlocal now
        now -= size

    def keep(tensor: Tensor) -> Saved:
        nonlocal now, most
        saved = Saved(tensor)
        size = 0 if tensor.data_ptr() in own else tensor.nbytes
        weakref.finalize(saved, release, size)
        now += size
        most = max(most, now)
        return saved

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved.tensor):
        trained(coupled, batches)
    return most


def test_memory_falls_with_the_chunk() -> None:
    """What graphs keep for one row of seven is less than a third of what they keep for all."""
    coupled = objective("simcse")
    same = Batch(0, {"passage": token_rows(random_texts([12] * ROWS))})
    whole, three, one = (most_saved(coupled, cut(same, size)) for size in (ROWS, 3, 1))
    assert one < whole / 3 and one < three < 0.6 * whole


WORKERS = {"unequal": (7, 3), "equal": (6, 2), "one of them whole": (7, 4)}
"""Rows a step and a micro-batch; in the first, worker 0 has two micro-batches (3 + 1) and worker 1 has one."""


MEETING = ("cocondenser", "contrastive", "diffcse")
"""The last has weights of its own where rows meet."""


def one_of_two_workers(rank: int, meeting: str, out: str) -> None:
    """Two steps of every objective in every shape; saves sums and gradients. A deadlock ends after a minute."""
    limit = datetime.timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2, timeout=limit)
    for name in MEETING:
        coupled = objective(name).eval()
        model = wrap_distributed(coupled)
        for shape, (rows, size) in WORKERS.items():
            half = -(-rows // 2)
            mine = cut(batch(name), size, *((0, half) if rank == 0 else (half, rows)))
            for step in range(2):
                sums, counts = accumulate(model, coupled, config(size, rows), mine, ())
                torch.save((sums, counts, gradients(coupled)), f"{out}.{name}.{shape}.{step}.{rank}")
    dist.destroy_process_group()


def test_two_workers_with_chunks_are_one_worker_without(tmp_path: Path) -> None:
    mp.spawn(one_of_two_workers, args=(str(tmp_path / "meeting"), str(tmp_path / "saved")), nprocs=2)
    for name in MEETING:
        coupled = objective(name).eval()
        for shape, (rows, _) in WORKERS.items():
            sums, expected = trained(coupled, [rows_of(batch(name), 0, rows)], batch_size=rows)
            for step in range(2):
                workers = [torch.load(tmp_path / f"saved.{name}.{shape}.{step}.{rank}") for rank in range(2)]
                torch.testing.assert_close(workers[0][0] + workers[1][0], sums, rtol=1e-9, atol=1e-9)
                assert torch.equal(workers[0][1], workers[1][1])
                for _, _, found in workers:
                    moved = {key: value for key, value in found.items() if key in expected}
                    assert_same(moved, expected, 1e-8)
