"""The cost of a plan on a cluster shape, step by step. Finished steps, and steps that only they need, cost nothing.

Where the storage has records of trainings on this machine, the utilisation that they reached is used. Of an object
store, each step writes its artifact once and reads it back once, to state its digests; it reads each of its inputs
once, in requests of 8 MiB at most. Leases, lists of names and records come with every step, whatever its size. A node
beside the first fetches models, tokenizers and whole indexes for itself, which is not in the sum.
"""

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from midmask.encoders.backbone import BackboneConfig
from midmask.errors import UserError
from midmask.estimate.charges import Charge, Charges
from midmask.estimate.devices import Shape, gain, this_machine
from midmask.estimate.rates import WHOLE
from midmask.estimate.trainings import read_lengths, training
from midmask.estimate.volumes import Volumes
from midmask.experiment.graph import Step
from midmask.experiment.kinds import KINDS
from midmask.store.artifact import Artifact, load
from midmask.store.digests import RECORD
from midmask.store.place import READ_AT_ONCE, Place

LONG_ENOUGH = 15.0
"""Seconds: a shorter training tells mostly how long it takes to begin, which on Ray is 3 to 5 s."""
LOOKED_AT = 4
"""Finished trainings of each kind that are read: the first by fingerprint, which is a random sample."""


def apply_measured_utilisation(shape: Shape, storage: Place) -> Shape:
    """The shape with the utilisation that finished trainings in the storage reached on devices of its kind, the median
    of them, since some ran beside other work; the shape itself if there are none."""
    rates = [flops / seconds for kind, flops, seconds in finished_trainings(storage) if kind == shape.device.kind]
    if not rates:
        return shape
    rate = median(rates)
    note = f"{len(rates)} finished training{'s' if len(rates) > 1 else ''} in {storage}"
    return replace(shape, device=replace(shape.device, utilisation=rate / shape.device.peak, measured=note))


def finished_trainings(storage: Place) -> Iterator[tuple[str, float, float]]:
    """(kind of device, FLOPs, seconds times devices) of each training that is long enough. On CPUs the devices are
    cores, and the seconds those of fp32.
    """
    for name in (kind.name for kind in KINDS.values() if kind.trains):
        places = [storage / name / fingerprint for fingerprint in (storage / name).names()[:LOOKED_AT]]
        for place in places:
            if (place / RECORD).exists() and (measured := _measure_training(name, load(place))) is not None:
                yield measured


def _measure_training(name: str, done: Artifact) -> tuple[str, float, float] | None:
    """One row of `finished_trainings`; None if the training is too short, or its record or model has an older form."""
    result: dict[str, Any] = done.result
    try:
        config: Any = KINDS[name].config.model_validate(done.record["config"])
        seconds, workers = float(result["seconds"]), int(result["workers"])
        if seconds < LONG_ENOUGH:
            return None
        encoder = BackboneConfig(name=str((done.place / "model").local()))
        kind, steps = str(result["device"]), int(result["steps"])
        counted = training(config, encoder, 0, read_lengths(config, result), steps, kind=kind)
    except (KeyError, ValueError, UserError):
        return None
    cores = int(result["threads"]) if kind == "cpu" else 1
    in_fp32 = seconds * workers * cores * gain(kind, bf16=config.train.precision == "bf16")
    return kind, counted.flops(workers), in_fp32


WRITES, READS = 60, 100
"""Requests of a step that go with few bytes: counted 37 to 125 that write or list, and 40 to 380 that read
(docs/results/scale.md)."""


@dataclass(frozen=True)
class Traffic:
    """Requests to an object store and bytes over the network."""

    writes: float  # requests, as stores bill them; a list counts as a write
    reads: float  # requests
    up: float  # bytes to the store
    down: float  # bytes from the store
    exchanged: float  # bytes that training workers send each other


def traffic(charges: Iterable[Charge], volumes: Volumes, workers: int) -> Traffic:
    """The traffic of all unfinished steps on an object store.

    Args:
        workers: of a training.
    """
    left = list(charges)
    sizes = {charge.step.fingerprint: charge.bytes for charge in left}
    written = sum(sizes.values())
    inputs = [source for charge in left for source in charge.step.inputs.values()]
    for source in inputs:
        if source.fingerprint not in sizes:  # finished; asked for once, though several steps read it
            sizes[source.fingerprint] = volumes.size(source)
    read = sum(sizes[source.fingerprint] for source in inputs)
    return Traffic(
        writes=WRITES * len(left) + written / READ_AT_ONCE,
        reads=READS * len(left) + (written + read) / READ_AT_ONCE,
        up=written,
        down=written + read,
        exchanged=sum(_exchanged(charge, workers) for charge in left),
    )


def _exchanged(charge: Charge, workers: int) -> float:
    """Bytes of gradients that all workers send in a training: each 2 (W - 1) / W of them in a step, as rings do."""
    if charge.training is None:
        return 0.0
    return 2.0 * (workers - 1) * WHOLE * charge.training.counted.parameters * charge.training.steps


@dataclass(frozen=True)
class Estimate:
    """The cost of all steps that are still to be computed."""

    shape: Shape
    workers: int  # of a training
    at_once: int  # trainings side by side
    charges: tuple[Charge, ...]
    cached: int  # number of finished steps
    volumes: tuple[str, ...]  # a line for each collection and for each assumption
    free: int | None  # bytes on the storage's disk; None if it is no disk
    traffic: Traffic | None  # None if the storage is a disk

    @property
    def total_hours(self) -> float:
        return sum(self.hours(charge) for charge in self.charges)

    @property
    def total_bytes(self) -> float:
        return sum(charge.bytes for charge in self.charges)

    @property
    def peak_bytes(self) -> float:
        """The largest number of bytes in the storage at a time, beside those that were there before."""
        return self.total_bytes + max((charge.peak_bytes for charge in self.charges), default=0.0)

    def hours(self, charge: Charge) -> float:
        """Hours of one step; where trainings run side by side, its share of the cluster's time. Trainings have as many
        GPUs as workers, other steps with FLOPs have all; on CPUs every step has all cores. No training takes less than
        its host needs to issue its operators."""
        device, devices = self.shape.device, self.shape.count
        if charge.training is not None and device.kind == "cuda":
            devices = self.workers * self.at_once
        cores = self._cores(charge)
        rate = (device.fp32_rate if charge.fp32 else device.rate) * gain(device.kind, bf16=charge.bf16)
        seconds = charge.flops / (devices * rate)
        if charge.training is not None:
            seconds = max(seconds, charge.training.floor_seconds(self.workers) / self.at_once)
        return (seconds + charge.alone_seconds + charge.core_seconds / cores) / 3600

    def _cores(self, charge: Charge) -> int:
        """How many cores work on a step."""
        if charge.by_workers:
            return min(self.workers, self.shape.cores)
        return 1 if charge.one_core else self.shape.cores

    def host(self, charge: Charge) -> float:
        """Bytes of the host's memory, of all processes of a step."""
        return charge.host + charge.host_of_a_core * self._cores(charge)

    def index_of_a_device(self, charge: Charge) -> float:
        """Bytes of a search's index on each GPU: all share it, but for searches side by side, which have one each."""
        return charge.index / max(1, self.shape.count // self.at_once)


def estimate(
    targets: Iterable[Step],
    storage: Place,
    shape: Shape | None = None,
    *,
    workers: int | None = None,
    per_training: int | None = None,
    side_by_side: bool = False,
) -> Estimate:
    """The cost of these steps and of the unfinished steps that they need.

    Args:
        shape: of the cluster; none: this machine, by what finished trainings in the storage made of it.
        workers: trainings at once if `side_by_side`, as in sweeps and benchmarks, else processes of a training; none:
            as many as there are GPUs, or one where there is none (side by side: as there are cores).
        per_training: processes of a training, each with one device, or core, to itself; none: one if `side_by_side`,
            else as `workers` says.
    """
    cluster = shape or apply_measured_utilisation(this_machine(), storage)
    every = cluster.count if cluster.device.kind == "cuda" or side_by_side else 1
    count = per_training or (1 if side_by_side else workers or every)
    at_once = (workers or max(1, every // count)) if side_by_side else 1
    charges = Charges(storage, cluster.device.kind, count, cluster.device.room)
    left: dict[str, Step] = {}
    seen: set[str] = set()
    for target in targets:
        _collect_missing(target, storage, left, seen)
    costs = tuple(charges.of(step) for step in left.values())
    facts = dict.fromkeys(_volume(charges, step) for step in left.values())
    free = shutil.disk_usage(_nearest_folder(storage)).free if storage.is_path else None
    requests = None if storage.is_path else traffic(costs, charges.volumes, count)
    volumes = (*(fact for fact in facts if fact), *charges.notes)
    return Estimate(cluster, count, at_once, costs, len(seen) - len(left), volumes, free, requests)


def _collect_missing(step: Step, storage: Place, left: dict[str, Step], seen: set[str]) -> None:
    """Adds the steps to compute to `left`: inputs first, none upstream of a finished step."""
    if step.fingerprint in seen:
        return
    seen.add(step.fingerprint)
    if step.is_finished(storage):
        return
    for source in step.sources().values():
        _collect_missing(source, storage, left, seen)
    left[step.fingerprint] = step


def _volume(charges: Charges, step: Step) -> str:
    """The size of a step's collection and the source of that number; empty if the step has no collection."""
    corpus = step if step.name in ("prepare", "join") else step.inputs.get("corpus")
    if corpus is None or corpus.name not in ("prepare", "join"):
        return ""
    volume = charges.volumes.corpus(corpus)
    name = getattr(corpus.config, "name", "") or " + ".join(getattr(corpus.config, "names", ()))
    return f"{name}: {volume.passages:,} passages, {volume.queries:,} queries, {volume.source}"


def _nearest_folder(storage: Place) -> Path:
    """The storage's folder, or its nearest parent that exists."""
    folder = Path(storage.uri).absolute()
    return next(path for path in (folder, *folder.parents) if path.exists())
