"""The cost of a plan on a cluster shape, step by step. Finished steps, and steps that only they need, cost nothing."""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from midmask.artifact import Place
from midmask.estimate.charge import Charge
from midmask.estimate.charges import Charges
from midmask.estimate.devices import Shape, gain, this_machine
from midmask.estimate.measured import apply_measured_utilisation
from midmask.estimate.traffic import Traffic, traffic
from midmask.experiment.step import Step


@dataclass(frozen=True)
class Estimate:
    """The charges of all steps that are still to be done. workers: of a training. at_once: trainings side by side.
    cached: steps that are done. volumes: a line for each collection and for what was assumed. free: bytes where the
    storage is, if that is a disk; traffic: if it is not."""

    shape: Shape
    workers: int
    at_once: int
    charges: tuple[Charge, ...]
    cached: int
    volumes: tuple[str, ...]
    free: int | None
    traffic: Traffic | None

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
        """Of one step, or the share of it that a cluster notices where trainings run side by side. Trainings have as
        many GPUs as workers, what else has FLOPs all of them; on CPUs everything has all cores. No training takes less
        than its host needs to issue its operators."""
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
    known = shape or apply_measured_utilisation(this_machine(), storage)
    every = known.count if known.device.kind == "cuda" or side_by_side else 1
    count = per_training or (1 if side_by_side else workers or every)
    at_once = (workers or max(1, every // count)) if side_by_side else 1
    charges = Charges(storage, known.device.kind, count, known.device.room)
    left: dict[str, Step] = {}
    seen: set[str] = set()
    for target in targets:
        _collect_missing(target, storage, left, seen)
    own = tuple(charges.of(step) for step in left.values())
    facts = dict.fromkeys(_volume(charges, step) for step in left.values())
    free = shutil.disk_usage(_nearest_folder(storage)).free if storage.is_path else None
    asked = None if storage.is_path else traffic(own, charges.volumes, count)
    volumes = (*(fact for fact in facts if fact), *charges.notes)
    return Estimate(known, count, at_once, own, len(seen) - len(left), volumes, free, asked)


def _collect_missing(step: Step, storage: Place, left: dict[str, Step], seen: set[str]) -> None:
    """Steps to compute, in the order of `experiment.run.Runner`: inputs first, none behind a finished step."""
    if step.fingerprint in seen:
        return
    seen.add(step.fingerprint)
    if step.is_finished(storage):
        return
    for source in step.sources().values():
        _collect_missing(source, storage, left, seen)
    left[step.fingerprint] = step


def _volume(charges: Charges, step: Step) -> str:
    """How much a collection holds and where that is known from."""
    corpus = step if step.name in ("prepare", "join") else step.inputs.get("corpus")
    if corpus is None or corpus.name not in ("prepare", "join"):
        return ""
    volume = charges.volumes.corpus(corpus)
    name = getattr(corpus.config, "name", "") or " + ".join(getattr(corpus.config, "names", ()))
    return f"{name}: {volume.passages:,} passages, {volume.queries:,} queries, {volume.source}"


def _nearest_folder(storage: Place) -> Path:
    """The first folder on the way to the storage that is there."""
    folder = Path(storage.uri).absolute()
    return next(path for path in (folder, *folder.parents) if path.exists())
