"""The gradient cache over two workers with equal and unequal shares."""

import datetime

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from midmask.training.loop import accumulate, wrap_distributed
from tests.support.training.cut import (
    assert_same_gradients,
    batch,
    config,
    coupled_objective,
    cut,
    gradients,
    rows_of,
    trained,
)

WORKERS = {"unequal": (7, 3), "equal": (6, 2), "one of them whole": (7, 4)}
"""Rows a step and a micro-batch; in the first, worker 0 has two micro-batches (3 + 1) and worker 1 has one."""


MEETING = ("cocondenser", "contrastive", "diffcse")
"""The last has weights of its own where rows meet."""


def one_of_two_workers(rank: int, meeting: str, out: str) -> None:
    """Two steps of every objective in every shape; saves sums and gradients. A deadlock ends after a minute."""
    limit = datetime.timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2, timeout=limit)
    for name in MEETING:
        coupled = coupled_objective(name).eval()
        model = wrap_distributed(coupled)
        for shape, (rows, size) in WORKERS.items():
            half = -(-rows // 2)
            mine = cut(batch(name), size, *((0, half) if rank == 0 else (half, rows)))
            for step in range(2):
                sums, counts = accumulate(model, coupled, config(size, rows), mine, ())
                torch.save((sums, counts, gradients(coupled)), f"{out}.{name}.{shape}.{step}.{rank}")
    dist.destroy_process_group()


def test_two_workers_with_chunks_are_one_worker_without(tmp_path):
    mp.spawn(one_of_two_workers, args=(str(tmp_path / "meeting"), str(tmp_path / "saved")), nprocs=2)
    for name in MEETING:
        coupled = coupled_objective(name).eval()
        for shape, (rows, _) in WORKERS.items():
            sums, expected = trained(coupled, [rows_of(batch(name), 0, rows)], batch_size=rows)
            for step in range(2):
                workers = [torch.load(tmp_path / f"saved.{name}.{shape}.{step}.{rank}") for rank in range(2)]
                torch.testing.assert_close(workers[0][0] + workers[1][0], sums, rtol=1e-9, atol=1e-9)
                assert torch.equal(workers[0][1], workers[1][1])
                for _, _, found in workers:
                    moved = {key: value for key, value in found.items() if key in expected}
                    assert_same_gradients(moved, expected, 1e-8)
