"""Runs as worker processes are one run, killed or not; rows at once that follow from a device's memory fit."""

import datetime
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

from midmask.errors import UserError
from midmask.objectives import CoupledObjective, Objective
from midmask.store.place import Place
from midmask.text.vocabulary import Vocabulary
from midmask.training.loop import accumulate, prepare_model
from midmask.training.rehearsal import BESIDE_WEIGHTS, GIB, fit_micro_batch
from midmask.training.setup import TrainingSetup
from tests.support.training import cut as shares
from tests.support.training.runs import assert_same_run, run_here, run_workers, setup_of, spec_of, trace_of

QUIET = {"name": "tiny", "dropout": 0.0}
SPLIT = {**QUIET, "experts": "ffn"}
TUNED = {"kind": "finetune", "objective": {"name": "contrastive"}, "per_query": 1}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "retromae": ("", {"objective": {"name": "retromae"}}, {}),
    "retromae, cut": ("", {"objective": {"name": "retromae"}}, {"micro_batch": 4}),
    "contrastive": ("corpus", TUNED, {}),
    "cocondenser": ("spans", {"objective": {"name": "cocondenser", "temperature": 20.0}}, {"micro_batch": 7}),
    "cotmote, experts": ("pseudo_queries", {"objective": {"name": "cotmote"}, "backbone": SPLIT}, {}),
    "contrastive, experts": ("corpus", {**TUNED, "backbone": SPLIT}, {}),
    "distil_vectors": ("vectors", {"objective": {"name": "distil_vectors"}}, {"micro_batch": 7}),
}
"""Name -> what is read beside tokens, the run, and what of the training of two differs. Of 15 rows, worker 0 has 8 and
worker 1 has 7: with micro-batches of 7, two and one."""


@pytest.mark.parametrize("name", CASES)
def test_two_workers_are_one_worker(tokens, tmp_path, name, request):
    place, changes, of_two = CASES[name]
    places = {place: str(request.getfixturevalue(place))} if place else {}
    train = {"batch_size": 15, "learning_rate": 3e-4, "steps": 10}
    one, two = (
        spec_of(tokens, tmp_path / out, **{"backbone": QUIET, **places, **changes, "train": {**train, **own}})
        for out, own in (("one", {}), ("two", of_two))
    )
    run_here(one)
    assert run_workers(two, 2, tmp_path) == [0, 0]
    assert_same_run(trace_of(tmp_path / "two"), trace_of(tmp_path / "one"), within=1e-4)


@pytest.mark.parametrize("objective", ["mlm", "retromae"])
def test_a_killed_job_started_again_is_the_same_run(tokens, tmp_path, objective):
    """RetroMAE starts from a folder whose heads a resumed run must not take again."""
    start = {}
    if objective == "retromae":
        run_here(spec_of(tokens, tmp_path / "start", objective={"name": objective}, train={"steps": 4}))
        start = {"start": str(tmp_path / "start")}
    whole, killed = (spec_of(tokens, tmp_path / out, objective={"name": objective}, **start) for out in "ab")
    run_here(whole)
    assert run_workers({**killed, "kill_at": 17}, 1, tmp_path) == [-9]
    run_here(killed)
    trace = trace_of(tmp_path / "b")
    assert_same_run(trace, trace_of(tmp_path / "a"), within=1e-5)
    assert [row["step"] for row in trace if row["first_after_start"]] == [0, 14]
    for name in ("model/model.safetensors", "checkpoint/optimiser.safetensors"):
        ours, theirs = (safetensors.torch.load_file(tmp_path / folder / name) for folder in "ba")
        for key, tensor in theirs.items():
            torch.testing.assert_close(ours[key], tensor, rtol=1e-5, atol=1e-6)


WORKERS = {"unequal": (7, 3), "equal": (6, 2), "one of them whole": (7, 4)}
"""Rows a step and a micro-batch; in the first, worker 0 has two micro-batches (3 + 1) and worker 1 has one."""

MEETING = ("cocondenser", "contrastive", "distil_vectors", "diffcse")
"""The last has weights of its own where rows meet."""


def one_of_two_workers(rank: int, meeting: str, out: str) -> None:
    """Two steps of every objective in every shape; saves sums and gradients. A deadlock ends after a minute."""
    limit = datetime.timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2, timeout=limit)
    for name in MEETING:
        coupled = shares.coupled_objective(name).eval()
        model = prepare_model(coupled)
        for shape, (rows, size) in WORKERS.items():
            half = -(-rows // 2)
            mine = shares.cut(shares.batch(name), size, *((0, half) if rank == 0 else (half, rows)))
            for step in range(2):
                sums, counts = accumulate(model, coupled, shares.config(size, rows), mine, ())
                torch.save((sums, counts, shares.gradients(coupled)), f"{out}.{name}.{shape}.{step}.{rank}")
    dist.destroy_process_group()


def test_two_workers_with_chunks_are_one_worker_without(tmp_path):
    mp.spawn(one_of_two_workers, args=(str(tmp_path / "meeting"), str(tmp_path / "saved")), nprocs=2)
    for name in MEETING:
        coupled = shares.coupled_objective(name).eval()
        for shape, (rows, _) in WORKERS.items():
            sums, expected = shares.trained(coupled, [shares.rows_of(shares.batch(name), 0, rows)], batch_size=rows)
            for step in range(2):
                workers = [torch.load(tmp_path / f"saved.{name}.{shape}.{step}.{rank}") for rank in range(2)]
                torch.testing.assert_close(workers[0][0] + workers[1][0], sums, rtol=1e-9, atol=1e-9)
                assert torch.equal(workers[0][1], workers[1][1])
                for _, _, found in workers:
                    moved = {key: value for key, value in found.items() if key in expected}
                    shares.assert_same_gradients(moved, expected, 1e-8)


CPU = torch.device("cpu")
COUPLED = ("simcse", "contrastive")


def spec(tokens: Place, corpus: Place, out: Path, kind: str, **train: Any) -> dict[str, Any]:
    steps = {"steps": 10, "learning_rate": 3e-4, **train}
    if kind == "contrastive":
        changes = {"kind": "finetune", "objective": {"name": "contrastive"}, "corpus": str(corpus), "per_query": 1}
        return spec_of(tokens, out, backbone=QUIET, train=steps, **changes)
    backbone = {**QUIET, "dropout": 0.1} if kind == "simcse" else QUIET
    return spec_of(tokens, out, backbone=backbone, train=steps, objective={"name": kind})


def fitted(setup: TrainingSetup, room: float) -> int | None:
    """With so many bytes for what the forward pass keeps."""
    _, objective, vocabulary = setup.build()
    limit = (room + (4 + BESIDE_WEIGHTS) * sum(parameter.numel() for parameter in objective.parameters())) / GIB
    limited = setup.__class__(**{**vars(setup), "train": setup.train.model_copy(update={"memory_gib": limit})})
    return fit_micro_batch(objective.train(), limited, vocabulary, CPU)


def kept_bytes(module: nn.Module, work: Callable[[], object]) -> int:
    """Bytes of the tensors that a forward pass keeps for the backward pass, each storage once, without the weights."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    kept: dict[int, tuple[int, Tensor]] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        work()
    return sum(size for size, _ in kept.values())


def kept(setup: TrainingSetup, objective: Objective, words: Vocabulary, rows: int) -> int:
    batch = setup.longest_rows(rows, words)
    return kept_bytes(objective, lambda: objective(objective.draw(batch)))


def cached(setup: TrainingSetup, objective: Objective, words: Vocabulary, rows: int) -> int:
    """Bytes of all rows' vectors and of their gradients."""
    assert isinstance(objective, CoupledObjective)
    with torch.no_grad():
        made = objective.represent(objective.draw(setup.longest_rows(rows, words)))
    return 2 * sum(vector.nbytes for vector in made.vectors)


@pytest.mark.parametrize("kind", ["dupmae", "contrastive"])
def test_what_is_said_to_fit_does_and_in_fewer_pieces_it_would_not(tokens, corpus, tmp_path, kind):
    setup = setup_of(spec(tokens, corpus, tmp_path, kind))
    _, objective, words = setup.build()
    objective.train()
    share = setup.train.batch_size
    needs = {rows: kept(setup, objective, words, rows) for rows in (1, 4, 5, 7, 8, 12, share)}
    assert fitted(setup, 1.2 * needs[share]) is None, "the whole share fits"
    for rows in (5, 7, 12):
        room = 1.005 * needs[rows]
        micro_batch = fitted(setup, room)
        beside = cached(setup, objective, words, share) if kind in COUPLED else 0
        assert kept(setup, objective, words, micro_batch) + beside <= room
        pieces = -(-share // micro_batch)
        assert pieces <= -(-share // rows) + (kind in COUPLED), "what is cached takes room too"
    with pytest.raises(UserError, match=r"one row of the training keeps .* GiB beside the weights, and there are"):
        fitted(setup, 0.5 * needs[1])


@pytest.mark.parametrize("kind", COUPLED)
def test_vectors_of_all_rows_lie_beside_what_a_piece_keeps(tokens, corpus, tmp_path, kind):
    """Half of the share would fit to the byte, if nothing else were there."""
    setup = setup_of(spec(tokens, corpus, tmp_path, kind))
    _, objective, words = setup.build()
    half = setup.train.batch_size // 2
    room = 1.00005 * kept(setup, objective.train(), words, half)
    assert cached(setup, objective, words, 2 * half) > 0.00005 * room
    assert fitted(setup, room) < half


def test_what_is_kept_once_is_not_reckoned_for_each_row(tokens, corpus, tmp_path):
    """The gradient of the output matrix, which is as large as some rows of eight tokens."""
    setup = replace(setup_of(spec(tokens, corpus, tmp_path, "mlm")), longest=8)
    _, objective, words = setup.build()
    assert -(-setup.train.batch_size // fitted(setup, 1.1 * kept(setup, objective.train(), words, 12))) == 2


def test_runs_in_less_memory_and_workers_that_agree_on_a_number_are_the_same_run(tokens, corpus, tmp_path, caplog):
    """Shares of 15 rows, and of 8 and 7; the loss meets all rows, so that both workers must cut or none."""

    def sized(name: str, **train: Any) -> dict[str, Any]:
        return spec(tokens, corpus, tmp_path / name, "contrastive", batch_size=15, **train)

    setup = setup_of(sized("unused"))
    _, objective, words = setup.build()
    parameters = sum(parameter.numel() for parameter in objective.parameters())
    limit = ((4 + BESIDE_WEIGHTS) * parameters + 1.2 * kept(setup, objective.train(), words, 5)) / GIB
    run_here(sized("whole"))
    assert "train.micro_batch" not in caplog.text
    with caplog.at_level(logging.INFO):
        run_here(sized("little", memory_gib=limit))
    assert "of 15 rows at once, which is what fits into memory" in caplog.text
    assert run_workers(sized("two", memory_gib=limit), 2, tmp_path) == [0, 0]
    for name in ("little", "two"):
        assert_same_run(trace_of(tmp_path / name), trace_of(tmp_path / "whole"), within=1e-4)
