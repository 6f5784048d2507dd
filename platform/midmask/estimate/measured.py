"""What this machine has made of its trainings so far, from the records that lie in a storage."""

from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from typing import Any

from midmask.artifact import RECORD, Artifact, Place, load
from midmask.encoders.backbone import BackboneConfig
from midmask.errors import UserError
from midmask.estimate.devices import Shape, gain
from midmask.estimate.trainings import read_lengths, training
from midmask.experiment.kinds import KINDS

LONG_ENOUGH = 15.0
"""Seconds: a shorter training tells mostly how long it takes to begin, which on Ray is 3 to 5 s."""
LOOKED_AT = 4
"""Finished trainings of each kind that are looked at: those whose fingerprints come first, a sample by chance."""


def apply_measured_utilisation(shape: Shape, storage: Place) -> Shape:
    """The shape with the utilisation that finished trainings in the storage reached on devices of its kind, the median
    of them, since some ran beside other work; the shape itself if there are none."""
    found = [flops / seconds for kind, flops, seconds in finished_trainings(storage) if kind == shape.device.kind]
    if not found:
        return shape
    rate = median(found)
    note = f"{len(found)} finished training{'s' if len(found) > 1 else ''} in {storage}"
    return replace(shape, device=replace(shape.device, utilisation=rate / shape.device.peak, measured=note))


def finished_trainings(storage: Place) -> Iterator[tuple[str, float, float]]:
    """Of each training that is long enough: kind of device, FLOPs, and seconds times devices (of CPUs: cores, and as
    many seconds as it takes in fp32).
    """
    for name in (kind.name for kind in KINDS.values() if kind.trains):
        places = [storage / name / own for own in (storage / name).names()[:LOOKED_AT]]
        for place in places:
            if (place / RECORD).exists() and (one := _measure_training(name, load(place))) is not None:
                yield one


def _measure_training(name: str, done: Artifact) -> tuple[str, float, float] | None:
    """None for a training that is too short, or whose record or model is of an older form."""
    result: dict[str, Any] = done.result
    try:
        config: Any = KINDS[name].config.model_validate(done.record["config"])
        seconds, workers = float(result["seconds"]), int(result["workers"])
        if seconds < LONG_ENOUGH:
            return None
        encoder = BackboneConfig(name=str((done.place / "model").local()))
        kind, steps = str(result["device"]), int(result["steps"])
        own = training(config, encoder, 0, read_lengths(config, result), steps, kind=kind)
    except (KeyError, ValueError, UserError):
        return None
    cores = int(result["threads"]) if kind == "cpu" else 1
    in_fp32 = seconds * workers * cores * gain(kind, bf16=config.train.precision == "bf16")
    return kind, own.flops(workers), in_fp32
