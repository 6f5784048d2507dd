"""An estimate as --dry-run prints it."""

from collections.abc import Iterable

from midmask.estimate.charge import Charge
from midmask.estimate.plan import Estimate
from midmask.estimate.prices import priced
from midmask.progress import gib

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
    lines += [_line(plan, kind, [one for one in plan.charges if one.step.name == kind]) for kind in kinds]
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
    """What goes over the network, where the storage is not a disk."""
    found = []
    if (asked := plan.traffic) is not None:
        requests = f"{format_count(asked.writes)} requests that write or list, {format_count(asked.reads)} that read"
        found.append(f"object store: {requests}; {gib(asked.up)} up, {gib(asked.down)} down")
        if asked.exchanged:
            found.append(f"between workers: {gib(asked.exchanged)} of gradients")
    return found


def _cut_trainings(plan: Estimate) -> list[str]:
    """Which trainings compute their rows in several micro-batches, since their device does not hold all of them."""
    found: dict[str, None] = {}
    for charge in plan.charges:
        if charge.training is not None and charge.training.fitting is not None:
            rows, share = charge.training.at_once(plan.workers), charge.training.share(plan.workers)
            found[f"  micro-batch in {charge.step.name}: {rows} of {share} rows at once, which fit into memory"] = None
    return list(found)


def _line(plan: Estimate, name: str, charges: Iterable[Charge]) -> str:
    own = list(charges)
    memory = max(charge.memory.total if charge.memory else plan.index_of_a_device(charge) for charge in own)
    hours = sum(plan.hours(charge) for charge in own)
    cells = (
        str(len(own)),
        format_count(sum(one.tokens for one in own)),
        format_count(sum(one.flops for one in own)),
        gib(memory) if memory else "",
        gib(sum(one.bytes for one in own)),
        f"{hours:,.2f}" if hours >= 0.005 else "<0.01",
    )
    return f"  {name:<16}" + "".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, COLUMNS, strict=True))


def warnings(plan: Estimate) -> list[str]:
    """What can be done, but should be known."""
    found = []
    if plan.total_hours > SLOW_HOURS:
        found.append(f"slow: {lasting(plan.total_hours)} on {plan.shape}, of which {slowest(plan)}")
    if plan.free is not None and plan.peak_bytes > plan.free:
        found.append(f"storage: {gib(plan.peak_bytes)} are needed, {gib(plan.free)} are free; name another --storage")
    return found


def slowest(plan: Estimate) -> str:
    """The step that takes longest, and how long."""
    worst = max(plan.charges, key=plan.hours)
    return f"{worst.step.name} {worst.step.fingerprint} alone takes {lasting(plan.hours(worst))}"


def format_count(count: float) -> str:
    """1.2M, 3.4T, 5.6E; nothing for nothing."""
    for unit, size in (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:,.1f}{unit}"
    return f"{count:.0f}" if count else ""


def lasting(hours: float) -> str:
    """Hours as people read them: 3.5 hours, 4.2 days."""
    return f"{hours / 24:,.1f} days" if hours >= 48 else f"{hours:,.1f} hours"
