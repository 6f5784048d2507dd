"""An estimate as --dry-run prints it, and the refusal of a plan that could never run.

A plan that asks for more than a cluster shape has, for which Ray would wait without a word, is refused with the sum and
the smallest change that would make it fit.
"""

import math
from collections.abc import Iterable

from midmask.core.words import gib
from midmask.errors import UserError
from midmask.estimate.devices import DEVICES
from midmask.estimate.plan import Charge, Estimate
from midmask.estimate.trainings import Training

COLUMNS = (("times", 6), ("tokens", 9), ("a device", 12), ("storage", 12), ("hours", 11))


def as_text(plan: Estimate) -> str:
    """A line for each kind of step that is left, and the sum; then memory and storage, and whether that is there."""
    lines = [f"estimate on {plan.shape}:", f"  {_pace(plan)}", *(f"  {line}" for line in plan.volumes)]
    if plan.cached:
        lines.append(f"  {plan.cached} steps are cached and cost nothing")
    if not plan.charges:
        return "\n".join([*lines, "  nothing is left to compute"])
    lines.append(f"  {'step':<16}" + "".join(f"{name:>{width}}" for name, width in COLUMNS))
    kinds = dict.fromkeys(charge.step.name for charge in plan.charges)
    lines += [_line(kind, [each for each in plan.charges if each.step.name == kind]) for kind in kinds]
    lines.append(_line("in all", plan.charges))
    held = max(plan.charges, key=lambda charge: charge.host)
    if held.host:
        lines.append(f"  memory of the host in {held.step.name}: {gib(held.host)}")
    lines.append(f"  peak storage, including temporary checkpoints: {gib(plan.peak_bytes)}")
    if plan.free is not None and plan.peak_bytes > plan.free:
        needed = f"{gib(plan.peak_bytes)} are needed, {gib(plan.free)} are free"
        lines.append(f"  warning: storage: {needed}; name another --storage")
    return "\n".join(lines)


def _pace(plan: Estimate) -> str:
    device = plan.shape.device
    is_measured = plan.shape.label and device.kind == "cpu"
    fallback = "as this machine multiplies" if is_measured else "as stated in midmask/estimate/devices.py"
    source = f"as {plan.paces} finished trainings" if plan.paces else fallback
    rate = f"{_count(device.rate(bf16=device.kind == 'cuda'))} FLOP/s a {'core' if device.kind == 'cpu' else 'device'}"
    trainings = f"{plan.at_once} side by side" if plan.at_once > 1 else "one after another"
    return f"{rate}, {source}; trainings {trainings}, {plan.workers} worker{'s' if plan.workers > 1 else ''} each"


def _line(name: str, charges: Iterable[Charge]) -> str:
    of_kind = list(charges)
    memory = max(each.training.state if each.training else each.index for each in of_kind)
    hours = sum(each.hours for each in of_kind)
    cells = (
        str(len(of_kind)),
        _count(sum(each.tokens for each in of_kind)),
        gib(memory) if memory else "",
        gib(sum(each.bytes for each in of_kind)),
        f"{hours:,.2f}" if hours >= 0.005 else "<0.01",
    )
    return f"  {name:<16}" + "".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, COLUMNS, strict=True))


def _count(count: float) -> str:
    """1.2M, 3.4T, 5.6E; nothing for nothing."""
    for unit, size in (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:,.1f}{unit}"
    return f"{count:.0f}" if count else ""


CPUS_PER_WORKER = 0.5
"""The least that a training worker and its reading task are given (`backend.worker_group.worker_cpus`)."""


def refuse_impossible(plan: Estimate) -> None:
    """Raises UserError, with the sum, for more workers than devices have room for, or a model or an index that does not
    fit into a device's or the host's memory.
    """
    if any(charge.training for charge in plan.charges):
        _refuse_too_many_workers(plan)
    for charge in plan.charges:
        if charge.training is not None:
            _refuse_too_large(plan, charge.step.name, charge.training)
        _refuse_index(plan, charge)


def _refuse_too_many_workers(plan: Estimate) -> None:
    """Each process of a training has a GPU, or a part of a CPU, to itself."""
    shape, workers = plan.shape, plan.workers * plan.at_once
    has_gpus = shape.device.kind == "cuda"
    needed, room = ("a GPU", shape.count) if has_gpus else ("half a CPU", int(shape.cores / CPUS_PER_WORKER))
    if workers > room:
        raise UserError(
            f"--workers {workers}: each needs at least {needed} to itself, and {shape} has room for {room}; use "
            f"--workers {room} or fewer, or name a larger shape"
        )


def _refuse_too_large(plan: Estimate, name: str, training: Training) -> None:
    """Workers on CPUs share their machine's memory; each GPU has its own."""
    room = plan.shape.device.room or (plan.shape.ram or math.inf) / (plan.workers * plan.at_once)
    if training.state <= room:
        return
    enough = [device for device in DEVICES.values() if device.room is not None and device.room >= training.state]
    smallest = min(enough, key=lambda device: device.room or 0, default=None)
    larger = f", or --on 1x{smallest.name}" if smallest else ""
    raise UserError(
        f"{name} on {plan.shape}: weights, gradients and AdamW's moments take {gib(training.state)}, and a training "
        f"has {gib(room)}; take a smaller backbone.name{larger}"
    )


def _refuse_index(plan: Estimate, charge: Charge) -> None:
    """A dense index on GPUs is shared by them; on the host it is there whole, as are words."""
    shape, name = plan.shape, charge.step.name
    room = shape.device.room or 0.0
    smaller = "a compressed evaluation.index (and stages.N.mine.index) such as IVF65536,PQ64"
    if charge.index > room:
        enough = shape.count * -(-charge.index // room)
        raise UserError(
            f"{name} on {shape}: the index of all passages takes {gib(charge.index)} on each GPU, and there are "
            f"{gib(room)}; use --on {enough:.0f}x{shape.device.name} or more, {smaller}, or a smaller "
            "representation.width"
        )
    if shape.ram is not None and charge.host > shape.ram:
        raise UserError(
            f"{name} on {shape}: it holds {gib(charge.host)} in the host's memory, and there are {gib(shape.ram)}; use "
            f"{smaller}, a machine with more memory, or fewer passages (corpus.max_passages)"
        )
