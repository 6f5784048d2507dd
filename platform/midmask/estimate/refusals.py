"""An estimate as --dry-run prints it, and the refusal of a plan that could never run.

A plan that asks for more than a cluster shape has, for which Ray would wait without a word, is refused with the sum and
the smallest change that would make it fit.
"""

import math
from collections.abc import Iterable

from midmask.core.words import gib, hours_or_days
from midmask.errors import UserError
from midmask.estimate.devices import DEVICES
from midmask.estimate.plan import Charge, Estimate
from midmask.estimate.trainings import Training

SLOW_HOURS = 24
COLUMNS = (("times", 6), ("tokens", 9), ("a device", 12), ("storage", 12), ("hours", 11))


def as_text(plan: Estimate) -> str:
    """A line for each kind of step that is left, and the sum; then memory, storage and what to beware of."""
    lines = [f"estimate on {plan.shape}:", f"  {_pace(plan)}", *(f"  {line}" for line in plan.volumes)]
    if plan.cached:
        lines.append(f"  {plan.cached} steps are cached and cost nothing")
    if not plan.charges:
        return "\n".join([*lines, "  nothing is left to compute"])
    lines.append(f"  {'step':<16}" + "".join(f"{name:>{width}}" for name, width in COLUMNS))
    kinds = dict.fromkeys(charge.step.name for charge in plan.charges)
    lines += [_line(kind, [each for each in plan.charges if each.step.name == kind]) for kind in kinds]
    lines.append(_line("in all", plan.charges))
    trainings = {charge.step.name: charge.training for charge in plan.charges if charge.training is not None}
    for name, training in trainings.items():
        cut = f"{training.at_once} of {training.share} rows at once" + ", which fit" * (
            training.at_once < training.share
        )
        lines.append(f"  memory of a device in {name}, {cut}: {training.memory}")
    held = max(plan.charges, key=lambda charge: charge.host)
    if held.host:
        lines.append(f"  memory of the host in {held.step.name}: {gib(held.host)}")
    lines.append(f"  peak storage, including temporary checkpoints: {gib(plan.peak_bytes)}")
    return "\n".join([*lines, *(f"  warning: {warning}" for warning in warnings(plan))])


def _pace(plan: Estimate) -> str:
    device = plan.shape.device
    is_measured = plan.shape.label and device.kind == "cpu"
    told = "as this machine multiplies" if is_measured else "as stated in midmask/estimate/devices.py"
    source = f"as {plan.paces} finished trainings" if plan.paces else told
    rate = (
        f"{_count(device.rate(bf16=device.kind == 'cuda'))} FLOP/s {'a core' if device.kind == 'cpu' else 'a device'}"
    )
    trainings = f"{plan.at_once} side by side" if plan.at_once > 1 else "one after another"
    return f"{rate}, {source}; trainings {trainings}, {plan.workers} worker{'s' if plan.workers > 1 else ''} each"


def _line(name: str, charges: Iterable[Charge]) -> str:
    of_kind = list(charges)
    memory = max(each.training.memory.total if each.training else each.index for each in of_kind)
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


def warnings(plan: Estimate) -> list[str]:
    """Warnings of a plan that is possible but slow, or short of storage."""
    lines = []
    if plan.total_hours > SLOW_HOURS:
        lines.append(f"slow: {hours_or_days(plan.total_hours)} on {plan.shape}, of which {_slowest(plan)}")
    if plan.free is not None and plan.peak_bytes > plan.free:
        lines.append(f"storage: {gib(plan.peak_bytes)} are needed, {gib(plan.free)} are free; name another --storage")
    return lines


def _slowest(plan: Estimate) -> str:
    """The step that takes longest, and how long."""
    worst = max(plan.charges, key=lambda charge: charge.hours)
    return f"{worst.step.name} {worst.step.fingerprint} alone takes {hours_or_days(worst.hours)}"


CPU_DAYS = 7
"""A plan of more days without a GPU is refused."""
CPUS_PER_WORKER = 0.5
"""The least that a training worker and its reading task are given (`backend.worker_group.worker_cpus`)."""


def refuse_impossible(plan: Estimate) -> None:
    """Raises UserError, with the sum, for more workers than devices have room for, a share of a batch or an index that
    does not fit into a device's or the host's memory, or more than `CPU_DAYS` without a GPU."""
    trainings = [(charge.step, charge.training) for charge in plan.charges if charge.training is not None]
    if trainings:
        _refuse_too_many_workers(plan)
    for step, training in trainings:
        _refuse_too_large(plan, step.name, step.path, training)
    for charge in plan.charges:
        _refuse_index(plan, charge)
    if plan.shape.device.kind == "cpu" and plan.total_hours > 24 * CPU_DAYS:
        raise UserError(
            f"--on {plan.shape}: {hours_or_days(plan.total_hours)} without a GPU, of which {_slowest(plan)}; name GPUs "
            "such as --on 8xH100, or set a smaller backbone.name, fewer pretrain.steps or fewer stages"
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


def _refuse_too_large(plan: Estimate, name: str, path: str, training: Training) -> None:
    """Workers on CPUs share their machine's memory; each GPU has its own."""
    together = plan.workers * plan.at_once if training.room is None else 1
    room = training.limit or (plan.shape.ram or math.inf) / together
    memory, rows = training.memory, training.at_once
    if memory.total <= room:
        return
    needed = "1 row at once needs" if rows == 1 else f"{rows} rows at once need"
    shared = f" for each of {together} that share the memory" if together > 1 else ""
    raise UserError(
        f"{name} on {plan.shape}: {needed} {gib(memory.total)} ({memory}), and there are {gib(room)}{shared}; "
        f"{_advice(path, training, room)}"
    )


def _advice(path: str, training: Training, room: float) -> str:
    """Advice on what to set so that a training fits, or the smallest device that has room for one row."""
    if fitting := training.fitting(room):
        return f"set {path}.micro_batch={fitting} or less"
    advice = "not even one row fits; take a smaller backbone, or shorter rows"
    least = training.memory_of(1).total
    enough = [device for device in DEVICES.values() if device.room is not None and device.room >= least]
    if not enough:
        return advice
    smallest = min(enough, key=lambda device: device.room or 0)
    return f"{advice}, or --on 1x{smallest.name}, which holds one"


def _refuse_index(plan: Estimate, charge: Charge) -> None:
    """A dense index on GPUs is shared by them; on the host it is there whole, as are words; of BM25's, the ids."""
    shape, name = plan.shape, charge.step.name
    room = shape.device.room or 0.0
    if charge.index > room:
        enough = shape.count * -(-charge.index // room)
        raise UserError(
            f"{name} on {shape}: the index of all passages takes {gib(charge.index)} on each GPU, and there are "
            f"{gib(room)}; use --on {enough:.0f}x{shape.device.name} or more, a compressed evaluation.index (and "
            "stages.N.mine.index) such as IVF65536,PQ64, or a smaller representation.width"
        )
    if shape.ram is not None and charge.host > shape.ram:
        smaller = (
            "" if name.startswith("bm25") else "a compressed evaluation.index such as IVF65536,PQ64, fewer words, "
        )
        raise UserError(
            f"{name} on {shape}: it holds {gib(charge.host)} in the host's memory, and there are {gib(shape.ram)}; use "
            f"{smaller}a machine with more memory, or fewer passages (corpus.max_passages)"
        )
