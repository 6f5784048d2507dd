"""Plans that could never run on a cluster shape, which Ray would wait for without a word: refused with the sum."""

import math

from midmask.errors import UserError
from midmask.estimate.charge import Charge
from midmask.estimate.devices import DEVICES
from midmask.estimate.memory import Memory
from midmask.estimate.plan import Estimate
from midmask.estimate.rendering import format_count, lasting, slowest
from midmask.progress import gib

CPU_DAYS = 7
"""A plan of more days without a GPU is refused."""
CPUS_PER_WORKER = 0.5
"""The least that a training worker and its reading task are given (`backend.worker_group.worker_cpus`)."""


def refuse_impossible(plan: Estimate) -> None:
    """Raises UserError, with the sum, for more workers than devices have room for, a share of a batch or an index that
    does not fit into a device's or the host's memory, or more than `CPU_DAYS` without a GPU."""
    trainings = [charge for charge in plan.charges if charge.training is not None]
    if trainings:
        _refuse_too_many_workers(plan)
    for charge in trainings:
        _refuse_too_large(plan, charge)
    for charge in plan.charges:
        _refuse_index(plan, charge)
    if plan.shape.device.kind == "cpu" and plan.total_hours > 24 * CPU_DAYS:
        flops = format_count(sum(charge.flops for charge in plan.charges))
        raise UserError(
            f"--on {plan.shape}: {flops} FLOPs at {format_count(plan.shape.rate)} FLOP/s and the work of CPU cores "
            f"take {lasting(plan.total_hours)} without a GPU, of which {slowest(plan)}; name GPUs such as --on 8xH100, "
            "or set a smaller backbone.name, fewer pretrain.steps or fewer stages"
        )


def _refuse_too_many_workers(plan: Estimate) -> None:
    shape, workers = plan.shape, plan.workers * plan.at_once
    if shape.device.kind == "cuda" and workers > shape.count:
        raise UserError(
            f"--workers {workers}: one GPU each, {workers} in all, and {shape} has {shape.count}; use --workers "
            f"{shape.count} or fewer, or name a larger shape"
        )
    if shape.device.kind == "cpu" and workers * CPUS_PER_WORKER > shape.cores:
        raise UserError(
            f"--workers {workers}: each needs at least {CPUS_PER_WORKER} CPUs with its reading task, "
            f"{workers * CPUS_PER_WORKER:g} in all, and {shape} has {shape.cores}; use --workers "
            f"{int(shape.cores / CPUS_PER_WORKER)} or fewer"
        )


def _refuse_too_large(plan: Estimate, charge: Charge) -> None:
    """Workers on CPUs share their machine's memory; each GPU has its own."""
    device, memory = plan.shape.device, charge.memory
    if memory is None or charge.training is None:
        return
    together = plan.workers * plan.at_once if device.room is None else 1
    room = charge.training.room(device.room) or (plan.shape.ram or math.inf) / together
    if memory.total <= room:
        return
    rows = charge.training.at_once(plan.workers)
    needed = "1 row at once needs" if rows == 1 else f"{rows} rows at once need"
    shared = f" for each of {together} that share the memory" if together > 1 else ""
    raise UserError(
        f"{charge.step.name} on {plan.shape}: {needed} {gib(memory.total)} ({memory}), and there are "
        f"{gib(room)}{shared}; {_advice(charge, memory, rows, room)}"
    )


def _advice(charge: Charge, memory: Memory, rows: int, room: float) -> str:
    """What to set so that a training fits, or the smallest device that has room for one row."""
    field = f"{charge.step.path}.micro_batch"
    if (fitting := memory.fitting(rows, room)) >= 1:
        return f"set {field}={fitting} or less"
    assert charge.training is not None
    helps = not charge.training.train.recompute and memory.total - memory.activations < room
    again = f"set {charge.step.path}.recompute=true, or " if helps else ""
    advice = f"not even one row fits; {again}take a smaller backbone, or shorter rows"
    least = memory.total - memory.activations * (1 - 1 / rows)
    enough = [device for device in DEVICES.values() if device.room is not None and device.room >= least]
    if not enough:
        return advice
    smallest = min(enough, key=lambda device: device.room or 0)
    return f"{advice}, or --on 1x{smallest.name}, which holds one"


def _refuse_index(plan: Estimate, charge: Charge) -> None:
    """A dense index on GPUs is shared by them; on the host it is there whole, as are words; of BM25's, the ids."""
    shape, own, name = plan.shape, plan.index_of_a_device(charge), charge.step.name
    room = shape.device.room or 0.0
    if charge.index and own > room:
        enough = shape.count * -(-own // room)
        raise UserError(
            f"{name} on {shape}: the index of all passages takes {gib(charge.index)}, {gib(own)} on each GPU, and "
            f"there are {gib(room)}; use --on {enough:.0f}x{shape.device.name} or more, a compressed evaluation.index "
            "(and stages.N.mine.index) such as IVF65536,PQ64, or a smaller representation.width"
        )
    if shape.ram is not None and charge.host > shape.ram:
        advice = "a machine with more memory, or fewer passages (corpus.max_passages)"
        held = "the ids of its passages take"
        if name != "bm25":
            held = "its index takes"
            advice = f"a compressed evaluation.index such as IVF65536,PQ64, fewer evaluation.passage_terms, or {advice}"
        raise UserError(
            f"{name} on {shape}: {held} {gib(charge.host)} of the host's memory, and there are "
            f"{gib(shape.ram)}; use {advice}"
        )
