"""An estimate as --dry-run prints it, its price in money, and the refusal of a plan that could never run.

Prices are data: `prices.toml` beside this file, or the file that MIDMASK_PRICES names. A plan that asks for more than a
cluster shape has, for which Ray would wait without a word, is refused with the sum.
"""

import math
import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from midmask.core.config import Config, as_user_error
from midmask.core.words import gib, hours_or_days
from midmask.errors import UserError
from midmask.estimate.charges import Charge
from midmask.estimate.devices import DEVICES
from midmask.estimate.plan import Estimate
from midmask.estimate.trainings import Memory
from midmask.training.rehearsal import GIB

PRICES_VARIABLE = "MIDMASK_PRICES"
SHIPPED = Path(__file__).with_name("prices.toml")

Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class StorePrices(Config):
    """Dollars for 1,000 requests that write or list, for 1,000 that read, and for a GiB that stays a month."""

    writes: Dollars
    reads: Dollars
    gib_month: Dollars


class PriceList(Config):
    """Prices of devices and of an object store."""

    source: str  # where the prices are from, and their date
    device_hour: dict[str, Dollars]  # dollars for an hour of one device, by its name in `--on`
    store: StorePrices


def read_prices() -> PriceList:
    """The prices that are in force.

    Raises:
        UserError: if the file that MIDMASK_PRICES names is not there or is no list of prices.
    """
    path = Path(os.environ.get(PRICES_VARIABLE) or SHIPPED)
    where, advice = f"{PRICES_VARIABLE}={path}", f"Copy {SHIPPED} and change what it says."
    try:
        return PriceList.model_validate(tomllib.loads(path.read_text()))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{where}: {error}. {advice}") from None
    except ValidationError as error:
        raise UserError(f"{where}: {as_user_error(error, '')}. {advice}") from None


def priced(plan: Estimate) -> str:
    """A line with the sum of a plan on named devices; empty for this machine, and for CPUs without a price."""
    if plan.shape.label:
        return ""
    prices, device = read_prices(), plan.shape.device.name
    each = {name.lower(): price for name, price in prices.device_hour.items()}.get(device.lower())
    if each is None:
        if plan.shape.device.kind == "cpu":
            return ""
        return f"price: none is known for {device}; write one into a copy of {SHIPPED} and name it in {PRICES_VARIABLE}"
    hours = plan.total_hours * plan.shape.count
    parts = [f"{hours * each:,.2f} USD for {hours:,.1f} hours of one {device} at {each:g}"]
    if plan.traffic is not None:
        request_price = (prices.store.writes * plan.traffic.writes + prices.store.reads * plan.traffic.reads) / 1000
        month = prices.store.gib_month * plan.total_bytes / GIB
        parts += [f"{request_price:,.2f} for requests", f"{month:,.2f} for each month in the store"]
    return f"price: {', '.join(parts)} ({prices.source})"


SLOW_HOURS = 24
COLUMNS = (("times", 6), ("tokens", 9), ("FLOPs", 9), ("a device", 12), ("storage", 12), ("hours", 11))


def as_text(plan: Estimate) -> str:
    """A line for each kind of step that is left, and the sum; then memory, storage and what to beware of."""
    lines = [f"estimate on {plan.shape}:", f"  {_device(plan)}", *(f"  {line}" for line in plan.volumes)]
    if plan.cached:
        lines.append(f"  {plan.cached} steps are cached and cost nothing")
    if not plan.charges:
        return "\n".join([*lines, "  nothing is left to compute"])
    lines.append(f"  {'step':<16}" + "".join(f"{name:>{width}}" for name, width in COLUMNS))
    kinds = dict.fromkeys(charge.step.name for charge in plan.charges)
    lines += [_line(plan, kind, [each for each in plan.charges if each.step.name == kind]) for kind in kinds]
    lines.append(_line(plan, "in all", plan.charges))
    lines += _cut_trainings(plan)
    largest = max(plan.charges, key=lambda charge: charge.memory.total if charge.memory else 0.0)
    if largest.memory and largest.training:
        rows = largest.training.at_once(plan.workers)
        lines.append(f"  memory of a device in {largest.step.name}, {rows} rows at once: {largest.memory}")
    held = max(plan.charges, key=plan.host)
    if plan.host(held):
        lines.append(f"  memory of the host in {held.step.name}: {gib(plan.host(held))}")
    lines.append(f"  peak storage, including temporary checkpoints: {gib(plan.peak_bytes)}")
    lines += [f"  {line}" for line in (*_traffic(plan), priced(plan)) if line]
    return "\n".join([*lines, *(f"  warning: {warning}" for warning in warnings(plan))])


def _device(plan: Estimate) -> str:
    device = plan.shape.device
    source = f"the median of {device.measured}" if device.measured else "as stated in midmask/estimate/devices.py"
    each = "a core" if device.kind == "cpu" else "a device"
    share = f"{device.utilisation:.0%} of {format_count(device.peak)}, {source}"
    trainings = f"{plan.at_once} side by side" if plan.at_once > 1 else "one after another"
    workers = f"{plan.workers} worker{'s' if plan.workers > 1 else ''} each"
    return f"{format_count(device.rate)} FLOP/s {each} ({share}); trainings {trainings}, {workers}"


def _traffic(plan: Estimate) -> list[str]:
    """Lines on the traffic over the network; none if the storage is a disk."""
    lines = []
    if (sums := plan.traffic) is not None:
        requests = f"{format_count(sums.writes)} requests that write or list, {format_count(sums.reads)} that read"
        lines.append(f"object store: {requests}; {gib(sums.up)} up, {gib(sums.down)} down")
        if sums.exchanged:
            lines.append(f"between workers: {gib(sums.exchanged)} of gradients")
    return lines


def _cut_trainings(plan: Estimate) -> list[str]:
    """Which trainings compute their rows in several micro-batches, since their device does not hold all of them."""
    lines: dict[str, None] = {}
    for charge in plan.charges:
        if charge.training is not None and charge.training.fitting is not None:
            rows, share = charge.training.at_once(plan.workers), charge.training.share(plan.workers)
            lines[f"  micro-batch in {charge.step.name}: {rows} of {share} rows at once, which fit into memory"] = None
    return list(lines)


def _line(plan: Estimate, name: str, charges: Iterable[Charge]) -> str:
    of_kind = list(charges)
    memory = max(charge.memory.total if charge.memory else plan.index_of_a_device(charge) for charge in of_kind)
    hours = sum(plan.hours(charge) for charge in of_kind)
    cells = (
        str(len(of_kind)),
        format_count(sum(each.tokens for each in of_kind)),
        format_count(sum(each.flops for each in of_kind)),
        gib(memory) if memory else "",
        gib(sum(each.bytes for each in of_kind)),
        f"{hours:,.2f}" if hours >= 0.005 else "<0.01",
    )
    return f"  {name:<16}" + "".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, COLUMNS, strict=True))


def warnings(plan: Estimate) -> list[str]:
    """Warnings of a plan that is possible but slow, or short of storage."""
    lines = []
    if plan.total_hours > SLOW_HOURS:
        lines.append(f"slow: {hours_or_days(plan.total_hours)} on {plan.shape}, of which {slowest(plan)}")
    if plan.free is not None and plan.peak_bytes > plan.free:
        lines.append(f"storage: {gib(plan.peak_bytes)} are needed, {gib(plan.free)} are free; name another --storage")
    return lines


def slowest(plan: Estimate) -> str:
    """The step that takes longest, and how long."""
    worst = max(plan.charges, key=plan.hours)
    return f"{worst.step.name} {worst.step.fingerprint} alone takes {hours_or_days(plan.hours(worst))}"


def format_count(count: float) -> str:
    """1.2M, 3.4T, 5.6E; nothing for nothing."""
    for unit, size in (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:,.1f}{unit}"
    return f"{count:.0f}" if count else ""


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
            f"take {hours_or_days(plan.total_hours)} without a GPU, of which {slowest(plan)}; name GPUs such as --on "
            "8xH100, or set a smaller backbone.name, fewer pretrain.steps or fewer stages"
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
    """Advice on what to set so that a training fits, or the smallest device that has room for one row."""
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
    shape, share, name = plan.shape, plan.index_of_a_device(charge), charge.step.name
    room = shape.device.room or 0.0
    if charge.index and share > room:
        enough = shape.count * -(-share // room)
        raise UserError(
            f"{name} on {shape}: the index of all passages takes {gib(charge.index)}, {gib(share)} on each GPU, and "
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
